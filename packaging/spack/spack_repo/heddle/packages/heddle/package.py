# SPDX-License-Identifier: BSD-2-Clause
from spack_repo.builtin.build_systems.cmake import CMakePackage, generator

from spack.package import *


class Heddle(CMakePackage):
    """Scalable endpoints for MPI over InfiniBand and RoCE, as a libfabric provider and a C++
    library, and softhca, a software ConnectX to run them on."""

    # The sources are where a site keeps them. It names the place in its packages.yaml:
    #   packages:
    #     heddle:
    #       package_attributes:
    #         git: /shared/src/heddle.git
    # A tree that is checked out needs no address:
    #   spack develop --path /shared/src/heddle heddle@main
    git = "heddle.git"

    license("BSD-2-Clause", checked_by="heddle")

    version("main", branch="main")
    version("0.2.0", tag="v0.2.0")

    # CMake's "Release" would define NDEBUG (see cmake/BuildSettings.cmake).
    variant(
        "build_type",
        default="RelWithDebInfo",
        values=("Debug", "RelWithDebInfo"),
        description="RelWithDebInfo: -O2, with the assertions that are always on",
    )
    variant("unity", default=True, description="Compile several sources as one")
    variant("report", default=False, description="What heddle report draws its pages with")

    generator("ninja")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("cli11", type="build")
    depends_on("nlohmann-json@3.10:", type="build")
    depends_on("tomlplusplus", type="build")
    depends_on("libfabric@1.17:")
    depends_on("rdma-core@44:")
    depends_on("hwloc@2:")
    depends_on("googletest+gmock", type="test")
    depends_on("python@3.9:", type="test")
    depends_on("python@3.9:", type="run", when="+report")
    depends_on("py-matplotlib", type="run", when="+report")

    requires("platform=linux", msg="The verbs interface and its software device are Linux's")
    requires(
        "target=x86_64:",
        "target=aarch64:",
        policy="any_of",
        msg="Heddle runs on x86-64 and aarch64",
    )
    conflicts("%gcc@:11", msg="The sources are C++20; gcc 12 is the oldest that is tested")

    def cmake_args(self):
        return [
            # Debian's folder for libraries is not the one that other packages search.
            self.define("CMAKE_INSTALL_LIBDIR", "lib"),
            self.define("BUILD_TESTING", self.run_tests),
            self.define_from_variant("HEDDLE_UNITY", "unity"),
        ]

    def setup_run_environment(self, env: EnvironmentModifications) -> None:
        env.prepend_path("FI_PROVIDER_PATH", join_path(self.prefix.lib, "libfabric"))
