# SPDX-License-Identifier: BSD-2-Clause
"""Posting by the adapter's own entries instead of libibverbs' (direct verbs)."""

from ..model import Experiment, Panel, Point, Series, Verdict
from ..values import bytes_text, distinct, middle, middle_between, quartiles, short_of_cores
from . import operations

Y_LABEL = "direct, times as fast as verbs"


NOISE = 3  # percent that two equal paths may differ by
KB = 1024
SMALL = 5  # percent that a small message gains at least
# What the paper says of each size, in percent that the direct path gains: the least and the most.
POINT_TO_POINT = (
    (0, 4 * KB - 1, SMALL, 100, "below 4 KiB a gain"),
    (4 * KB, 16 * KB, -NOISE, 5 + NOISE, "from 4 to 16 KiB at most 5 %"),
    (16 * KB + 1, 1 << 62, -NOISE, NOISE, "beyond 16 KiB nothing"),
)


def gain_of(pair):
    """Percent of the time by verbs."""
    return 100 * (1 - 1 / middle(operations.ratios(pair)))


def point_to_point_verdict(rows):
    found = operations.pairs(rows, "direct", "verbs")
    if not found:
        return Verdict("cannot", "No operation was measured by both paths.")
    if why := short_of_cores(rows):
        return Verdict("cannot", why)
    parts, shares = [], []
    for first, last, least, most, text in POINT_TO_POINT:
        mine = {key: gain_of(pair) for key, pair in found.items() if first <= key[2] <= last}
        if not mine:
            return Verdict("cannot", f"Nothing was measured for \"{text}\".")
        good = [key for key, gain in mine.items() if least <= gain <= most]
        shares.append(len(good) / len(mine))
        parts.append(f"{text}: {len(good)} of {len(mine)} ({min(mine.values()):+.0f} to "
                     f"{max(mine.values()):+.0f} %)")
    # Not half of the large ones: a falling line through the small ones has one of them right.
    state = ("like" if min(shares) == 1 else "partly" if min(shares) >= 0.5 and shares[-1] == 1 else "unlike")
    return Verdict(state, "; ".join(parts) + ".")


# Largest gain over all sizes, in percent. A constant, or one line for both, cannot have both.
COLLECTIVES = {"allgather": (20, 40), "scatter": (45, 100)}


def collective_verdict(rows):
    found = operations.pairs(rows, "direct", "verbs")
    if not found:
        return Verdict("cannot", "No operation was measured by both paths.")
    if why := short_of_cores(rows):
        return Verdict("cannot", why)
    good, parts, losses = 0, [], []
    for operation, (least, most) in COLLECTIVES.items():
        each = [gain_of(pair) for key, pair in found.items() if key[1] == operation]
        if not each:
            return Verdict("cannot", f"{operation} was not measured.")
        good += least <= max(each) <= most
        parts.append(f"{operation} gains up to {max(each):.0f} %")
    losses = [f"{key[1]} of {bytes_text(key[2])} ({gain_of(pair):.0f} %)" for key, pair in found.items()
              if gain_of(pair) < -NOISE]
    if losses:
        parts.append(f"losses in {', '.join(losses)}")
    state = ("unlike" if good < len(COLLECTIVES) or len(losses) > len(found) / 2 else
             "partly" if losses else "like")
    return Verdict(state, "; ".join(parts) + ".")


