# SPDX-License-Identifier: BSD-2-Clause
"""Exploiting application buffer reuse to improve MPI small message transfer protocols."""

import math

from .. import likeness
from ..model import Experiment, Panel, Point, Series, Verdict
from ..reference import table
from ..values import bytes_text, distinct
from . import reuse_gains

# Break-even.

WAYS = {"send": "SEND", "ring": "ring (the paper's fast path)", "one-sided": "one-sided"}


def paper_uses(way, size):
    for row in table("reuse-break-even"):
        if (row["channel"], int(row["bytes"])) == (way, size):
            return float(row["uses"])
    return None


def break_even_points(rows):
    return [Point((WAYS[way], each["bytes"]), each["ways"][way]["uses"],
                  paper=paper_uses(way, each["bytes"]))
            for row in rows for way in WAYS for each in row["sizes"]
            if each["ways"][way]["uses"] is not None]


def break_even_panels(rows):
    sizes = [each["bytes"] for each in rows[0]["sizes"]]
    return [Panel(text, sizes, "bytes", "uses until it has paid", [
        Series("here", [each["ways"][way]["uses"] for each in rows[0]["sizes"]]),
        Series("paper", [paper_uses(way, size) for size in sizes], paper=True)],
        x_scale="log2", y_scale="log", y_from_zero=False) for way, text in WAYS.items()]


USES = likeness.Criterion(ratios=True, tolerance=2)


def shifted(paper, by):
    """Each channel has the values of another one."""
    names = distinct(key[0] for key in paper)
    return {key: paper[names[(names.index(key[0]) + by) % len(names)], key[1]] for key in paper}


def break_even_verdict(rows):
    ours, paper = {}, {}
    for each in rows[0]["sizes"]:
        for way, text in WAYS.items():
            if (uses := paper_uses(way, each["bytes"])) is not None:
                found = each["ways"][way]["uses"]
                name = text.partition(" ")[0]
                paper[name, each["bytes"]] = uses
                ours[name, each["bytes"]] = math.inf if found is None else found
    if not paper:
        return Verdict("cannot", "No size of the paper's was measured.")
    others = {f"the channels in another order ({by})": shifted(paper, by) for by in (1, 2)}
    largest = rows[0]["sizes"][-1]
    uses = {WAYS[way].partition(" ")[0]: largest["ways"][way]["uses"] for way in WAYS}
    text = ", ".join(f"{name} " + (f"{count:.0f}" if count is not None else "never")
                     for name, count in uses.items())
    said = likeness.compare(ours, paper, USES, others)
    return Verdict(said.state, f"A buffer of {bytes_text(largest['bytes'])} has paid for its registration after so "
                   f"many uses: {text}. {said.text()}.")


# Looking up.

TABLES = {"ours": "heddle's table", "chained_hash": "hash of 2^20 chains (the paper's)",
          "tree": "balanced tree"}


def lookup_points(rows):
    return [Point((TABLES[name], each["buffers"]), each[name])
            for row in rows for each in row["lookup_ns"] for name in TABLES]


def lookup_panels(rows):
    by = rows[0]["lookup_ns"]
    return [Panel("A look-up, buffers in turn", [each["buffers"] for each in by], "buffers", "ns",
                  [Series(text, [each[name] for each in by]) for name, text in TABLES.items()],
                  x_scale="log10", y_scale="log", y_from_zero=False)]


NOT_SLOWER, FAR, MANY = 1.1, 2, 1000


def lookup_verdict(rows):
    by, counted = rows[0]["lookup_ns"], rows[0]["instructions"]
    worst = {name: max(each[name] for each in by) for name in TABLES}
    level = [each for each in by if each["chained_hash"] <= NOT_SLOWER * each["tree"]]
    many = [each for each in by if each["buffers"] >= MANY]
    far = [each for each in many if FAR * each["chained_hash"] <= each["tree"]]
    states = {len(level) == len(by), bool(many) and len(far) == len(many)}
    state = "like" if states == {True} else "partly" if far else "unlike"
    return Verdict(state,
                   f"The paper's hash is not slower than a tree in {len(level)} of {len(by)} numbers of buffers, "
                   f"and at least {FAR} times as fast in {len(far)} of {len(many)} from {MANY} on. At most "
                   f"{worst['ours']:.1f} ns of 1 to {by[-1]['buffers']} buffers; the hash of the "
                   f"paper takes up to {worst['chained_hash']:.1f}, a tree {worst['tree']:.1f}. A buffer that "
                   f"is never used again costs {counted['new']:.0f} instructions.")


# Programs.

def program_rows(rows):
    return [row for row in rows if row["missing"] is None]


def sums(row):
    """Messages by path."""
    counts = row["counts"]
    return {"inline": counts.get("inlined", 0), "copied": sum(counts.get("copied_by_size", [])),
            "not copied": sum(counts.get("gathered_by_size", [])),
            "rendezvous": counts.get("rendezvous", 0)}


def not_copied(row):
    """Percent of what could be copied or not."""
    by = sums(row)
    return 100 * by["not copied"] / max(by["copied"] + by["not copied"], 1)


def used_often(row):
    """Percent of buffers that were used 16 times and more."""
    uses = row["counts"].get("buffers_by_uses", [])
    return 100 * sum(uses[5:]) / max(sum(uses[1:]), 1)


def program_points(rows):
    return [Point((row["program"], *(str(each) for each in sums(row).values()),
                   f"{used_often(row):.0f} %"), not_copied(row)) for row in program_rows(rows)]


