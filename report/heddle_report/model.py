# SPDX-License-Identifier: BSD-2-Clause
"""What an experiment is: its commands, what their lines of JSON mean, what the paper found, and in what
ours differs from it. The experiments themselves are in experiments/, and catalogue.py lists them."""

from dataclasses import dataclass, field
from typing import Callable

NOT_IN_THE_PAPER = "not in the paper"  # an Experiment's `where`


@dataclass(frozen=True)
class Series:
    """A curve, or the bars of one colour. Values that are not there are None."""
    name: str
    values: list  # one for each of the panel's x
    low: list | None = None  # quartiles
    high: list | None = None
    paper: bool = False
    predicted: bool = False  # by the model of `heddle predict`: nobody has measured it
    hue: str = ""  # curves of one hue have one colour; by default each has its own
    run: int = 0  # of several runs that are drawn over each other, which

    @property
    def is_measured(self):
        """Here, in the run that is shown."""
        return not self.paper and not self.predicted

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
    note: str = ""  # what a reader must know of these values; it is in the drawing
    shaded_above: float | None = None  # x beyond which the note holds; None: for all, if there is one

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
    value: float | None  # None: this machine has it not, and `said` has the reason
    low: float | None = None
    high: float | None = None
    paper: float | None = None  # of the same unit
    said: str = ""  # a verdict of this one value
    cells: tuple = ()  # of more columns, which are no part of the key


STATES = ("like", "partly", "unlike", "cannot")


@dataclass(frozen=True)
class Verdict:
    """state: "like" the paper, "partly" like it, "unlike" it, or "cannot": it cannot be shown here, and the
    text says why."""
    state: str
    text: str


@dataclass(frozen=True)
class Outside:
    """A program of others, whose source the user has and names: `heddle reproduce --OPTION FOLDER`."""
    option: str
    name: str
    where: str  # one finds it


@dataclass(frozen=True)
class Experiment:
    key: str
    paper: str
    where: str  # in the paper: "Fig. 3"
    title: str
    question: str  # what the experiment shows, in a sentence
    # "quick" or "full" -> commands, each the words behind `heddle`, or a script of the source tree
    # and its words, or a program beside `heddle` (runner.BESIDE) and its words
    commands: Callable
    seconds: dict  # how long they take on 2 processors, by "quick" and "full"
    columns: tuple  # what the parts of a point's key are
    unit: str
    points: Callable  # rows -> [Point]
    panels: Callable  # rows -> [Panel]
    verdict: Callable  # rows -> Verdict
    criterion: str  # what the verdict goes by, in sentences
    differences: str  # from the paper; paragraphs
    needs: tuple = ()  # fields without which a row is of no use
    more_is_better: bool = True
    spread: str = "quartiles"  # what low and high of its points are
    rows: Callable | None = None  # of one beside the peers: rows -> [judged.Row]; it may be repeated (--runs)
    needs_source: bool = False  # it is a script of bench/, which is not installed
    one_job: bool = False  # a script that runs one job of MPI at a time, which may be on several hosts
    outside: Outside | None = None  # the program that it runs; the script gets the option and the folder
    softhca: tuple = field(default=())  # options of `softhca run`
