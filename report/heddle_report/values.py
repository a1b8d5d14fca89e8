# SPDX-License-Identifier: BSD-2-Clause
"""What an experiment computes from its measured values: medians, quartiles, confidence intervals."""

from math import comb
from statistics import median


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
    """Where the median is with 95 % confidence, whatever the distribution: the order statistics
    that a binomial law gives. Less than 6 values give their whole range, which is less sure."""
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


def short_of_cores(rows, count="ranks"):
    """Why nothing can be said of so many ranks; empty: there are cores enough, or it is not known."""
    ranks = max(row[count] for row in rows)
    cores = min(row.get("cores", ranks) for row in rows)
    if ranks <= cores:
        return ""
    return f"{ranks} ranks take turns on {cores} cores, and the scheduler is part of every time."
