# SPDX-License-Identifier: BSD-2-Clause
"""Exploiting application buffer reuse, figure 9 and table 3: whole programs without the reuse of buffers and with
it. The time that they send, that they are in MPI, and that they run."""

from .. import likeness
from ..model import Experiment, Panel, Point, Series, Verdict
from ..reference import table
from ..values import distinct, middle, middle_between, quartiles, short_of_cores
from . import reuse
from .outside import NPB
from .outside import SCRIPT as OUTSIDE

SCRIPT = "bench/mpi/applications.py"
# What bench/mpi/phases.py measures of a run.
PARTS = {"send_s": "sends", "communication_s": "in MPI", "run_s": "run"}
APPLICATIONS = ("multigrid", "lattice", "LAMMPS melt", "cg", "lu")
BENCHMARKS = ("cg", "lu", "sp", "mg", "ft")
LOSS = 5  # percent of the time that it runs
SENT = likeness.Criterion(ratios=False, tolerance=5)
SAVED, SHARE = "time saved", "messages from reused buffers"


def name_of(row):
    """The class of a benchmark is left out."""
    return row["program"].partition(".")[0]


def saved(row, part="run_s"):
    """Percent, by rounds; nothing of a part that the program has not, as one without sends."""
    return [100 * (1 - with_ / without) for with_, without in zip(row["with"][part], row["without"][part]) if without]


def paper(column, names):
    """Program -> the paper's percent, of those that stand for one of the paper's."""
    return {row["here"]: float(row[column]) for row in table("reuse-programs") if row["here"] in names and row[column]}


def of_paper(rows):
    """Its shares of messages from reused buffers, and of the sends' time saved."""
    names = [name_of(row) for row in rows]
    return paper("reused_percent", names), paper("send_saved_percent", names)


def points(rows):
    shares, sends = of_paper(rows)
    found = [Point((row["program"], SHARE), reuse.not_copied(row), paper=shares.get(name_of(row))) for row in rows]
    for row in rows:
        for part, what in PARTS.items():
            if not saved(row, part):
                continue
            found.append(Point((row["program"], f"{SAVED}, {what}"), middle(saved(row, part)),
                               *quartiles(saved(row, part)), sends.get(name_of(row)) if part == "send_s" else None))
    return found


def panels(rows):
    names = [row["program"] for row in rows]
    shares, sends = of_paper(rows)
    series = []
    for part, what in PARTS.items():
        low, high = zip(*(quartiles(saved(row, part)) for row in rows))
        series.append(Series(what, [middle(saved(row, part)) for row in rows], list(low), list(high)))
    return [Panel("Messages from reused buffers", names, "", "% of small messages", [
        Series("here", [reuse.not_copied(row) for row in rows]),
        Series("paper", [shares.get(name_of(row)) for row in rows], paper=True)]),
        Panel("Time saved by reuse", names, "", "% of the time without", [
            *series, Series("paper: sends", [sends.get(name_of(row)) for row in rows], paper=True)],
            y_from_zero=False, marks=((0, ""),))]


def judged(by, column, values, criterion):
    """Likeness of the programs' values to the paper's."""
    papers = paper(column, by)
    return likeness.compare({(name, ""): values(by[name]) for name in papers},
                            {(name, ""): value for name, value in papers.items()}, criterion, unit=" points")


def verdict_of(programs):
    """Counts are exact, so shares are judged anywhere. Times are judged where each rank has a core."""
    def verdict(rows):
        by = {name_of(row): row for row in rows}
        if missing := [name for name in programs if name not in by]:
            return Verdict("cannot", f"Not measured: {', '.join(missing)}.")
        said = judged(by, "reused_percent", reuse.not_copied, reuse.SHARE)
        text = f"All answers are right. Messages from reused buffers: {said.text()}."
        if why := short_of_cores(rows):
            return Verdict("partly" if said.state == "like" else said.state, f"{text} Times are not judged: {why}")
        sends = judged(by, "send_saved_percent", lambda row: middle(saved(row, "send_s")), SENT)
        shown = ", ".join(f"{name} {middle(saved(row)):+.1f} %" for name, row in by.items())
        text += f" Time of sends saved: {sends.text()}. Of the whole run: {shown}."
        state = likeness.together([said.state, sends.state])
        lost = [name for name, row in by.items() if middle(saved(row)) < -LOSS]
        hidden = [name for name, row in by.items() if middle_between(saved(row))[0] < -LOSS and name not in lost]
        if 2 * len(lost) >= len(by):
            return Verdict("unlike", f"{text} {', '.join(lost)} lose more than {LOSS} %.")
        if lost:
            text += f" {', '.join(lost)} loses more than {LOSS} %."
        if hidden:
            text += f" The spread hides a loss of {LOSS} % of {', '.join(hidden)}."
        return Verdict("partly" if state == "like" and (lost or hidden) else state, text)
    return verdict


def experiment(key, where, title, question, programs, commands, seconds, differences, **more):
    return Experiment(
        key=key, paper="reuse", where=where, title=title, question=question, commands=commands, seconds=seconds,
        columns=("program", "what"), unit="%", points=points, panels=panels, verdict=verdict_of(programs),
        criterion="The share of small messages that went without a copy, beside the paper's. "
        + reuse.SHARE.text(" points") + " A curve is a program. The time of sends that reuse saves, beside the paper's "
        "for LU and MILC, in the same way within 5 points. If one of both is like the paper and the other is not, the "
        "figure is partly like it. A program that runs over 5 % longer with reuse leaves it at most partly like the "
        "paper, and half of them make it unlike. So does a spread that hides such a loss leave it partly like it. With "
        "more ranks than cores times are not judged, and it is at most partly like the paper. A run whose answer is "
        "wrong ends the experiment.",
        differences=differences + " A library before MPI's functions counts how long each rank is in those that send and "
        "in all that communicate. A run lasts from MPI_Init to MPI_Finalize. Shown are means over the ranks. The paper's "
        "times of communication and of whole runs are not at hand.",
        needs=("program", "ranks", "cores", "without", "with", "counts"), needs_source=True, one_job=True, **more)


def npb_commands(mode):
    letter, rounds = ("A", "2") if mode == "quick" else ("B", "7")
    return [[OUTSIDE, "--json", "--vary", "reuse", "--benchmark", *BENCHMARKS, "--class", letter, "--rounds", rounds]]


EXPERIMENTS = [
    experiment(
        "reuse-applications", "Fig. 9 and Table 3", "Multigrid, a lattice, LAMMPS, CG and LU",
        "What the small messages of programs are, and how much of their time not copying them saves: without reuse and "
        "with it in turns on four ranks, all answers verified.",
        APPLICATIONS, lambda mode: [[SCRIPT, "--json", "--rounds", "2" if mode == "quick" else "11"]],
        {"quick": 40, "full": 200},
        "hypre's multigrid stands for AMG2006, a lattice code for MILC: its gathers allocate their buffers anew, as "
        "MILC's do. CG and LU are after NASA's. The paper has more processes."),
    experiment(
        "reuse-npb", "Fig. 9 and Table 3", "NAS CG, LU, SP, MG and FT",
        "The same of NASA's own benchmarks, each answer verified by the benchmark's own test.",
        BENCHMARKS, npb_commands, {"quick": 300, "full": 3600},
        "The paper has more processes and another class. The MPI is the distribution's Open MPI.", outside=NPB),
]
