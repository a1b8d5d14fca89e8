# SPDX-License-Identifier: BSD-2-Clause
"""Heddle against UCX, on the same device."""

from ..model import Experiment, Panel, Point, Series, Verdict
from ..values import bytes_text, distinct, middle, middle_between, quartiles
from . import operations

Y_LABEL = "heddle, times as fast as UCX"
LEVEL = 0.97  # what two equal sides may differ by, in either direction
CRITERION = (
    "Every operation and size counts. Heddle is at least level in one if the median of the turns' ratios is 0.97 or "
    "more with 95 % confidence. It is behind if the median is below with that confidence. The verdict is good if "
    "heddle is at least level in all. In part: it is behind in fewer than it is level in. If it is behind in none, "
    "and the spread hides some, it cannot be shown. Else heddle is behind.")


def verdict(rows):
    """Heddle counts as faster or slower only where it is so with 95 % confidence."""
    found = operations.pairs(rows, "heddle", "ucx")
    if not found:
        return Verdict("cannot", "Nothing was measured in both ways.")
    behind, unclear, good = [], [], []
    for (mpi, operation, size), pair in found.items():
        each = operations.ratios(pair)
        low, high = middle_between(each)
        text = (f"{mpi} {operation} of {bytes_text(size)} ({middle(each):.2f}; {low:.2f} to "
                f"{high:.2f})")
        (behind if high < LEVEL else good if low >= LEVEL else unclear).append(text)
    parts = [f"{len(good)} of {len(found)} operations and sizes level or better"]
    if behind:
        parts.append(f"behind in {', '.join(behind)}")
    if unclear:
        parts.append(f"hidden by the spread: {', '.join(unclear)}")
    state = ("like" if not behind and not unclear else "cannot" if not behind else
             "partly" if len(behind) < len(good) else "unlike")
    return Verdict(state, "; ".join(parts) +
                   (" (medians; where they are with 95 % confidence)." if behind or unclear else "."))


# Rates of messages, by threads.

def rate_panels(rows):
    by = operations.pairs(rows, "heddle", "ucx")
    names = sorted(distinct(key[1] for key in by))
    series = []
    for mpi in distinct(key[0] for key in by):
        each = [operations.ratios(by[mpi, name, 8]) if (mpi, name, 8) in by else None
                for name in names]
        series.append(Series(mpi, [cell and middle(cell) for cell in each],
                             [cell and quartiles(cell)[0] for cell in each],
                             [cell and quartiles(cell)[1] for cell in each]))
    return [Panel("Messages of 8 B a second, both directions", names, "", Y_LABEL, series,
                  marks=((1, "equal"),))]


# Marks from outside: what is on every machine.

MARKS = ("tcp", "shm")


def mark_points(rows):
    result = []
    for other in MARKS:
        for (mpi, operation, size), pair in operations.pairs(rows, "heddle", other).items():
            each = operations.ratios(pair)
            result.append(Point((mpi, other, operation, size,
                                 f"{middle(pair[0]['seconds']) * 1e6:.2f}",
                                 f"{middle(pair[1]['seconds']) * 1e6:.2f}"), middle(each),
                                *quartiles(each)))
    return result


def mark_panels(rows):
    result = []
    for operation in distinct(row["operation"] for row in rows):
        sizes = sorted(distinct(row["bytes"] for row in rows if row["operation"] == operation))
        series = []
        for way in ("heddle", *MARKS):
            by = {row["bytes"]: [second * 1e6 for second in row["seconds"]] for row in rows
                  if row["operation"] == operation and row["way"] == way}
            series.append(Series(way, [middle(by.get(size, [])) for size in sizes],
                                 [quartiles(by.get(size, []))[0] for size in sizes],
                                 [quartiles(by.get(size, []))[1] for size in sizes]))
        result.append(Panel(operation, sizes, "bytes", "us", series, x_scale="log2", y_scale="log",
                            y_from_zero=False))
    return result


def mark_verdict(rows):
    parts = []
    for other in MARKS:
        found = operations.pairs(rows, "heddle", other)
        if found:
            each = [middle(operations.ratios(pair)) for pair in found.values()]
            parts.append(f"{min(each):.2g} to {max(each):.2g} times as fast as {other}")
    if not parts:
        return Verdict("cannot", "Nothing was measured beside heddle.")
    return Verdict("cannot", "These are marks and no peers. By operation and size " + ", ".join(parts) + ".")


# Overlap.

WAYS = ("auto", "tupleq", "rget", "ucx")
SIDES = ("sender", "receiver")


def availability(row):
    """In percent, of each turn."""
    return [100 * (1 - overhead / base) for base, overhead in zip(row["base"], row["overhead"])]


def overlap_points(rows):
    return [Point((row["mpi"], row["side"], row["way"], row["bytes"]), middle(availability(row)),
                  *quartiles(availability(row))) for row in rows]


