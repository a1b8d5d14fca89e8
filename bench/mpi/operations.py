#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""operations.c in several ways at the same time: over heddle by the verbs path and the direct one, with the
reuse of buffers and without, and over UCX's rc_verbs and rc_mlx5, on the same device, and over libfabric's
tcp and shm.
All jobs are there at once and take turns, so that what is compared has seen the same machine. With --threads
also message_rate.c. Prints a line of JSON for each operation, size and way, with the seconds of every turn;
those of one place in two ways belong together. Standard library only.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from turns import SEEN_BY_REUSE, UCX, Job, compiled, mpis, over_heddle, over_ucx, parser_of

POINT_TO_POINT = ("latency", "bandwidth", "bidirectional")
ONE_SIDED = ("put", "get")  # with a fence each; only where they are asked for
COLLECTIVES = ("allgather", "alltoall", "scatter", "gather", "allreduce", "bcast")
SIZES = (8, 512, 8192, 65536, 1 << 20)
WAYS = ("verbs", "direct", "heddle", "reuse", "copied", "ucx", *UCX, "tcp", "shm")  # "ucx" is rc_verbs
RATE_TURNS = 7  # in message_rate.c


def ways_of(mpi, provider, names, threads):
    """The environment of each way."""
    ours = over_heddle(mpi, provider, threads)
    every = {"verbs": {**ours, "FI_HEDDLE_POST": "verbs"},
             "direct": {**ours, "FI_HEDDLE_POST": "direct"}, "heddle": ours,
             "reuse": {**ours, **SEEN_BY_REUSE, "FI_HEDDLE_REUSE": "auto"},
             "copied": {**ours, **SEEN_BY_REUSE, "FI_HEDDLE_REUSE": "off"},
             "ucx": over_ucx(mpi), **{name: over_ucx(mpi, name) for name in UCX},
             "tcp": mpi.environment("tcp", threads=threads), "shm": mpi.environment("shm", threads=threads)}
    return {name: every[name] for name in names}


def engine_of(options, ranks):
    """The engine that the software HCA runs, or None on hardware.

    rc_mlx5 writes doorbells that only a progress thread finds, and rc_verbs rings by libmlx5, which the device
    follows at once. A dedicated progress thread finds both alike. It never sleeps, so that of each rank of
    each job needs a processor. See docs/reference/softhca.md, "The engine"."""
    if options.hardware:
        return None
    enough = len(os.sched_getaffinity(0)) >= ranks * (1 + len(options.way))
    return "dedicated" if "rc_mlx5" in options.way and enough else os.environ.get("SOFTHCA_ENGINE", "hybrid")


def run(options, mpi, program, turns, ranks, threads=1):
    """What was printed for each turn, by way."""
    engine = engine_of(options, ranks)
    before = [] if options.hardware else [options.heddle.with_name("softhca"), "run", "--engine", engine,
                                          "--fabric", f"operations-{os.getpid()}", "--"]
    argv = [*before, *mpi.mpiexec(ranks), *program]
    with tempfile.TemporaryDirectory() as folder:
        jobs = [Job(way, argv, environment, Path(folder), ranks) for way, environment
                in ways_of(mpi, options.provider, options.way, threads).items()]
        for number in range(turns):
            first = number % len(jobs)  # who begins has what is warm of the other's
            for job in jobs[first:] + jobs[:first]:
                job.turn()
        found = {job.name: job.results() for job in jobs}
        for job in jobs:
            job.close()
    return found


def measured(options, mpi, folder, wanted):
    """(operation, bytes, ranks), way and the seconds of its turns."""
    for group, ranks in ((POINT_TO_POINT, 2), (ONE_SIDED, 2), (COLLECTIVES, options.ranks)):
        names = [each for each in group if each in wanted]
        if not names:
            continue
        program = [compiled(mpi, folder, "operations"), ",".join(names),
                   ",".join(map(str, options.bytes)), options.turns, *(["fresh"] if options.fresh else [])]
        turns = (1 + options.turns) * len(names) * len(options.bytes)
        by = {}
        for way, lines in run(options, mpi, program, turns, ranks).items():
            for name, size, seconds in lines:
                by.setdefault(((name, int(size), ranks), way), []).append(float(seconds))
        yield from by.items()
    for threads in options.threads:
        program = [compiled(mpi, folder, "message_rate"), threads, 8]
        name = f"rate of {threads} thread{'s' if threads != 1 else ''}"
        for way, lines in run(options, mpi, program, 1 + RATE_TURNS, 2, threads).items():
            yield ((name, 8, 2), way), [float(words[-1]) for words in lines]


def saved_by_size(options):
    """(channel, bytes) -> what a message that is not copied saves here, in ns; 0: a copy costs less."""
    before = [] if options.hardware else [options.heddle.with_name("softhca"), "run", "--"]
    done = subprocess.run([*before, options.heddle, "calibrate", "--json"], capture_output=True, text=True,
                          check=True)
    found = {}
    for each in json.loads(done.stdout)["sizes"]:
        for channel, cost in each["ways"].items():
            saved = cost["copied_ns"] - cost["gathered_ns"] - each["lookup_ns"]
            found[channel, each["bytes"]] = saved if cost["uses"] is not None else 0
    return found


def channel_of(operation):
    """That of heddle's defaults."""
    return "one-sided" if operation in ONE_SIDED else "send"


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--mpi", choices=("mpich", "openmpi"), action="append")
    parser.add_argument("--way", choices=WAYS, action="append",
                        help="may be repeated (default: verbs, direct)")
    parser.add_argument("--operation", choices=(*POINT_TO_POINT, *ONE_SIDED, *COLLECTIVES), action="append",
                        help="may be repeated (default: all but put and get, or none with --threads)")
    parser.add_argument("--threads", type=int, nargs="+", default=[],
                        help="rates of messages of so many threads")
    parser.add_argument("--bytes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--ranks", type=int, default=4, help="of collectives (default 4)")
    parser.add_argument("--turns", type=int, default=9, help="of each (default 9)")
    parser.add_argument("--fresh", action="store_true",
                        help="each turn has buffers of its own, so that learning of them takes part of it")
    options = parser.parse_args()
    options.heddle = options.heddle.resolve()
    options.provider = options.heddle.parent.parent / "lib"
    options.way = options.way or ["verbs", "direct"]
    wanted = options.operation or ([] if options.threads else (*POINT_TO_POINT, *COLLECTIVES))
    venvs = (options.venvs or options.heddle.parent.parent / "venvs").resolve()
    found, missing = mpis.find(options.mpi or ["mpich"], venvs,
                               say=lambda text: print(text, file=sys.stderr))
    for reason in missing.values():
        print(f"operations: {reason}", file=sys.stderr)
    saved = saved_by_size(options) if "reuse" in options.way else {}
    with tempfile.TemporaryDirectory() as folder:
        for mpi in found.values():
            for ((name, size, ranks), way), seconds in measured(options, mpi, Path(folder), wanted):
                print(json.dumps({"experiment": "mpi-operations", "mpi": mpi.name,
                                  "version": " ".join(mpis.REQUIREMENTS[mpi.key]),
                                  "operation": name, "bytes": size, "ranks": ranks, "way": way,
                                  "cores": len(os.sched_getaffinity(0)),
                                  "engine": engine_of(options, ranks),
                                  "learning": "inside" if options.fresh else "before",
                                  "saved_ns": saved.get((channel_of(name), size)),
                                  "seconds": seconds}), flush=True)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
