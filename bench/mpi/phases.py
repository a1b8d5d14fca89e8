# SPDX-License-Identifier: BSD-2-Clause
"""A program without the reuse of buffers and with it, or over heddle and over a peer, in rounds: how long its ranks
send, are in MPI at all, and run (phases.c counts it in each process), and once more what its messages were. Standard
library only."""

import json
import os
import statistics
import subprocess
from pathlib import Path

import transports
from programs import Unavailable, add_up, share
from rndv_modes import in_rounds, once, print_table

HERE = Path(__file__).resolve().parent
# What is known of a run, and what a table calls it: means over the ranks; the last is the program's own clock.
PARTS = {"send_s": "sends", "communication_s": "in MPI", "run_s": "run", "seconds": "the program's own"}


PEER = "rc_verbs"  # of transports.py
tried = {}  # by the key of an MPI, why this machine has it not


class Broken(Exception):
    """A run that says nothing; the text says why."""


def library(mpi, folder):
    """phases.c for this MPI, in the folder."""
    path = folder / f"phases.{mpi.key}.so"
    if not path.exists():
        done = subprocess.run([mpi.mpicc, "-std=gnu11", "-O2", "-shared", "-fPIC", "-o", path, HERE / "phases.c"],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Unavailable(f"phases.c cannot be built: {done.stderr.strip()[-300:]}")
    return path


def preloaded(path):
    """The words before a program into whose processes the library is loaded, behind what is there already."""
    return ["sh", "-c", 'export LD_PRELOAD="${LD_PRELOAD:+$LD_PRELOAD:}$0"; exec "$@"', path]


def read(path, ranks):
    """What phases.c has written. Raises Broken."""
    if not path.exists():
        raise Broken("its processes wrote no times: it does not end by MPI_Finalize, or its MPI is another one")
    found = json.loads(path.read_text(encoding="utf-8"))
    if found["ranks"] != ranks:
        raise Broken(f"{found['ranks']} of {ranks} ranks wrote their times")
    return {part: found[part] for part in PARTS if part in found}


def timed(options, mpi, command, way, folder):
    """One run: seconds by PARTS. None: it failed, or its answer is wrong."""
    path = folder / "phases.json"
    path.unlink(missing_ok=True)
    seconds = once(options, mpi, command, way, folder, {"MPI_PHASES": path}, preloaded(library(mpi, folder)))
    return None if seconds is None else {**read(path, options.ranks), "seconds": seconds}


def counted(options, mpi, command, folder):
    """What the processes of one run with reuse have counted, summed; None: it failed, or its answer is wrong."""
    path = folder / "counts.json"
    path.unlink(missing_ok=True)
    if once(options, mpi, command, "auto", folder, {"FI_HEDDLE_STATS": path}) is None:
        return None
    processes, counts = add_up(path)
    if processes != options.ranks:
        raise Broken(f"{processes} of {options.ranks} processes wrote their counts")
    return counts


def beside_peers(options, mpi, experiment, name, command, folder):
    """Prints how long the program takes over heddle and over UCX. The status."""
    if mpi.key not in tried:
        tried[mpi.key] = transports.why_not(options, mpi, PEER, folder)
    if tried[mpi.key]:
        print_missing(options, mpi.name, experiment, name, tried[mpi.key])
        return 0
    taken = in_rounds(options, mpi, command, folder, timed)
    if taken is None:
        return 1
    if not options.json:
        print_table(options, name, mpi, {way: [each["run_s"] for each in rounds] for way, rounds in taken.items()})
        return 0
    for way, rounds in taken.items():
        parts = {part: [each[part] for each in rounds] for part in ("run_s", "communication_s", "seconds")}
        print_peer(options, mpi.name, experiment, name, way, **parts)
    return 0


def print_peer(options, mpi, experiment, name, way, **more):
    print(json.dumps({"experiment": experiment, "program": name, "mpi": mpi, "ranks": options.ranks,
                      "cores": len(os.sched_getaffinity(0)), "way": way, **more}), flush=True)


def print_missing(options, mpi, experiment, name, reason):
    print_peer(options, mpi, experiment, name, PEER, run_s=[], missing=str(reason))


def measure(options, mpi, experiment, name, command, folder):
    """Prints what came of the program, as options.json says. The status."""
    if options.vary == "peer":
        return beside_peers(options, mpi, experiment, name, command, folder)
    taken = in_rounds(options, mpi, command, folder, timed)
    counts = None if taken is None else counted(options, mpi, command, folder)
    if counts is None:
        return 1
    by = {way: {part: [each[part] for each in rounds] for part in PARTS} for way, rounds in taken.items()}
    (print_line if options.json else print_text)(options, mpi, experiment, name, by, counts)
    return 0


def print_line(options, mpi, experiment, name, by, counts):
    print(json.dumps({"experiment": experiment, "program": name, "mpi": mpi.name, "ranks": options.ranks,
                      "cores": len(os.sched_getaffinity(0)), "without": by["off"], "with": by["auto"],
                      "counts": counts}), flush=True)


def print_text(options, mpi, _, name, by, counts):
    rounds = len(by["off"]["run_s"])
    print(f"{name}, {options.ranks} ranks, {mpi.name}, {rounds} rounds, "
          f"{'' if options.hardware else 'software HCA; '}all answers right\n\n"
          "| medians, s | without reuse | with it | saved, % |\n|---|---:|---:|---:|")
    for part, what in PARTS.items():
        saved = [100 * (1 - with_ / without) for with_, without in zip(by["auto"][part], by["off"][part])]
        print(f"| {what} | {statistics.median(by['off'][part]):.4f} | {statistics.median(by['auto'][part]):.4f} | "
              f"{statistics.median(saved):+.1f} |")
    copied, direct = (sum(counts.get(key, [])) for key in ("copied_by_size", "gathered_by_size"))
    print(f"\n{share(direct, copied + direct)} % of {copied + direct} small messages were not copied\n")