def overlap_panels(rows):
    result = []
    for mpi in distinct(row["mpi"] for row in rows):
        for side in SIDES:
            of = [row for row in rows if row["mpi"] == mpi and row["side"] == side]
            sizes = sorted(distinct(row["bytes"] for row in of))
            series = []
            for way in WAYS:
                by = {row["bytes"]: middle(availability(row)) for row in of if row["way"] == way}
                if by:
                    series.append(Series(way, [by.get(size) for size in sizes]))
            result.append(Panel(f"{mpi}, {side}", sizes, "bytes", "available, %", series,
                                x_scale="log2"))
    return result


SAME = 3  # percent of a message's time


def overlap_verdict(rows):
    """Each MPI, side and size counts."""
    by = {(row["mpi"], row["side"], row["way"], row["bytes"]): middle(availability(row)) for row in rows}
    good, behind = 0, []
    for mpi, side, way, size in by:
        if way != "ucx":
            continue
        ours = [by[mpi, side, each, size] for each in ("auto", "tupleq") if (mpi, side, each, size) in by]
        if not ours:
            continue
        theirs = by[mpi, side, "ucx", size]
        if max(ours) >= theirs - SAME:
            good += 1
        else:
            behind.append(f"{mpi}, {side}, {bytes_text(size)}: {max(ours):.0f} % (UCX {theirs:.0f})")
    if not good and not behind:
        return Verdict("cannot", "Nothing was measured both ways.")
    text = f"{good} of {good + len(behind)} sides and sizes level or better"
    return Verdict("like" if not behind else "partly" if len(behind) < good else "unlike",
                   text + (f"; behind in {'; '.join(behind)}." if behind else "."))


# Memory.

def memory_points(rows):
    return [Point((row["way"], row["ranks"], "-" if row["qps"] is None else f"{row['qps']:.0f}",
                   f"{middle(row['heap_bytes']) / (1 << 20):.1f}"),
                  middle(row["memory_bytes"]) / (1 << 20),
                  *(each / (1 << 20) for each in quartiles(row["memory_bytes"]))) for row in rows]


def memory_panels(rows):
    ranks = sorted(distinct(row["ranks"] for row in rows))

    def panel(title, label, value):
        series = []
        for way in ("heddle", "ucx"):
            by = {row["ranks"]: value(row) for row in rows if row["way"] == way}
            series.append(Series(way, [by.get(count) for count in ranks]))
        return Panel(title, ranks, "processes", label, series, x_scale="log2")

    result = [panel("Memory of a process that has talked to all", "MiB",
                    lambda row: middle(row["memory_bytes"]) / (1 << 20))]
    if all(row["qps"] is not None for row in rows):
        result.append(panel("Queue pairs of a process", "queue pairs", lambda row: row["qps"]))
    return result


def memory_verdict(rows):
    by = {(row["way"], row["ranks"]): middle(row["memory_bytes"]) / (1 << 20) for row in rows}
    ranks = sorted({count for way, count in by if (("heddle", count) in by and ("ucx", count) in by)})
    if len(ranks) < 2:
        return Verdict("cannot", "Too little was measured both ways.")
    first, last = ranks[0], ranks[-1]

    def growth(way):
        return 1024 * (by[way, last] - by[way, first]) / (last - first)

    less = [count for count in ranks if by["heddle", count] <= by["ucx", count]]
    return Verdict("like" if len(less) == len(ranks) else "partly" if last in less else "unlike",
                   f"{last} processes: {by['heddle', last]:.1f} MiB a process, UCX "
                   f"{by['ucx', last]:.1f}; a further one {growth('heddle'):.0f} KiB, UCX "
                   f"{growth('ucx'):.0f}.")


BOTH = ["--way", "heddle", "--way", "ucx", "--mpi", "mpich", "--mpi", "openmpi"]

