# SPDX-License-Identifier: BSD-2-Clause
"""The recipes of Spack and EasyBuild: what they say of the project, and what the linters of both say of them."""

import glob
import os
import re
import shutil
import subprocess
import unittest

from harness import BUILD_DIR, SANITIZER, SOURCE_DIR, Case, main

SPACK = os.path.join(SOURCE_DIR, "packaging", "spack", "spack_repo", "heddle")
PACKAGE = os.path.join(SPACK, "packages", "heddle", "package.py")
LMOD = "/usr/share/lmod/lmod/libexec/lmod"  # Debian's, which is not in PATH

# What CMake looks for, and the names of it in Spack and EasyBuild.
DEPENDENCIES = {
    "IBVERBS": ("rdma-core", "OS_PKG_IBVERBS_DEV"),
    "MLX5": ("rdma-core", "OS_PKG_IBVERBS_DEV"),
    "MLX5DV": ("rdma-core", "OS_PKG_IBVERBS_DEV"),
    "HWLOC": ("hwloc", "hwloc"),
    "LIBFABRIC": ("libfabric", "libfabric"),
    "FABRIC": ("libfabric", "libfabric"),
    "CLI11": ("cli11", "CLI11"),
    "nlohmann_json": ("nlohmann-json", "nlohmann_json"),
    "TOMLPLUSPLUS": ("tomlplusplus", "tomlplusplus"),
}


def read(*names):
    with open(os.path.join(SOURCE_DIR, *names), encoding="utf-8") as file:
        return file.read()


def easyconfigs():
    return glob.glob(os.path.join(SOURCE_DIR, "packaging", "easybuild", "*.eb"))


def check(*command, **environment):
    """The output of a linter. A finding fails the test."""
    variables = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=variables,
                          stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


class Recipes(Case):
    def setUp(self):
        super().setUp()
        self.package = read(PACKAGE)
        (self.easyconfig,) = easyconfigs()
        self.easybuild = read(self.easyconfig)
        lists = read("CMakeLists.txt")
        self.version = re.search(r"VERSION (\d+\.\d+\.\d+)", lists)[1]
        self.cmake = re.search(r"cmake_minimum_required\(VERSION ([\d.]+)", lists)[1]

    def test_they_are_python(self):
        compile(self.package, PACKAGE, "exec")
        compile(self.easybuild, self.easyconfig, "exec")

    def test_versions_are_those_of_the_project(self):
        self.assertIn(f'version("{self.version}", tag="v{self.version}")', self.package)
        self.assertIn(f"version = '{self.version}'", self.easybuild)
        self.assertTrue(os.path.basename(self.easyconfig).startswith(f"heddle-{self.version}-"))
        self.assertIn(f'depends_on("cmake@{self.cmake}:"', self.package)

    def test_each_dependency_is_there(self):
        asked = set()
        for folder in ("src", "bench"):
            for path in glob.glob(os.path.join(SOURCE_DIR, folder, "**", "CMakeLists.txt"), recursive=True):
                found = re.findall(r"find_(?:library|path|package)\((\w+)", read(path))
                asked |= {re.sub("_(LIBRARY|INCLUDE_DIR)$", "", name) for name in found}
        self.assertEqual(asked, set(DEPENDENCIES), "the table above has what CMake looks for")
        for spack, easybuild in DEPENDENCIES.values():
            self.assertRegex(self.package, rf'depends_on\("{spack}[@"]')
            self.assertRegex(self.easybuild, rf"\('{easybuild}', |\[{easybuild}\]")

    def test_options_are_those_of_cmake(self):
        lists = read("CMakeLists.txt")
        for text in (self.package, self.easybuild):
            for option in re.findall(r"\bHEDDLE_[A-Z_]+|\bBUILD_TESTING\b", text):
                self.assertRegex(lists, rf"(?m)^option\({option} ")

    def test_easybuild_builds_by_ninja(self):
        # CMakeMake takes a generator for its configuration alone, and then calls make.
        self.assertIn("easyblock = 'CMakeNinja'\n", self.easybuild)

    @unittest.skipIf(SANITIZER, "a sanitizer's build is not for installing")
    def test_what_easybuild_expects_is_installed(self):
        prefix = self.path("prefix")
        subprocess.run(["cmake", "--install", BUILD_DIR, "--prefix", prefix], stdout=subprocess.DEVNULL, check=True)
        expected = re.findall(r"'((?:bin|lib|include)/[^']+)'", self.easybuild)
        self.assertGreater(len(expected), 5)
        for path in expected:
            # On Debian there is a folder for the architecture in between.
            pattern = path.replace("%s", "so").replace("lib/", "lib/**/", 1)
            self.assertTrue(glob.glob(os.path.join(prefix, pattern), recursive=True), path)


class Linters(Case):
    def test_spack(self):
        spack = shutil.which("spack")
        if not spack:
            self.skipTest("spack is not installed")
        repository = self.path("spack_repo", "heddle")
        shutil.copytree(SPACK, repository)
        self.write("scope/repos.yaml", f"repos:\n  heddle: {repository}\n")
        configured = (spack, "-C", self.path("scope"))
        found = check(*configured, "audit", "packages", "heddle")
        self.assertIn("PKG-DIRECTIVES: passed", found)
        self.assertRegex(check(*configured, "spec", "heddle@main"), r"(?m)^.{0,4} *heddle@main\b.* build_system=cmake")

    def test_the_style_of_spack(self):
        ruff = shutil.which("ruff")
        if not ruff:
            self.skipTest("ruff is not installed")
        # The settings of spack/spack-packages (pyproject.toml). That repository has names without imports.
        options = ("--isolated", "--line-length", "99")
        check(ruff, "check", "--no-cache", *options, "--select", "E,F,I,W", "--ignore", "F403,F405,I001", PACKAGE)
        check(ruff, "format", "--no-cache", *options, "--check", PACKAGE)

    def test_easybuild(self):
        eb = shutil.which("eb")
        if not eb:
            self.skipTest("EasyBuild is not installed")
        variables = {"HOME": self.scratch}
        if os.geteuid() == 0:
            variables["EASYBUILD_ALLOW_USE_AS_ROOT_AND_ACCEPT_CONSEQUENCES"] = "1"
        if "LMOD_CMD" not in os.environ and not shutil.which("lmod"):
            if not os.path.exists(LMOD):
                self.skipTest("EasyBuild needs a module tool: lmod is not installed")
            variables["LMOD_CMD"] = LMOD
        if subprocess.run([eb, "--version"], env={**os.environ, **variables}, stdout=subprocess.DEVNULL,
                          check=False).returncode:
            self.skipTest("EasyBuild does not start here")
        found = check(eb, "--check-contrib", *easyconfigs(), **variables)
        if "pycodestyle is not available" in found:
            self.skipTest("pycodestyle is not installed")
        self.assertIn("All contribution checks PASSed", found)


if __name__ == "__main__":
    main()
