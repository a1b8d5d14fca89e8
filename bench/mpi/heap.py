#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""What a process has on its heap once it has talked to all others (heap.c), by the number of processes,
over heddle by the verbs path and by the direct one. A line of JSON for each. Standard library only."""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from jobs import HERE, PATIENCE, mpis, over_heddle

RUNS = 3


def heap(options, mpi, binary, ranks, path):
    before = [] if options.hardware else [options.heddle.with_name("softhca"), "run", "--"]
    environment = over_heddle(mpi, options.heddle.parent.parent / "lib")
    done = subprocess.run(list(map(str, [*before, *mpi.mpiexec(ranks), binary])),
                          env={**os.environ, **environment, "FI_HEDDLE_POST": path},
                          capture_output=True, text=True, check=False, timeout=PATIENCE)
    found = re.search(r"^heap \d+ (\d+)$", done.stdout, re.M)
    if done.returncode != 0 or found is None:
        sys.exit(f"heap: {path}, {ranks} processes: {done.stdout[-1000:]}{done.stderr[-1000:]}")
    return int(found[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--heddle", type=Path, required=True, help="build/bin/heddle")
    parser.add_argument("--venvs", type=Path,
                        help="folder of the MPIs, which are installed there (default: build/venvs)")
    parser.add_argument("--hardware", action="store_true", help="without the software HCA")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    options = parser.parse_args()
    options.heddle = options.heddle.resolve()
    venvs = (options.venvs or options.heddle.parent.parent / "venvs").resolve()
    found, missing = mpis.find(["mpich"], venvs, say=lambda text: print(text, file=sys.stderr))
    if missing:
        sys.exit(f"heap: {missing['mpich']}")
    mpi = found["mpich"]
    with tempfile.TemporaryDirectory() as folder:
        binary = Path(folder) / "heap"
        subprocess.run([mpi.mpicc, "-O2", "-o", binary, HERE / "heap.c"], check=True)
        for ranks in options.ranks:
            for path in ("verbs", "direct"):
                print(json.dumps({"experiment": "mpi-heap", "mpi": mpi.name, "ranks": ranks,
                                  "way": path, "version": " ".join(mpis.REQUIREMENTS["mpich"]),
                                  "heap_bytes": [heap(options, mpi, binary, ranks, path)
                                                 for _ in range(RUNS)]}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
