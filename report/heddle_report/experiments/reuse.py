# SPDX-License-Identifier: BSD-2-Clause
"""Exploiting application buffer reuse to improve MPI small message transfer protocols."""

import math

from .. import likeness
from ..model import Experiment, Panel, Point, Series, Verdict
from ..reference import table
from ..values import bytes_text, distinct, middle, quartiles

CHANNELS = {"send": "SEND", "ring": "ring", "rma": "RDMA"}
NEEDS = ("channel", "bytes", "buffers", "separate_pages", "seconds_without", "seconds_with", "gain",
         "expected_gain", "without_copy")

ABOUT = (
    "Expected is the paper's equation 6 with the costs of this machine: what the copy adds, less the "
    "look-up. Where a gather of two entries costs more than the copy, messages are copied and nothing is "
    "expected. On a software HCA that is so below 4 KiB. With reuse and without take turns; the gain is turn "
    "by turn, and the bars its quartiles. ")


def gains(row):
    return [100 * (1 - with_ / without)
            for with_, without in zip(row["seconds_with"], row["seconds_without"])]


def which(row):
    """What is varied besides the size."""
    pages = {True: ", pages of their own", False: ""}[bool(row["separate_pages"])]
    return CHANNELS[row["channel"]] + (f", {row['buffers']} buffers{pages}"
                                       if row["buffers"] > 1 else "")


def points(rows):
    found = []
    for row in rows:
        each = gains(row)
        found.append(Point((which(row), row["bytes"]), middle(each), *quartiles(each)))
    return found


def by_size(rows, title):
    """Gain by size, and beside it what was expected."""
    sizes = distinct(row["bytes"] for row in rows)
    by = {row["bytes"]: gains(row) for row in rows}
    expected = {row["bytes"]: 100 * row["expected_gain"] for row in rows}
    return Panel(title, sizes, "bytes", "gain, %", [
        Series("measured", [middle(by[size]) for size in sizes],
               [quartiles(by[size])[0] for size in sizes],
               [quartiles(by[size])[1] for size in sizes]),
        Series("expected here", [expected[size] for size in sizes])],
        x_scale="log2", y_from_zero=False, marks=((0, ""),))


def size_panels(rows):
    return [by_size([row for row in rows if row["channel"] == channel], CHANNELS[channel])
            for channel in distinct(row["channel"] for row in rows)]


def spectrum_panels(rows):
    panels = []
    for channel, size in distinct((row["channel"], row["bytes"]) for row in rows):
        mine = [row for row in rows if (row["channel"], row["bytes"]) == (channel, size)]
        buffers = sorted(distinct(row["buffers"] for row in mine))
        series = []
        for apart in sorted(distinct(bool(row["separate_pages"]) for row in mine)):
            by = {row["buffers"]: gains(row) for row in mine
                  if bool(row["separate_pages"]) == apart or row["buffers"] == 1}
            series.append(Series("pages of their own" if apart else "pages shared",
                                 [middle(by[count]) if count in by else None for count in buffers]))
        panels.append(Panel(f"{CHANNELS[channel]}, {bytes_text(size)}", buffers, "buffers in turn",
                            "gain, %", series, x_scale="log10", y_from_zero=False,
                            marks=((0, ""),)))
    return panels


GAIN = likeness.Criterion(ratios=False, tolerance=5)
LEAST_EXPECTED = 3  # percent
PAPERS_SIZE = 8192


def paper_gain(name):
    """In percent, at 8 KiB; None: not at hand."""
    return next((float(row["gain_percent"]) for row in table("reuse-gains") if row["experiment"] == name),
                None)


def curves_of(rows, x):
    """(curve, x) -> row. x: the field that is varied; the rest is the curve's name."""
    found = {}
    for row in rows:
        name = CHANNELS[row["channel"]]
        if x == "buffers":
            name += f" {bytes_text(row['bytes'])}{', pages of their own' if row['separate_pages'] else ''}"
        found[name, row[x]] = row
    return found


def short_of_cores(rows):
    """Why nothing can be said; empty: there are cores enough."""
    processes = max(row.get("processes", 1) for row in rows)
    cores = min(row.get("processors_online", processes) for row in rows)
    if processes <= cores:
        return ""
    return f"{processes} processes take turns on {cores} cores, and the scheduler is most of the time."


