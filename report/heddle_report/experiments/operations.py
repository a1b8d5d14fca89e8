# SPDX-License-Identifier: BSD-2-Clause
"""What experiments of bench/mpi/operations.py have in common: one operation in two ways, turn by turn."""

from ..model import Panel, Point, Series
from ..values import distinct, middle, quartiles

NEEDS = ("mpi", "operation", "bytes", "ranks", "way", "seconds")
SCRIPT = "bench/mpi/operations.py"


def pairs(rows, ours, others):
    """By MPI, operation and size: (row of ours, row of the others), each with the turns of all runs."""
    by = {}
    for row in rows:
        key = (row["mpi"], row["operation"], row["bytes"], row["way"])
        before = by[key]["seconds"] if key in by else []
        by[key] = {**row, "seconds": [*before, *row["seconds"]]}
    return {key[:3]: (row, by[(*key[:3], others)]) for key, row in by.items()
            if key[3] == ours and (*key[:3], others) in by}


def ratios(pair):
    """How many times as fast ours is, turn by turn."""
    ours, others = pair
    return [other / mine for mine, other in zip(ours["seconds"], others["seconds"])]


def points(ours, others):
    def found(rows):
        result = []
        for (mpi, operation, size), pair in pairs(rows, ours, others).items():
            each = ratios(pair)
            result.append(Point((mpi, operation, size, f"{middle(pair[0]['seconds']) * 1e6:.2f}",
                                 f"{middle(pair[1]['seconds']) * 1e6:.2f}"), middle(each),
                                *quartiles(each)))
        return result
    return found


def panels(ours, others, y_label):
    def found(rows):
        by = pairs(rows, ours, others)
        result = []
        for operation in distinct(key[1] for key in by):
            sizes = sorted(distinct(key[2] for key in by if key[1] == operation))
            series = []
            for mpi in distinct(key[0] for key in by):
                each = [ratios(by[mpi, operation, size]) if (mpi, operation, size) in by else None
                        for size in sizes]
                series.append(Series(mpi, [cell and middle(cell) for cell in each],
                                     [cell and quartiles(cell)[0] for cell in each],
                                     [cell and quartiles(cell)[1] for cell in each]))
            result.append(Panel(operation, sizes, "bytes", y_label, series, x_scale="log2",
                                y_scale="log", y_from_zero=False, marks=((1, "equal"),)))
        return result
    return found
