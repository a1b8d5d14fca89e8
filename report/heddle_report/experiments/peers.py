# SPDX-License-Identifier: BSD-2-Clause
"""Heddle against UCX, on the same device."""

from ..catalogue import Experiment, Verdict, bytes_text, middle
from . import operations

Y_LABEL = "heddle, times as fast as UCX"
# What heddle is to be at or ahead in.
WANTED = (("latency", 8), ("bandwidth", 8), ("bandwidth", 1 << 20), ("allreduce", 8))
LEVEL = 0.97  # what is within the spread of two equal sides


def verdict(rows):
    found = operations.pairs(rows, "heddle", "ucx")
    if not found:
        return Verdict("none", "Nothing was measured in both ways.")
    seen = {key: middle(operations.ratios(pair)) for key, pair in found.items()
            if key[1:] in WANTED}
    behind = [f"{mpi} {operation} of {bytes_text(size)} ({value:.2f})"
              for (mpi, operation, size), value in seen.items() if value < LEVEL]
    if behind:
        return Verdict("unlike", f"Behind in {', '.join(behind)}; level or ahead in "
                       f"{len(seen) - len(behind)} of {len(seen)}.")
    return Verdict("like", f"Level or ahead in all {len(seen)} of 8 B latency and rate, 1 MiB bandwidth "
                   "and 8 B allreduce.")


EXPERIMENTS = [Experiment(
    key="peers-ucx", paper="peers", where="", title="Heddle against UCX rc_verbs",
    question="The same MPI library and program over heddle and over UCX's rc_verbs, on the same "
    "device, in turns.",
    commands=lambda mode: [[operations.SCRIPT, "--way", "heddle", "--way", "ucx", "--mpi", "mpich",
                            "--mpi", "openmpi", "--turns", "15" if mode == "quick" else "61",
                            *(word for name in ("latency", "bandwidth", "bidirectional", "allgather",
                                                "alltoall", "allreduce", "bcast")
                              for word in ("--operation", name)),
                            "--bytes", "8", "8192", "65536", str(1 << 20)]],
    seconds={"quick": 45, "full": 180},
    columns=("MPI", "operation", "bytes", "heddle, us", "UCX, us"), unit=Y_LABEL,
    points=operations.points("heddle", "ucx"), panels=operations.panels("heddle", "ucx", Y_LABEL),
    verdict=verdict,
    differences="No paper: the best known software for the same work. MPI's own shared memory is off on "
    "both sides. A bandwidth of 8 bytes is a message rate: what is shown is the time of a message. UCX "
    "has rc_mlx5, too, for adapters that it may drive by itself; a software HCA is one below "
    "libibverbs.", needs=operations.NEEDS, needs_source=True)]
