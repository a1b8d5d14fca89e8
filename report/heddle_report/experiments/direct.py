# SPDX-License-Identifier: BSD-2-Clause
"""Posting by the adapter's own entries instead of libibverbs' (direct verbs)."""

from ..model import Experiment, Panel, Point, Series, Verdict
from ..values import distinct, middle, middle_between, quartiles
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
        "is counted in instructions (docs/reference/results/mpi.md). With more ranks than processors the scheduler "
        "is most of a collective's time.", needs=operations.NEEDS, needs_source=True)


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


# Instructions, and what the processor counts.

POSTS = {"verbs-locked": "verbs, QP locked", "verbs-thread-domain": "verbs, thread domain",
         "direct": "direct, thread domain"}
LIBRARIES = {"post_instructions": "heddle"}
COUNTED = {"cycles": "cycles", "instructions": "instructions of the whole thread", "cache_misses":
           "misses of the last cache", "branch_misses": "mispredicted branches",
           "task_clock_ns": "processor time, ns"}


def instructions(rows):
    """By path: (all, by library)."""
    return {POSTS[name]: (row[name]["instructions"], row[name]["by_object"])
            for row in rows if "direct" in row for name in POSTS}


def counters(rows):
    """What was counted: name -> path -> samples."""
    return {COUNTED[name]: each for row in rows if "counters" in row
            for name, each in row["counters"].items() if name in COUNTED and "why_not" not in each}


def not_counted(rows):
    return {COUNTED[name]: each["why_not"] for row in rows if "counters" in row
            for name, each in row["counters"].items() if name in COUNTED and "why_not" in each}


def count_points(rows):
    found = [Point(("instructions", path), count) for path, (count, _) in instructions(rows).items()]
    for name, each in counters(rows).items():
        found += [Point((name, path), middle(each[path]), *quartiles(each[path]))
                  for path in ("verbs", "direct")]
    return found


def count_panels(rows):
    by = instructions(rows)
    libraries = sorted({name for _, objects in by.values() for name in objects})
    found = []
    if by:
        found.append(Panel("Instructions of a write and its completion", list(by), "", "instructions",
                           [Series("all", [count for count, _ in by.values()])] +
                           [Series(LIBRARIES.get(library, library), [objects.get(library) for _, objects in by.values()])
                            for library in libraries]))
    for name, each in counters(rows).items():
        found.append(Panel(name[0].upper() + name[1:], ["verbs", "direct"], "", "of a write", [
            Series(name, [middle(each[path]) for path in ("verbs", "direct")],
                   *zip(*(quartiles(each[path]) for path in ("verbs", "direct"))))]))
    return found


def count_verdict(rows):
    by = instructions(rows)
    if not by:
        return Verdict("none", "Instructions were not counted.")
    verbs, direct = by[POSTS["verbs-thread-domain"]][0], by[POSTS["direct"]][0]
    text = (f"Posting and polling takes {verbs:.0f} instructions by verbs, {direct:.0f} directly: "
            f"{1 - direct / verbs:.0%} fewer.")
    if missing := not_counted(rows):
        reasons = distinct(missing.values())
        text += f" Not counted: {', '.join(missing)} ({'; '.join(reasons)})."
    return Verdict("like" if direct <= 0.5 * verbs else "unlike", text)


# Programs.

def shares(rows):
    """The time of each path as a multiple of the time by verbs, round by round."""
    by = {row["way"]: row["seconds"] for row in rows}
    return {way: [mine / base for mine, base in zip(seconds, by["verbs"])]
            for way, seconds in by.items()}


def program_points(rows):
    by, each = {row["way"]: row for row in rows}, shares(rows)
    return [Point((way, f"{middle(by[way]['seconds']):.3f}"), middle(each[way]),
                  *quartiles(each[way])) for way in each]


def program_panels(rows):
    by = shares(rows)
    return [Panel("Time of the program", list(by), "", "of the time by verbs", [
        Series(rows[0]["program"], [middle(each) for each in by.values()],
               *zip(*(quartiles(each) for each in by.values())))])]


def program_verdict(rows):
    low, high = middle_between(shares(rows)["direct"])
    value = middle(shares(rows)["direct"])
    text = (f"All answers are right. Directly it takes {value:.2f} times as long as by verbs "
            f"({low:.2f} to {high:.2f} with 95 % confidence).")
    if low < 1 < high:
        return Verdict("none", text + " No difference is shown.")
    return Verdict("like" if value < 1 else "unlike", text)


def program(key, where, title, question, name, paper, seconds):
    return Experiment(
        key=key, paper="direct", where=where, title=title, question=question,
        commands=lambda mode: [["bench/mpi/rndv_modes.py", "--json", "--vary", "post", "--program", name,
                                "--ranks", "2", "--rounds", "12" if mode == "quick" else "40"]],
        seconds=seconds, columns=("way", "seconds"), unit="times verbs' time", points=program_points,
        panels=program_panels, verdict=program_verdict, more_is_better=False,
        differences=f"The paper has {paper}; its values are not at hand. Here are two ranks, and a program spends "
        "most of its time computing: what a path saves is some tenths of a microsecond a message.",
        needs=("program", "way", "seconds"), needs_source=True)


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
    Experiment(
        key="direct-instructions", paper="direct", where="its explanation of Figs. 1 to 5",
        title="Instructions, and what the processor counts",
        question="What one 8-byte write costs the processor that posts it and polls for its completion, "
        "by verbs and directly.",
        commands=lambda mode: [["post_instructions", "--json"], ["post_counters", "--json"]],
        seconds={"quick": 8, "full": 8}, columns=("count", "path"), unit="of a write",
        points=count_points, panels=count_panels, verdict=count_verdict, more_is_better=False,
        differences="The paper counts instructions, cycles, misses and mispredictions by the processor. "
        "Instructions of the library are counted by callgrind, without the software HCA's own: exact, and "
        "the same on a busy machine. The processor's own counters (perf_event_open) count all that the "
        "thread does, so with a software HCA also what that does in it; virtual machines often have none."),
    program("direct-cg", "its applications", "Conjugate gradients", "A sparse system by conjugate "
            "gradients, in the manner of NAS CG, on two ranks; its answer is verified. By both paths, in "
            "turns.", "cg", "a lattice code that solves by conjugate gradients", {"quick": 34, "full": 115}),
    program("direct-lammps", "its applications", "LAMMPS, 3-D Lennard-Jones melt", "The distribution's "
            "LAMMPS and Open MPI, on two ranks; the energy must stay. By both paths, in turns.", "lammps",
            "LAMMPS's melt", {"quick": 34, "full": 115}),
]
