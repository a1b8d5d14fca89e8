#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Programs without the reuse of buffers and with it (FI_HEDDLE_REUSE), in rounds, each once a round: how long
their ranks send, are in MPI at all, and run. And once more for what their messages were. They are hypre's
multigrid, a lattice code in the manner of MILC, LAMMPS's melt, and cg and lu of this folder; all verify their
answers. With --vary peer they run over heddle and over UCX's rc_verbs, and so do adi and fft; one that this machine
has not has a line that says why. Ends with status 77 if none of them can be had. Standard library only.

    bench/mpi/applications.py --heddle build/bin/heddle --rounds 7
    bench/mpi/applications.py --heddle build/bin/heddle --vary peer --ranks 2 --rounds 9
    bench/mpi/applications.py --heddle build/bin/heddle --only lattice --ranks 2
"""

import math
import re
import sys
import tempfile
from pathlib import Path

import phases
from programs import DEBIAN, Unavailable, lammps, own, ready
from rndv_modes import NOT_HERE
from turns import mpis, parser_of

# Name: which MPI (None: that of --mpi), and its command.
PROGRAMS = {
    "multigrid": (DEBIAN, own("multigrid", "24", "3")),
    "lattice": (None, own("lattice", "6", "100")),
    "LAMMPS melt": (DEBIAN, lammps(250)),
    "cg": (None, own("cg", "1400", "7", "300")),
    "lu": (None, own("lu", "40", "50")),
}
# Beside a peer; each takes about a second of two ranks.
BESIDE = {**PROGRAMS, "LAMMPS melt": (DEBIAN, lammps(500)), "cg": (None, own("cg", "1400", "7", "1200")),
          "lu": (None, own("lu", "40", "20")), "adi": (None, own("adi")), "fft": (None, own("fft", "64", "20"))}
SQUARE = ("adi",)  # programs that want a square number of ranks


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--mpi", choices=mpis.KEYS, default="mpich",
                        help="of this folder's programs (default mpich); hypre and LAMMPS have the distribution's")
    parser.add_argument("--vary", choices=("reuse", "peer"), default="reuse", help="what its runs differ in")
    parser.add_argument("--only", default="", help="programs whose name matches")
    parser.add_argument("--ranks", type=int, default=4, help="(default 4)")
    parser.add_argument("--rounds", type=int, default=5, help="at least 2 (default 5)")
    parser.add_argument("--patience", type=float, default=600, metavar="SECONDS", help="of a run")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each program")
    options = parser.parse_args()
    options.heddle = options.heddle.resolve()
    venvs = options.venvs or options.heddle.parent.parent / "venvs"
    found, why = mpis.find([options.mpi, DEBIAN], venvs.resolve(), say=lambda text: print(text, file=sys.stderr))
    states = []
    with tempfile.TemporaryDirectory() as scratch:
        experiment = f"{options.vary}-applications"
        for name, (key, make) in (PROGRAMS if options.vary == "reuse" else BESIDE).items():
            if not re.search(options.only, name):
                continue
            try:
                if name in SQUARE and math.isqrt(options.ranks) ** 2 != options.ranks:
                    raise Unavailable("needs a square number of ranks")
                mpi, command = ready(found, why, key or options.mpi, make, Path(scratch))
                states.append(phases.measure(options, mpi, experiment, name, command, Path(scratch)))
            except Unavailable as reason:
                if options.json and options.vary == "peer":
                    phases.print_missing(options, mpis.NAMES[key or options.mpi], experiment, name, reason)
                print(f"applications.py: {name}: not run: {reason}", file=sys.stderr)
            except phases.Broken as reason:
                print(f"applications.py: {name}: {reason}", file=sys.stderr)
                states.append(1)
    return max(states, default=NOT_HERE)


if __name__ == "__main__":
    sys.exit(main())
