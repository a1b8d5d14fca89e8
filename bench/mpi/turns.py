# SPDX-License-Identifier: BSD-2-Clause
"""Jobs of the same MPI program that take turns (turns.h), and what puts an MPI's traffic on heddle or
on UCX's rc_verbs or rc_mlx5, on the same device. Standard library only."""

import argparse
import os
import select
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests" / "mpi"))
import mpis  # noqa: E402

RANKS = 2
PATIENCE = 120  # seconds, of a turn


# MPIs inject what is no longer than this, and what is injected is copied whatever FI_HEDDLE_REUSE says.
SEEN_BY_REUSE = {"FI_HEDDLE_INJECT_SIZE": "128"}
UCX = ("rc_verbs", "rc_mlx5")  # UCX's transports that the paper on direct verbs compares


def by_rendezvous(way):
    """All messages above the eager size go by that protocol, none in fragments."""
    return {"FI_HEDDLE_RNDV": way, "FI_HEDDLE_RNDV_SIZE": "0"}


def compiled(mpi, folder, name):
    """The program NAME.c of this folder for that MPI, in `folder`, made if it is not there."""
    binary = folder / f"{name}.{mpi.key}"
    if not binary.exists():
        subprocess.run([mpi.mpicc, "-O2", "-pthread", "-o", binary, HERE / f"{name}.c"], check=True)
    return binary


def parser_of(document):
    """A parser of a script with this __doc__, with the options that all scripts have."""
    parser = argparse.ArgumentParser(description=document.partition("\n\n")[0])
    parser.add_argument("--heddle", type=Path, required=True, help="build/bin/heddle")
    parser.add_argument("--venvs", type=Path,
                        help="folder of the MPIs, which are installed there (default: build/venvs)")
    parser.add_argument("--hardware", action="store_true", help="without the software HCA")
    return parser


def over_ucx(mpi, transport="rc_verbs"):
    """UCX connects by the datagrams of the same family: rc_mlx5 by ud_mlx5.

    With one VCI whatever the number of threads: MPICH 5.0.2 with its ucx netmod and two of them hangs in
    MPI_Comm_dup, over TCP as well as over verbs."""
    environment = {"UCX_TLS": f"{transport},ud_{transport.partition('_')[2]},self",
                   # By default 30 s, too short for 32 processes that poll on 2 processors.
                   "UCX_UD_TIMEOUT": "3m", "UCX_WARN_UNUSED_ENV_VARS": "n"}
    if mpi.key == "mpich":
        environment.update(MPIR_CVAR_CH4_NETMOD="ucx", MPIR_CVAR_NOLOCAL="1")
    else:
        environment.update(OMPI_MCA_pml="ucx", OMPI_MCA_osc="ucx", OMPI_MCA_pml_ucx_tls="any",
                           OMPI_MCA_pml_ucx_devices="any", OMPI_MCA_btl="self")
    return environment


def over_heddle(mpi, path, threads=1):
    environment = mpi.environment("heddle", threads=threads, provider_path=path)
    if mpi.is_openmpi:
        # Messages alone: btl/ofi, for one-sided, would have an endpoint more to be polled.
        environment["OMPI_MCA_btl"] = "self"
    return environment


class Job:
    """One MPI job, asleep except in its turns."""

    def __init__(self, name, argv, environment, folder, ranks=RANKS):
        self.name = name
        self.turns = folder / name.replace("/", "-")
        self.go, self.done = [], []
        for rank in range(ranks):
            for ends, what in ((self.go, "go"), (self.done, "done")):
                path = f"{self.turns}.{rank}.{what}"
                os.mkfifo(path)
                ends.append(os.open(path, os.O_RDWR))  # so that nobody waits for the other end
        self.output = open(f"{self.turns}.out", "w+", encoding="utf-8")
        self.process = subprocess.Popen(
            list(map(str, argv)), stdin=subprocess.DEVNULL, stdout=self.output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment, "TURNS": str(self.turns)})

    def _go(self):
        for end in self.go:
            os.write(end, b".")

    def turn(self):
        self._go()
        until = time.monotonic() + PATIENCE
        for end in self.done:
            while not select.select([end], [], [], 1)[0]:
                if self.process.poll() is not None or time.monotonic() > until:
                    self.fail()
            os.read(end, 1)

    def results(self):
        """The words of what was written for each turn, once the job has ended, which it does now."""
        self._go()
        if self.process.wait(PATIENCE) != 0:
            self.fail()
        lines = (line.split() for line in self.text().splitlines())
        return [words[1:] for words in lines if words[:1] == ["turn"]]

    def text(self):
        self.output.seek(0)
        return self.output.read()

    def fail(self):
        ended = self.process.poll()
        self.process.kill()
        sys.exit(f"{self.name} "
                 + (f"ended with {ended}" if ended is not None else "does not go on")
                 + f":\n{self.text()}")

    def close(self):
        for end in (*self.go, *self.done):
            os.close(end)
        self.output.close()
