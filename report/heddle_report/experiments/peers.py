# SPDX-License-Identifier: BSD-2-Clause
"""Heddle beside its peers: the same MPI and program over other libraries, on the same device where they can. Each
operation and size beside each peer is a row with a verdict of its own (judged.py)."""

import os

from .. import judged
from ..model import Experiment, Panel, Series
from ..values import bytes_text, distinct, middle, middle_between, quartiles, short_of_cores
from . import operations
from .outside import NPB
from .outside import SCRIPT as OUTSIDE

Y_LABEL = "heddle, times as fast"
# The peer of a script's --beside, and its name here.
PEERS = {"rc_verbs": "UCX rc_verbs", "rc_mlx5": "UCX rc_mlx5", "dc_mlx5": "UCX dc_mlx5",
         "rxm": "libfabric verbs;ofi_rxm", "tcp": "libfabric tcp", "shm": "libfabric shm", "again": "heddle again"}
BESIDE = tuple(PEERS)[:-1]
BOTH = ("--mpi", "mpich", "--mpi", "openmpi")
SIZES = (8, 1024, 8192, 65536, 1 << 20)
MESSAGES = ("latency", "bandwidth", "bidirectional")
ONE_SIDED = ("put", "get", "accumulate")
COLLECTIVES = ("bcast", "gather", "scatter", "allgather", "alltoall", "allreduce")
CROWD = 4  # ranks of the collectives that are not judged where processors are fewer
ABOUT = (
    "No paper: other software for the same work, by the same MPI library and program. Peers are UCX's rc_verbs, rc_mlx5 "
    "and dc_mlx5, and libfabric's verbs;ofi_rxm and tcp, on the same device or host. UCX connects by datagrams of the same "
    "family, and is without shared memory of its own. MPI's own shared memory is off on all sides. Libfabric's shm is no "
    "network, and only shown. Every peer is tried. If this machine does not have it, the row has the reason. UCX must have "
    "its registration cache. A software HCA finds the doorbells of rc_mlx5 and dc_mlx5 by looking for them. Their rows are "
    "shown, and judged where dedicated threads of the device find all doorbells alike. Jobs over heddle have what heddle "
    "run gives them, also its sched_yield (libheddle-yield.so), which MPICH calls after each look for messages.")


# Rows.

def why_shown(peer, rows):
    """Why a comparison is shown and not judged; empty: it is judged."""
    if peer == "shm":
        return "no network"
    if peer in ("rc_mlx5", "dc_mlx5") and any(row.get("engine") not in (None, "dedicated") for row in rows):
        return "its doorbells are found by looking for them"
    if short_of_cores(rows):
        return f"{rows[0]['ranks']} ranks take turns on {min(row['cores'] for row in rows)} cores"
    return ""


def by_peer(rows):
    """Peer -> its lines, and heddle's beside it."""
    return {peer: [row for row in rows if row.get("beside") == peer] for peer in PEERS
            if any(row.get("beside") == peer for row in rows)}


def by_run(rows):
    return [[row for row in rows if row.get("run", 0) == number]
            for number in sorted({row.get("run", 0) for row in rows})]


def operation_rows(rows):
    """Those of bench/mpi/operations.py --beside."""
    found = []
    for peer, mine in by_peer(rows).items():
        found += [judged.missing(PEERS[peer], (row["mpi"],), row["missing"]) for row in by_run(mine)[0]
                  if row.get("missing")]
        there = [row for row in mine if not row.get("missing")]
        runs = [operations.pairs(each, "heddle", peer) for each in by_run(there)]
        for key, pair in operations.pairs(there, "heddle", peer).items():
            mpi, operation, size = key
            took = tuple(f"{middle(row['seconds']) * 1e6:.2f}" for row in pair)
            found.append(judged.judge(
                PEERS[peer], (mpi, operation, bytes_text(size)), [operations.ratios(run[key]) for run in runs if key in run],
                took=took, shown=why_shown(peer, [row for row in there if row["operation"] == operation])))
    return found


# Overlap: what a message takes of a program that works meanwhile.

SIDES = ("sender", "receiver")
LEAST = 0.01  # of a message's time: less overhead than this is none


