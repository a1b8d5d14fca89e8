#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""What a process has in memory once it has talked to all others (heap.c), by the number of processes:
over heddle by the verbs path and by the direct one, or over UCX's rc_verbs and rc_mlx5, or another peer; and queue
pairs, where the device is a software HCA. A line of JSON for each; one that says why for a peer that this
machine has not. Standard library only."""

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import transports
from turns import PATIENCE, compiled, mpis, over_heddle, parser_of

RUNS = 3


def environment_of(options, mpi, way):
    provider = options.heddle.parent.parent / "lib"
    if way in ("verbs", "direct"):
        return {**over_heddle(mpi, provider), "FI_HEDDLE_POST": way}
    return transports.environment_of(mpi, "rc_verbs" if way == "ucx" else way, provider)


def queue_pairs(options, fabric):
    """The queue pairs that a process of the program has, on average."""
    shown = subprocess.run([options.heddle.with_name("softhca"), "stat", "--fabric", fabric, "--json"],
                           capture_output=True, text=True, check=True)
    counts = [process["qps"] for process in json.loads(shown.stdout)["processes"] if process["qps"]]
    return sum(counts) / max(len(counts), 1)


def heap(options, mpi, binary, ranks, way):
    """Bytes on the heap and in memory of rank 0, and queue pairs of a process or None."""
    fabric = f"heap-{os.getpid()}"
    before = [] if options.hardware else [options.heddle.with_name("softhca"), "run", "--fabric",
                                          fabric, "--"]
    with subprocess.Popen(list(map(str, [*before, *mpi.mpiexec(ranks), binary])),
                          env={**os.environ, **environment_of(options, mpi, way)}, text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT) as process:
        # Whoever does not come to its end says so.
        watchdog = threading.Timer(PATIENCE, process.kill)
        watchdog.start()
        said, found = [], None
        while found is None and (line := process.stdout.readline()):
            said.append(line)
            found = re.match(r"heap \d+ (\d+) (\d+)$", line)
        qps = None if found is None or options.hardware else queue_pairs(options, fabric)
        rest = process.communicate("\n")[0]  # it waits for that
        watchdog.cancel()
    if process.returncode != 0 or found is None:
        sys.exit(f"heap: {way}, {ranks} processes: {''.join(said)[-1000:]}{rest[-1000:]}")
    return int(found[1]), int(found[2]), qps


def print_line(mpi, ranks, way, **more):
    print(json.dumps({"experiment": "mpi-heap", "mpi": mpi.name, "ranks": ranks, "way": way,
                      "version": " ".join(mpis.REQUIREMENTS[mpi.key]), **more}), flush=True)


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--mpi", choices=("mpich", "openmpi"), action="append", help="may be repeated (default: mpich)")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"of each (default {RUNS})")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--way", choices=("verbs", "direct", "heddle", "ucx", *transports.PEERS), action="append",
                        help="may be repeated (default: verbs, direct)")
    options = parser.parse_args()
    options.heddle = options.heddle.resolve()
    venvs = (options.venvs or options.heddle.parent.parent / "venvs").resolve()
    found, missing = mpis.find(options.mpi or ["mpich"], venvs, say=lambda text: print(text, file=sys.stderr))
    if missing:
        sys.exit(f"heap: {', '.join(missing.values())}")
    with tempfile.TemporaryDirectory() as folder:
        for mpi in found.values():
            measure(options, mpi, Path(folder))
    return 0


def measure(options, mpi, folder):
    binary = compiled(mpi, folder, "heap")
    names = options.way or ("verbs", "direct")
    reasons = {way: transports.why_not(options, mpi, way, folder) for way in names if way in transports.PEERS}
    for way, reason in reasons.items():
        if reason:
            print_line(mpi, 0, way, heap_bytes=[], memory_bytes=[], qps=None, missing=reason)
    for ranks in options.ranks:
        for way in (each for each in names if not reasons.get(each)):
            heaps, memories, qps = zip(*(heap(options, mpi, binary, ranks, way) for _ in range(options.runs)))
            print_line(mpi, ranks, way, heap_bytes=heaps, memory_bytes=memories, qps=qps[-1])


if __name__ == "__main__":
    sys.exit(main())
