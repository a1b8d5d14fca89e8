#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""What a message of an MPI ping-pong costs the processor of rank 0 (counts.c): over heddle by the verbs path and
the direct one, and over UCX's rc_verbs and rc_mlx5. Prints a line of JSON for each way. Standard library only.

By callgrind: instructions, data reads and writes, and mispredicted branches of MPI_Send and MPI_Recv, once the
message is there; by library, without the software HCA's own. If a busy machine delivers a message late,
empty polls are added. By the processor's
counters: the ping-pong as fast as it goes, all ways in turns, waiting and a software HCA's work included. What
cannot be counted has the reason instead.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import callgrind
from turns import HERE, PATIENCE, RANKS, UCX, Job, mpis, over_heddle, over_ucx, parser_of

WAYS = ("verbs", "direct", *UCX)
BYTES = 8
PING_PONGS = 200  # of a turn
# Our names: callgrind's events, added up.
EVENTS = {"instructions": ("Ir",), "data_reads": ("Dr",), "data_writes": ("Dw",),
          "mispredicted": ("Bcm", "Bim")}


def environment_of(options, mpi, way):
    if way in UCX:
        return over_ucx(mpi, way)
    return {**over_heddle(mpi, options.heddle.parent.parent / "lib"), "FI_HEDDLE_POST": way}


def softhca(options, *words):
    return [] if options.hardware else [options.heddle.with_name("softhca"), "run", "--fabric",
                                        f"counts-{os.getpid()}", *words, "--"]


def is_devices(library, function):
    """Whether it is the software HCA's work: no library makes system calls here but to wake its thread."""
    return library.startswith("libsofthca") or function == "syscall"


def read_counts(lines):
    """A callgrind.out file: library -> our name -> sum of its functions' own costs, without the device's."""
    found = {}
    for record in callgrind.records(lines):
        if isinstance(record, callgrind.Own) and not is_devices(record.library, record.function):
            into = found.setdefault(record.library, dict.fromkeys(EVENTS, 0))
            for name, of in EVENTS.items():
                into[name] += sum(record.costs.get(event, 0) for event in of)
    return found


def by_callgrind(options, mpi, binary, way, folder):
    """Each count of a message, and its instructions by library; or why there is none."""
    if shutil.which("valgrind") is None:
        return {"why_not": "valgrind is not installed"}
    for rank in range(RANKS):
        path = folder / f"sent.{rank}"
        if not path.exists():
            os.mkfifo(path)
    out = folder / f"{way}.callgrind"
    program = [binary, "steps", options.messages, folder]
    valgrind = ["valgrind", "--tool=callgrind", "-q", f"--callgrind-out-file={out}", "--cache-sim=yes",
                "--branch-sim=yes", "--toggle-collect=counted_send", "--toggle-collect=counted_receive"]
    # The device executes in a thread of its own, which callgrind does not collect.
    words = [*softhca(options, "--engine", "thread"), *mpi.mpiexec(1), *valgrind, *program, ":", "-n", "1", *program]
    done = subprocess.run(list(map(str, words)), env={**os.environ, **environment_of(options, mpi, way)},
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=PATIENCE, check=False)
    if done.returncode != 0:
        sys.exit(f"counts: {way} below callgrind ended with {done.returncode}:\n{done.stdout[-2000:]}")
    with open(out, encoding="utf-8", errors="replace") as lines:
        found = read_counts(lines)
    if not any(each["instructions"] for each in found.values()):
        sys.exit(f"counts: {way}: callgrind has counted nothing")
    return {**{name: sum(each[name] for each in found.values()) / options.messages for name in EVENTS},
            "by_object": {library: each["instructions"] / options.messages for library, each in found.items()}}


def by_processor(options, mpi, binary, ways, folder):
    """way -> name -> a value of a message for each turn, or why there is none."""
    argv = [*softhca(options), *mpi.mpiexec(RANKS), binary, "turns", PING_PONGS, options.turns]
    jobs = [Job(way, argv, environment_of(options, mpi, way), folder) for way in ways]
    for number in range(1 + options.turns):
        first = number % len(jobs)
        for job in jobs[first:] + jobs[:first]:
            job.turn()
    found = {}
    for job in jobs:
        counted = found[job.name] = {}
        for name, value in job.results():
            counted.setdefault(name, []).append(float(value))
        for values in counted.values():
            del values[0]  # connections are made in it
        for line in job.text().splitlines():
            if line.startswith("not "):
                _, name, reason = line.split(None, 2)
                counted[name] = {"why_not": reason}
        job.close()
    return found


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--way", choices=WAYS, action="append", help="may be repeated (default: all)")
    parser.add_argument("--messages", type=int, default=100, help="below callgrind (default 100)")
    parser.add_argument("--turns", type=int, default=9, help="by the processor's counters (default 9)")
    options = parser.parse_args()
    options.heddle = options.heddle.resolve()
    venvs = (options.venvs or options.heddle.parent.parent / "venvs").resolve()
    found, missing = mpis.find(["mpich"], venvs, say=lambda text: print(text, file=sys.stderr))
    if missing:
        sys.exit(f"counts: {missing['mpich']}")
    mpi, ways = found["mpich"], options.way or WAYS
    with tempfile.TemporaryDirectory() as folder:
        binary = Path(folder) / "counts"
        subprocess.run([mpi.mpicc, "-std=gnu11", "-O2", "-g", "-o", binary, HERE / "counts.c"], check=True)
        processor = by_processor(options, mpi, binary, ways, Path(folder))
        for way in ways:
            print(json.dumps({"experiment": "mpi-counts", "mpi": mpi.name, "way": way, "bytes": BYTES,
                              "version": " ".join(mpis.REQUIREMENTS["mpich"]),
                              "callgrind": by_callgrind(options, mpi, binary, way, Path(folder)),
                              "processor": processor[way]}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
