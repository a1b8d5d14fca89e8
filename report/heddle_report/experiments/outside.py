# SPDX-License-Identifier: BSD-2-Clause
"""Programs of others with which the paper on TupleQ measured, from a source that the user names."""

from .. import likeness
from ..model import Experiment, Outside, Panel, Point, Series, Verdict
from ..reference import table
from ..values import bytes_text, distinct, middle, quartiles, short_of_cores
from . import tupleq

SCRIPT = "bench/mpi/outside.py"
SMB = Outside("smb", "Sandia's SMB", "github.com/sandialabs/SMB")
NPB = Outside("npb", "NASA's NPB for MPI", "NPB3.4.tar.gz of www.nas.nasa.gov/software/npb.html")

# Sandia's SMB.

AUTO_MOST = 1.05  # of the time by rget
MOST = 105  # percent; above it the work without a message took longer than beside one
PRINTED, OF_THE_FASTEST = "as SMB prints it", "of the fastest protocol's time"


def smb_points(rows):
    points = [Point((row["side"], row["way"], row["bytes"], PRINTED), middle(row["available"]),
                    *quartiles(row["available"])) for row in rows]
    return points + [Point((row["side"], row["way"], row["bytes"], OF_THE_FASTEST), middle(each), *quartiles(each))
                     for row, each in tupleq.all_available(rows)]


def smb_panels(rows):
    panels = []
    for side in tupleq.SIDES:
        mine = [row for row in rows if row["side"] == side]
        for what, field, scale in (("availability, as SMB prints it", "available", "linear"),
                                   ("overhead", "overhead_us", "log"), ("a message's time", "base_us", "log")):
            if not mine:
                continue
            _, series = tupleq.overlap_series(
                mine, lambda row, f=field: row[f] if f == "available" else [max(each, 0.01) for each in row[f]])
            sizes = sorted(distinct(row["bytes"] for row in mine))
            unit = "%" if field == "available" else "us"
            panels.append(Panel(f"{side}: {what}", sizes, "bytes", f"{what.partition(',')[0]}, {unit}", series,
                                x_scale="log2", y_scale=scale, y_from_zero=False,
                                marks=((100, "100 %"), (0, "")) if unit == "%" else ()))
    return panels


def smb_verdict(rows):
    """That of the overlap experiment. Availability is of one base, so that a slower protocol has less."""
    if impossible := [f"{row['side']} by {row['way']} at {bytes_text(row['bytes'])} {value:.0f} %" for row in rows
                      if (value := middle(row["available"])) > MOST]:
        return Verdict("cannot", f"SMB prints an overhead below zero: {', '.join(impossible)}. The work without a "
                       "message took longer than beside one.")
    said = tupleq.overlap_verdict(rows)
    if why := short_of_cores(rows):
        return Verdict("cannot", f"{said.text} But {why}")
    if said.state == "like" and (slow := slower_than_rget(rows)):
        return Verdict("partly", f"{said.text} But auto is slower than rget: {slow}.")
    return said


def slower_than_rget(rows):
    """Where a message by `auto` takes more than AUTO_MOST of the time by RGET, in words."""
    base = {(row["way"], row["side"], row["bytes"]): middle(row["base_us"]) for row in rows}
    return ", ".join(f"{side} at {bytes_text(size)}" for (way, side, size), mine in base.items()
                     if way == "auto" and mine > AUTO_MOST * base.get(("rget", side, size), mine))


# NPB's SP.

PAPERS_CLASS = "sp.B"


def by_class(rows):
    """Program -> its rows."""
    return {name: [row for row in rows if row["program"] == name] for name in distinct(row["program"] for row in rows)}


def medians(rows):
    return {way: middle(each) for way, each in tupleq.shares(rows).items()}


def paper_share(name, way):
    return tupleq.paper_share(way) if name == PAPERS_CLASS else None


def sp_points(rows):
    return [Point((name, way), middle(each), *quartiles(each), paper_share(name, way))
            for name, mine in by_class(rows).items() for way, each in tupleq.shares(mine).items()]


def sp_panels(rows):
    panels = []
    for name, mine in by_class(rows).items():
        by = tupleq.shares(mine)
        low, high = zip(*map(quartiles, by.values()))
        panels.append(Panel(f"{name}, {mine[0]['ranks']} ranks", list(by), "", "of the time by rget", [
            Series("here", [middle(each) for each in by.values()], list(low), list(high)),
            Series("paper: class B, 64 processes", [paper_share(name, way) for way in by], paper=True)]))
    return panels


