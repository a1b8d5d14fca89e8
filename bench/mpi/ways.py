#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""One program by each way that large messages can take (FI_HEDDLE_RNDV), in rounds, each way once a
round: the seconds that it says it took, medians and quartiles, and those of each round against
rget's. The program is adi of this folder, which verifies its answer, or COMMAND: a program that
prints `Time in seconds = S` and `SUCCESSFUL` as the NAS benchmarks do. Standard library only.

    bench/mpi/ways.py --heddle build/bin/heddle --venvs build/venvs --rounds 7
    bench/mpi/ways.py --heddle build/bin/heddle --mpi openmpi-debian -- bin/sp.A.x
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "tests" / "mpi"), str(HERE)]
import mpis  # noqa: E402
from programs import own  # noqa: E402

# What is set for each way.
WAYS = {
    "rget": {"FI_HEDDLE_RNDV": "rget"},
    "rput": {"FI_HEDDLE_RNDV": "rput"},
    "tupleq": {"FI_HEDDLE_RNDV": "tupleq", "FI_HEDDLE_TUPLE_COPY": "0"},
    "tupleq, copy": {"FI_HEDDLE_RNDV": "tupleq"},
    "auto": {"FI_HEDDLE_RNDV": "auto"},
}
SECONDS = re.compile(r"^adi: ([\d.]+) s|Time in seconds *= *([\d.]+)", re.M)
RIGHT = re.compile(r"^adi:.*\bcorrect\b|^ Verification *= *SUCCESSFUL", re.M)


def once(options, mpi, command, way):
    """Seconds; None: it failed, or its answer is wrong."""
    environment = mpi.environment("heddle", provider_path=options.heddle.parent.parent / "lib")
    environment.update(WAYS[way])
    device = [] if options.hardware else [options.heddle.parent / "softhca", "run", "--"]
    words = [*device, "env", *(f"{key}={value}" for key, value in environment.items()),
             *mpi.mpiexec(options.ranks), *command]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False,
                          timeout=options.patience)
    seconds = SECONDS.search(done.stdout)
    if done.returncode != 0 or not RIGHT.search(done.stdout) or seconds is None:
        print(f"{way}: {done.stdout[-1000:]}{done.stderr[-1000:]}", file=sys.stderr)
        return None
    return float(seconds[1] or seconds[2])


def spread(values):
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--heddle", type=Path, required=True, help="build/bin/heddle")
    parser.add_argument("--venvs", type=Path,
                        help="folder of the MPIs, which are installed there (default: build/venvs)")
    parser.add_argument("--hardware", action="store_true", help="without the software HCA")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each way")
    parser.add_argument("--mpi", choices=mpis.KEYS, default="mpich")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5, help="at least 2")
    parser.add_argument("--patience", type=float, default=600, metavar="SECONDS", help="of a run")
    parser.add_argument("command", nargs="*", metavar="COMMAND")
    options = parser.parse_args()
    options.heddle = options.heddle.resolve()
    venvs = options.venvs or options.heddle.parent.parent / "venvs"
    found, why = mpis.find([options.mpi], venvs.resolve(),
                           say=lambda text: print(text, file=sys.stderr))
    if options.mpi not in found:
        print(f"ways.py: {why[options.mpi]}", file=sys.stderr)
        return 2
    mpi = found[options.mpi]
    with tempfile.TemporaryDirectory() as folder:
        command = options.command or own("adi")(mpi, Path(folder))
        taken = {way: [] for way in WAYS}
        for number in range(max(options.rounds, 2)):
            for way in WAYS:
                print(f"\rround {number + 1}, {way}          ", end="", file=sys.stderr)
                taken[way].append(once(options, mpi, command, way))
                if taken[way][-1] is None:
                    return 1
        print("\r", end="", file=sys.stderr)
    if options.json:
        for way, seconds in taken.items():
            print(json.dumps({"experiment": "ways", "program": Path(command[0]).name,
                              "ranks": options.ranks, "mpi": mpi.name, "way": way,
                              "seconds": seconds}))
        return 0
    print(f"{Path(command[0]).name}, {options.ranks} ranks, {mpi.name}, {len(taken['rget'])} rounds, "
          "software HCA; all answers right\n")
    print("| way | s | of rget's time |")
    print("|-----|--:|--:|")
    for way, seconds in taken.items():
        ratios = [one / base for one, base in zip(seconds, taken["rget"])]
        print(f"| {way} | {spread(seconds)} | {spread(ratios)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
