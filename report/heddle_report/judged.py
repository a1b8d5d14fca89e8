# SPDX-License-Identifier: BSD-2-Clause
"""Rows that are judged one by one: heddle in one operation, program or measure beside one peer. A row has a
ratio, an interval and a verdict of its own, and every row counts, also one for what this machine has not."""

from dataclasses import dataclass

from .model import Experiment, Point, Verdict
from .values import distinct, middle, middle_between

BETTER, LEVEL, BEHIND, MISSING, SHOWN = "better", "level", "behind", "not available", "not judged"
ORDER = (BEHIND, LEVEL, BETTER, SHOWN, MISSING)
WITHIN = 0.02  # so near to 1 two sides are level, however sure the difference is
WIDE = 0.10  # an interval that reaches so far below 1 may hide a loss that is worth knowing
INTERVAL = "95 % interval"  # the heading of Point.low and high
CRITERION = (
    "Each row is judged by the median of the ratios of neighbouring turns. Its interval is where that median is with 95 % "
    "confidence: order statistics, by the binomial law. A row is `better` if the interval is above 1, and `behind` if it "
    "is below 1. It is `level` if the interval contains 1 or the median is within 2 % of 1. If there are several runs, a "
    "row is `better` or `behind` only if each run says so. The verdict is good if no row is behind. In part: fewer rows "
    "are behind than are not. Else heddle is behind.")


@dataclass(frozen=True)
class Row:
    """ratio: how many times as good heddle is. by_run: the verdict of each run. reason: why there is none."""
    peer: str
    key: tuple  # the texts of what it is: MPI, operation, size
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    state: str = MISSING
    by_run: tuple = ()
    reason: str = ""
    took: tuple = ()  # what each side took, in texts

    @property
    def name(self):
        return " ".join((*self.key, "beside", self.peer))

    @property
    def hides_a_loss(self):
        """Whether more turns might show it behind."""
        return self.state == LEVEL and self.low < 1 - WIDE

    @property
    def said(self):
        """The verdict, and those of the runs where they differ from it."""
        if self.reason:
            return f"{self.state}: {self.reason}"
        return f"{self.state} ({', '.join(self.by_run)})" if set(self.by_run) - {self.state} else self.state


def state_of(ratios):
    """The verdict of the ratios of one run."""
    low, high = middle_between(ratios)
    if low <= 1 <= high or abs(middle(ratios) - 1) <= WITHIN:
        return LEVEL
    return BETTER if low > 1 else BEHIND


def judge(peer, key, runs, took=(), shown=""):
    """runs: the ratios of each run, turn by turn. shown: why the row is there without a verdict."""
    every = [ratio for ratios in runs for ratio in ratios]
    values = middle(every), *middle_between(every)
    if shown:
        return Row(peer, key, *values, SHOWN, reason=shown, took=took)
    by_run = tuple(state_of(ratios) for ratios in runs)
    return Row(peer, key, *values, by_run[0] if len(set(by_run)) == 1 else LEVEL, by_run, took=took)


def missing(peer, key, reason):
    return Row(peer, key, reason=reason)


def ordered(rows):
    """Those that are behind first, the worst of them before the others."""
    return sorted(rows, key=lambda row: (ORDER.index(row.state), row.ratio if row.state == BEHIND else 0))


def points(rows, columns):
    """The points of an experiment whose first column is the peer. What this machine has not has no other values."""
    found = []
    for row in ordered(rows):
        key = (row.peer, *row.key)
        cells = [*row.took, *["–"] * columns][:columns - len(key)]
        found.append(Point(key, row.ratio, row.low, row.high, said=row.said, cells=tuple(cells)))
    return found


def counts(rows):
    """How many rows have each state."""
    return {state: sum(row.state == state for row in rows) for state in ORDER}


def count(rows):
    """What became of all of them, in words: `61 of 64 rows better or level (40 better), 3 behind`."""
    by = counts(rows)
    judged = by[BETTER] + by[LEVEL] + by[BEHIND]
    parts = [f"{by[BETTER] + by[LEVEL]} of {judged} rows better or level ({by[BETTER]} better)"]
    if by[MISSING]:
        parts.append(f"{by[MISSING]} not available")
    if by[SHOWN]:
        parts.append(f"{by[SHOWN]} not judged")
    return ", ".join([*parts, f"{by[BEHIND]} behind"])


HEAD = ("beside", *ORDER, f"level, interval below {1 - WIDE:.2f}")
HEAD_BEHIND = ("experiment", "beside", "what", "median", INTERVAL)


def standing(rows):
    """The rows of a table: each peer's counts, and those of all."""
    groups = {peer: [row for row in rows if row.peer == peer] for peer in distinct(row.peer for row in rows)}
    return [[name, *map(str, counts(each).values()), str(sum(row.hides_a_loss for row in each))]
            for name, each in [*groups.items(), ("all", rows)]]


def behind_table(by_title):
    """by_title: title -> rows. The rows of a table: each that is behind, the worst first."""
    found = [(title, row) for title, rows in by_title.items() for row in rows if row.state == BEHIND]
    return [[title, row.peer, " ".join(row.key), f"{row.ratio:.2f}", f"{row.low:.2f} to {row.high:.2f}"]
            for title, row in sorted(found, key=lambda each: each[1].ratio)]


def verdict(rows):
    """That of an experiment all of whose rows these are."""
    judged = [row for row in rows if row.state in (BETTER, LEVEL, BEHIND)]
    reasons = distinct(f"{row.peer}: {row.said}" for row in rows if row.reason)
    more = "".join(f" {reason.rstrip('.')}." for reason in reasons)
    if not judged:
        return Verdict("cannot", f"No row is judged.{more}")
    behind = [row for row in ordered(judged) if row.state == BEHIND]
    text = count(rows)
    if behind:
        text += ": " + ", ".join(f"{row.name} ({row.ratio:.2f}; {row.low:.2f} to {row.high:.2f})" for row in behind)
    if hidden := sum(row.hides_a_loss for row in judged):
        text += f". The interval of {hidden} level rows reaches below {1 - WIDE:.2f}"
    if sometimes := sum(BEHIND in row.by_run and row.state != BEHIND for row in judged):
        text += f". {sometimes} are behind in some runs and not in all"
    state = "like" if not behind else "partly" if 2 * len(behind) < len(judged) else "unlike"
    return Verdict(state, f"{text}.{more}")


def experiment(rows, differences, **fields):
    """An experiment whose verdict is that of its rows: rows(lines) -> [Row]."""
    count_of = len(fields["columns"])
    return Experiment(rows=rows, points=lambda lines: points(rows(lines), count_of),
                      verdict=lambda lines: verdict(rows(lines)),
                      criterion=CRITERION, spread=INTERVAL, differences=differences, **fields)
