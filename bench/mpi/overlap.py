#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""overlap.c over heddle, by each way that messages travel there, and over UCX's rc_verbs, on the same
software HCA. All jobs are there at the same time and take turns. Tables in Markdown: of each side and
size the availability in percent of a message's time, and that time; medians of all turns. Standard
library only.

A software HCA's work is done by the thread that posts, below 32 KiB, and by another thread of the
process above.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from turns import HERE, RANKS, Job, by_rendezvous, mpis, over_heddle, over_ucx

SIZES = (0, 8, 1024, 8192, 16384, 65536, 262144, 1 << 20, 4 << 20)
TURNS = 5  # of each side and size, in overlap.c
SIDES = ("sender", "receiver")
WAYS = ("tupleq", "auto", "rput", "rget")


def run(options, mpi, binary, ways):
    """One run of all ways: by way, side and size the turns' (base, overhead, post, wait)."""
    before = [] if options.hardware else [options.heddle.with_name("softhca"), "run", "--fabric",
                                          f"overlap-{os.getpid()}", "--"]
    argv = [*before, *mpi.mpiexec(RANKS), binary, ",".join(map(str, options.bytes))]
    turns = TURNS * len(SIDES) * len(options.bytes)
    with tempfile.TemporaryDirectory() as folder:
        jobs = [Job(way, argv, environment, Path(folder)) for way, environment in ways.items()]
        for number in range(turns):
            print(f"\roverlap: {mpi.name}, turn {number + 1} of {turns}   ", end="",
                  file=sys.stderr, flush=True)
            first = number % len(jobs)  # who begins has what is warm of the other's
            for job in jobs[first:] + jobs[:first]:
                job.turn()
        found = {}
        for job in jobs:
            for side, size, *times in job.results():
                found.setdefault((job.name, side, int(size)), []).append(
                    [float(value) for value in times])
            job.close()
    print(file=sys.stderr)
    return found


def cell(turns):
    available = statistics.median(100 * (1 - turn[1] / turn[0]) for turn in turns)
    return f"{available:.0f} of {statistics.median(turn[0] for turn in turns) * 1e6:.1f} us"


def table(mpi, ways, found, sizes, runs):
    print(f"{mpi.name} ({' '.join(mpis.REQUIREMENTS[mpi.key])}): availability in % of a message's "
          f"time, medians of {runs * TURNS} turns\n")
    for side in SIDES:
        print(f"| {side}, bytes | {' | '.join(ways)} |\n|---:|{'---:|' * len(ways)}")
        for size in sizes:
            print(f"| {size} | {' | '.join(cell(found[way, side, size]) for way in ways)} |")
        print()


def lines(mpi, found):
    for (way, side, size), turns in found.items():
        print(json.dumps({"experiment": "mpi-overlap", "mpi": mpi.name,
                          "version": " ".join(mpis.REQUIREMENTS[mpi.key]), "way": way, "side": side,
                          "bytes": size, "base": [turn[0] for turn in turns],
                          "overhead": [turn[1] for turn in turns]}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heddle", type=Path, required=True, help="build/bin/heddle")
    parser.add_argument("--venvs", type=Path,
                        help="folder of the MPIs, which are installed there (default: build/venvs)")
    parser.add_argument("--hardware", action="store_true", help="without the software HCA")
    parser.add_argument("--mpi", choices=("mpich", "openmpi"), action="append")
    parser.add_argument("--way", choices=(*WAYS, "ucx"), action="append",
                        help="may be repeated (default: all)")
    parser.add_argument("--bytes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--json", action="store_true", help="a line of JSON for each")
    parser.add_argument("--rounds", type=int, default=1, help="runs, of 5 turns each (default 1)")
    options = parser.parse_args()
    options.heddle = options.heddle.resolve()
    venvs = (options.venvs or options.heddle.parent.parent / "venvs").resolve()
    found, missing = mpis.find(options.mpi or ["mpich", "openmpi"], venvs)
    for reason in missing.values():
        print(f"overlap: {reason}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        for mpi in found.values():
            binary = Path(folder) / f"overlap.{mpi.key}"
            subprocess.run([mpi.mpicc, "-O2", "-o", binary, HERE / "overlap.c"], check=True)
            ours = over_heddle(mpi, options.heddle.parent.parent / "lib")
            ways = {way: over_ucx(mpi) if way == "ucx" else {**ours, **by_rendezvous(way)}
                    for way in options.way or (*WAYS, "ucx")}
            seen = {}
            for _ in range(options.rounds):
                for key, turns in run(options, mpi, binary, ways).items():
                    seen.setdefault(key, []).extend(turns)
            if options.json:
                lines(mpi, seen)
            else:
                table(mpi, list(ways), seen, options.bytes, options.rounds)
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
