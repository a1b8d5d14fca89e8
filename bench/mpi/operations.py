#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""operations.c in several ways at the same time: over heddle by the verbs path and the direct one, and
over UCX's rc_verbs, on the same device. All jobs are there at once and take turns, so that what is
compared has seen the same machine. Prints a line of JSON for each operation, size and way, with the
seconds of every turn; those of one place in two ways belong together. Standard library only.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from jobs import HERE, Job, mpis, over_heddle, over_ucx

POINT_TO_POINT = ("latency", "bandwidth", "bidirectional")
COLLECTIVES = ("allgather", "alltoall", "scatter", "gather", "allreduce", "bcast")
SIZES = (8, 512, 8192, 65536, 1 << 20)


def ways_of(mpi, provider, names):
    """The environment of each way."""
    ours = over_heddle(mpi, provider)
    every = {"verbs": {**ours, "FI_HEDDLE_POST": "verbs"},
             "direct": {**ours, "FI_HEDDLE_POST": "direct"}, "heddle": ours, "ucx": over_ucx(mpi)}
    return {name: every[name] for name in names}


def run(options, mpi, binary, operations, ranks):
    """By way, operation and size: the seconds of each turn."""
    before = [] if options.hardware else [options.heddle.with_name("softhca"), "run", "--fabric",
                                          f"operations-{os.getpid()}", "--"]
    argv = [*before, *mpi.mpiexec(ranks), binary, ",".join(operations),
            ",".join(map(str, options.bytes)), options.turns]
    turns = (1 + options.turns) * len(operations) * len(options.bytes)
    with tempfile.TemporaryDirectory() as folder:
        jobs = [Job(way, argv, environment, Path(folder), ranks) for way, environment
                in ways_of(mpi, options.provider, options.way).items()]
        for number in range(turns):
            first = number % len(jobs)  # who begins has what is warm of the other's
            for job in jobs[first:] + jobs[:first]:
                job.turn()
        found = {}
        for job in jobs:
            for operation, size, seconds in job.results():
                found.setdefault((operation, int(size), job.name), []).append(float(seconds))
            job.close()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--heddle", type=Path, required=True, help="build/bin/heddle")
    parser.add_argument("--venvs", type=Path,
                        help="folder of the MPIs, which are installed there (default: build/venvs)")
    parser.add_argument("--hardware", action="store_true", help="without the software HCA")
    parser.add_argument("--mpi", choices=("mpich", "openmpi"), action="append")
    parser.add_argument("--way", choices=("verbs", "direct", "heddle", "ucx"), action="append",
                        help="may be repeated (default: verbs, direct)")
    parser.add_argument("--operation", choices=(*POINT_TO_POINT, *COLLECTIVES), action="append",
                        help="may be repeated (default: all)")
    parser.add_argument("--bytes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--ranks", type=int, default=4, help="of collectives (default 4)")
    parser.add_argument("--turns", type=int, default=9, help="of each (default 9)")
    options = parser.parse_args()
    options.heddle = options.heddle.resolve()
    options.provider = options.heddle.parent.parent / "lib"
    options.way = options.way or ["verbs", "direct"]
    wanted = options.operation or (*POINT_TO_POINT, *COLLECTIVES)
    venvs = (options.venvs or options.heddle.parent.parent / "venvs").resolve()
    found, missing = mpis.find(options.mpi or ["mpich"], venvs,
                               say=lambda text: print(text, file=sys.stderr))
    for reason in missing.values():
        print(f"operations: {reason}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        for mpi in found.values():
            binary = Path(folder) / f"operations.{mpi.key}"
            subprocess.run([mpi.mpicc, "-O2", "-o", binary, HERE / "operations.c"], check=True)
            for group, ranks in ((POINT_TO_POINT, 2), (COLLECTIVES, options.ranks)):
                operations = [each for each in group if each in wanted]
                if not operations:
                    continue
                for (operation, size, way), seconds in run(options, mpi, binary, operations,
                                                           ranks).items():
                    print(json.dumps({"experiment": "mpi-operations", "mpi": mpi.name,
                                      "version": " ".join(mpis.REQUIREMENTS[mpi.key]),
                                      "operation": operation, "bytes": size, "ranks": ranks,
                                      "way": way, "seconds": seconds}), flush=True)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
