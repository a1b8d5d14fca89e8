#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The kernels of "Scalable Communication Endpoints" (ICPADS 2018) as they run here, predicted for the adapter of
the paper: records a run of each on the software HCA (softhca run --record), and replays it in each category of
endpoints (heddle predict --record). Standard library only.

    bench/replay.py --heddle build/bin/heddle
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

# Figure and curve of the paper, and the run: one node with 16 threads.
KERNELS = {
    "Global array, writes": ("12", "RDMA write", ["global-array", "--threads", "16", "--matrix", "32"]),
    "Stencil, 1 x 16": ("14", "1.16", ["stencil", "--processes", "1", "--threads", "16", "--iterations", "20"]),
    "Stencil, 4 x 4": ("14", "4.4", ["stencil", "--processes", "4", "--threads", "4", "--iterations", "20"]),
}


def run(command):
    """Its standard output; ends the program if it fails."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        sys.exit(f"replay.py: {' '.join(map(str, command))} ended with status {done.returncode}:\n{done.stderr}")
    return done.stdout


def totals_of(files):
    """What the device counted."""
    found = {"wqes": 0, "blueflame": 0}
    for name in files:
        for line in name.read_text(encoding="ascii").splitlines():
            of = json.loads(line).get("totals", {})
            for key in found:
                found[key] += of.get(key, 0)
    return found


def replay(heddle, kernel, folder):
    figure, curve, words = KERNELS[kernel]
    # From the recorded run's own endpoints all others follow, if each thread has its own.
    run([heddle.parent / "softhca", "run", "--uar", "static", "--record", folder / "run.%p", "--", heddle, "bench",
         *words, "--category", "mpi-everywhere", "--path", "verbs", "--repetitions", "1"])
    files = sorted(folder.glob("run.*"))
    counted = totals_of(files)
    for line in run([heddle, "predict", "--json", "--record", *files]).splitlines():
        row = json.loads(line)
        yield {"experiment": "replay", "kernel": kernel, "figure": figure, "curve": curve, **row,
               "counted_wqes": counted["wqes"], "counted_blueflame": counted["blueflame"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0],
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heddle", type=Path, required=True, help="the command")
    parser.add_argument("--hardware", action="store_true", help="changes nothing: a run is recorded on the software HCA")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each kernel and category")
    options = parser.parse_args()
    heddle = options.heddle.resolve()
    if not os.access(heddle.parent / "softhca", os.X_OK):
        sys.exit(f"replay.py: there is no {heddle.parent / 'softhca'}, which records a run")
    for kernel in KERNELS:
        with tempfile.TemporaryDirectory() as folder:
            for row in replay(heddle, kernel, Path(folder)):
                if options.json:
                    print(json.dumps(row), flush=True)
                else:
                    print(f"{kernel}: {row['endpoints']}: {row['predicted_mmsgs_per_s']:.2f} million messages a second, "
                          "predicted")


if __name__ == "__main__":
    main()
