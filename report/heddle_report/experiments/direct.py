# SPDX-License-Identifier: BSD-2-Clause
"""Posting by the adapter's own entries instead of libibverbs' (direct verbs)."""

from ..catalogue import Experiment, Panel, Point, Series, Verdict, distinct, middle, quartiles
from . import operations

Y_LABEL = "direct, times as fast as verbs"


def verdict(rows):
    found = operations.pairs(rows, "direct", "verbs")
    if not found:
        return Verdict("none", "No operation was measured by both paths.")
    small = [value for key, pair in found.items() if key[2] <= 512
             for value in operations.ratios(pair)]
    large = [value for key, pair in found.items() if key[2] >= 65536
             for value in operations.ratios(pair)]
    if not small:
        return Verdict("none", "No small size was measured.")
    text = f"Directly, up to 512 bytes: {middle(small):.2f} times as fast"
    if large:
        text += f"; from 64 KiB on: {middle(large):.2f}"
    return Verdict("like" if middle(small) >= 1 else "unlike", text + " (medians of all turns).")


def experiment(key, title, question, which, sizes, paper, seconds):
    def commands(mode):
        turns = "15" if mode == "quick" else "61"
        chosen = [word for name in which for word in ("--operation", name)]
        return [[operations.SCRIPT, "--turns", turns, *chosen, "--bytes", *map(str, sizes)]]

    return Experiment(
        key=key, paper="direct", where="Figs. 1 to 5", title=title, question=question,
        commands=commands, seconds=seconds,
        columns=("MPI", "operation", "bytes", "direct, us", "verbs, us"), unit=Y_LABEL,
        points=operations.points("direct", "verbs"),
        panels=operations.panels("direct", "verbs", Y_LABEL), verdict=verdict,
        differences=f"The paper: {paper}. It replaced UCX's calls of libibverbs and measured MVAPICH on "
        "ConnectX-6, up to 128 nodes; here both paths are heddle's own. What the device does is most of "
        "an operation on a software HCA, as the processors that post also execute; the path's own share "
        "is counted in instructions (docs/results.md). With more ranks than processors the scheduler is "
        "most of a collective's time.", needs=operations.NEEDS, needs_source=True)


# Heap.

def heap_points(rows):
    return [Point((row["way"], row["ranks"]), middle(row["heap_bytes"]) / 1024,
                  *(each / 1024 for each in quartiles(row["heap_bytes"]))) for row in rows]


def heap_panels(rows):
    ranks = sorted(distinct(row["ranks"] for row in rows))
    series = []
    for way in distinct(row["way"] for row in rows):
        by = {row["ranks"]: middle(row["heap_bytes"]) / 1024 for row in rows if row["way"] == way}
        series.append(Series(way, [by.get(count) for count in ranks]))
    return [Panel("Heap of a process that has talked to all", ranks, "processes", "KiB in use",
                  series, x_scale="log2")]


def heap_verdict(rows):
    by = {(row["way"], row["ranks"]): middle(row["heap_bytes"]) for row in rows}
    ranks = sorted(distinct(row["ranks"] for row in rows))
    growth = {way: (by[way, ranks[-1]] - by[way, ranks[0]]) / (ranks[-1] - ranks[0]) / 1024
              for way in ("verbs", "direct") if (way, ranks[0]) in by and (way, ranks[-1]) in by}
    if len(ranks) < 2 or len(growth) < 2:
        return Verdict("none", "Only one number of processes was measured.")
    return Verdict("like" if growth["direct"] <= 0.5 * growth["verbs"] else "unlike",
                   f"A further process costs {growth['verbs']:.1f} KiB of heap by verbs, "
                   f"{growth['direct']:.1f} KiB directly.")


EXPERIMENTS = [
    experiment("direct-point-to-point", "Latency, bandwidth, bidirectional bandwidth", "Two ranks over "
               "MPI, by the verbs path and by the direct one, in turns.",
               ("latency", "bandwidth", "bidirectional"), (8, 64, 512, 4096, 16384, 65536, 1 << 20),
               "gains below 5 % from 4 KB on, none beyond 16 KB", {"quick": 12, "full": 40}),
    experiment("direct-collectives", "Collectives", "Four ranks over MPI, by the verbs path and by the "
               "direct one, in turns.",
               ("allgather", "alltoall", "scatter", "gather", "allreduce", "bcast"),
               (8, 512, 8192, 65536), "allgather up to 30 %; scatter over 50 % at 1 MB on 16 nodes, up "
               "to 20 % on 128", {"quick": 12, "full": 40}),
    Experiment(
        key="direct-heap", paper="direct", where="Fig. 10", title="Heap by the number of processes",
        question="What a process has allocated once it has sent to all others, by the verbs path and by "
        "the direct one.",
        commands=lambda mode: [["bench/mpi/heap.py", "--ranks", *(
            ("2", "4", "8") if mode == "quick" else ("2", "4", "8", "16", "32"))]],
        seconds={"quick": 10, "full": 60}, columns=("way", "processes"), unit="KiB",
        points=heap_points, panels=heap_panels, verdict=heap_verdict, more_is_better=False,
        differences="The paper: constant by direct verbs, where verbs grows with the processes. Counted "
        "is what malloc has given out in rank 0 (mallinfo2), MPI's own included. Queue pairs are made by "
        "libibverbs on both of heddle's paths, so libmlx5's part of each is on both sides.",
        needs=("way", "ranks", "heap_bytes"), needs_source=True),
]