def availability(row):
    """In percent, of each turn."""
    return [100 * (1 - overhead / base) for base, overhead in zip(row["base"], row["overhead"])]


def overheads(ours, theirs):
    """How many times as much a message over the peer takes of the program, turn by turn."""
    least = LEAST * min(middle(ours["base"]), middle(theirs["base"]))
    return [max(their, least) / max(our, least) for our, their in zip(ours["overhead"], theirs["overhead"])]


def overlap_pairs(rows, peer):
    by = {(row["mpi"], row["side"], row["bytes"], row["way"]): row for row in rows if not row.get("missing")}
    return {key[:3]: (row, by[(*key[:3], peer)]) for key, row in by.items()
            if key[3] == "heddle" and (*key[:3], peer) in by}


def overlap_rows(rows):
    found = []
    for peer, mine in by_peer(rows).items():
        runs = by_run(mine)
        found += [judged.missing(PEERS[peer], (row["mpi"],), row["missing"]) for row in runs[0] if row.get("missing")]
        pairs = [overlap_pairs(run, peer) for run in runs]
        for key in pairs[0]:
            mpi, side, size = key
            each = [pair[key] for pair in pairs if key in pair]
            took = tuple(f"{middle(pair['overhead']) * 1e6:.2f}, {middle(availability(pair)):.0f} %" for pair in each[0])
            found.append(judged.judge(PEERS[peer], (mpi, side, bytes_text(size)),
                                      [overheads(*pair) for pair in each], took=took))
    return found


def overlap_panels(rows):
    result = []
    for mpi in distinct(row["mpi"] for row in rows):
        for side in SIDES:
            of = [row for row in rows if row["mpi"] == mpi and row["side"] == side]
            sizes = sorted(distinct(row["bytes"] for row in of))
            series = []
            for way in distinct(row["way"] for row in of):
                by = {row["bytes"]: middle(availability(row)) for row in of if row["way"] == way}
                series.append(Series(PEERS.get(way, way), [by.get(size) for size in sizes]))
            if series:
                result.append(Panel(f"{mpi}, {side}", sizes, "bytes", "available, %", series, x_scale="log2"))
    return result


# Memory.

def memory_rows(rows):
    by = {}
    for row in rows:
        if not row.get("missing"):
            by.setdefault((row["mpi"], row["ranks"], row["way"]), []).append(row)
    found = [judged.missing(PEERS[row["way"]], (row["mpi"],), row["missing"]) for row in by_run(rows)[0]
             if row.get("missing")]
    for (mpi, ranks, way), theirs in by.items():
        ours = by.get((mpi, ranks, "heddle"))
        if way == "heddle" or ours is None:
            continue
        runs = [[their / our for our, their in zip(a["memory_bytes"], b["memory_bytes"])]
                for a, b in zip(ours, theirs)]
        took = tuple(f"{middle(row['memory_bytes']) / (1 << 20):.1f}" for row in (ours[0], theirs[0]))
        found.append(judged.judge(PEERS[way], (mpi, f"{ranks} processes"), runs, took=took,
                                  shown="no network" if way == "shm" else ""))
    return found


def memory_panels(rows):
    result = []
    for mpi in distinct(row["mpi"] for row in rows):
        of = [row for row in rows if row["mpi"] == mpi and not row.get("missing")]
        ranks = sorted(distinct(row["ranks"] for row in of))
        for title, label, value in (
                (f"Memory of a process that has talked to all, {mpi}", "MiB",
                 lambda row: middle(row["memory_bytes"]) / (1 << 20)),
                (f"Queue pairs of a process, {mpi}", "queue pairs", lambda row: row["qps"])):
            series = []
            for way in distinct(row["way"] for row in of):
                by = {row["ranks"]: value(row) for row in of if row["way"] == way}
                series.append(Series(PEERS.get(way, way), [by.get(count) for count in ranks]))
            result.append(Panel(title, ranks, "processes", label, series, x_scale="log2"))
    return result


# Programs.

def in_words(seconds):
    return f"{seconds:.3g}" if seconds < 1 else f"{seconds:.2f}"


