# SPDX-License-Identifier: BSD-2-Clause
"""Exploiting application buffer reuse to improve MPI small message transfer protocols."""

from ..model import Experiment, Panel, Point, Series, Verdict
from ..reference import table
from ..values import bytes_text, distinct, middle, quartiles

CHANNELS = {"send": "SEND", "ring": "ring", "rma": "RDMA"}
NEEDS = ("channel", "bytes", "buffers", "separate_pages", "seconds_without", "seconds_with", "gain",
         "expected_gain", "without_copy")

ABOUT = (
    "Expected is the paper's equation 6 with the costs of this machine: what the copy adds, less the "
    "look-up. Where a gather of two pieces costs more than the copy, as on a software HCA below 4 KiB, "
    "messages are copied and nothing is expected. With reuse and without take turns; the gain is turn "
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


def verdict(rows):
    """For the sizes that should gain something: how much of the expected gain was there."""
    wins = [(middle(gains(row)), 100 * row["expected_gain"]) for row in rows
            if row["expected_gain"] >= 0.03]
    if not wins:
        return Verdict("none", "On this device no size is expected to gain 3 % or more.")
    there = sum(1 for gain, expected in wins if gain >= 0.8 * expected)
    best = max(gain for gain, _ in wins)
    return Verdict("like" if there >= 0.75 * len(wins) else "unlike",
                   f"Up to {best:.0f} % faster; {there} of {len(wins)} sizes that should gain have at "
                   "least 0.8 of what is expected.")


def experiment(name, title, question, paper, differences, panels=size_panels,
               repetitions=(21, 61), seconds=(5, 15)):
    def commands(mode):
        length = ["--repetitions", str(repetitions[mode == "full"]), "--time", "10"]
        return [["bench", f"reuse-{name}", "--json", *length]]

    return Experiment(
        key=f"reuse-{name}", paper="reuse", where="Figs. 4 to 8", title=title, question=question,
        commands=commands, seconds=dict(zip(("quick", "full"), seconds)), columns=("by", "bytes"),
        unit="% of the time without reuse", points=points, panels=panels, verdict=verdict,
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


def break_even_verdict(rows):
    largest = rows[0]["sizes"][-1]
    uses = {way: largest["ways"][way]["uses"] for way in WAYS}
    text = ", ".join(f"{WAYS[way].partition(' ')[0]} " + (f"{count:.0f}" if count is not None else
                                                          "never") for way, count in uses.items())
    pairs = [(count, paper_uses(way, largest["bytes"])) for way, count in uses.items()]
    close = all(count is not None and paper and paper / 3 <= count <= 3 * paper
                for count, paper in pairs)
    return Verdict("like" if close else "unlike", f"A buffer of {bytes_text(largest['bytes'])} has "
                   f"paid for its registration after so many uses: {text}.")


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


def lookup_verdict(rows):
    by, counted = rows[0]["lookup_ns"], rows[0]["instructions"]
    worst = {name: max(each[name] for each in by) for name in TABLES}
    return Verdict("like" if worst["chained_hash"] < worst["tree"] else "unlike",
                   f"At most {worst['ours']:.1f} ns of 1 to {by[-1]['buffers']} buffers; the hash of the "
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


def program_verdict(rows):
    mine = program_rows(rows)
    text = []
    if wrong := [row["program"] for row in mine if not row["good"]]:
        return Verdict("unlike", f"Failed or wrong: {', '.join(wrong)}.")
    if mine:
        often = sorted(used_often(row) for row in mine)
        text.append(f"All answers are right. Of the small buffers that {len(mine)} programs sent from "
                    f"{often[0]:.0f} to {often[-1]:.0f} % were used 16 times and more.")
    text += [f"{row['program']}: not run: {row['missing']}." for row in rows
             if row["missing"] is not None]
    return Verdict("none", " ".join(text))


EXPERIMENTS = [
    Experiment(
        key="reuse-break-even", paper="reuse", where="Table 2",
        title="When a registration has paid",
        question="What registering, copying, looking up and gathering cost here, and after how many "
        "uses of a buffer the copies saved outweigh its registration.",
        commands=lambda mode: [["calibrate", "--json"]], seconds={"quick": 2, "full": 2},
        columns=("channel", "bytes"), unit="uses", points=break_even_points,
        panels=break_even_panels, verdict=break_even_verdict, more_is_better=False,
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
               spectrum_panels, (7, 31), (60, 260)),
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
        differences="The paper has NAS benchmarks and others on a cluster; here are programs of the same "
        "manner, small, on one machine: cg and lu after NAS CG and LU, adi after SP, a Jacobi solver, hypre's "
        "multigrid, LAMMPS and mpi4py's benchmarks. All verify their answers. Messages up to the inline size "
        "are neither copied nor looked up.", needs=("program", "missing"), needs_source=True),
]
