# SPDX-License-Identifier: BSD-2-Clause
"""Another rdma-core than the installed one: an installation, a build tree, or its sources, which are
built once into the scratch folder. Programs that a script starts afterwards use it.
"""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path


class Unusable(Exception):
    """What was named is no rdma-core, or cannot be built; the text says why."""


@dataclass(frozen=True)
class Tree:
    prefix: Path
    libraries: tuple
    python: Path | None  # where its pyverbs is
    tests: Path | None  # its Python tests


def use(given, scratch):
    """Puts the rdma-core at `given` before the installed one, for all programs started from here.

    Raises Unusable. Python is Debian's: pyverbs is built for that one.
    """
    given = given.resolve()
    prefix = build(given, scratch) if (given / "buildlib").is_dir() else given
    folders = (prefix / "lib", prefix / "lib64", *sorted(prefix.glob("lib/*-linux-*")))
    libraries = tuple(folder for folder in folders if any(folder.glob("libibverbs.so.1*")))
    if not libraries or not (prefix / "bin" / "ibv_devinfo").exists():
        raise Unusable(f"{prefix} has no lib/libibverbs.so.1 or no bin/ibv_devinfo")
    python = prefix / "python"
    tree = Tree(
        prefix,
        libraries,
        python if any(python.glob("pyverbs/device*.so")) else None,
        tests_of(prefix),
    )
    put_before("PATH", prefix / "bin")
    for folder in libraries:
        put_before("LD_LIBRARY_PATH", folder)
    if tree.python:
        put_before("PYTHONPATH", tree.python)
    return tree


def put_before(name, folder):
    rest = os.environ.get(name)
    os.environ[name] = f"{folder}:{rest}" if rest else str(folder)


def tests_of(prefix):
    """The tests stay in the sources; a build tree's cache says where those are."""
    cache = prefix / "CMakeCache.txt"
    found = cache.exists() and re.search(r"^CMAKE_HOME_DIRECTORY:INTERNAL=(.*)$", cache.read_text(), re.M)
    tests = Path(found[1]) / "tests" if found else prefix / "share/doc/rdma-core/tests"
    return tests if (tests / "run_tests.py").exists() else None


def build(source, scratch):
    version = re.search(r'PACKAGE_VERSION "([^"]+)"', (source / "CMakeLists.txt").read_text())
    if not version:
        raise Unusable(f"{source}/CMakeLists.txt has no version")
    folder = scratch / f"rdma-core-{version[1]}"
    log = folder.with_suffix(".log")
    if not (folder / "built").exists():
        for tool in ("cmake", "ninja"):
            if not shutil.which(tool):
                raise Unusable(f"{tool} is not installed")
        print(f"building rdma-core {version[1]} in {folder} (log: {log})", flush=True)
        options = ["-DIN_PLACE=1", "-DNO_MAN_PAGES=1", "-DPYTHON_EXECUTABLE=/usr/bin/python3",
                   "-DPython_EXECUTABLE=/usr/bin/python3"]
        scratch.mkdir(parents=True, exist_ok=True)
        with log.open("w", encoding="utf-8") as output:
            run(["cmake", "-S", source, "-B", folder, "-GNinja", *options], output)
            run(["ninja", "-C", folder], output)
        (folder / "built").touch()
    return folder


def run(argv, output):
    done = subprocess.run([str(part) for part in argv], stdout=output, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise Unusable(f"{argv[0]} failed with {done.returncode}; the end of {output.name} says why")
