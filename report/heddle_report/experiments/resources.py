# SPDX-License-Identifier: BSD-2-Clause
"""Scalable Communication Endpoints for MPI+Threads Applications (ICPADS 2018), table I and the formulas of
section VI: what each category takes, without a clock."""

from .. import likeness
from ..model import Experiment, Panel, Point, Series, Verdict
from .endpoints import CATEGORIES

THREADS = (1, 2, 4, 8, 16)
BYTES = likeness.Criterion(ratios=True, tolerance=1.25, scaled=True)
# What a row has of a category, beside the paper's.
QUANTITIES = {"UARs": ("uars", "uars_by_icpads18"), "bytes": ("bytes", "bytes_by_table_1_of_icpads18")}


def values(rows, field):
    """(category, threads) -> value, of the categories that could be made."""
    return {(CATEGORIES[each["category"]], row["threads"]): each.get(field) for row in rows for each in row["categories"]
            if each.get(field) is not None}


def points(rows):
    found = []
    for what, (ours, papers) in QUANTITIES.items():
        paper = values(rows, papers)
        found += [Point((what, *key), value, paper=paper[key]) for key, value in values(rows, ours).items()]
    return found


def panels(rows):
    threads = [row["threads"] for row in rows]
    drawn = []
    for what, fields in QUANTITIES.items():
        series = []
        for name in CATEGORIES.values():
            for field, is_paper in zip(fields, (False, True)):
                by = values(rows, field)
                series.append(Series(f"{name}, paper" if is_paper else name, [by.get((name, n)) for n in threads],
                                     paper=is_paper, hue=name))
        drawn.append(Panel(what, threads, "threads", what, series, x_scale="log2", y_scale="log", y_from_zero=False))
    return drawn


def uars_like(rows):
    """(Whether all are the paper's, or None if they cannot be compared; a sentence)."""
    ours, papers = values(rows, "uars"), values(rows, "uars_by_icpads18")
    if not ours or any(row.get("uar_kernel") != "static" for row in rows):
        return None, "UARs are not compared: they are not those of the paper's kernel."
    wrong = [f"{name} by {threads} threads {ours.get((name, threads), 'unknown')} instead of {value}"
             for (name, threads), value in papers.items() if ours.get((name, threads)) != value]
    text = f"UARs are the paper's in {len(papers) - len(wrong)} of {len(papers)} cases"
    return not wrong, f"{text}, not: {', '.join(wrong)}." if wrong else f"{text}."


def verdict(rows):
    if failed := [f"{each['category']} ({each['error']})" for row in rows for each in row["categories"]
                  if "error" in each]:
        return Verdict("cannot", f"Not made: {', '.join(failed)}.")
    said = likeness.compare(values(rows, "bytes"), values(rows, "bytes_by_table_1_of_icpads18"), BYTES)
    same, text = uars_like(rows)
    text = f"{text} Bytes: {said.text()}."
    if same is None:
        return Verdict("partly" if said.state == "like" else said.state, text)
    return Verdict(likeness.together([said.state, "like" if same else "unlike"]), text)


EXPERIMENTS = [
    Experiment(
        key="endpoints-resources", paper="endpoints", where="Table I", title="What each category takes",
        question="UARs and bytes of the endpoints of 1 to 16 threads, in each category: they are made, and counted.",
        commands=lambda mode: [["plan", "--threads", str(n), "--json"] for n in THREADS],
        seconds={"quick": 3, "full": 3}, columns=("what", "category", "threads"), unit="number, or bytes",
        points=points, panels=panels, verdict=verdict, more_is_better=False,
        criterion="UARs have to be those of the paper's formulas, in each case. Bytes are compared with those that "
        "as many objects take by the paper's table I. " + BYTES.text() + " A curve is a category. If one of both is "
        "like the paper and the other is not, the experiment is partly like it.",
        differences="The paper's numbers are for the libmlx5 and the kernel of 2018. Bytes are those that a process "
        "takes in libmlx5, queues included; today's libmlx5 takes more for a context and less for a queue pair. UARs "
        "are those of the static kernel, which the software HCA imitates by `--uar static`; another kernel has others. "
        "The paper's 1.64 MB for 2xDynamic counts 16 queue pairs; here its 32 are counted.",
        softhca=("--uar", "static"), needs=("categories", "threads")),
]
