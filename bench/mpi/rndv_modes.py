#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""One program by each way that large messages can take (FI_HEDDLE_RNDV), by each path to the device
(FI_HEDDLE_POST), without the reuse of buffers and with it (FI_HEDDLE_REUSE), or over heddle and over UCX's rc_verbs,
in rounds, each way once a round: the seconds that it says it took, medians and quartiles, and those of each round
against the first way's. The program is one that verifies its answer: adi, cg, fft or lattice of this folder, LAMMPS's melt (with the distribution's
Open MPI), or COMMAND, which prints `Time in seconds = S` and `SUCCESSFUL` as the NAS benchmarks do. Ends with
status 77 if it cannot be had here. Standard library only.

    bench/mpi/rndv_modes.py --heddle build/bin/heddle --venvs build/venvs --rounds 7
    bench/mpi/rndv_modes.py --heddle build/bin/heddle --vary post --program lammps
    bench/mpi/rndv_modes.py --heddle build/bin/heddle --mpi openmpi-debian -- bin/sp.A.x
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "tests" / "mpi"), str(HERE)]
import mpis  # noqa: E402
import transports  # noqa: E402
from programs import DEBIAN, Unavailable, energy_kept, lammps, own, ready  # noqa: E402
from turns import SEEN_BY_REUSE, by_rendezvous  # noqa: E402

# What is set for each way; the first is what others are compared with.
WAYS = {
    "rndv": {
        "rget": by_rendezvous("rget"),
        "rput": by_rendezvous("rput"),
        "tupleq": {**by_rendezvous("tupleq"), "FI_HEDDLE_TUPLE_COPY": "0"},
        "tupleq, copy": by_rendezvous("tupleq"),
        "auto": by_rendezvous("auto"),
    },
    "post": {path: {"FI_HEDDLE_POST": path} for path in ("verbs", "direct")},
    "reuse": {way: {**SEEN_BY_REUSE, "FI_HEDDLE_REUSE": way} for way in ("off", "auto")},
    "peer": {"heddle": {}, "rc_verbs": {}},  # transports.py
}
OWN = "adi|cg|fft|lattice|lu|multigrid"  # programs of this folder
SECONDS = re.compile(rf"^(?:{OWN}): (?:.*, )?([\d.]+) s[,:]|^Loop time of ([\d.]+) on|Time in seconds *= *([\d.]+)", re.M)
RIGHT = re.compile(rf"^(?:{OWN}):.*\bcorrect\b|^ Verification *= *SUCCESSFUL", re.M)


def is_right(text, ranks):
    return RIGHT.search(text) or energy_kept(text, ranks)


# Which MPI (None: that of --mpi), and its command: of about half a second.
PROGRAMS = {"adi": (None, own("adi")), "cg": (None, own("cg", "1400", "7", "1200")),
            "lattice": (None, own("lattice", "4", "40")), "fft": (None, own("fft")), "lammps": (DEBIAN, lammps(500))}
NOT_HERE = 77  # as a test that is skipped


def why_useless(done, ranks):
    """Why a run that has ended says nothing; empty: it is right, and says how long it took."""
    if done.returncode != 0:
        return f"ended with status {done.returncode}"
    if not is_right(done.stdout, ranks):
        verdict = re.search(r"Verification *= *\w+|\bWRONG\b.*", done.stdout, re.I)
        return f"its answer is not verified{': ' + verdict[0] if verdict else ''}"
    return "" if SECONDS.search(done.stdout) else "it does not say how long it took"


def once(options, mpi, command, way, folder, more=(), before=()):
    """Seconds; None: it failed, or its answer is wrong. more: variables besides those of the way. before: words
    before the program, in each rank."""
    provider = options.heddle.parent.parent / "lib"
    environment = (transports.environment_of(mpi, way, provider) if options.vary == "peer" else
                   mpi.environment("heddle", provider_path=provider))
    environment.update(WAYS[options.vary][way], OMP_NUM_THREADS="1")
    environment.update(more)
    device = [] if options.hardware else [options.heddle.parent / "softhca", "run", "--"]
    words = [*device, *mpi.mpiexec(options.ranks), *before, *command]
    # Not by env(1) behind `softhca run`: some variables are of the loader, and softhca adds to them.
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False,
                          timeout=options.patience, cwd=folder, env={**os.environ, **environment})
    if why := why_useless(done, options.ranks):
        print(f"{done.stdout[-1000:]}{done.stderr[-1000:]}\n{Path(command[0]).name} by {way}: {why}",
              file=sys.stderr)
        return None
    return float(next(each for each in SECONDS.search(done.stdout).groups() if each))


def in_rounds(options, mpi, command, folder, run=once):
    """By way what `run` gave in each round; None: a run failed, or its answer is wrong."""
    ways = WAYS[options.vary]
    taken = {way: [] for way in ways}
    for number in range(max(options.rounds, 2)):
        # Each as often before the other as after it.
        for way in list(ways) if number % 2 == 0 else reversed(ways):
            if sys.stderr.isatty():
                print(f"\rround {number + 1}, {way}          ", end="", file=sys.stderr)
            taken[way].append(run(options, mpi, command, way, folder))
            if taken[way][-1] is None:
                return None
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    return taken


def print_lines(name, mpi, ranks, taken):
    for way, seconds in taken.items():
        print(json.dumps({"experiment": "ways", "program": name, "ranks": ranks,
                          "cores": len(os.sched_getaffinity(0)), "mpi": mpi.name, "way": way,
                          "seconds": seconds}), flush=True)


def print_table(options, name, mpi, taken):
    first = next(iter(taken))
    print(f"{name}, {options.ranks} ranks, {mpi.name}, {len(taken[first])} rounds, "
          f"{'' if options.hardware else 'software HCA; '}all answers right\n")
    print(f"| way | s | of {first}'s time |")
    print("|-----|--:|--:|")
    for way, seconds in taken.items():
        ratios = [one / base for one, base in zip(seconds, taken[first])]
        print(f"| {way} | {spread(seconds)} | {spread(ratios)} |")


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
    parser.add_argument("--vary", choices=WAYS, default="rndv",
                        help="FI_HEDDLE_RNDV, _POST or _REUSE; or heddle and UCX")
    parser.add_argument("--program", choices=PROGRAMS, default="adi")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5, help="at least 2")
    parser.add_argument("--patience", type=float, default=600, metavar="SECONDS", help="of a run")
    parser.add_argument("command", nargs="*", metavar="COMMAND")
    options = parser.parse_args()
    options.heddle = options.heddle.resolve()
    options.command = [str(Path(word).resolve()) if Path(word).exists() else word
                       for word in options.command]
    key, make = (None, None) if options.command else PROGRAMS[options.program]
    key = key or options.mpi
    venvs = options.venvs or options.heddle.parent.parent / "venvs"
    found, why = mpis.find([key], venvs.resolve(), say=lambda text: print(text, file=sys.stderr))
    with tempfile.TemporaryDirectory() as folder:
        try:
            make = make or (lambda *_: options.command)
            mpi, command = ready(found, why, key, make, Path(folder))
        except Unavailable as reason:
            print(f"rndv_modes: {reason}", file=sys.stderr)
            return NOT_HERE
        taken = in_rounds(options, mpi, command, folder)
    if taken is None:
        return 1
    name = Path(command[0]).name if options.command else options.program
    if options.json:
        print_lines(name, mpi, options.ranks, taken)
    else:
        print_table(options, name, mpi, taken)
    return 0


if __name__ == "__main__":
    sys.exit(main())
