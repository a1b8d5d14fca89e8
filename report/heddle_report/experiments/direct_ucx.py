# SPDX-License-Identifier: BSD-2-Clause
"""The pair that the paper on direct verbs compares, UCX's rc_verbs and rc_mlx5, beside heddle's two paths."""

from ..model import Experiment, Panel, Point, Series, Verdict
from ..values import distinct, middle, middle_between, quartiles, short_of_cores
from . import operations
from .direct import POINT_TO_POINT

Y_LABEL = "times as fast as by verbs"
# Name: the way that writes an adapter's entries itself, and the one that goes by libibverbs.
PAIRS = {"UCX": ("rc_mlx5", "rc_verbs"), "heddle": ("direct", "verbs")}
WAYS = [way for pair in PAIRS.values() for way in pair]


def gains(rows, pair):
    """(MPI, operation, bytes) -> percent of the time by verbs: the median, and where it is with 95 %
    confidence."""
    found = {}
    for key, each in operations.pairs(rows, *PAIRS[pair]).items():
        ratios = operations.ratios(each)
        found[key] = [100 * (1 - 1 / ratio) for ratio in (middle(ratios), *middle_between(ratios))]
    return found


def judged(found):
    """For each statement of the paper: its text and how many points agree, disagree, or may do either."""
    result = []
    for first, last, least, most, text in POINT_TO_POINT:
        mine = [each for key, each in found.items() if first <= key[2] <= last]
        good = sum(least <= low and high <= most for _, low, high in mine)
        bad = sum(high < least or low > most for _, low, high in mine)
        result.append((text, good, bad, len(mine) - good - bad, [value for value, _, _ in mine]))
    return result


def in_words(statements):
    parts = []
    for text, good, _, unclear, values in statements:
        hidden = f", hidden by the spread {unclear}" if unclear else ""
        parts.append(f"{text}: {good} of {len(values)}{hidden} ({min(values):+.0f} to {max(values):+.0f} %)")
    return "; ".join(parts)


def verdict(rows):
    """The paper's pair is judged; heddle's is beside it, and has a verdict in direct-point-to-point."""
    by = {pair: judged(gains(rows, pair)) for pair in PAIRS}
    for pair, statements in by.items():
        for text, *_, values in statements:
            if not values:
                return Verdict("cannot", f"Nothing was measured over {pair} for \"{text}\".")
    said = ". ".join(f"{pair}'s pair, {in_words(statements)}" for pair, statements in by.items()) + "."
    if why := short_of_cores(rows):
        return Verdict("cannot", f"{why} {said}")
    if any(row.get("engine") not in (None, "dedicated") for row in rows):
        return Verdict("cannot", "A software HCA finds the doorbells of rc_mlx5 by looking for them, and is told of those of "
                       "rc_verbs: their times do not compare. A dedicated thread finds both alike, but needs "
                       f"a processor for each rank of each job. {said}")
    theirs = by["UCX"]
    if not any(bad for _, _, bad, _, _ in theirs):
        return Verdict("cannot" if any(unclear for *_, unclear, _ in theirs) else "like", said)
    half = all(2 * good >= len(values) for _, good, _, _, values in theirs)
    return Verdict("partly" if half and theirs[-1][2] == 0 else "unlike", said)


def points(rows):
    result = []
    for name, ways in PAIRS.items():
        for (mpi, operation, size), pair in operations.pairs(rows, *ways).items():
            each = operations.ratios(pair)
            took = [f"{middle(row['seconds']) * 1e6:.2f}" for row in pair]
            result.append(Point((mpi, f"{name}: {' / '.join(ways)}", operation, size, *took), middle(each),
                                *quartiles(each)))
    return result


def panels(rows):
    result = []
    for operation in distinct(row["operation"] for row in rows):
        sizes = sorted(distinct(row["bytes"] for row in rows if row["operation"] == operation))
        series = []
        for name, ways in PAIRS.items():
            by = operations.pairs(rows, *ways)
            for mpi in distinct(key[0] for key in by):
                each = [operations.ratios(by[mpi, operation, size]) if (mpi, operation, size) in by else None
                        for size in sizes]
                series.append(Series(f"{mpi} over {name}: {ways[0]} beside {ways[1]}",
                                     [cell and middle(cell) for cell in each],
                                     [cell and quartiles(cell)[0] for cell in each],
                                     [cell and quartiles(cell)[1] for cell in each]))
        result.append(Panel(operation, sizes, "bytes", Y_LABEL, series, x_scale="log2", y_scale="log",
                            y_from_zero=False, marks=((1, "equal"),)))
    return result


def commands(mode):
    which = ("latency", "bandwidth") if mode == "quick" else ("latency", "bandwidth", "bidirectional")
    sizes = (8, 512, 8192, 65536, 1 << 20) if mode == "quick" else (8, 64, 512, 4096, 16384, 65536, 1 << 20)
    return [[operations.SCRIPT, "--turns", "9" if mode == "quick" else "61",
             *(word for way in WAYS for word in ("--way", way)),
             *(word for name in which for word in ("--operation", name)), "--bytes", *map(str, sizes)]]


EXPERIMENTS = [Experiment(
    key="direct-ucx", paper="direct", where="Figs. 1 to 5", title="UCX's rc_mlx5 beside its rc_verbs",
    question="Two ranks of one MPI over UCX, by rc_verbs and by rc_mlx5, and over heddle, by the verbs path and by the "
    "direct one: all four in turns.",
    commands=commands, seconds={"quick": 25, "full": 300},
    columns=("MPI", "pair", "operation", "bytes", "directly, us", "by verbs, us"), unit=Y_LABEL,
    points=points, panels=panels, verdict=verdict,
    criterion="UCX's pair is judged by the statements of the paper, as heddle's is in direct-point-to-point. A point agrees "
    "with its statement if the median of the turns' ratios does with 95 % confidence, and disagrees if it does not with "
    "that confidence. It is like the paper if all points agree. Partly: half of each range agree, and none beyond "
    "16 KiB disagrees. If the spread hides a point and none disagrees, it cannot be shown. Else it is unlike. On a "
    "software HCA with less than ten processors it cannot be shown.",
    differences="The paper measured MVAPICH2-3.0a on UCX 1.13.1 and ConnectX-6, with mlx5dv in place of UCX's own calls of "
    "libibverbs. Here is the same pair as UCX has it, rc_verbs and rc_mlx5 (with ud_verbs and ud_mlx5 for connections). "
    "MPI library and program are those that heddle has. MPI's own shared memory is off. A software HCA finds rc_mlx5's "
    "doorbells by a thread that looks for them; libmlx5's and heddle's call it. So the times of UCX's pair compare only "
    "on an adapter, or where dedicated threads of the device do all work. Two ranks, and a thread for each rank of the "
    "four jobs, need ten processors. "
    "direct-mpi-counts counts what the processor does for a message, without the device, on any machine.",
    needs=operations.NEEDS, needs_source=True)]