def program_rows(rows):
    """Those of bench/mpi/applications.py and outside.py --vary peer: the wall time of each round."""
    found = [judged.missing(PEERS[row["way"]], (row["mpi"], row["program"]), row["missing"]) for row in by_run(rows)[0]
             if row.get("missing")]
    by = {}
    for row in rows:
        if not row.get("missing"):
            by.setdefault((row["mpi"], row["program"], row["ranks"], row["way"]), []).append(row)
    for (mpi, program, ranks, way), theirs in by.items():
        ours = by.get((mpi, program, ranks, "heddle"))
        if way == "heddle" or ours is None:
            continue
        runs = [[their / our for our, their in zip(a[SECONDS], b[SECONDS])] for a, b in zip(ours, theirs)]
        took = tuple(in_words(middle([second for row in each for second in row[SECONDS]])) for each in (ours, theirs))
        found.append(judged.judge(PEERS[way], (mpi, program, f"{ranks} ranks"), runs, took=took,
                                  shown=why_shown(way, [*ours, *theirs])))
    return found


SECONDS = "run_s"


def program_panels(rows):
    """How many times as fast each program is, and the share of its time that it is in MPI."""
    there = [row for row in rows if not row.get("missing")]
    names = distinct(row["program"] for row in there)
    judged_rows = [row for row in program_rows(rows) if row.ratio is not None]
    series = []
    for peer in distinct(row.peer for row in judged_rows):
        by = {row.key[1]: row for row in judged_rows if row.peer == peer}
        series.append(Series(peer, [name in by and by[name].ratio or None for name in names],
                             [name in by and by[name].low or None for name in names],
                             [name in by and by[name].high or None for name in names]))
    shares = []
    for way in distinct(row["way"] for row in there):
        by = {row["program"]: 100 * middle(row["communication_s"]) / middle(row[SECONDS]) for row in there
              if row["way"] == way}
        shares.append(Series(PEERS.get(way, way), [by.get(name) for name in names]))
    return [Panel("Programs", names, "", Y_LABEL, series, marks=((1, "equal"),)),
            Panel("In MPI", names, "", "% of the time", shares)]


# Panels of operations: a curve for each MPI and peer.

def curves(rows, xs, key_of):
    """The series of all MPIs and peers over xs; key_of: x -> (operation, bytes)."""
    series = []
    for peer, mine in by_peer(rows).items():
        by = operations.pairs([row for row in mine if not row.get("missing")], "heddle", peer)
        for mpi in distinct(key[0] for key in by):
            each = [operations.ratios(by[(mpi, *key_of(x))]) if (mpi, *key_of(x)) in by else None for x in xs]
            series.append(Series(f"{mpi}, {PEERS[peer]}", [cell and middle(cell) for cell in each],
                                 [cell and middle_between(cell)[0] for cell in each],
                                 [cell and middle_between(cell)[1] for cell in each]))
    return [each for each in series if not each.is_empty]


def operation_panels(rows):
    there = [row for row in rows if not row.get("missing")]
    result = []
    for operation in distinct(row["operation"] for row in there):
        sizes = sorted(distinct(row["bytes"] for row in there if row["operation"] == operation))
        result.append(Panel(operation, sizes, "bytes", Y_LABEL, curves(rows, sizes, lambda x, o=operation: (o, x)),
                            x_scale="log2", y_scale="log", y_from_zero=False, marks=((1, "equal"),)))
    return result


def rate_panels(rows):
    names = sorted(distinct(row["operation"] for row in rows if not row.get("missing")))
    return [Panel("Messages of 8 B a second, both directions", names, "", Y_LABEL,
                  curves(rows, names, lambda x: (x, 8)), marks=((1, "equal"),))]


# The experiments.

def words(option, values):
    return [word for value in values for word in (option, str(value))]


def processors():
    return max(2, len(os.sched_getaffinity(0)))