def program_panels(rows):
    mine = program_rows(rows)
    names = [row["program"] for row in mine]
    by = [sums(row) for row in mine]
    panels = [Panel("Messages by path", names, "", "% of messages", [
        Series(path, [100 * each[path] / max(sum(each.values()), 1) for each in by])
        for path in ("inline", "copied", "not copied", "rendezvous")])]
    panels.append(Panel("Buffers by how often they were used", names, "", "% of buffers", [
        Series(text, [100 * sum(uses[low:high]) / max(sum(uses[1:]), 1)
                      for uses in (row["counts"].get("buffers_by_uses", []) for row in mine)])
        for text, low, high in (("once", 1, 2), ("2 to 15", 2, 5), ("16 to 127", 5, 8),
                                ("128 and more", 8, None))]))
    return panels


SHARE = likeness.Criterion(ratios=False, tolerance=10)


def program_verdict(rows):
    mine = program_rows(rows)
    if wrong := [row["program"] for row in mine if not row["good"]]:
        return Verdict("unlike", f"Failed or wrong: {', '.join(wrong)}.")
    by = {row["program"]: row for row in mine}
    paper = {row["program"]: row for row in table("reuse-programs")}
    beside = {name: row["here"] for name, row in paper.items() if row["here"]}
    text = []
    if mine:
        often = sorted(used_often(row) for row in mine)
        text.append(f"All answers are right. Of the small buffers that {len(mine)} programs sent from "
                    f"{often[0]:.0f} to {often[-1]:.0f} % were used 16 times and more.")
    text += [f"{row['program']}: not run: {row['missing']}." for row in rows
             if row["missing"] is not None]
    said = likeness.compare({(name, ""): not_copied(by[here]) for name, here in beside.items() if here in by},
                            {(name, ""): float(paper[name]["reused_percent"]) for name in beside}, SHARE,
                            unit=" points")
    if said.state == "cannot":
        missing = [f"{here} (for {name})" for name, here in beside.items() if here not in by]
        return Verdict("cannot", " ".join([*text, f"Not all counterparts were run: {', '.join(missing)}."]))
    return Verdict(said.state, " ".join([*text, f"Messages from reused buffers: {said.text()}."]))


EXPERIMENTS = [
    Experiment(
        key="reuse-break-even", paper="reuse", where="Table 2",
        title="When a registration has paid",
        question="What registering, copying, looking up and gathering cost here, and after how many "
        "uses of a buffer the copies saved outweigh its registration.",
        commands=lambda mode: [["calibrate", "--json"]], seconds={"quick": 2, "full": 2},
        columns=("channel", "bytes"), unit="uses", points=break_even_points,
        panels=break_even_panels, verdict=break_even_verdict, more_is_better=False,
        criterion=USES.text() + " A curve is a channel. Where a registration never pays, a point is unlike the "
        "paper's.",
        differences="Where no point is shown a gather costs more than the copy, so that a registration "
        "never pays. Registering takes longer the first time that memory is shared with a software "
        "HCA. The costs are kept for the provider, as by `heddle calibrate`.",
        needs=("sizes",)),
    *reuse_gains.EXPERIMENTS,
    Experiment(
        key="reuse-lookup", paper="reuse", where="Fig. 3", title="Looking up a buffer",
        question="What it costs to find a buffer's uses by its address and length, of 1 to 10^6 buffers "
        "that are used in turn.", commands=lambda mode: [["reuse_lookup", "--json"]],
        seconds={"quick": 4, "full": 4}, columns=("table", "buffers"), unit="ns", points=lookup_points,
        panels=lookup_panels, verdict=lookup_verdict, more_is_better=False,
        criterion="The paper takes the hash since it stays flat where a tree grows. It is so here if a look-up "
        "in the hash takes at most 1.1 times a tree's time for every number of buffers. From 1000 buffers on it "
        "must take at most half. Partly: it does for some of these. Else it is unlike.",
        differences="The paper takes a hash of 2^20 chains, and a tree as the other candidate; its values "
        "are not at hand. The table here has a bound: of more buffers in turn than it keeps it finds none, and "
        "rests, which is why a look-up then costs next to nothing.", needs=("lookup_ns", "instructions")),
    Experiment(
        key="reuse-programs", paper="reuse", where="Tables 1 and 3", title="What programs send",
        question="Which way the messages of programs go, and how often the buffers are used that they are "
        "sent from.",
        commands=lambda mode: [["bench/mpi/programs.py", "--json", "--ranks", "4", *(
            ["--only", "jacobi|cg|lu|adi|lattice|multigrid|LAMMPS"] if mode == "quick" else [])]],
        seconds={"quick": 15, "full": 60},
        columns=("program", "inline", "copied", "not copied", "rendezvous", "used 16 times and more"),
        unit="% of those that may be copied", points=program_points, panels=program_panels,
        verdict=program_verdict,
        criterion="The share of small messages that went without a copy. That of cg, lu and multigrid is compared with "
        "the paper's NAS CG, NAS LU and AMG2006, that of a lattice code with its MILC. " + SHARE.text(" points")
        + " A curve is a program.",
        differences="The paper has NAS benchmarks and others on a cluster. Here are small programs of the same "
        "manner on one machine. cg, lu and adi are after NAS CG, LU and SP, lattice after MILC. There are also a Jacobi "
        "solver, hypre's multigrid, LAMMPS and mpi4py's benchmarks. All verify their answers. Messages up to the inline size "
        "are neither copied nor looked up.", needs=("program", "missing"), needs_source=True, one_job=True),
]
