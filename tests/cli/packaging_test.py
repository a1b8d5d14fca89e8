# SPDX-License-Identifier: BSD-2-Clause
"""The library as a file, the installed tree, pkg-config, and the CMake and Debian packages."""

import glob
import gzip
import os
import platform
import re
import shutil
import subprocess
import unittest

from harness import BUILD_DIR, LIBRARY, SANITIZER, SOURCE_DIR, Case, main

VERSION = re.search(
    r"VERSION (\d+\.\d+\.\d+)",
    open(os.path.join(SOURCE_DIR, "CMakeLists.txt"), encoding="utf-8").read(),
).group(1)
MANUALS = ("softhca.1", "heddle.1", "fi_heddle.7")


class PackagesOfPyPI(unittest.TestCase):
    """What the demo and the tests install from there: of one version, and of known content."""

    FOLDER = os.path.join(SOURCE_DIR, "tests", "mpi")

    def test_each_has_a_version_and_hashes(self):
        files = glob.glob(os.path.join(self.FOLDER, "requirements", "*.txt"))
        self.assertGreaterEqual(len(files), 4)
        for path in files:
            with open(path, encoding="ascii") as file:
                packages = file.read().replace("\\\n", " ").splitlines()
            for package in packages:
                self.assertRegex(package, r"^[\w-]+==[\d.]+( +--hash=sha256:[0-9a-f]{64})+$", path)

    def test_nothing_else_is_taken(self):
        """Every pip command of ours is made by the one function that asks for hashes."""
        sources = [
            path
            for folder in ("scripts", "tests/mpi", "bench/mpi", "report")
            for path in glob.glob(os.path.join(SOURCE_DIR, folder, "**"), recursive=True)
            if os.path.isfile(path) and not path.endswith(".pyc")
        ]
        commands = {}
        for path in sources:
            with open(path, encoding="utf-8", errors="replace") as file:
                text = file.read()
            found = re.findall(r'.*(?:"pip"|\bpip3? (?:install|download)\b).*', text)
            if found:
                commands[os.path.relpath(path, SOURCE_DIR)] = found
        self.assertEqual(list(commands), ["tests/mpi/mpis.py"], commands)
        run, probe = commands["tests/mpi/mpis.py"]
        self.assertIn('"--require-hashes"', run)
        self.assertIn("exists()", probe)


def output_of(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=True, **options).stdout


