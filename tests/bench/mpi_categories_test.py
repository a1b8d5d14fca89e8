#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""mpi_categories_test.py HEDDLE VENVS: bench/mpi/categories.py, short: MPICH with two threads over two categories,
on both kernels. What a process uses, its locks and its doorbells are what the category promises."""
import json
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "report"))
from heddle_report.experiments import endpoints_mpi  # noqa: E402

SKIPPED = 77
CATEGORIES = ("dynamic", "mpi+threads")
BARRIERS = 64  # messages of MPI_Barrier in the turns that are counted, at most
# contexts, UAR pages with today's kernels (one more if a QP that only receives took a page of its own) and with the
# paper's, QPs, CQs
USED = {"dynamic": (1, 5, 10, 5, 3), "mpi+threads": (1, 3, 9, 3, 2)}


def check(row):
    contexts, dynamic_pages, static_pages, qps, cqs = USED[row["category"]]
    assert (row["contexts"], row["qps"], row["cqs"]) == (contexts, qps, cqs), row
    pages = (dynamic_pages, dynamic_pages + 1) if row["kernel"] == "dynamic" else (static_pages,)
    assert row["uar_pages"] in pages, row
    # Each message is a WQE that one BlueFlame write or doorbell brings to the device.
    rung = row["doorbells"] + row["blueflame"]
    assert row["messages"] <= rung == row["wqes"] <= row["messages"] + BARRIERS, row
    if row["category"] == "dynamic":
        assert row["domain_locks"] == row["register_locks"] == 0, row
    else:
        assert row["sent"] <= row["register_locks"] <= row["sent"] + BARRIERS, row
        assert row["domain_locks"] >= 2 * row["sent"], "a message is sent and received"
    assert not endpoints_mpi.broken_by(row), endpoints_mpi.broken_by(row)


def main(heddle, venvs):
    done = subprocess.run(
        [sys.executable, SOURCE / "bench/mpi/categories.py", "--heddle", heddle, "--venvs", venvs, "--threads", "2",
         "--turns", "2", "--sweeps", "7", "--kernel", "dynamic", "--kernel", "static",
         *(word for category in CATEGORIES for word in ("--category", category))],
        stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout)
    if done.returncode == SKIPPED:
        return SKIPPED
    assert done.returncode == 0, done.returncode
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    places = {(row["program"], row["kernel"], row["category"]) for row in rows}
    assert len(rows) == len(places) == 2 * 2 * len(CATEGORIES), places
    for row in rows:
        check(row)
    assert endpoints_mpi.verdict(rows).state in ("like", "partly", "cannot"), endpoints_mpi.verdict(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
