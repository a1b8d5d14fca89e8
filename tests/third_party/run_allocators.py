#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Other allocators on softhca: jemalloc, tcmalloc and mimalloc instead of glibc's malloc.

They are set to give freed pages back at once (MADV_DONTNEED, MADV_FREE), while registration caches
still know them. The programs are perftest, and MPICH over UCX with mpi_check.c and
mpi_allocations.c, which look at every byte.
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from harness import DEVICE, EVERY_MODE, Failure, Mode, Suite
from run_perftest import Run, run_pair

FOLDER = Path(__file__).resolve().parent
RANKS = 2


@dataclass(frozen=True)
class Allocator:
    """A library to preload, and the variables that make it give pages back."""

    name: str
    library: str | None
    variables: tuple = ()

    def __str__(self):
        return self.name

    def environment(self):
        return {"LD_PRELOAD": self.library, **dict(self.variables)} if self.library else {}


# Debian 12 has version 2, Debian 13 version 3.
MIMALLOC = next(
    (path.name for path in sorted(Path("/usr/lib").glob("*/libmimalloc.so.[23]"))),
    "libmimalloc.so.2",
)
AT_ONCE = "dirty_decay_ms:0,muzzy_decay_ms:0"
ALLOCATORS = (
    Allocator("glibc", None),
    Allocator("jemalloc", "libjemalloc.so.2"),
    Allocator("jemalloc, at once", "libjemalloc.so.2", (("MALLOC_CONF", AT_ONCE),)),
    # Lazily first (MADV_FREE), in a moment for good.
    Allocator("jemalloc, lazily", "libjemalloc.so.2",
              (("MALLOC_CONF", "dirty_decay_ms:0,muzzy_decay_ms:20"),)),
    Allocator("tcmalloc, at once", "libtcmalloc_minimal.so.4",
              (("TCMALLOC_AGGRESSIVE_DECOMMIT", "t"),)),
    Allocator("tcmalloc, lazily", "libtcmalloc_minimal.so.4",
              (("TCMALLOC_RELEASE_RATE", "1000"), ("TCMALLOC_DISABLE_MEMORY_RELEASE", "f"))),
    Allocator("mimalloc, at once", MIMALLOC, (("MIMALLOC_PURGE_DELAY", "0"),
              ("MIMALLOC_DECOMMIT_DELAY", "0"), ("MIMALLOC_SEGMENT_DECOMMIT_DELAY", "0"),
              ("MIMALLOC_ABANDONED_PAGE_DECOMMIT", "1"))),
    # It has hooks of its own in mmap, munmap, mremap and sbrk.
    Allocator("tcmalloc with its hooks", "libtcmalloc.so.4",
              (("TCMALLOC_AGGRESSIVE_DECOMMIT", "t"),)),
)


def main():
    suite = Suite("allocators", __doc__.partition("\n\n")[0])
    for allocator in ALLOCATORS:
        modes = EVERY_MODE if suite.full else (Mode(),)
        for mode in modes:
            programs = [("mpi_allocations", 3000 if suite.full else 400)]
            if suite.full or allocator.variables == ():
                programs.append(("mpi_check", 1))
            for program, rounds in programs:
                suite.case(f"{program}, {allocator}, {mode}", run_mpi, suite, allocator, mode,
                           program, rounds)
        if allocator.library:
            for run in (Run("write", "bw", options=("-s", "65536")), Run("send", "lat")):
                suite.case(f"{run}, {allocator}", run_perftest, suite, run, allocator)
    return suite.main()


def check_installed(suite, allocator):
    program = suite.run_plain(["true"], environment=allocator.environment())
    if program.output():  # the loader's "cannot be preloaded"
        raise Failure(program.output().strip())


def build(suite, name):
    suite.need("mpicc.mpich", "mpiexec.mpich")
    source = FOLDER / f"{name}.c"
    program = suite.scratch("allocators") / name
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        argv = ["mpicc.mpich", "-std=gnu11", "-O2", "-Wall", "-pthread", "-o", program, source]
        suite.run_plain(argv, seconds=120)
    return program


def run_mpi(suite, allocator, mode, name, rounds):
    check_installed(suite, allocator)
    program = build(suite, name)
    environment = {
        "MPIR_CVAR_NOLOCAL": "1",
        "UCX_TLS": "rc_verbs,ud_verbs",
        "UCX_NET_DEVICES": f"{DEVICE}:1",
        "UCX_WARN_UNUSED_ENV_VARS": "n",
        # Small messages, too, from where they are, by cached registrations.
        "UCX_ZCOPY_THRESH": "1024",
        "UCX_RNDV_THRESH": "8192",
        **allocator.environment(),
    }
    argv = ["mpiexec.mpich", "-launcher", "fork", "-n", RANKS, program, rounds]
    job = suite.run(argv, mode=mode, environment=environment, seconds=150)
    text = job.output()
    if re.search(r"\b(ERROR|WARN|Abort)\b|Assertion", text):
        raise Failure(f"the job reports an error\n{job.describe()}")
    found = re.search(rf"^{name}: ([1-9]\d*) .* by {RANKS} ranks$", text, re.M)
    if not found:
        raise Failure(f"no closing line\n{job.describe()}")
    return found[0].partition(": ")[2]


def run_perftest(suite, run, allocator):
    check_installed(suite, allocator)
    return run_pair(suite, run, Mode(), allocator.environment())


if __name__ == "__main__":
    sys.exit(main())
