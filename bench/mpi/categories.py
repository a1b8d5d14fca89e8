#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""MPICH with MPI_THREAD_MULTIPLE over each endpoint category of heddle: rates of small messages
(message_rate.c) and a stencil whose result is checked bit by bit (thread_stencil.c), by the number of threads.
Each thread has a communicator of its own, which MPICH gives a virtual communication interface (VCI) of its own;
each interface has a domain and an endpoint of heddle. The jobs of all categories are there at once and take
turns. Beside the seconds of every turn a line of JSON has counts: what a process uses of the device, doorbells
and BlueFlame writes of the turns by the software HCA's counters, locks by heddle's statistics. Ends with status
77 if MPICH cannot be had. Standard library only.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from turns import RANKS, Job, compiled, mpis, over_heddle, parser_of

CATEGORIES = ("mpi-everywhere", "2xdynamic", "dynamic", "shared-dynamic", "static", "mpi+threads")
KERNELS = ("dynamic", "static")  # how a context gets its UARs, on a software HCA
PROGRAMS = ("rate", "stencil")
NOT_HERE = 77  # as a test that is skipped
BYTES = 8
RATE_TURNS = 7  # in message_rate.c
ROWS = COLUMNS = 64  # of a thread, in thread_stencil.c
# What a process has of the device, by the fields of `softhca stat --json`.
USED = ("contexts", "uar_pages", "qps", "cqs", "srqs", "queue_bytes", "mr_bytes")
COUNTED = ("doorbells", "blueflame", "wqes", "dma_write_cqe")  # by the device, in the turns
LOCKS = ("domain_locks", "register_locks")  # by heddle, from its first domain to its last
OWN = {"contexts": "contexts", "uar_pages": "uars", "qps": "qps", "cqs": "cqs"}  # of a process, by heddle
SENT = ("inlined", "eager", "gathered", "by_ring", "rendezvous", "tuple_messages")  # by heddle


class Side:
    """The job of one category, on a fabric of its own, so that its counters are its own."""

    def __init__(self, options, mpi, category, kernel, threads, program, folder):
        self.options, self.category = options, category
        self.fabric = f"categories-{os.getpid()}-{CATEGORIES.index(category)}"
        self.statistics = folder / f"{category}.statistics"
        self.used, self.counts = {}, []
        environment = {**over_heddle(mpi, options.provider, threads),
                       # Which path `heddle calibrate` has found to be faster here is no part of this.
                       "FI_HEDDLE_POST": "direct", "FI_HEDDLE_ENDPOINTS": category,
                       "FI_HEDDLE_STATS": str(self.statistics)}
        before = [] if options.hardware else [options.softhca, "run", "--fabric", self.fabric, "--uar", kernel,
                                              "--"]
        self.job = Job(category, [*before, *mpi.mpiexec(RANKS, environment), *program], environment, folder)

    def processes(self):
        """What the device has of each rank, while they sleep: [{field: value}]."""
        shown = subprocess.run([self.options.softhca, "stat", "--fabric", self.fabric, "--json"],
                               capture_output=True, text=True, check=True)
        found = [each for each in json.loads(shown.stdout)["processes"] if each["qps"]]
        if len(found) != RANKS:
            self.job.fail()
        return found

    def look(self):
        """Notes what a process uses, that of the two which has more, and what the device has counted."""
        found = self.processes()
        self.used = {**{field: max(each[field] for each in found) for field in USED},
                     "memory_bytes": max(memory_of(each["pid"]) for each in found)}
        self.counts.append({field: sum(each["counters"][field] for each in found) for field in COUNTED})

    def statistics_by_rank(self):
        """What heddle wrote at the end of each rank."""
        lines = self.statistics.read_text(encoding="utf-8").splitlines()
        found = [json.loads(line) for line in lines]
        if len(found) != RANKS:
            sys.exit(f"categories: {len(found)} ranks wrote statistics, not {RANKS}:\n{self.job.text()}")
        return found

    def row(self):
        """Once the job has ended."""
        lines = self.job.results()
        messages = [int(words[-2]) for words in lines]
        ranks = self.statistics_by_rank()
        self.job.close()
        found = {"seconds": [float(words[-1]) for words in lines],
                 "sent": sum(rank[field] for rank in ranks for field in SENT),
                 **{field: sum(rank[field] for rank in ranks) for field in LOCKS}}
        if not self.counts:  # of heddle's own
            return {**found, **{field: max(rank[theirs] for rank in ranks) for field, theirs in OWN.items()}}
        before, after = self.counts
        return {**found, **self.used, "messages": sum(messages[:-1]),
                **{field: after[field] - before[field] for field in COUNTED}}


def memory_of(pid):
    """Anonymous and shared memory of a process, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon:", "RssShmem:")))


def run(options, mpi, kernel, threads, program, turns):
    """A row of each category."""
    with tempfile.TemporaryDirectory() as folder:
        sides = [Side(options, mpi, category, kernel, threads, program, Path(folder))
                 for category in options.category]
        for number in range(1 + turns):
            if not options.hardware and number in (1, turns):  # the ranks sleep, and end after the last turn
                for side in sides:
                    side.look()
            first = number % len(sides)  # who begins has what is warm of the other's
            for side in sides[first:] + sides[:first]:
                side.job.turn()
        for side in sides:
            yield {"category": side.category, "kernel": kernel, "threads": threads, "ranks": RANKS,
                   "cores": len(os.sched_getaffinity(0)), **side.row()}


def program_of(options, mpi, folder, name, threads):
    """Its command, the bytes of a message, and how many turns it takes after the first."""
    if name == "rate":
        return [compiled(mpi, folder, "message_rate"), threads, BYTES], BYTES, RATE_TURNS
    return ([compiled(mpi, folder, "thread_stencil"), threads, ROWS, COLUMNS, options.sweeps, options.turns],
            ROWS * 8, options.turns)


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--category", choices=CATEGORIES, action="append",
                        help="may be repeated (default: all)")
    parser.add_argument("--kernel", choices=KERNELS, action="append",
                        help="how contexts get their UARs, on a software HCA; may be repeated (default: dynamic)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--program", choices=PROGRAMS, action="append", help="may be repeated (default: both)")
    parser.add_argument("--sweeps", type=int, default=50, help="of the stencil, in a turn (default 50)")
    parser.add_argument("--turns", type=int, default=7, help="of the stencil (default 7)")
    options = parser.parse_args()
    options.heddle = options.heddle.resolve()
    options.softhca = options.heddle.with_name("softhca")
    options.provider = options.heddle.parent.parent / "lib"
    options.category = options.category or list(CATEGORIES)
    venvs = (options.venvs or options.heddle.parent.parent / "venvs").resolve()
    found, missing = mpis.find(["mpich"], venvs, say=lambda text: print(text, file=sys.stderr))
    if missing:
        print(f"categories: {missing['mpich']}", file=sys.stderr)
        return NOT_HERE
    mpi = found["mpich"]
    with tempfile.TemporaryDirectory() as folder:
        for kernel in [None] if options.hardware else options.kernel or ["dynamic"]:
            for threads in options.threads:
                for name in options.program or PROGRAMS:
                    argv, size, turns = program_of(options, mpi, Path(folder), name, threads)
                    for row in run(options, mpi, kernel, threads, argv, turns):
                        print(json.dumps({"experiment": "mpi-categories", "program": name, "mpi": mpi.name,
                                          "version": " ".join(mpis.REQUIREMENTS["mpich"]), "bytes": size,
                                          **row}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
