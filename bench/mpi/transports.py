# SPDX-License-Identifier: BSD-2-Clause
"""By which library an MPI's messages go: heddle, and the peers that it is compared with. For each a name, the
environment that an MPI needs for it, and whether this machine has it, which is found by trying. Standard library
only."""

import functools
import os
import re
import signal
import subprocess
import tempfile
from pathlib import Path

from turns import RANKS, compiled, over_heddle, over_ucx

# UCX's transports, each with the datagrams of its family for connections.
OF_UCX = ("rc_verbs", "rc_mlx5", "dc_mlx5")
# Libfabric's own providers.
OF_LIBFABRIC = {"rxm": "verbs;ofi_rxm", "tcp": "tcp", "shm": "shm"}
PEERS = (*OF_UCX, *OF_LIBFABRIC)
PATIENCE = 20  # seconds, of a try
HERE = Path(__file__).resolve().parent
FOLDERS = []  # of with_devices(), which go with this process

# What says that a job has no such transport, in the order in which it is preferred.
REASONS = (re.compile(r"(transports? .*(?:is|are) not available)", re.M),
           re.compile(r"(no \w+ messages? transport to .*)", re.M),
           re.compile(r"<warn> ([^<>\n]+)$", re.M),
           re.compile(r"(OFI call \w+ failed.*)", re.M),
           re.compile(r"(No components were able to be opened in the \w+ framework)", re.M))
NO_CACHE = re.compile(r"could not create UCP registration cache|rcache failed to install", re.M)
# UCX's "lanes" between two processes: `ucp_context_0 intra-node cfg#1 tag(rc_verbs/mlx5_0:1)`; before UCX 1.14
# `ep_cfg[1]: tag(rc_verbs/mlx5_0:1)`.
LANES = re.compile(r"(?:-node cfg#\d+|ep_cfg\[\d+\]:)(.*)$", re.M)


def with_yield(provider):
    """`heddle run` has MPICH's calls of sched_yield go by this library: see docs/guide/mpi.md."""
    library = Path(provider) / "libheddle-yield.so"
    others = os.environ.get("LD_PRELOAD", "")  # softhca's, in a script that runs on it
    return {"LD_PRELOAD": f"{library}{':' if others else ''}{others}"} if library.exists() else {}


@functools.cache
def with_devices(provider):
    """PyPI's MPICH has an hwloc that finds no PCI devices. It ends with "Assertion failed in file mpir_hwtopo.c" over a
    provider that names its own, as libfabric's verbs does. A file has them for it. Nothing if none can be made."""
    folder = tempfile.TemporaryDirectory(prefix="heddle-topology-")
    FOLDERS.append(folder)
    program, file = Path(folder.name) / "topology", Path(folder.name) / "topology.xml"
    device = Path(provider).parent / "bin" / "softhca"
    beneath = [device, "run", "--fabric", f"topology-{os.getpid()}", "--"] if device.exists() else []
    for argv in (["cc", "-o", program, HERE / "topology.c", "-lhwloc"], [*beneath, program, file]):
        try:
            subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        except (OSError, subprocess.CalledProcessError):
            return {}
    return {"HWLOC_XMLFILE": str(file), "HWLOC_THISSYSTEM": "1"}


def environment_of(mpi, way, provider, threads=1, one_sided=False):
    """provider: the folder of heddle's, whose jobs have what `heddle run` gives them. one_sided: operations on windows
    are among what is sent."""
    if way == "heddle":
        ours = (mpi.environment("heddle", threads=threads, provider_path=provider) if one_sided else
                over_heddle(mpi, provider, threads))
        return {**ours, **with_yield(provider)}
    if way in OF_UCX:
        return over_ucx(mpi, way)
    devices = with_devices(provider) if way == "rxm" and mpi.key == "mpich" else {}
    return {**mpi.environment(OF_LIBFABRIC[way], threads=threads), **devices}


def lanes_of(text):
    """UCX's transports between two processes, as its log names them."""
    return {name for lanes in LANES.findall(text) for name in re.findall(r"(\w+)/", lanes)} - {"self"}


def reason_in(text):
    """Why a job that has failed did, in one line of what it said."""
    for pattern in REASONS:
        if found := pattern.search(text):
            return re.sub(r"\s+", " ", found[1]).strip()[:200]
    lines = [line.strip() for line in text.splitlines() if re.search(r"\w", line)]
    return lines[-1][:200] if lines else "it said nothing"


def why_not(options, mpi, peer, folder, one_sided=False):
    """Why this machine has not this peer; empty: it has it. options: those of turns.parser_of().

    UCX takes what it has of the transports that it may take, and connects by datagrams alone if nothing else is
    left. So its log must name the transport. Without its registration cache it is not the UCX that people use."""
    device = [] if options.hardware else [options.heddle.with_name("softhca"), "run", "--fabric",
                                          f"try-{os.getpid()}", "--"]
    argv = [*device, *mpi.mpiexec(RANKS), compiled(mpi, folder, "operations"), "put" if one_sided else "latency", 8, 1]
    told = {"UCX_LOG_LEVEL": "info"} if peer in OF_UCX else {"FI_LOG_LEVEL": "warn"}
    environment = environment_of(mpi, peer, options.heddle.parent.parent / "lib", one_sided=one_sided)
    return why_useless(peer, *said_by(argv, {**os.environ, **environment, **told}))


def said_by(argv, environment):
    """What a job has said, and its status; None: it did not end, and has been killed with all its processes. Some
    of MPICH's do not when a rank has ended in error."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        job = subprocess.Popen(list(map(str, argv)), stdin=subprocess.DEVNULL, stdout=output,
                               stderr=subprocess.STDOUT, env=environment, start_new_session=True)
        try:
            status = job.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
            status = None
        output.seek(0)
        return output.read(), status


def why_useless(peer, text, status):
    """What a job that was to go by this peer says against it."""
    if peer in OF_UCX:
        lanes = lanes_of(text)
        if peer not in lanes:
            without = REASONS[0].search(text)
            return (f"UCX: {without[1]}" if without else f"UCX takes {', '.join(sorted(lanes))} instead" if lanes
                    else reason_in(text))
        if NO_CACHE.search(text):
            return "UCX has no registration cache here"
    if status is None:
        return f"a job of two ranks does not end within {PATIENCE} s"
    return "" if status == 0 else reason_in(text)
