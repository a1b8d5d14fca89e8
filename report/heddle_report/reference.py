# SPDX-License-Identifier: BSD-2-Clause
"""The papers' values: the files of src/experiments/reference, beside this package once it is installed."""

import csv
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
PLACES = (HERE / "reference", HERE.parents[1] / "src" / "experiments" / "reference")


@cache
def table(name):
    """Rows of NAME.csv, each by the names of its columns. Not there: none."""
    for place in PLACES:
        if (place / f"{name}.csv").exists():
            with open(place / f"{name}.csv", encoding="utf-8", newline="") as file:
                return tuple(csv.DictReader(file))
    return ()
