#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Stands for operations.py, heap.py, overlap.py, counts.py, rndv_modes.py, programs.py, categories.py,
applications.py and outside.py of bench/mpi, and replay.py of bench, under their names: lines of made-up values. $FAKE_MISSING: a program that rndv_modes.py
says it has not. $FAKE_UNVERIFIED: a benchmark whose answer outside.py finds wrong. outside.py notes its source in
$FAKE_LOG."""

import json
import os
import sys
from pathlib import Path


# Peers that this machine "has not".
NOT_HERE = {"dc_mlx5": "UCX: transport 'dc_mlx5' is not available <&>", "rxm": "rdma_create_id: no memory"}


def ways_in(words):
    if peer := peer_in(words):
        return ["heddle", peer]
    return [after for word, after in zip(words, words[1:]) if word == "--way"] or ["verbs", "direct"]


def peer_in(words):
    return words[words.index("--beside") + 1] if "--beside" in words else None


def operations(words):
    if (peer := peer_in(words)) in NOT_HERE:
        yield {"mpi": "MPICH", "operation": "all", "bytes": 0, "ranks": 2, "way": peer, "cores": 2, "engine": "hybrid",
               "beside": peer, "seconds": [], "missing": NOT_HERE[peer]}
        return
    rates = [f"rate of {count}" for count in ("1 thread", "2 threads")] if "--threads" in words else []
    of_reuse = "reuse" in ways_in(words)
    ranks = int(words[words.index("--ranks") + 1]) if peer and "--ranks" in words else 2
    names = [words[words.index("--operation") + 1]] if of_reuse else ["latency", "bandwidth", "allreduce"]
    for operation in rates or names:
        for size in (8,) if rates else (1024, 8192) if of_reuse else (8, 8192, 1 << 20):
            for way in ways_in(words):
                faster = 0.5 if way in ("direct", "heddle") else 0.9 if way == "reuse" else 1
                yield {"mpi": "MPICH", "operation": operation, "bytes": size, "ranks": ranks, "way": way, "cores": 2,
                       "engine": "hybrid", "beside": peer,
                       "learning": "inside" if "--fresh" in words else "before", "saved_ns": 150.0,
                       "seconds": [1e-6 * faster, 2e-6 * faster]}


def heap(words):
    for way in set(ways_in(words)) & set(NOT_HERE):
        yield {"mpi": "MPICH", "way": way, "ranks": 0, "heap_bytes": [], "memory_bytes": [], "qps": None,
               "missing": NOT_HERE[way]}
    for ranks in (2, 4):
        for way in (each for each in ways_in(words) if each not in NOT_HERE):
            yield {"mpi": "MPICH", "way": way, "ranks": ranks, "heap_bytes": [20000 * ranks], "qps": 2.0 * ranks,
                   "memory_bytes": [(2 if way == "heddle" else 5) * (1 << 20) * ranks]}


def counts(_):
    for way, instructions in (("verbs", 2000.0), ("direct", 1000.0), ("rc_verbs", 1800.0), ("rc_mlx5", 900.0)):
        yield {"way": way, "callgrind": {
            "instructions": instructions, "data_reads": instructions / 4, "data_writes": instructions / 5,
            "mispredicted": 20.0, "by_object": {"libmpi.so.12": 500.0, "libmlx5.so.1": instructions - 500}},
            "processor": {"stalled_backend": {"why_not": "this machine does not count it <&>"},
                          "task_clock_ns": [900.0, 1100.0]}}


def overlap(words):
    peer = peer_in(words)
    if peer in NOT_HERE:
        yield {"mpi": "MPICH", "way": peer, "side": "both", "bytes": 0, "base": [], "overhead": [], "beside": peer,
               "missing": NOT_HERE[peer]}
        return
    for side in ("sender", "receiver"):
        for way in ("heddle", peer):
            yield {"mpi": "MPICH", "way": way, "side": side, "bytes": 1 << 16, "base": [10e-6, 12e-6],
                   "overhead": [1e-6, 1e-6] if way == "heddle" else [8e-6, 9e-6], "beside": peer}


def ways(words):
    words = words or []
    program = words[words.index("--program") + 1] if "--program" in words else "adi"
    if program == os.environ.get("FAKE_MISSING"):
        print(f"installing this and that\nrndv_modes: no {program} <&>", file=sys.stderr)
        sys.exit(77)
    by = ({"verbs": 2.0, "direct": 1.9} if "post" in words else
          {"rget": 2.0, "rput": 2.0, "tupleq": 1.5, "tupleq, copy": 1.6, "auto": 1.9})
    for way, seconds in by.items():
        yield {"program": program, "way": way, "seconds": [seconds, seconds * 1.1]}


# By protocol: availability of short messages and of long ones in percent, and the time of a message in us.
SMB = {"rget": (70, 2, 10.0), "rput": (70, 2, 10.0), "tupleq": (97, 97, 10.0), "auto": (97, 97, 10.0)}
SP = {"rget": 36.78, "rput": 36.69, "tupleq": 27.38, "tupleq, copy": 28.74, "auto": 28.0}


def smb(values=None, sizes=(8, 1024, 8192, 1 << 20), cores=2):
    for way, (short, long, base) in (values or SMB).items():
        for side in ("sender", "receiver"):
            for size in sizes:
                share = short if size < 8192 else long
                yield {"way": way, "side": side, "bytes": size, "ranks": 2, "cores": cores, "base_us": [base] * 3,
                       "overhead_us": [base * (1 - share / 100)] * 3, "available": [share] * 3}


def sp(seconds=None, letter="B", cores=4):
    for way, each in (seconds or SP).items():
        yield {"program": f"sp.{letter}", "ranks": 4, "cores": cores, "way": way, "seconds": [each] * 3}


# By benchmark: percent of small messages from reused buffers, and of the time that reuse saves.
NPB = {"cg": (43, 1), "lu": (98, 4), "sp": (10, 0), "mg": (50, 0), "ft": (0, 0)}


def reuse_row(name, share, saved, sends, cores):
    parts = {"send_s": sends, "communication_s": saved, "run_s": saved}
    return {"program": name, "ranks": 4, "cores": cores, "without": {part: [1.0] * 7 for part in parts},
            "with": {part: [1 - percent / 100] * 7 for part, percent in parts.items()},
            "counts": {"copied_by_size": [0, 1000 - 10 * share], "gathered_by_size": [0, 10 * share]}}


# Percent of messages from reused buffers, of the run's and of the sends' time saved.
APPLICATIONS = {"multigrid": (77, 1, 1), "lattice": (44, 1, 7), "LAMMPS melt": (0, 0, 0), "cg": (43, 1, 1),
                "lu": (98, 4, 18)}


def npb_reuse(values=None, letter="B", cores=4):
    for name, (share, saved) in (values or NPB).items():
        yield reuse_row(f"{name}.{letter}", share, saved, 18 if name == "lu" else saved, cores)


def beside_peer(experiment, programs):
    for name, faster in programs.items():
        for way in ("heddle", "rc_verbs"):
            yield {"experiment": experiment, "program": name, "mpi": "MPICH", "ranks": 2, "cores": 2, "way": way,
                   "run_s": [1.0 / (faster if way == "heddle" else 1)] * 7, "communication_s": [0.25] * 7,
                   "seconds": [0.9] * 7}


def applications(words, values=None, cores=4):
    if words and "peer" in words:
        yield from beside_peer("peer-applications", {"multigrid": 1.2, "lattice": 1.01, "cg": 1.0})
        yield {"experiment": "peer-applications", "program": "adi", "mpi": "MPICH", "ranks": 2, "cores": 2,
               "way": "rc_verbs", "run_s": [], "missing": "needs a square number of ranks"}
        return
    for name, (share, saved, sends) in (values or APPLICATIONS).items():
        yield reuse_row(name, share, saved, sends, cores)


def outside(words):
    option = "--smb" if "--smb" in words else "--npb"
    with open(os.environ["FAKE_LOG"], "a", encoding="utf-8") as log:
        print("outside", option, words[words.index(option) + 1], file=log)
    if option == "--smb":
        return smb()
    if os.environ.get("FAKE_UNVERIFIED") == words[words.index("--benchmark") + 1]:
        print("sp.A.x by rput: its answer is not verified: Verification = UNSUCCESSFUL", file=sys.stderr)
        sys.exit(1)
    if "peer" in words:
        return beside_peer("peer-npb", {f"{words[words.index('--benchmark') + 1]}.S": 1.0})
    if "reuse" in words:
        return npb_reuse(letter=words[words.index("--class") + 1])
    return sp(letter=words[words.index("--class") + 1])


def programs(_):
    counts = {"inlined": 5, "rendezvous": 7, "copied_by_size": [0] * 10 + [3],
              "gathered_by_size": [0] * 10 + [9], "buffers_by_uses": [0, 2, 3, 4, 5, 6, 7, 8, 9]}
    for name in ("cg", "adi"):
        yield {"program": name, "missing": None, "good": True, "counts": counts}
    yield {"program": "multigrid", "missing": "no hypre <&>"}


# What a process has with two threads: contexts, UAR pages, queue pairs, completion queues, locks a message.
CATEGORIES = {"mpi-everywhere": (2, 5, 5, 3, 0, 1), "2xdynamic": (1, 7, 5, 3, 0, 0), "dynamic": (1, 5, 5, 3, 0, 0),
              "shared-dynamic": (1, 4, 5, 3, 0, 0), "static": (1, 4, 5, 3, 0, 1), "mpi+threads": (1, 3, 3, 2, 3, 1)}


def categories(_, cores=2):
    for category, (contexts, pages, qps, cqs, of_domains, of_registers) in CATEGORIES.items():
        yield {"program": "rate", "category": category, "kernel": "dynamic", "threads": 2, "ranks": 2,
               "cores": cores, "contexts": contexts, "uar_pages": pages, "qps": qps, "cqs": cqs,
               "queue_bytes": 1 << 20, "mr_bytes": 4 << 20, "memory_bytes": 9 << 20, "sent": 1000,
               "domain_locks": 1000 * of_domains, "register_locks": 1000 * of_registers, "messages": 900,
               "doorbells": 0, "blueflame": 910, "seconds": [4e-6 if of_domains else 2e-6] * 3}


def replay(_):
    for endpoints, rate in (("as recorded", 94.0), *((name, 94.0 / (1 + place)) for place, name in enumerate(CATEGORIES))):
        yield {"kernel": "Stencil, 4 x 4", "figure": "14", "curve": "4.4", "endpoints": endpoints, "low": 0.9 * rate,
               "predicted_mmsgs_per_s": rate, "high": 1.1 * rate, "wqes": 100, "counted_wqes": 100,
               "blueflame": 100, "counted_blueflame": 100}


if __name__ == "__main__":
    made_up = {"operations": operations, "heap": heap, "overlap": overlap, "counts": counts, "rndv_modes": ways,
               "programs": programs, "categories": categories, "outside": outside, "applications": applications,
               "replay": replay}
    for row in made_up[Path(__file__).stem](sys.argv):
        print(json.dumps(row))