def experiment(key, title, question, which, sizes, paper, seconds, verdict, criterion):
    def commands(mode):
        turns = "15" if mode == "quick" else "61"
        chosen = [word for name in which for word in ("--operation", name)]
        return [[operations.SCRIPT, "--ranks", "4", "--turns", turns, *chosen, "--bytes", *map(str, sizes)]]

    return Experiment(
        key=key, paper="direct", where="Figs. 1 to 5", title=title, question=question,
        commands=commands, seconds=seconds,
        columns=("MPI", "operation", "bytes", "direct, us", "verbs, us"), unit=Y_LABEL,
        points=operations.points("direct", "verbs"),
        panels=operations.panels("direct", "verbs", Y_LABEL), verdict=verdict, criterion=criterion,
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


CONSTANT = 0.02  # of the heap of the fewest processes, for each further one


def heap_verdict(rows):
    by = {(row["way"], row["ranks"]): middle(row["heap_bytes"]) for row in rows}
    ranks = sorted(distinct(row["ranks"] for row in rows))
    ways = [way for way in ("verbs", "direct") if all((way, count) in by for count in ranks)]
    if len(ranks) < 2 or len(ways) < 2:
        return Verdict("cannot", "Only one number of processes was measured.")
    growth = {way: max((by[way, more] - by[way, fewer]) / (more - fewer)
                       for fewer, more in zip(ranks, ranks[1:])) for way in ways}
    share = {way: growth[way] / by[way, ranks[0]] for way in ways}
    grows = share["verbs"] > CONSTANT
    state = ("unlike" if not grows or growth["direct"] > 0.5 * growth["verbs"] else
             "like" if share["direct"] <= CONSTANT else "partly")
    others = "".join(f" {way}: from {by[way, ranks[0]] / 1024:.0f} to {by[way, ranks[-1]] / 1024:.0f} KiB."
                     for way in ("rc_verbs", "rc_mlx5") if all((way, count) in by for count in ranks))
    return Verdict(state, f"A further process costs at most {growth['verbs'] / 1024:.1f} KiB of heap by verbs "
                   f"({share['verbs']:.1%} of the heap of {ranks[0]}), {growth['direct'] / 1024:.1f} KiB directly "
                   f"({share['direct']:.1%}).{' UCX:' if others else ''}{others}")


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
        return Verdict("cannot", "Instructions were not counted.")
    verbs, direct = by[POSTS["verbs-thread-domain"]][0], by[POSTS["direct"]][0]
    text = (f"Posting and polling takes {verbs:.0f} instructions by verbs, {direct:.0f} directly: "
            f"{1 - direct / verbs:.0%} fewer.")
    if missing := not_counted(rows):
        reasons = distinct(missing.values())
        text += f" Not counted: {', '.join(missing)} ({'; '.join(reasons)})."
    return Verdict("like" if direct <= 0.5 * verbs else "partly" if direct <= 0.8 * verbs else "unlike", text)


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


EQUAL = 0.02  # of the time by verbs


def program_verdict(rows):
    low, high = middle_between(shares(rows)["direct"])
    value = middle(shares(rows)["direct"])
    text = (f"All answers are right. Directly it takes {value:.2f} times as long as by verbs "
            f"({low:.2f} to {high:.2f} with 95 % confidence).")
    if 1 - EQUAL <= low and high <= 1 + EQUAL:
        return Verdict("like", text)
    if high < 1 - EQUAL or low > 1 + EQUAL:
        return Verdict("unlike", text)
    if high - low > 2 * EQUAL:
        return Verdict("cannot", f"{text} This spread hides a difference of {EQUAL:.0%}.")
    return Verdict("partly", text)


def program(key, where, title, question, name, paper, seconds):
    return Experiment(
        key=key, paper="direct", where=where, title=title, question=question,
        commands=lambda mode: [["bench/mpi/rndv_modes.py", "--json", "--vary", "post", "--program", name,
                                "--ranks", "2", "--rounds", "7" if mode == "quick" else "40"]],
        seconds=seconds, columns=("way", "seconds"), unit="times verbs' time", points=program_points,
        panels=program_panels, verdict=program_verdict, more_is_better=False,
        criterion="The paper's programs differ by 1 % or slightly more. It is so here if the median of the rounds' "
        "ratios is within 2 % of 1 with 95 % confidence. It is unlike if it is outside with that confidence, slower "
        "or faster. If the confidence interval is wider than 4 %, it cannot be shown; else partly.",
        differences=f"The paper has {paper}; MILC is within 1 %, LAMMPS slightly more. Here are two ranks, and a program "
        "spends most of its time computing: what a path saves is some tenths of a microsecond a message.",
        needs=("program", "way", "seconds"), needs_source=True, one_job=True)


EXPERIMENTS = [
    experiment("direct-point-to-point", "Latency, bandwidth, bidirectional bandwidth", "Two ranks over "
               "MPI, by the verbs path and by the direct one, in turns.",
               ("latency", "bandwidth", "bidirectional"), (8, 64, 512, 4096, 16384, 65536, 1 << 20),
               "gains below 5 % from 4 KB on, none beyond 16 KB", {"quick": 19, "full": 60},
               point_to_point_verdict,
               f"Each operation and size counts, a loss as a gain does. Below 4 KiB the direct path gains at least "
               f"{SMALL} %; from 4 to 16 KiB at most 5 %, and beyond that nothing, both give or take {NOISE} %. "
               "It is like the paper if all points of all three ranges are so. Partly: half of each of the first "
               "two ranges are, and all of the last. Else it is unlike. The paper's values are not at hand, but these "
               "statements are."),
    experiment("direct-collectives", "Collectives", "Four ranks over MPI, by the verbs path and by the "
               "direct one, in turns.",
               ("allgather", "alltoall", "scatter", "gather", "allreduce", "bcast"),
               (8, 512, 8192, 65536, 1 << 20), "allgather up to 30 %; scatter over 50 % at 1 MB on 16 nodes, up "
               "to 20 % on 128", {"quick": 28, "full": 95}, collective_verdict,
               "The largest gain of allgather is from 20 to 40 % (the paper: up to 30). That of scatter is at least 45 % "
               f"(over 50 on 16 nodes). No operation of any size loses more than {NOISE} %. It is like the paper "
               "if all of this holds. Partly: both gains are there, and less than half of the points are losses. "
               "Else it is unlike. With more ranks than cores it cannot be shown."),
    Experiment(
        key="direct-heap", paper="direct", where="Fig. 10", title="Heap by the number of processes",
        question="What a process has allocated once it has sent to all others and run collectives. By the verbs path, by "
        "the direct one, and over UCX's rc_verbs and rc_mlx5.",
        commands=lambda mode: [["bench/mpi/heap.py", "--way", "verbs", "--way", "direct", "--way", "rc_verbs", "--way",
                                "rc_mlx5", "--runs", "1" if mode == "quick" else "3", "--ranks", *(
            ("2", "4", "8") if mode == "quick" else ("2", "4", "8", "16", "32"))]],
        seconds={"quick": 30, "full": 150}, columns=("way", "processes"), unit="KiB",
        points=heap_points, panels=heap_panels, verdict=heap_verdict, more_is_better=False,
        criterion="The direct path's heap is constant: a further process adds at most 2 % of the heap of the fewest "
        "processes, at every step. The verbs path's heap grows by more. Partly: the direct path's grows, but at most "
        "half as fast. Else it is unlike the paper.",
        differences="The paper: constant by direct verbs, where verbs grows with the processes. Counted "
        "is what malloc has given out in rank 0 (mallinfo2), MPI's own included. UCX's pair is shown "
        "and not judged. Queue pairs are made by libibverbs on both of heddle's paths, so libmlx5's part of each is on both sides.",
        needs=("way", "ranks", "heap_bytes"), needs_source=True),
    Experiment(
        key="direct-instructions", paper="direct", where="its explanation of Figs. 1 to 5",
        title="Instructions, and what the processor counts",
        question="What one 8-byte write costs the processor that posts it and polls for its completion, "
        "by verbs and directly.",
        commands=lambda mode: [["post_instructions", "--json"], ["post_counters", "--json"]],
        seconds={"quick": 8, "full": 8}, columns=("count", "path"), unit="of a write",
        points=count_points, panels=count_panels, verdict=count_verdict, more_is_better=False,
        criterion="Posting and polling takes at most half as many instructions directly as by verbs in a thread "
        "domain. Partly: at most 0.8 of them. Else it is unlike the paper, whose own counts are not at hand.",
        differences="The paper counts instructions, cycles, misses and mispredictions by the processor. "
        "Instructions of the library are counted by callgrind, without the software HCA's own: exact, and "
        "the same on a busy machine. The processor's own counters (perf_event_open) count all that the "
        "thread does, so with a software HCA also what that does in it; virtual machines often have none."),
    program("direct-lattice", "its applications", "A lattice code", "Systems on a lattice of four dimensions by "
            "conjugate gradients, in the manner of MILC, on two ranks; its answer is verified. By both paths, in "
            "turns.", "lattice", "MILC", {"quick": 34, "full": 115}),
    program("direct-lammps", "its applications", "LAMMPS, 3-D Lennard-Jones melt", "The distribution's "
            "LAMMPS and Open MPI, on two ranks; the energy must stay. By both paths, in turns.", "lammps",
            "LAMMPS's melt", {"quick": 34, "full": 115}),
]
