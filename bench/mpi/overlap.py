#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""overlap.c over heddle, by each way that messages travel there, and over UCX's rc_verbs, on the same
software HCA. All jobs are there at the same time and take turns. Tables in Markdown: of each side and
size the availability in percent of a message's time, and that time; medians of all turns. With --beside heddle
as it is, and one peer. Standard library only.

A software HCA's work is done by the thread that posts, below 32 KiB, and by another thread of the
process above.
"""

import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

import transports
from turns import RANKS, Job, by_rendezvous, compiled, mpis, over_heddle, parser_of

SIZES = (0, 8, 1024, 8192, 16384, 65536, 262144, 1 << 20, 4 << 20)
TURNS = 5  # of each side and size, in overlap.c
SIDES = ("sender", "receiver")
WAYS = ("tupleq", "auto", "rput", "rget")


def run(options, mpi, binary, by_way):
    """One run of all ways: by way, side and size the turns' (base, overhead, post, wait)."""
    before = [] if options.hardware else [options.heddle.with_name("softhca"), "run", "--fabric",
                                          f"overlap-{os.getpid()}", "--"]
    argv = [*before, *mpi.mpiexec(RANKS), binary, ",".join(map(str, options.bytes))]
    turns = TURNS * len(SIDES) * len(options.bytes)
    with tempfile.TemporaryDirectory() as folder:
        jobs = [Job(way, argv, environment, Path(folder)) for way, environment in by_way.items()]
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


def table(mpi, names, found, sizes, runs):
    print(f"{mpi.name} ({' '.join(mpis.REQUIREMENTS[mpi.key])}): availability in % of a message's "
          f"time, medians of {runs * TURNS} turns\n")
    for side in SIDES:
        print(f"| {side}, bytes | {' | '.join(names)} |\n|---:|{'---:|' * len(names)}")
        for size in sizes:
            print(f"| {size} | {' | '.join(cell(found[way, side, size]) for way in names)} |")
        print()


def print_line(mpi, way, **more):
    print(json.dumps({"experiment": "mpi-overlap", "mpi": mpi.name,
                      "version": " ".join(mpis.REQUIREMENTS[mpi.key]), "way": way, **more}), flush=True)


def lines(mpi, found, beside):
    for (way, side, size), turns in found.items():
        print_line(mpi, way, side=side, bytes=size, base=[turn[0] for turn in turns],
                   overhead=[turn[1] for turn in turns], beside=beside)


def environments(options, mpi, names):
    provider = options.heddle.parent.parent / "lib"
    return {way: {**over_heddle(mpi, provider), **by_rendezvous(way)} if way in WAYS else
            transports.environment_of(mpi, "rc_verbs" if way == "ucx" else way, provider) for way in names}


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--mpi", choices=("mpich", "openmpi"), action="append")
    parser.add_argument("--way", choices=(*WAYS, "ucx"), action="append",
                        help="may be repeated (default: all)")
    parser.add_argument("--beside", choices=transports.PEERS, help="heddle as it is and this one, instead of --way")
    parser.add_argument("--bytes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--json", action="store_true", help="a line of JSON for each")
    parser.add_argument("--rounds", type=int, default=1, help="runs, of 5 turns each (default 1)")
    options = parser.parse_args()
    options.heddle = options.heddle.resolve()
    names = ["heddle", options.beside] if options.beside else options.way or [*WAYS, "ucx"]
    venvs = (options.venvs or options.heddle.parent.parent / "venvs").resolve()
    found, missing = mpis.find(options.mpi or ["mpich", "openmpi"], venvs)
    for reason in missing.values():
        print(f"overlap: {reason}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        for mpi in found.values():
            if options.beside and (reason := transports.why_not(options, mpi, options.beside, Path(folder))):
                print_line(mpi, options.beside, side="both", bytes=0, base=[], overhead=[], beside=options.beside,
                           missing=reason)
                continue
            binary = compiled(mpi, Path(folder), "overlap")
            by_way = environments(options, mpi, names)
            seen = {}
            for _ in range(options.rounds):
                for key, turns in run(options, mpi, binary, by_way).items():
                    seen.setdefault(key, []).extend(turns)
            if options.json:
                lines(mpi, seen, options.beside)
            else:
                table(mpi, names, seen, options.bytes, options.rounds)
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
