# SPDX-License-Identifier: BSD-2-Clause
"""What run_ucx_gtest.py needs of UCX: building UCX with its tests (gtest) from a source folder, and
reading what its gtest lists and prints.

UCX is built once below --scratch, out of tree, in a copy of the source: the given folder is not
changed.
"""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from fabtests import logged
from harness import SOURCE_ROOT, Skip

# Only what the tests need, in the order in which it must be built.
FOLDERS = ("src/ucm", "src/ucs", "src/uct", "src/ucp", "src/tools/perf/lib", "test/gtest")
# Other hardware and other languages. A version that lacks an option only warns.
WITHOUT = "cuda efa fuse3 gaudi gdrcopy go java knem rocm ugni valgrind xpmem ze".split()
CHOSEN = ("--enable-gtest", "--enable-mt", "--disable-static", "--with-verbs", "--with-rdmacm")
# Warnings of newer compilers are no errors.
FLAGS = ("--enable-compiler-opt=1", "CFLAGS=-g0 -Wno-error")


@dataclass
class Outcome:
    """What a run of gtest came to. A test that had begun when gtest ended is `interrupted`."""

    passed: list = field(default_factory=list)
    failed: dict = field(default_factory=dict)  # name -> what it printed
    skipped: dict = field(default_factory=dict)  # name -> UCX's reason
    interrupted: str = ""

    def add(self, other):
        self.passed += other.passed
        self.failed.update(other.failed)
        self.skipped.update(other.skipped)

    def seen(self):
        return {*self.passed, *self.failed, *self.skipped}

    def counts(self):
        return f"{len(self.passed)} passed, {len(self.failed)} failed, {len(self.skipped)} skipped by UCX"


def add_options(parser):
    parser.set_defaults(scratch=SOURCE_ROOT / "build" / "ucx_gtest")
    parser.add_argument("--source", type=Path, help="UCX's source: a checkout or an unpacked release")
    parser.add_argument("--built", type=Path, help="a folder where UCX is built with --enable-gtest")


# Building


def build(options):
    """The folder in which UCX is built; builds it if it is not yet. Raises Skip without a source."""
    if options.built:
        if not program(options.built).exists():
            raise Skip(f"no test/gtest/gtest in {options.built}")
        return options.built.resolve()
    source = options.source or os.environ.get("SOFTHCA_UCX_SOURCE")
    if not source:
        raise Skip(
            "no source of UCX: git clone --branch v1.22.0 https://github.com/openucx/ucx,"
            " then --source ucx (or SOFTHCA_UCX_SOURCE=ucx)"
        )
    source = Path(source).resolve()
    version = version_of(source)
    folder = options.scratch / f"ucx-{version}"
    done = folder / "built"
    if done.exists():
        return folder
    for tool in ("autoconf", "automake", "libtoolize", "make", "cc", "c++"):
        if not shutil.which(tool):
            raise Skip(f"no {tool} to build it with")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    log = folder / "build.log"
    print(f"ucx_gtest: building UCX {version} in {folder}", flush=True)
    copy = folder / "source"
    shutil.copytree(source, copy, symlinks=True, ignore=shutil.ignore_patterns(".git"))
    if not (copy / "configure").exists():
        # As autogen.sh, which would also fetch a submodule.
        for name in ("m4", "aux"):
            (copy / "config" / name).mkdir(exist_ok=True)
        logged(["autoreconf", "--install"], log, copy)
    without = [f"--without-{name}" for name in WITHOUT]
    logged([copy / "configure", *CHOSEN, *without, *FLAGS, cxxflags(version)], log, folder)
    for part in FOLDERS:
        logged(["make", f"-j{os.cpu_count() or 2}", "-C", folder / part], log)
    done.touch()
    return folder


def cxxflags(version):
    """The tests are large, and compile in half of the time without optimization. UCX 1.13 needs it: it
    calls a function that must be inlined by its address (test_tag.cc).
    """
    old = tuple(map(int, version.split("."))) < (1, 14)
    return f"CXXFLAGS=-O{2 if old else 0} -g0 -Wno-error"


def version_of(source):
    path = source / "configure.ac"
    if not path.exists():
        raise Skip(f"no configure.ac in {source}")
    text = path.read_text(encoding="utf-8")
    numbers = [
        found[1]
        for part in ("major", "minor", "patch")
        if (found := re.search(rf"define\(\[ucx_ver_{part}\], *\[?(\d+)\]?\)", text))
    ]
    if len(numbers) != 3:
        raise Skip(f"{path} does not say UCX's version")
    return ".".join(numbers)


def version_built(folder):
    """The version of a built UCX, as (1, 22)."""
    text = (folder / "config.h").read_text(encoding="utf-8")
    return tuple(map(int, re.search(r'^#define VERSION "(\d+)\.(\d+)', text, re.M).groups()))


def program(folder):
    return folder / "test" / "gtest" / "gtest"


# Reading gtest


def listed(text):
    """The output of --gtest_list_tests: {suite: [test]}, with full names "suite.test"."""
    suites = {}
    for line in text.splitlines():
        if found := re.match(r"(\S+)\.(?: +# .*)?$", line):
            tests = suites.setdefault(found[1], [])
            suite = found[1]
        elif suites and (found := re.match(r"  (\S+)", line)):
            tests.append(f"{suite}.{found[1]}")
    return suites


def parse(text):
    """What a run printed, as an Outcome."""
    outcome = Outcome()
    begun, lines, reason = "", [], None
    for line in text.splitlines():
        if found := re.match(r"\[ RUN      \] (\S+)", line):
            begun, lines, reason = found[1], [], None
        elif found := re.match(r"\[     SKIP \] ?\(?(.*?)\)?$", line):
            reason = found[1] or "no reason given"
        elif begun and (found := re.match(r"\[       OK \] (\S+)", line)):
            if reason is None:
                outcome.passed.append(begun)
            else:
                outcome.skipped[begun] = reason
            begun = ""
        elif begun and re.match(r"\[  FAILED  \] (\S+)", line):
            outcome.failed[begun] = "\n".join(lines)
            begun = ""
        elif begun:
            lines.append(line)
    outcome.interrupted = begun
    return outcome