def commands(names, turns, ranks=None, peers=BESIDE, quick_peers=("rc_verbs", "dc_mlx5", "rxm", "tcp")):
    """One command for each peer, so that a run says how far it is. turns: those of --quick and of --full."""
    def of(mode):
        quick = mode == "quick"
        return [[operations.SCRIPT, *BOTH, "--beside", peer, "--turns", str(turns[0] if quick else turns[1]),
                 *words("--operation", names), *(["--ranks", str(ranks())] if ranks else []),
                 "--bytes", *map(str, SIZES)] for peer in (quick_peers if quick else peers)]
    return of


def experiment(rows, panels, **fields):
    return judged.experiment(rows, paper="peers", where="", panels=panels, needs_source=True, **fields)


OPERATIONS = {"rows": operation_rows, "columns": ("beside", "MPI", "operation", "bytes", "heddle, us", "peer, us"),
              "unit": Y_LABEL, "needs": operations.NEEDS}

PROGRAMS = {"rows": program_rows, "panels": program_panels, "columns": ("beside", "MPI", "program", "ranks", "heddle, s",
                                                                        "peer, s"),
            "unit": Y_LABEL, "needs": ("mpi", "program", "ranks", "cores", "way", SECONDS), "one_job": True}
ABOUT_PROGRAMS = (
    "A program runs over heddle and over UCX's rc_verbs in turn, once each in a round, and each ratio is of one round. "
    "The time is from the end of MPI_Init to MPI_Finalize, the mean of the ranks.")


def npb_commands(mode):
    ranks = processors()
    two = 1 << ranks.bit_length() - 1  # a power of two, which all of these take
    return [[OUTSIDE, "--json", "--vary", "peer", "--class", letter, "--ranks", str(count), "--rounds",
             "7" if letter != "A" else "6", "--benchmark", *names]
            for letter in ("S" if mode == "quick" else "SWA")
            for names, count in ((("cg", "mg", "ft", "is", "lu", "ep"), two), (("sp", "bt"), CROWD))]


