# SPDX-License-Identifier: BSD-2-Clause
"""Which papers and which experiments there are."""

from .experiments import (direct, direct_counts, direct_ucx, endpoints, endpoints_mpi, kernels, outside, peers,
                          predicted, resources, reuse, reuse_applications, tupleq)

PAPERS = {
    "endpoints": ("Scalable endpoints", "Scalable Communication Endpoints for MPI+Threads "
                  "Applications, ICPADS 2018. ConnectX-4 EDR, 16 cores (Haswell)"),
    "reuse": ("Buffer reuse", "Exploiting application buffer reuse to improve MPI small message "
              "transfer protocols. MVAPICH2 1.0.3, ConnectX DDR"),
    "direct": ("Direct verbs", "Direct posting to mlx5 instead of libibverbs under MPI. "
               "MVAPICH2-3.0a on UCX 1.13.1, ConnectX-6 HDR100"),
    "tupleq": ("TupleQ", "TupleQ: Fully-Asynchronous and Zero-Copy MPI over InfiniBand. ConnectX, "
               "MVAPICH, 64 processes"),
    "peers": ("Against the peers", "The same programs over other libraries, on the same device"),
}


def all_experiments():
    return [*endpoints.EXPERIMENTS, *kernels.EXPERIMENTS, *predicted.EXPERIMENTS, *resources.EXPERIMENTS, *endpoints_mpi.EXPERIMENTS,
            *reuse.EXPERIMENTS, *reuse_applications.EXPERIMENTS, *direct.EXPERIMENTS, *direct_ucx.EXPERIMENTS,
            *direct_counts.EXPERIMENTS, *tupleq.EXPERIMENTS, *outside.EXPERIMENTS, *peers.EXPERIMENTS]


def outside_programs():
    """Those of others that experiments run, each once."""
    return list(dict.fromkeys(each.outside for each in all_experiments() if each.outside))
