#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""operations.c in several ways at the same time: over heddle by the verbs path and the direct one, with the
reuse of buffers and without, and over UCX's rc_verbs and rc_mlx5, on the same device; over heddle by shared
memory; and over libfabric's tcp and shm.
All jobs are there at once and take turns, so that what is compared has seen the same machine. With --threads
also message_rate.c. Prints a line of JSON for each operation, size and way, with the seconds of every turn;
those of one place in two ways belong together. With --beside the jobs are two at a time, heddle and one peer, and
a peer that this machine has not has a line that says why. Standard library only.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import transports
from turns import SEEN_BY_REUSE, UCX, Job, compiled, mpis, over_heddle, over_ucx, parser_of

POINT_TO_POINT = ("latency", "bandwidth", "bidirectional")
ONE_SIDED = ("put", "get", "accumulate")  # with a fence each; only where they are asked for
COLLECTIVES = ("allgather", "alltoall", "scatter", "gather", "allreduce", "bcast")
SIZES = (8, 512, 8192, 65536, 1 << 20)
# "ucx" is rc_verbs; "again" is heddle, to see what two equal sides come to.
WAYS = ("verbs", "direct", "heddle", "heddle-shm", "again", "reuse", "copied", "ucx", *UCX, "tcp", "shm")
RATE_TURNS = 7  # in message_rate.c


def ways_of(mpi, provider, names, threads, one_sided):
    """The environment of each way."""
    ours = transports.environment_of(mpi, "heddle", provider, threads, one_sided)
    of_ours = {"verbs": {"FI_HEDDLE_POST": "verbs"}, "direct": {"FI_HEDDLE_POST": "direct"}, "heddle": {},
               "heddle-shm": {"FI_HEDDLE_SHM": "on"},
               "again": {}, "reuse": {**SEEN_BY_REUSE, "FI_HEDDLE_REUSE": "auto"},
               "copied": {**SEEN_BY_REUSE, "FI_HEDDLE_REUSE": "off"}}
    return {name: {**ours, **of_ours[name]} if name in of_ours else
            transports.environment_of(mpi, "rc_verbs" if name == "ucx" else name, provider, threads, one_sided)
            for name in names}


def engine_of(options, ranks):
    """The engine that the software HCA runs, or None on hardware.

    rc_mlx5 writes doorbells that only a progress thread finds, and rc_verbs rings by libmlx5, which the device
    follows at once. A dedicated progress thread finds both alike. It never sleeps, so that of each rank of
    each job needs a processor. See docs/reference/softhca.md, "The engine"."""
    if options.hardware:
        return None
    enough = len(os.sched_getaffinity(0)) >= ranks * (1 + len(options.way))
    looked_for = {"rc_mlx5", "dc_mlx5"} & set(options.way)
    return "dedicated" if looked_for and enough else os.environ.get("SOFTHCA_ENGINE", "hybrid")


def started(options, mpi, program, ranks):
    """The words that start a job."""
    before = [] if options.hardware else [options.heddle.with_name("softhca"), "run", "--engine",
                                          engine_of(options, ranks), "--fabric", f"operations-{os.getpid()}", "--"]
    return [*before, *mpi.mpiexec(ranks), *program]


def run(options, mpi, program, turns, ranks, threads=1, one_sided=False):
    """What was printed for each turn, by way."""
    argv = started(options, mpi, program, ranks)
    with tempfile.TemporaryDirectory() as folder:
        jobs = [Job(way, argv, environment, Path(folder), ranks) for way, environment
                in ways_of(mpi, options.provider, options.way, threads, one_sided).items()]
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
        for way, lines in run(options, mpi, program, turns, ranks, one_sided=group is ONE_SIDED).items():
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


def print_line(options, mpi, name, size, ranks, way, seconds, **more):
    print(json.dumps({"experiment": "mpi-operations", "mpi": mpi.name,
                      "version": " ".join(mpis.REQUIREMENTS[mpi.key]), "operation": name, "bytes": size,
                      "ranks": ranks, "way": way, "cores": len(os.sched_getaffinity(0)),
                      "engine": engine_of(options, ranks), "learning": "inside" if options.fresh else "before",
                      "seconds": seconds, **more}), flush=True)


def parsed():
    parser = parser_of(__doc__)
    parser.add_argument("--mpi", choices=("mpich", "openmpi"), action="append")
    parser.add_argument("--way", choices=WAYS, action="append",
                        help="may be repeated (default: verbs, direct)")
    parser.add_argument("--beside", choices=(*transports.PEERS, "again"), action="append",
                        help="heddle and this one, instead of --way; may be repeated: one pair after the other")
    parser.add_argument("--operation", choices=(*POINT_TO_POINT, *ONE_SIDED, *COLLECTIVES), action="append",
                        help="may be repeated (default: all but one-sided ones, or none with --threads)")
    parser.add_argument("--threads", type=int, nargs="+", default=[],
                        help="rates of messages of so many threads")
    parser.add_argument("--bytes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--ranks", type=int, default=max(2, len(os.sched_getaffinity(0))),
                        help="of collectives (default: as many as processors)")
    parser.add_argument("--turns", type=int, default=9, help="of each (default 9)")
    parser.add_argument("--fresh", action="store_true",
                        help="each turn has buffers of its own, so that learning of them takes part of it")
    options = parser.parse_args()
    if options.beside and options.way:
        parser.error("--beside has ways of its own")
    return options


def main():
    options = parsed()
    options.heddle = options.heddle.resolve()
    options.provider = options.heddle.parent.parent / "lib"
    pairs = [["heddle", peer] for peer in options.beside or ()] or [options.way or ["verbs", "direct"]]
    wanted = options.operation or ([] if options.threads else (*POINT_TO_POINT, *COLLECTIVES))
    venvs = (options.venvs or options.heddle.parent.parent / "venvs").resolve()
    found, missing = mpis.find(options.mpi or ["mpich"], venvs,
                               say=lambda text: print(text, file=sys.stderr))
    for reason in missing.values():
        print(f"operations: {reason}", file=sys.stderr)
    saved = saved_by_size(options) if "reuse" in pairs[0] else {}
    with tempfile.TemporaryDirectory() as folder:
        for mpi in found.values():
            for options.way in pairs:
                peer = options.way[-1] if options.beside else None
                reason = peer in transports.PEERS and transports.why_not(options, mpi, peer, Path(folder),
                                                             one_sided=bool({*ONE_SIDED} & {*wanted}))
                if reason:
                    print_line(options, mpi, "all", 0, 2, peer, [], beside=peer, missing=reason)
                    continue
                for ((name, size, ranks), way), seconds in measured(options, mpi, Path(folder), wanted):
                    print_line(options, mpi, name, size, ranks, way, seconds, beside=peer,
                               saved_ns=saved.get((channel_of(name), size)))
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
