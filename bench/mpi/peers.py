#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The same MPI program, over heddle and over UCX's rc_verbs, on the same software HCA: 8-byte latency
and message rate, bandwidth at 8 KiB, 64 KiB and 1 MiB. Two ranks, MPI's own shared memory off. Both
jobs are there at the same time and take turns, repetition by repetition of about 40 ms, as what the
processors of a virtual machine are worth changes from second to second; each ratio is of two turns
that follow each other. Medians over all turns of some runs. Standard library only.

MPICH waits in its progress loop with sched_yield() on both sides: that is a floor under its latency.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import transports
from turns import HERE, RANKS, Job, mpis, over_ucx

SIZES = (8, 8192, 65536, 1 << 20)
TURNS = 1 + 9  # of each size in latency.c: how many fit, then repetitions
# What is shown: size, which of a turn's times, unit of seconds a message, is less better?
SHOWN = {
    "8 B latency, us": (8, 0, lambda seconds: seconds * 1e6, True),
    "8 B rate, M/s": (8, 1, lambda seconds: 1e-6 / seconds, False),
    "8 KiB, MB/s": (8192, 1, lambda seconds: 8192e-6 / seconds, False),
    "64 KiB, MB/s": (65536, 1, lambda seconds: 65536e-6 / seconds, False),
    "1 MiB, MB/s": (1 << 20, 1, lambda seconds: (1 << 20) * 1e-6 / seconds, False),
}


def times_of(job):
    """By size: of each turn the seconds of a message, alone and in a stream."""
    found = {size: [] for size in SIZES}
    for size, alone, stream in job.results():
        found[int(size)].append((float(alone), float(stream)))
    return found


def run(options, mpi, binary, sides):
    """One run of all sides: by side and size, the times of each turn."""
    fabric = f"peers-{os.getpid()}"
    argv = [options.softhca, "run", "--fabric", fabric, "--", *mpi.mpiexec(RANKS), binary,
            ",".join(map(str, SIZES))]
    with tempfile.TemporaryDirectory() as folder:
        jobs = [Job(side, argv, environment, Path(folder)) for side, environment in sides.items()]
        for number in range(TURNS * len(SIZES)):
            # Each job finds the caches as the job before it left them: so both begin, in turns.
            for job in jobs if number % 2 else reversed(jobs):
                job.turn()
        times = {job.name: times_of(job) for job in jobs}
        for job in jobs:
            job.close()
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--softhca", type=Path, required=True, help="the command")
    parser.add_argument("--provider-path", type=Path, required=True, help="of libheddle-fi.so")
    parser.add_argument("--venvs", type=Path, required=True,
                        help="folder of the MPIs; they are installed there")
    parser.add_argument("--mpi", choices=("mpich", "openmpi"), action="append")
    parser.add_argument("--rounds", type=int, default=7, help="runs (default 7), of 9 turns each")
    parser.add_argument("--heddle", metavar="VARIABLE=VALUE", action="append", default=[],
                        help="for heddle's side, such as FI_HEDDLE_RINGS=8; FI_PROVIDER_PATH=FOLDER: that of "
                             "another build")
    parser.add_argument("--against", choices=("ucx", "heddle"), default="ucx",
                        help="heddle: beside itself without --heddle (default: ucx)")
    options = parser.parse_args()
    found, missing = mpis.find(options.mpi or ["mpich", "openmpi"], options.venvs)
    for reason in missing.values():
        print(f"peers: {reason}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        for mpi in found.values():
            binary = Path(folder) / f"latency.{mpi.key}"
            subprocess.run([mpi.mpicc, "-O2", "-o", binary, HERE / "latency.c"], check=True)
            ours = transports.environment_of(mpi, "heddle", options.provider_path.resolve())
            chosen = dict(each.split("=", 1) for each in options.heddle)
            sides = {" ".join(["heddle", *options.heddle]): {**ours, **chosen}}
            if options.against == "ucx":
                sides["ucx rc_verbs"] = over_ucx(mpi)
            else:
                sides["heddle as it is"] = ours
            seen = []
            for number in range(options.rounds):
                print(f"\rpeers: {mpi.name}, run {number + 1} of {options.rounds}   ", end="",
                      file=sys.stderr, flush=True)
                seen.append(run(options, mpi, binary, sides))
            print(file=sys.stderr)
            table(mpi, list(sides), seen)
    return 0 if found else 1


def quartiles(values, digits):
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def table(mpi, sides, seen):
    turns = len(seen) * (TURNS - 1)
    print(f"{mpi.name} ({' '.join(mpis.REQUIREMENTS[mpi.key])}), {RANKS} ranks, medians of {turns} "
          f"turns in {len(seen)} runs (lower to upper quartile)\n")
    print(f"| {'':16} | {sides[0]:>26} | {sides[1]:>26} | {'heddle is':>20} |")
    print(f"|{'-' * 18}|{'-' * 27}:|{'-' * 27}:|{'-' * 21}:|")
    for name, (size, which, unit, less) in SHOWN.items():
        values = [[unit(turn[which]) for times in seen for turn in times[side][size]]
                  for side in sides]
        ratios = [b / a if less else a / b for a, b in zip(*values)]
        digits = 2 if statistics.median(values[0]) < 100 else 0
        cells = [quartiles(each, digits) for each in values]
        print(f"| {name:16} | {cells[0]:>26} | {cells[1]:>26} | {quartiles(ratios, 2):>20} |")
    print("\nheddle is: so many times as good, turn by turn; 1 or more: not behind.\n")


if __name__ == "__main__":
    sys.exit(main())