@unittest.skipIf(SANITIZER, "a sanitizer's build is not for installing")
class Library(Case):
    def test_needs_nothing_but_libc(self):
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", output_of("readelf", "-dW", LIBRARY))
        allowed = {"libc.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
        # Where threads, timers and dlsym are libraries beside libc (glibc before 2.34).
        allowed |= {"libpthread.so.0", "librt.so.1", "libdl.so.2"}
        self.assertLessEqual(set(needed), allowed)

    def test_exports_what_the_sources_declare(self):
        text = ""
        for path in glob.glob(os.path.join(SOURCE_DIR, "src/softhca/*/*.cc")):
            with open(path, encoding="utf-8") as file:
                text += re.sub(r"//[^\n]*", "", file.read())
        declared = set(re.findall(r"\bSOFTHCA_(?:INTERPOSE|ALSO)\(\s*(\w+)", text))
        declared |= set(re.findall(r'visibility\("default"\)\)\) \w+ (\w+)\(', text))
        versioned = set(re.findall(r"\bSOFTHCA_VERSIONED_(?:NAME|ALSO)\(\s*(\w+)", text))
        self.assertGreater(len(declared), 100)
        lines = output_of("nm", "-D", "--defined-only", LIBRARY).splitlines()
        exported = {line.split()[-1] for line in lines if line.split()[-2] != "A"}
        self.assertEqual({name for name in exported if "@" not in name}, declared)
        # With libc's version, but not as the default: dlsym does not find them.
        with_version = {name.split("@")[0] for name in exported if re.search(r"[^@]@[^@]", name)}
        self.assertEqual(with_version, versioned)
        self.assertEqual(len(exported), len(declared) + len(versioned))

    def test_has_no_executable_stack_and_is_bound_at_once(self):
        headers = output_of("readelf", "-lW", LIBRARY)
        self.assertRegex(headers, r"GNU_STACK.* RW ")
        self.assertIn("GNU_RELRO", headers)
        self.assertIn("NOW", output_of("readelf", "-dW", LIBRARY))


@unittest.skipIf(SANITIZER, "a sanitizer's build is not for installing")
class Installed(Case):
    PRODUCTS = {"softhca", "heddle", "libsofthca.so", "libheddle-fi.so"}

    def install(self, name="installed tree"):
        prefix = self.path(name)
        output_of("cmake", "--install", BUILD_DIR, "--prefix", prefix)
        return prefix

    def find(self, prefix, pattern):
        found = glob.glob(os.path.join(prefix, "**", pattern), recursive=True)
        self.assertEqual(len(found), 1, f"{pattern}: {found}")
        return found[0]

    def test_command_finds_its_library(self):
        prefix = self.install("prefix")
        result = self.softhca(
            "run", "cat", "/proc/self/maps", command=os.path.join(prefix, "bin/softhca")
        )
        self.assert_run(result, 0, out=self.find(prefix, "libsofthca.so"))

    def test_files(self):
        prefix = self.install()
        for pattern in (
            "softhca.1",
            "completions/softhca",
            "completions/heddle",
            "_softhca",
            "zsh/vendor-completions/_heddle",
            "doc/heddle/README.md",
            "doc/heddle/guide/mpi.md",
            "doc/heddle/reference/protocol.md",
            "doc/softhca/reference/softhca.md",
            "softhca.pc",
            "softhcaConfig.cmake",
            "softhcaConfigVersion.cmake",
            "doc/softhca/README.md",
            "softhca/SECURITY.md",
            "heddle/SECURITY.md",
            "fi_heddle.7",
            "libfabric/libheddle-fi.so",
            "libfabric/libheddle-yield.so",
            "doc/softhca/copyright",
            "doc/heddle/copyright",
        ):
            self.find(prefix, pattern)
        for name in MANUALS:
            with open(self.find(prefix, name), encoding="utf-8") as file:
                heading = next(line for line in file if line.startswith(".TH"))
            self.assertRegex(heading, rf'"(softhca|heddle) {VERSION}"')
        self.assertEqual(sorted(os.listdir(os.path.join(prefix, "bin"))), ["heddle", "softhca"])
        programs = os.path.dirname(self.find(prefix, "libexec/heddle/post_instructions"))
        self.assertEqual(sorted(os.listdir(programs)),
                         ["post_counters", "post_instructions", "reuse_lookup"])

    def test_sources_of_the_manual_can_be_read(self):
        """By `man -l man/*`, without a build."""
        for name in MANUALS:
            with open(os.path.join(SOURCE_DIR, "man", name), encoding="utf-8") as file:
                self.assertNotRegex(file.read(), r"@\w+@", name)

    def programs_and_libraries(self):
        for folder, _, names in os.walk(self.install()):
            for name in names:
                path = os.path.join(folder, name)
                with open(path, "rb") as file:
                    is_elf = file.read(4) == b"\x7fELF"
                if is_elf and not os.path.islink(path):
                    yield name, path

    def test_is_hardened(self):
        seen = set()
        for name, path in self.programs_and_libraries():
            seen.add(name)
            with self.subTest(file=name):
                header, segments, dynamic, symbols = (
                    output_of("readelf", option, "-W", path) for option in ("-h", "-l", "-d", "--dyn-syms")
                )
                properties = {
                    "position independent": re.search(r"Type: +DYN ", header),
                    "RELRO": "GNU_RELRO" in segments,
                    "no executable stack": re.search(r"GNU_STACK.* RW ", segments),
                    "bound at once": re.search(r"\(FLAGS_1\).*\bNOW\b", dynamic),
                    "no text relocations": "TEXTREL" not in dynamic,
                    "no RPATH": not re.search(r"\((RPATH|RUNPATH)\)", dynamic),
                }
                if ".so" not in name:
                    properties["PIE"] = re.search(r"\(FLAGS_1\).*\bPIE\b", dynamic)
                if name in self.PRODUCTS:
                    properties["stack protector"] = re.search(
                        r"UND __stack_chk_(fail|guard)\b", symbols
                    )
                    properties["fortified calls"] = re.search(r"UND __\w+_chk\b", symbols)
                self.assertEqual([what for what, has in properties.items() if not has], [])
        self.assertGreaterEqual(seen, self.PRODUCTS)

    def test_branches_are_protected(self):
        """Indirect calls of our own code land on a mark, as the processor can demand (Intel CET)."""
        if platform.machine() != "x86_64":
            self.skipTest("it is not an x86-64 processor's")
        library = self.find(self.install(), "libsofthca.so")
        address, name = re.search(
            r"^([0-9a-f]+) T (softhca_doorbell)(?:@@?\S+)?$", output_of("nm", "-D", library), re.M
        ).groups()
        code = output_of(
            "objdump", "-d", f"--start-address=0x{address}", f"--stop-address=0x{int(address, 16) + 4:x}", library
        )
        self.assertIn("endbr64", code, name)

    def test_manual_is_clean(self):
        if not shutil.which("man"):
            self.skipTest("man is not installed")
        prefix = self.install()
        for name in MANUALS:
            result = subprocess.run(
                ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", self.find(prefix, name)],
                capture_output=True,
                text=True,
                check=True,
            )
            self.assertEqual(result.stderr, "")
            section = "LIMITATIONS" if name.endswith("7") else "EXIT STATUS"
            self.assertIn(section, re.sub(".\b|\x1b\\[[0-9;]*m", "", result.stdout))

    def test_pkg_config(self):
        tool = shutil.which("pkg-config") or shutil.which("pkgconf")
        if not tool:
            self.skipTest("pkg-config is not installed")
        prefix = self.install("prefix")
        environment = dict(
            os.environ, PKG_CONFIG_PATH=os.path.dirname(self.find(prefix, "softhca.pc"))
        )
        ask = lambda option: output_of(tool, option, "softhca", env=environment).strip()
        self.assertEqual(ask("--modversion"), VERSION)
        self.assertTrue(
            os.path.samefile(ask("--variable=command"), os.path.join(prefix, "bin/softhca"))
        )
        self.assertTrue(
            os.path.samefile(ask("--variable=preload"), self.find(prefix, "libsofthca.so"))
        )
        self.assertEqual(ask("--libs"), "")

    def test_a_program_is_built_on_libheddle(self):
        tool = shutil.which("pkg-config") or shutil.which("pkgconf")
        if not tool:
            self.skipTest("pkg-config is not installed")
        prefix = self.install("prefix")
        pc = os.path.dirname(self.find(prefix, "heddle.pc"))
        flags = output_of(
            tool, "--cflags", "--libs", "heddle", env=dict(os.environ, PKG_CONFIG_PATH=pc)
        ).split()
        self.write(
            "user.cc",
            """
            #include <heddle/endpoint.h>
            #include <cstdio>
            int main() {
                heddle::EndpointOptions options;
                options.path = heddle::Path::kDirect;
                heddle::EndpointSet set("", heddle::Category::kDynamic, 2, options);
                set[1].connect(set[1].address());
                ibv_sge piece{reinterpret_cast<std::uintptr_t>(set[1].buffer()), 8,
                              set[1].mr()->lkey};
                set[1].buffer()[0] = std::byte{42};
                heddle::post::WorkRequest work;
                work.opcode = heddle::post::Opcode::kWrite;
                work.flags = heddle::post::kInline | heddle::post::kSignaled;
                work.sges = {&piece, 1};
                work.remote_address = piece.addr + 64;
                work.remote_key = set[1].mr()->rkey;
                if (set[1].post(work) != heddle::post::Posted::kOk) return 1;
                heddle::post::Completion completion;
                while (set[1].poll(&completion, 1) == 0) {}
                std::printf("written: %d\\n", static_cast<int>(set[1].buffer()[64]));
            }
            """,
        )
        program = self.path("user")
        output_of("g++", "-std=c++20", self.path("user.cc"), "-o", program, *flags)
        self.assert_run(self.softhca("run", program), 0, out="written: 42")

    def test_cmake_package(self):
        prefix = self.install("prefix")
        self.write(
            "user/CMakeLists.txt",
            f"""
            cmake_minimum_required(VERSION 3.25)
            project(user NONE)
            find_package(softhca {VERSION} REQUIRED)
            if(NOT EXISTS "${{softhca_LIBRARY}}")
                message(FATAL_ERROR "no library at ${{softhca_LIBRARY}}")
            endif()
            enable_testing()
            softhca_add_test(NAME shows_fabric COMMAND sh -c "echo fabric=$SOFTHCA_FABRIC")
            """,
        )
        output_of(
            "cmake",
            "-S",
            self.path("user"),
            "-B",
            self.path("user/build"),
            "-DCMAKE_PREFIX_PATH=" + prefix,
        )
        shown = output_of(
            "ctest", "--test-dir", self.path("user/build"), "-V", env=self.environment
        )
        self.assertRegex(shown, r"fabric=test-[0-9a-f]{32}")


@unittest.skipIf(SANITIZER, "a sanitizer's build is not for installing")
class Debian(Case):
    def test_package(self):
        for tool in ("dpkg-deb", "dpkg-shlibdeps", "cpack"):
            if not shutil.which(tool):
                self.skipTest(f"{tool} is not installed")
        output_of("cpack", "-G", "DEB", "-B", self.path("packages"), cwd=BUILD_DIR)
        packages = sorted(glob.glob(self.path("packages", "*.deb")))
        self.assertEqual(len(packages), 2)
        heddle, softhca = packages
        field = lambda package, name: output_of("dpkg-deb", "-f", package, name).strip()
        self.assertEqual(field(heddle, "Package"), "heddle")
        self.assertEqual(field(softhca, "Package"), "softhca")
        self.assertIn("ibverbs-providers", field(softhca, "Recommends"))
        self.assertIn("libibverbs1", field(heddle, "Depends"))
        self.assertNotIn("libfabric", field(heddle, "Depends"))
        root = self.path("root")
        for package in packages:
            self.assertTrue(field(package, "Version").startswith(VERSION))
            self.assertIn("libc6", field(package, "Depends"))
            for line in output_of("dpkg-deb", "-c", package).splitlines():
                self.assertIn(" root/root ", line)
                self.assertNotRegex(line[:10], r"^.{8}w", "writable by others: " + line)
            output_of("dpkg-deb", "-x", package, root)
        self.assertFalse(os.path.exists(os.path.join(root, "usr/local")))
        self.assertTrue(field(heddle, "Description").startswith("libfabric provider over"))
        self.assertNotIn("software ConnectX", field(heddle, "Description"))
        self.assertTrue(field(softhca, "Description").startswith("software ConnectX"))
        self.assertEqual(sorted(os.listdir(os.path.join(root, "usr/bin"))), ["heddle", "softhca"])
        self.check_documents(root)
        self.check_libraries(root)
        result = self.softhca(
            "run", "cat", "/proc/self/maps", command=os.path.join(root, "usr/bin/softhca")
        )
        self.assert_run(result, 0, out=os.path.join(root, "usr/lib"))
        result = self.softhca(
            "run", "env", command=os.path.join(root, "usr/bin/heddle"), env={"FI_PROVIDER_PATH": None}
        )
        self.assert_run(result, 0, out="FI_PROVIDER_PATH=" + os.path.join(root, "usr/lib"))

    def check_documents(self, root):
        manuals = glob.glob(os.path.join(root, "usr/share/man/*/*"))
        self.assertEqual(sorted(map(os.path.basename, manuals)),
                         sorted(name + ".gz" for name in MANUALS))
        for name in ("softhca", "heddle"):
            changes = os.path.join(root, "usr/share/doc", name, "changelog.gz")
            headings = [line for line in gzip.open(changes, "rt", encoding="utf-8") if line.startswith("## ")]
            self.assertTrue(any(VERSION in each for each in headings), headings)

    def check_libraries(self, root):
        """The provider is where the distribution's libfabric looks for providers."""
        multiarch = output_of("gcc", "-print-multiarch").strip()
        if not multiarch:
            self.skipTest("no multiarch folders here")
        folder = os.path.join(root, "usr/lib", multiarch)
        hint = "a build tree of before keeps its folder: cmake -U CMAKE_INSTALL_LIBDIR BUILD_DIR"
        for name in ("libsofthca.so", "libfabric/libheddle-fi.so", "pkgconfig/heddle.pc"):
            self.assertTrue(os.path.exists(os.path.join(folder, name)), hint)
        self.assertEqual(os.listdir(os.path.join(root, "usr/lib")), [multiarch])


if __name__ == "__main__":
    main()
