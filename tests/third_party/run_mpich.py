#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Debian's MPICH (ch4 over UCX) on softhca: mpi_check.c, which looks at every byte, with four
ranks that may not use shared memory of their own, over each list of UCX transports.
"""

import re
import sys
from pathlib import Path

from harness import DEVICE, ENGINES, MEMORY_MODES, UAR_BY_MEMORY, Failure, Mode, Suite

SOURCE = Path(__file__).resolve().parent / "mpi_check.c"
LISTS = ("rc_verbs,ud_verbs", "rc_mlx5,ud_mlx5", "dc_mlx5,ud_mlx5", "ud_verbs", "ud_mlx5")
RANKS = 4


def main():
    suite = Suite("mpich", __doc__.partition("\n\n")[0])
    for transports, mode, ranks, rounds in full_matrix() if suite.full else short_set():
        name = f"mpi_check, {ranks} ranks, {transports}, {mode}"
        suite.case(name, run_check, suite, transports, mode, ranks, rounds)
    return suite.main()


def short_set():
    yield LISTS[0], Mode(uar="dynamic", memory="auto"), RANKS, 1
    yield LISTS[1], Mode(uar="dynamic", memory="auto"), RANKS, 1
    yield LISTS[1], Mode(uar="static", memory="cma"), RANKS, 1
    yield LISTS[2], Mode(uar="dynamic", memory="auto"), RANKS, 1


def full_matrix():
    for transports in LISTS:
        for mode in UAR_BY_MEMORY:
            yield transports, mode, RANKS, 3
    for transports in LISTS[:3]:
        for engine in ENGINES[1:]:
            for memory in MEMORY_MODES:
                yield transports, Mode(engine=engine, memory=memory), RANKS, 1
        yield transports, Mode(), 2, 5
        yield transports, Mode(), 7, 1


def build(suite):
    suite.need("mpicc.mpich", "mpiexec.mpich")
    program = suite.scratch("mpich") / "mpi_check"
    if not program.exists() or program.stat().st_mtime < SOURCE.stat().st_mtime:
        argv = ["mpicc.mpich", "-std=gnu11", "-O2", "-Wall", "-o", program, SOURCE]
        suite.run_plain(argv, seconds=120)
    return program


def run_check(suite, transports, mode, ranks, rounds):
    program = build(suite)
    environment = {
        "MPIR_CVAR_NOLOCAL": "1",
        "UCX_TLS": transports,
        "UCX_NET_DEVICES": f"{DEVICE}:1",
        "UCX_WARN_UNUSED_ENV_VARS": "n",
    }
    argv = ["mpiexec.mpich", "-launcher", "fork", "-n", ranks, program, rounds]
    job = suite.run(argv, mode=mode, environment=environment, seconds=150)
    text = job.output()
    if re.search(r"\b(ERROR|WARN|Abort)\b|Assertion", text):
        raise Failure(f"the job reports an error\n{job.describe()}")
    found = re.search(rf"^mpi_check: ([1-9]\d*) checks passed by {ranks} ranks$", text, re.M)
    if not found:
        raise Failure(f"no line of passed checks\n{job.describe()}")
    return f"{found[1]} checks"


if __name__ == "__main__":
    sys.exit(main())