EXPERIMENTS = [
    experiment(
        key="peers-messages", title="Messages: latency and bandwidth", panels=operation_panels, **OPERATIONS,
        question="Ping-pong, and windows of 64 messages in one direction and in both, between two ranks.",
        commands=commands(MESSAGES, (7, 21)), seconds={"quick": 90, "full": 400},
        differences=f"{ABOUT} A bandwidth of 8 bytes is a message rate: what is shown is the time of a message."),
    experiment(
        key="peers-rate", title="Rates of small messages, by threads", panels=rate_panels, **OPERATIONS,
        question="Windows of 64 messages of 8 B in both directions, each thread with a communicator of its own.",
        commands=lambda mode: [
            [operations.SCRIPT, *BOTH, "--beside", peer, "--threads", "1", "2"]
            for peer in (("rc_verbs", "tcp") if mode == "quick" else BESIDE)
            for _ in range(2 if mode == "quick" else 8)],
        seconds={"quick": 50, "full": 250},
        differences=f"{ABOUT} The time shown is that of a message, of all threads together. MPICH over libfabric has a "
        "virtual communication interface for each thread. Over UCX it has one for all, as MPICH 5.0.2 with two of them "
        "hangs in MPI_Comm_dup, by TCP, too. Open MPI has one endpoint for all. Two ranks of two threads on two "
        "processors take turns with each other, too."),
    experiment(
        key="peers-collectives", title="Collectives", panels=operation_panels, **OPERATIONS,
        question="Six collectives of as many ranks as there are processors.",
        commands=commands(COLLECTIVES, (7, 21), processors), seconds={"quick": 120, "full": 600}, differences=ABOUT),
    experiment(
        key="peers-crowd", title=f"Collectives of {CROWD} ranks", panels=operation_panels, **OPERATIONS,
        question=f"The same collectives of {CROWD} ranks, which may be more than there are processors.",
        commands=commands(COLLECTIVES, (3, 9), lambda: CROWD, peers=("rc_verbs", "tcp"), quick_peers=("rc_verbs",)),
        seconds={"quick": 40, "full": 300},
        differences=f"{ABOUT} With more ranks than processors the scheduler is most of a collective's time. Then the "
        "rows are shown, and not judged."),
    experiment(
        key="peers-one-sided", title="One-sided operations", panels=operation_panels, **OPERATIONS,
        question="MPI_Put, MPI_Get and MPI_Accumulate (a sum of 64-bit numbers), each with its MPI_Win_fence, between "
        "two ranks.",
        commands=commands(ONE_SIDED, (7, 21)), seconds={"quick": 70, "full": 400},
        differences=f"{ABOUT} Open MPI has its osc/rdma by btl/ofi over heddle, and osc/ucx over UCX."),
    experiment(
        key="peers-overlap", title="Overlap", rows=overlap_rows, panels=overlap_panels,
        question="How much a message takes of its sender, and of its receiver, that has work of its own meanwhile.",
        commands=lambda mode: [["bench/mpi/overlap.py", "--json", "--beside", peer, "--rounds",
                                "2" if mode == "quick" else "5", "--bytes",
                                *(("8", "8192", "65536") if mode == "quick" else map(str, (*SIZES, 4 << 20)))]
                               for peer in (("rc_verbs",) if mode == "quick" else ("rc_verbs", "dc_mlx5", "rxm", "tcp"))],
        seconds={"quick": 40, "full": 500},
        columns=("beside", "MPI", "side", "bytes", "heddle: overhead, us, and availability", "peer"),
        unit="the peer's overhead, in heddle's",
        differences=f"{ABOUT} As in Sandia's micro-benchmark: the program posts, works and waits. The overhead is what "
        "that takes beyond the work alone, when the work is longer than the message. Availability is the share of a "
        "message's time that the overhead is not. An overhead below 1 % of a message's time counts as 1 %. On a "
        "software HCA the work of the device is done by processors, too: by the thread that posts up to 32 KiB, by a "
        "thread of its own above. Heddle goes by its default; tupleq-overlap has the others.",
        needs=("mpi", "way", "side", "bytes", "base", "overhead")),
    experiment(
        key="peers-memory", title="Memory and queue pairs", rows=memory_rows, panels=memory_panels,
        question="What a process has in memory once it has talked to all others.",
        commands=lambda mode: [["bench/mpi/heap.py", *BOTH, "--way", "heddle", *words("--way", peers), "--ranks",
                                *(("2", "8") if mode == "quick" else ("2", "4", "8", "16", "32")),
                                "--runs", "2" if mode == "quick" else "6"]
                               for peers in [("rc_verbs", "tcp") if mode == "quick" else
                                             ("rc_verbs", "rc_mlx5", "dc_mlx5", "rxm", "tcp")]],
        seconds={"quick": 40, "full": 400}, columns=("beside", "MPI", "processes", "heddle, MiB", "peer, MiB"),
        unit="the peer's memory, in heddle's",
        differences=f"{ABOUT} Anonymous and shared memory that is there (RssAnon and RssShmem of rank 0); the MPI's own "
        "part is on both sides. Less than six values of each side give the range of their ratios for its interval.",
        needs=("mpi", "way", "ranks", "heap_bytes", "memory_bytes")),
    experiment(
        key="peers-programs", title="Programs", **PROGRAMS,
        question="Wall time of whole programs of as many ranks as processors: hypre's multigrid, a lattice code, LAMMPS's "
        "melt, conjugate gradients, wavefronts, line solves, and Fourier transforms. All check their answers each time.",
        commands=lambda mode: [["bench/mpi/applications.py", "--json", "--vary", "peer", "--ranks", str(processors()),
                                "--rounds", "6" if mode == "quick" else "11"]],
        seconds={"quick": 80, "full": 150},
        differences=f"{ABOUT} {ABOUT_PROGRAMS} cg, lu and adi are in the manner of NAS CG, LU and SP, and fft is in that of "
        "FT; the lattice code is in the manner of MILC."),
    experiment(
        key="peers-npb", title="NAS benchmarks", outside=NPB, **PROGRAMS,
        question="NASA's CG, MG, FT, IS, LU and EP of as many ranks as processors, and SP and BT of four.",
        commands=npb_commands, seconds={"quick": 60, "full": 3600},
        differences=f"{ABOUT} {ABOUT_PROGRAMS} SP and BT want a square number of ranks. Where these are more than the "
        "processors, their rows are shown, and not judged. --quick runs class S, --full S, W and A."),
]