def gain_verdict(name, x):
    def verdict(rows):
        if why := short_of_cores(rows):
            return Verdict("cannot", why)
        by = curves_of(rows, x)
        found = {key: middle(gains(row)) for key, row in by.items()}
        expected = {key: 100 * row["expected_gain"] for key, row in by.items()}
        if max(expected.values()) < LEAST_EXPECTED:
            worst = min(found, key=found.get)
            text = "On this device a gather costs more than the copy, so nothing is expected to gain 3 % or more"
            if found[worst] < -GAIN.tolerance:
                return Verdict("unlike", f"{text}; {worst[0]} at {worst[1]} loses {-found[worst]:.0f} %.")
            return Verdict("cannot", f"{text}, and nothing loses more than {GAIN.tolerance} %.")

        def wanted(gain):
            return {key: gain if row["bytes"] == PAPERS_SIZE and gain is not None else expected[key]
                    for key, row in by.items()}

        others = {f"the gain of {other}": wanted(paper_gain(other))
                  for other in ("pingpong", "spectrum", "put", "get", "bcast") if other != name}
        said = likeness.compare(found, wanted(paper_gain(name)), GAIN, others, " %")
        best = max(found.values())
        return Verdict(said.state, f"Gains from {min(found.values()):.0f} to {best:.0f} %: {said.text()}.")
    return verdict


def gain_criterion(name):
    paper = paper_gain(name)
    beside = (f"the paper's {paper:g} % at 8 KiB, and what its equation 6 expects with this machine's costs at "
              "all other sizes" if paper is not None else
              "what the paper's equation 6 expects with this machine's costs; its own values are not at hand")
    return (f"Each size of each channel counts, a loss as a gain does. It is compared with {beside}. "
            + GAIN.text(" points") + " If nothing is expected to gain 3 %, the gain cannot be shown here, and a "
            "loss of more than 5 % is unlike the paper.")


def experiment(name, title, question, paper, differences, panels=size_panels,
               repetitions=(21, 61), seconds=(5, 15), x="bytes"):
    def commands(mode):
        length = ["--repetitions", str(repetitions[mode == "full"]), "--time", "10"]
        return [["bench", f"reuse-{name}", "--json", *length]]

    return Experiment(
        key=f"reuse-{name}", paper="reuse", where="Figs. 4 to 8", title=title, question=question,
        commands=commands, seconds=dict(zip(("quick", "full"), seconds)), columns=("by", "bytes"),
        unit="% of the time without reuse", points=points, panels=panels,
        verdict=gain_verdict(name, x), criterion=gain_criterion(name),
        differences=f"The paper: {paper}. {ABOUT}{differences}", needs=NEEDS)


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
    experiment("pingpong", "Ping-pong from one buffer", "What not copying saves of a message's time, "
               "by size and channel.", "up to 14 % at 8 KB, where its theory has 15 %",
               "A gain above what is expected comes from the cache: the buffer that would be copied "
               "into is not in the way."),
    experiment("spectrum", "Ping-pong from 1 to 1000 buffers", "Whether the gain holds when many "
               "buffers are used in turn.", "12.7 % at 8 KB",
               "With more buffers than the look-up's table keeps, messages are copied.",
               spectrum_panels, (7, 31), (60, 260), "buffers"),
    experiment("put", "RDMA writes", "MPI_Put with a wait for each: the copy into a registered buffer "
               "saved.", "about 20 % at 8 KB, losses below 1 KB", ""),
    experiment("get", "RDMA reads", "MPI_Get with a wait for each: the copy out of a registered buffer "
               "saved.", "about 17 % at 8 KB, losses below 1 KB", ""),
    experiment("bcast", "Broadcast", "A binomial tree of four processes, from one buffer.",
               "over 25 % on 4 processes", "With fewer processors than processes the scheduler is "
               "nearly all of the time, and nothing can be said."),
    experiment("scatter", "Scatter", "From one array, to three others.", "its value is not at hand",
               "With fewer processors than processes the scheduler is nearly all of the time, and "
               "nothing can be said."),
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
            ["--only", "jacobi|cg|lu|adi|LAMMPS"] if mode == "quick" else [])]],
        seconds={"quick": 15, "full": 60},
        columns=("program", "inline", "copied", "not copied", "rendezvous", "used 16 times and more"),
        unit="% of those that may be copied", points=program_points, panels=program_panels,
        verdict=program_verdict,
        criterion="The share of small messages that went without a copy, of cg, lu and multigrid beside the "
        "paper's NAS CG, NAS LU and AMG2006. " + SHARE.text(" points") + " A curve is a program. MILC has no "
        "counterpart here.",
        differences="The paper has NAS benchmarks and others on a cluster. Here are small programs of the same "
        "manner on one machine. cg, lu and adi are after NAS CG, LU and SP. There are also a Jacobi solver, hypre's "
        "multigrid, LAMMPS and mpi4py's benchmarks. All verify their answers. Messages up to the inline size "
        "are neither copied nor looked up.", needs=("program", "missing"), needs_source=True),
]
