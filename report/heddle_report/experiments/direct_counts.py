# SPDX-License-Identifier: BSD-2-Clause
"""What a message of MPI costs the processor, by libibverbs and by an adapter's own entries: over heddle and over UCX
(bench/mpi/counts.py)."""

from ..model import Experiment, Panel, Point, Series, Verdict
from ..values import distinct, middle, quartiles
from .direct_ucx import PAIRS, WAYS

NAMES = {"verbs": "heddle, verbs", "direct": "heddle, direct", "rc_verbs": "UCX, rc_verbs", "rc_mlx5": "UCX, rc_mlx5"}
CALLGRIND = {"instructions": "instructions", "data_reads": "data reads", "data_writes": "data writes",
             "mispredicted": "mispredicted branches (simulated)"}
PROCESSOR = {"cycles": "cycles", "instructions": "instructions of the whole ping-pong",
             "stalled_frontend": "stalled cycles (front end)", "stalled_backend": "stalled cycles (back end)",
             "data_reads": "data reads of the whole ping-pong", "data_read_misses": "misses of the first data cache",
             "cache_misses": "misses of the last cache", "branch_misses": "mispredicted branches of the whole ping-pong",
             "task_clock_ns": "processor time, ns"}
# What a library is for; the first that its name begins with.
PARTS = {"MPI": ("libmpi", "counts"), "heddle or UCX": ("libheddle", "libfabric", "libuc"),
         "libibverbs and its driver": ("libibverbs", "libmlx5")}
REST = "the C library and others"
FEWER = 0.95  # of verbs' count


def part_of(library):
    return next((part for part, names in PARTS.items() if library.startswith(names)), REST)


def counted(rows):
    """way -> what callgrind has counted."""
    return {row["way"]: row["callgrind"] for row in rows if "why_not" not in row["callgrind"]}


def by_part(count):
    found = dict.fromkeys([*PARTS, REST], 0)
    for library, instructions in count["by_object"].items():
        found[part_of(library)] += instructions
    return found


def measured(rows):
    """name -> way -> samples, of the processor's own counters."""
    found = {}
    for row in rows:
        for name, each in row["processor"].items():
            if name in PROCESSOR and "why_not" not in each:
                found.setdefault(PROCESSOR[name], {})[row["way"]] = each
    return found


def not_counted(rows):
    """reason -> names."""
    found = {}
    for row in rows:
        if "why_not" in row["callgrind"]:
            found.setdefault(row["callgrind"]["why_not"], []).extend(CALLGRIND.values())
        for name, each in row["processor"].items():
            if name in PROCESSOR and "why_not" in each:
                found.setdefault(each["why_not"], []).append(PROCESSOR[name])
    return {reason: distinct(names) for reason, names in found.items()}


def points(rows):
    by = counted(rows)
    found = [Point((CALLGRIND[name], NAMES[way]), each[name]) for name in CALLGRIND for way, each in by.items()]
    found += [Point((f"instructions: {part}", NAMES[way]), value) for part in (*PARTS, REST)
              for way, each in by.items() for value in [by_part(each)[part]]]
    found += [Point((name, NAMES[way]), middle(each), *quartiles(each)) for name, ways in measured(rows).items()
              for way, each in ways.items()]
    return found


def panels(rows):
    by, found = counted(rows), []
    names = [NAMES[way] for way in by]
    if by:
        parts = {way: by_part(each) for way, each in by.items()}
        found.append(Panel("Instructions of a message", names, "", "instructions", [
            Series("all", [each["instructions"] for each in by.values()]),
            *(Series(part, [parts[way][part] for way in by]) for part in (*PARTS, REST))]))
        found.append(Panel("Data reads and writes of a message", names, "", "accesses", [
            Series(CALLGRIND[name], [each[name] for each in by.values()]) for name in ("data_reads", "data_writes")]))
        found.append(Panel("Mispredicted branches of a message", names, "", "branches", [
            Series(CALLGRIND["mispredicted"], [each["mispredicted"] for each in by.values()])]))
    for name, ways in measured(rows).items():
        found.append(Panel(name[0].upper() + name[1:], [NAMES[way] for way in ways], "", "of a message", [
            Series(name, [middle(each) for each in ways.values()],
                   *zip(*(quartiles(each) for each in ways.values())))]))
    return found


def verdict(rows):
    by = counted(rows)
    missing = "".join(f" Not counted by the processor: {', '.join(names)} ({reason})."
                      for reason, names in not_counted(rows).items())
    if lacking := [NAMES[way] for way in WAYS if way not in by]:
        return Verdict("cannot", f"Not counted: {', '.join(lacking)}.{missing}")
    parts, good, some = [], 0, 0
    for pair, (direct, verbs) in PAIRS.items():
        fewer = {name: by[direct][name] <= FEWER * by[verbs][name] for name in ("instructions", "data_reads")}
        good, some = good + all(fewer.values()), some + any(fewer.values())
        said = ", ".join(f"{by[direct][name]:.0f} {CALLGRIND[name]} of {by[verbs][name]:.0f}" for name in CALLGRIND)
        parts.append(f"{pair}'s {direct} beside {verbs}: {said}")
    state = "like" if good == len(PAIRS) else "partly" if some else "unlike"
    return Verdict(state, "; ".join(parts) + "." + missing)


EXPERIMENTS = [Experiment(
    key="direct-mpi-counts", paper="direct", where="its explanation of Figs. 1 to 5",
    title="What a message of MPI costs the processor",
    question="Instructions, data reads and writes, and mispredicted branches of MPI_Send and MPI_Recv of 8 bytes, and what "
    "the processor counts. Over heddle by the verbs path and by the direct one, and over UCX's rc_verbs and rc_mlx5.",
    commands=lambda mode: [["bench/mpi/counts.py", *(["--messages", "60", "--turns", "5"] if mode == "quick" else
                                                     ["--messages", "400", "--turns", "41"])]],
    seconds={"quick": 67, "full": 160}, columns=("count", "way"), unit="of a message", points=points, panels=panels,
    verdict=verdict, more_is_better=False,
    criterion="In each pair one way writes the adapter's entries itself. It takes at least 5 % fewer instructions than "
    "its verbs, and at least 5 % fewer data reads. It is like the paper if both pairs do. Partly: one of the four counts "
    "is so. Else it is unlike. The paper's own counts are not at hand. The processor's counters are shown and not judged.",
    differences="The paper counts by PAPI, stalled cycles included, while its benchmark runs. Callgrind counts here what MPI_Send "
    "and MPI_Recv execute in rank 0 once the message is there: no empty polls, and without the software HCA. On a busy "
    "machine a message may come later than expected, and empty polls add to its count: repeat what differs. Mispredictions are those of its own simple predictor. It knows no cycles, so "
    "stalled cycles come from the processor alone. The processor's counters (perf_event_open, in user mode) count the whole "
    "ping-pong, with its empty polls and what a software HCA does in the rank. Virtual machines often have none of them, and "
    "some processors count no stalled cycles. By verbs heddle's messages also leave the short way through its protocol, so "
    "its pair differs by more than posting and polling.",
    needs=("way", "callgrind", "processor"), needs_source=True)]
