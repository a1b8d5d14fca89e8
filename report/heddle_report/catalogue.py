# SPDX-License-Identifier: BSD-2-Clause
"""What an experiment is: which commands, what their lines of JSON mean, what the paper found, and in
what ours differs from it."""

from dataclasses import dataclass, field
from math import comb
from statistics import median
from typing import Callable

PAPERS = {
    "endpoints": ("Scalable endpoints", "Scalable Communication Endpoints for MPI+Threads "
                  "Applications, ICPADS 2018. ConnectX-4 EDR, 16 cores (Haswell)"),
    "reuse": ("Buffer reuse", "Exploiting application buffer reuse to improve MPI small message "
              "transfer protocols. MVAPICH2 1.0.3, ConnectX DDR"),
    "direct": ("Direct verbs", "Direct posting to mlx5 instead of libibverbs under MPI. "
               "MVAPICH2-3.0a on UCX 1.13.1, ConnectX-6 HDR100"),
    "tupleq": ("TupleQ", "TupleQ: Fully-Asynchronous and Zero-Copy MPI over InfiniBand. ConnectX, "
               "MVAPICH, 64 processes"),
    "peers": ("Against the peers", "The same programs over other libraries, on the same device"),
}


NOT_IN_THE_PAPER = "not in the paper"  # an Experiment's `where`


@dataclass(frozen=True)
class Series:
    """A curve, or the bars of one colour. Values that are not there are None."""
    name: str
    values: list  # one for each of the panel's x
    low: list | None = None  # quartiles
    high: list | None = None
    paper: bool = False
    hue: str = ""  # curves of one hue have one colour; by default each has its own
    run: int = 0  # of several runs that are drawn over each other, which

    @property
    def is_empty(self):
        return all(value is None for value in self.values)


@dataclass(frozen=True)
class Panel:
    """One pair of axes. x: numbers (lines; x_scale "log2" or "log10" or "linear") or names (bars)."""
    title: str
    x: list
    x_label: str
    y_label: str
    series: list
    x_scale: str = "linear"
    y_scale: str = "linear"
    y_from_zero: bool = True
    marks: tuple = ()  # horizontal lines: (value, what it is)

    limits: tuple | None = None  # of y; the panels of a figure share theirs

    @property
    def is_bars(self):
        return bool(self.x) and isinstance(self.x[0], str)

    @property
    def drawn(self):
        """The series that have a value."""
        return [series for series in self.series if not series.is_empty]


@dataclass(frozen=True)
class Point:
    """One measured value. Two runs are compared by those of the same key."""
    key: tuple
    value: float
    low: float | None = None
    high: float | None = None
    paper: float | None = None  # of the same unit


@dataclass(frozen=True)
class Verdict:
    """state: "like" the paper, "unlike" it, or "none": no statement can be made."""
    state: str
    text: str


@dataclass(frozen=True)
class Experiment:
    key: str
    paper: str
    where: str  # in the paper: "Fig. 3"
    title: str
    question: str  # what is to be seen, in a sentence
    # "quick" or "full" -> commands, each the words behind `heddle`, or a script of the source tree
    # and its words, or a program beside `heddle` (runner.BESIDE) and its words
    commands: Callable
    seconds: dict  # how long they take on 2 processors, by "quick" and "full"
    columns: tuple  # what the parts of a point's key are
    unit: str
    points: Callable  # rows -> [Point]
    panels: Callable  # rows -> [Panel]
    verdict: Callable  # rows -> Verdict
    differences: str  # from the paper; paragraphs
    needs: tuple = ()  # fields without which a row is of no use
    more_is_better: bool = True
    needs_source: bool = False  # it is a script of bench/, which is not installed
    softhca: tuple = field(default=())  # options of `softhca run`


def middle(values):
    return median(values) if values else None


def quartiles(values):
    """Lower and upper; of less than two values these."""
    ordered = sorted(values)
    if len(ordered) < 2:
        return (ordered[0], ordered[0]) if ordered else (None, None)

    def at(share):
        where = share * (len(ordered) - 1)
        below = int(where)
        above = min(below + 1, len(ordered) - 1)
        return ordered[below] + (where - below) * (ordered[above] - ordered[below])

    return at(0.25), at(0.75)


def middle_between(values):
    """Where the median is with 95 % confidence, whatever is distributed how: the order statistics that
    a binomial law gives. Of less than 6 values: all of them, which is less sure."""
    ordered = sorted(values)
    below, outside = 0, 0.5 ** len(ordered)  # chance that the median is below ordered[below]
    while 2 * (outside + (more := comb(len(ordered), below + 1) * 0.5 ** len(ordered))) <= 0.05:
        below, outside = below + 1, outside + more
    return ordered[below], ordered[-1 - below]


def distinct(values):
    """Each once, in the order in which they come."""
    return list(dict.fromkeys(values))


def bytes_text(count):
    for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size and count % size == 0:
            return f"{count // size} {unit}"
    return f"{count} B"


def all_experiments():
    from .experiments import direct, endpoints, peers, reuse, tupleq
    return [*endpoints.EXPERIMENTS, *reuse.EXPERIMENTS, *direct.EXPERIMENTS, *tupleq.EXPERIMENTS,
            *peers.EXPERIMENTS]