EXPERIMENTS = [Experiment(
    key="peers-ucx", paper="peers", where="", title="Heddle against UCX rc_verbs",
    question="The same MPI library and program over heddle and over UCX's rc_verbs, on the same "
    "device, in turns.",
    commands=lambda mode: [[operations.SCRIPT, *BOTH, "--turns", "7" if mode == "quick" else "61",
                            *(word for name in ("latency", "bandwidth", "bidirectional", "allgather",
                                                "alltoall", "allreduce", "bcast")
                              for word in ("--operation", name)),
                            "--bytes", "8", "8192", "65536", str(1 << 20)]],
    seconds={"quick": 87, "full": 330},
    columns=("MPI", "operation", "bytes", "heddle, us", "UCX, us"), unit=Y_LABEL,
    points=operations.points("heddle", "ucx"), panels=operations.panels("heddle", "ucx", Y_LABEL),
    verdict=verdict, criterion=CRITERION,
    differences="No paper: the best known software for the same work. MPI's own shared memory is off on "
    "both sides. A bandwidth of 8 bytes is a message rate: what is shown is the time of a message. UCX "
    "has rc_mlx5, too: direct-ucx runs it. With more ranks than processors, as 4 may be, the scheduler is part of a collective.",
    needs=operations.NEEDS, needs_source=True),
    Experiment(
        key="peers-rate", paper="peers", where="", title="Rates of small messages, by threads",
        question="Windows of 64 messages of 8 B in both directions, each thread with a communicator of its "
        "own, over heddle and over UCX, in turns.",
        commands=lambda mode: [[operations.SCRIPT, *BOTH, "--threads", "1", "2"]
                               for _ in range(2 if mode == "quick" else 20)],
        seconds={"quick": 50, "full": 250},
        columns=("MPI", "operation", "bytes", "heddle, us", "UCX, us"), unit=Y_LABEL,
        points=operations.points("heddle", "ucx"), panels=rate_panels, verdict=verdict, criterion=CRITERION,
        differences="No paper. The time shown is that of a message, of all threads together. MPICH over heddle "
        "has a virtual communication interface for each thread. Over UCX it has one for all, as MPICH 5.0.2 with two "
        "of them hangs in MPI_Comm_dup, by TCP, too. Open MPI has one endpoint for all. Two ranks of two threads on two processors take turns with each other, too.",
        needs=operations.NEEDS, needs_source=True),
    Experiment(
        key="peers-overlap", paper="peers", where="", title="Overlap beside UCX",
        question="How much of a message's time its sender, and its receiver, have for work of their own, by "
        "tuple queues, by reading (rget) and over UCX, in turns.",
        commands=lambda mode: [["bench/mpi/overlap.py", "--json", *(
            word for way in WAYS for word in ("--way", way)), "--rounds", "1" if mode == "quick" else "5",
            "--bytes", *(("1024", "65536", str(1 << 20)) if mode == "quick" else
                         ("0", "8", "1024", "8192", "16384", "65536", "262144", str(1 << 20),
                          str(4 << 20)))]],
        seconds={"quick": 60, "full": 900}, columns=("MPI", "side", "way", "bytes"), unit="available, %",
        points=overlap_points, panels=overlap_panels, verdict=overlap_verdict,
        criterion="Each MPI, side and size counts. The better of auto and tuple queues leaves the program at most 3 "
        "points less of a message's time than UCX does. The verdict is good if that holds for all. In part: it holds "
        "for more than half. Else heddle is behind.",
        differences="As in Sandia's micro-benchmark: availability is what the work may take of a message's "
        "time before that gets longer. On a software HCA the work of the device is done by processors, too: "
        "by the thread that posts up to 32 KiB, by a thread of its own above.",
        needs=("mpi", "way", "side", "bytes", "base", "overhead"), needs_source=True),
    Experiment(
        key="peers-memory", paper="peers", where="", title="Memory and queue pairs beside UCX",
        question="What a process has in memory, and how many queue pairs, once it has talked to all others.",
        commands=lambda mode: [["bench/mpi/heap.py", "--way", "heddle", "--way", "ucx", "--ranks", *(
            ("2", "4", "8") if mode == "quick" else ("2", "4", "8", "16", "32"))]],
        seconds={"quick": 30, "full": 120}, columns=("way", "processes", "queue pairs", "heap, MiB"),
        unit="MiB", points=memory_points, panels=memory_panels, verdict=memory_verdict,
        criterion="A process has no more memory than over UCX, for each number of processes. In part: for the largest "
        "number. Else behind.",
        more_is_better=False,
        differences="Anonymous and shared memory that is there (RssAnon and RssShmem of rank 0), and what malloc "
        "has given out; MPICH, whose own part is on both sides. Heddle's connections go one way, so two "
        "processes have two queue pairs each. By XRC these reach all endpoints of the other process, so more "
        "endpoints of threads need no more queue pairs.",
        needs=("way", "ranks", "heap_bytes", "memory_bytes"), needs_source=True),
    Experiment(
        key="peers-marks", paper="peers", where="", title="Beside libfabric's tcp and shm",
        question="The same MPI and program over heddle, over TCP and through shared memory: what is on every "
        "machine.",
        commands=lambda mode: [[operations.SCRIPT, "--way", "heddle", "--way", "tcp", "--way", "shm",
                                "--turns", "9" if mode == "quick" else "41",
                                *(word for name in ("latency", "bandwidth", "allreduce")
                                  for word in ("--operation", name)),
                                "--bytes", "8", "8192", "65536", str(1 << 20)]],
        seconds={"quick": 20, "full": 60},
        columns=("MPI", "mark", "operation", "bytes", "heddle, us", "mark, us"),
        unit="heddle, times as fast", points=mark_points, panels=mark_panels, verdict=mark_verdict,
        criterion="Nothing is judged: these are marks, and no peers.",
        differences="Marks from outside, no peers: shm is no network, and tcp no RDMA. On a software HCA all "
        "three move bytes by the processor, on one machine.", needs=operations.NEEDS, needs_source=True)]