def sp_verdict(rows):
    """That of the ADI solver for the paper's class. What `auto` loses is judged, too: the paper has none."""
    found = by_class(rows)
    if PAPERS_CLASS not in found:
        texts = [f"{name}: {tupleq.times_text(medians(each), lambda way: None)}" for name, each in found.items()]
        return Verdict("cannot", f"The paper's values are those of {PAPERS_CLASS}, which --full measures. "
                       + " ".join(texts))
    mine = found[PAPERS_CLASS]
    said = tupleq.program_verdict(mine)
    if said.state == "cannot":
        return said
    auto = medians(mine).get("auto")
    if auto is None:
        return Verdict("cannot", "Not measured: auto.")
    if said.state == "like" and auto > AUTO_MOST:
        return Verdict("partly", f"{said.text} But auto is slower than rget.")
    return said


def smb_commands(mode):
    if mode == "quick":
        return [[SCRIPT, "--json", "--rounds", "2", "--iterations", "100"]]
    return [[SCRIPT, "--json", "--rounds", "5", "--bytes", "8", "64", "512", "1024", "4096", "8192", "16384", "65536",
             "262144", "1048576", "4194304"]]


def sp_commands(mode):
    classes = (("A", "2"),) if mode == "quick" else (("A", "5"), ("B", "5"))
    return [[SCRIPT, "--json", "--benchmark", "sp", "--class", letter, "--rounds", rounds] for letter, rounds in classes]


EXPERIMENTS = [
    Experiment(
        key="tupleq-smb", paper="tupleq", where="Fig. 5", title="Sandia's SMB", outside=SMB,
        question="How much of a message's time sender and receiver have for themselves, as Sandia's micro-benchmark "
        "itself prints it over an unmodified MPICH: overhead and availability by each protocol.",
        commands=smb_commands, seconds={"quick": 150, "full": 2400},
        columns=("side", "way", "bytes", "availability"), unit="%", points=smb_points, panels=smb_panels,
        verdict=smb_verdict,
        criterion="A curve is a side by a protocol; all its sizes must be right. SMB takes a message's time by the same "
        "protocol for its base. The verdict takes that of the fastest protocol for each side and size, so a slower one "
        "has less. By a tuple queue at least 90 % is available at every size, to receiver and sender. By RGET and RPUT "
        "at least 50 % is available to the receiver below 8 KiB, and at most 10 % from there on; to the sender, too, by "
        "RPUT. It is like the paper if all five curves are so, partly if one of the tuple queues' and half of the "
        "others are, else unlike. It is partly like it, too, if a message by auto takes more than 1.05 of the time by "
        "RGET. Where SMB prints more than 105 %, or with more ranks than cores, nothing can be said.",
        differences="The program is the paper's. A barrier is part of SMB's base time, which makes availability larger "
        "where messages are short. Its work without messages is measured while nothing moves. SMB is compiled without "
        "optimization, because GCC leaves out its work otherwise. A software HCA's work is done by a processor of this "
        "machine, and on the sender's side it is what is measured.",
        needs=("side", "way", "bytes", "ranks", "cores", "base_us", "overhead_us", "available"), needs_source=True, one_job=True),
    Experiment(
        key="tupleq-sp", paper="tupleq", where="Fig. 6", title="NAS SP", outside=NPB,
        question="NASA's own SP on four ranks by each way that large messages can take, its answer verified by its own "
        "test in every run.",
        commands=sp_commands, seconds={"quick": 240, "full": 2700}, columns=("program", "way"),
        unit="times rget's time", points=sp_points, panels=sp_panels, verdict=sp_verdict, more_is_better=False,
        criterion="Class B is judged, which the paper has. The times by tuple queues, with copies and without, and by "
        "RPUT are within 0.05 of the paper's, as shares of RGET's. The time by auto is at most 1.05 of RGET's. Partly: "
        "both times by tuple queues are near the paper's. Else it is unlike, faster or slower. With more ranks than "
        "cores, or without class B, it cannot be shown. A run whose own test fails ends the experiment.",
        differences="The program is the paper's. The paper has 64 processes with a processor each and an adapter that "
        "works while they compute. Here are four ranks of the distribution's Open MPI, as the MPIs of PyPI have no "
        "Fortran.",
        needs=("program", "way", "ranks", "cores", "seconds"), needs_source=True, one_job=True),
]
