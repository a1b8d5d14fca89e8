# SPDX-License-Identifier: BSD-2-Clause
"""What not copying saves: the gains of "Exploiting application buffer reuse", by `heddle bench reuse-...` and
by the operations of an MPI."""

from .. import likeness
from ..model import NOT_IN_THE_PAPER, Experiment, Panel, Point, Series, Verdict
from ..reference import table
from ..values import bytes_text, distinct, middle, middle_between, quartiles
from . import operations

CHANNELS = {"send": "SEND", "ring": "ring", "rma": "RDMA", "mpi": "MPI"}
LEARNING = {"inside": "learning inside", "before": "learnt before"}
KINDS = {"reuse-spectrum-put": "RDMA writes", "reuse-spectrum-get": "RDMA reads"}
NEEDS = ("channel", "bytes", "buffers", "separate_pages", "seconds_without", "seconds_with", "gain",
         "expected_gain", "without_copy")

ABOUT = (
    "Expected is the paper's equation 6 with the costs of this machine: what the copy adds, less the "
    "look-up. Where a gather of two entries costs more than the copy, messages are copied and nothing is "
    "expected. On a software HCA that is so below 4 KiB. With reuse and without take turns; the gain is turn "
    "by turn, and the bars its quartiles. ")
BOTH = ("\"Learning inside\" is as the paper measures: every turn has buffers that were never used, so that counting "
        "their uses and registering them take part of its time. \"Learnt before\" leaves that out. ")


def gains(row):
    return [100 * (1 - with_ / without)
            for with_, without in zip(row["seconds_with"], row["seconds_without"])]


def curve_of(rows):
    """row -> its curve: what is varied besides the size. What all rows have in common is left out."""
    has_learning = len({row.get("learning", "before") for row in rows}) > 1
    has_sizes = len({row["buffers"] for row in rows if not row.get("spectrum")}) > 1
    has_kinds = len({row.get("experiment") for row in rows}) > 1

    def name(row):
        found = KINDS[row["experiment"]] if has_kinds else CHANNELS[row["channel"]]
        if has_sizes:
            found += f" {bytes_text(row['bytes'])}{', pages of their own' if row['separate_pages'] else ''}"
        return found + (f", {LEARNING[row['learning']]}" if has_learning else "")
    return name


def points(rows):
    name = curve_of(rows)
    return [Point((name(row), row["buffers"], row["bytes"]), middle(gains(row)), *quartiles(gains(row)))
            for row in rows]


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
    name = curve_of(rows)
    return [by_size([row for row in rows if name(row) == curve], curve)
            for curve in distinct(map(name, rows))]


def rotation_panels(rows):
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
    """(curve, x) -> row. x: the field that is varied."""
    name = curve_of(rows)
    return {(name(row), row[x]): row for row in rows}


def short_of_cores(rows):
    """Why nothing can be said; empty: there are cores enough."""
    processes = max(row.get("processes", 1) for row in rows)
    cores = min(row.get("processors_online", processes) for row in rows)
    if processes <= cores:
        return ""
    return f"{processes} processes take turns on {cores} cores, and the scheduler is most of the time."


def nothing_expected(found):
    """found: (curve, x) -> gains, turn by turn. A loss counts where the spread does not explain it."""
    text = (f"Nothing is expected to gain {LEAST_EXPECTED} % or more, as a gather costs more than the copy here, or the "
            "copy is little of the operation")
    between = {key: middle_between(each) for key, each in found.items()}
    losses = {key: middle(found[key]) for key, (_, high) in between.items() if high < -GAIN.tolerance}
    if losses:
        worst = min(losses, key=losses.get)
        return Verdict("unlike", f"{text}; {worst[0]} at {worst[1]} loses {-losses[worst]:.0f} %.")
    if hidden := [key for key, (low, _) in between.items() if low < -GAIN.tolerance]:
        return Verdict("cannot", f"{text}; the spread hides a loss of {GAIN.tolerance} % at {len(hidden)} of "
                       f"{len(found)} points.")
    return Verdict("cannot", f"{text}, and nothing loses more than {GAIN.tolerance} %.")


def gain_verdict(name, x):
    def verdict(rows):
        if why := short_of_cores(rows):
            return Verdict("cannot", why)
        if few := [row["buffers"] for row in rows if row["buffers"] < row.get("buffers_wanted", 0)]:
            return Verdict("cannot", f"A message took so long that the spectrum had only {min(few)} buffers.")
        by = curves_of(rows, x)
        found = {key: middle(gains(row)) for key, row in by.items()}
        expected = {key: 100 * row["expected_gain"] for key, row in by.items()}
        if max(expected.values()) < LEAST_EXPECTED:
            return nothing_expected({key: gains(row) for key, row in by.items()})

        def is_papers(row):
            """Whether the paper's value is of this: it learns while it measures."""
            return row["bytes"] == PAPERS_SIZE and (has_one or row["learning"] == "inside")

        has_one = len({row.get("learning") for row in rows}) == 1

        def wanted(gain):
            return {key: gain if gain is not None and is_papers(row) else expected[key]
                    for key, row in by.items()}

        others = {f"the gain of {other}": wanted(paper_gain(other))
                  for other in ("pingpong", "spectrum", "put", "get", "bcast") if other != name}
        said = likeness.compare(found, wanted(paper_gain(name)), GAIN, others, " %")
        best = max(found.values())
        return Verdict(said.state, f"Gains from {min(found.values()):.0f} to {best:.0f} %: {said.text()}.")
    return verdict


def gain_criterion(name, has_both=False):
    paper = paper_gain(name)
    of_curve = " of the curves with learning inside" if has_both else ""
    beside = (f"the paper's {paper:g} % at 8 KiB{of_curve}, and what its equation 6 expects with this machine's costs "
              "at all other points" if paper is not None else
              "what the paper's equation 6 expects with this machine's costs; its own values are not at hand")
    return (f"Each size of each channel counts, a loss as a gain does. It is compared with {beside}. "
            + GAIN.text(" points") + " If nothing is expected to gain 3 %, the gain cannot be shown here, and a "
            "loss of more than 5 %, with 95 % confidence, is unlike the paper.")


def experiment(name, where, title, question, paper, differences, panels=size_panels, repetitions=(21, 61),
               seconds=(5, 15), x="bytes", benches=None, more=((), ()), has_both=False):
    def commands(mode):
        length = ["--repetitions", str(repetitions[mode == "full"]), *(more[mode == "full"] or ("--time", "10"))]
        return [["bench", f"reuse-{bench}", "--json", *length] for bench in benches or (name,)]

    of = name if where != NOT_IN_THE_PAPER else ""
    return Experiment(
        key=f"reuse-{name}", paper="reuse", where=where, title=title, question=question,
        commands=commands, seconds=dict(zip(("quick", "full"), seconds)), columns=("by", "buffers", "bytes"),
        unit="% of the time without reuse", points=points, panels=panels,
        verdict=gain_verdict(of, x), criterion=gain_criterion(of, has_both),
        differences=f"The paper: {paper}. {ABOUT}{BOTH * has_both}{differences}", needs=NEEDS)


# The operations of an MPI.

def messages_of_root(operation, ranks):
    """How many that are copied or not follow each other: the paper's equation 6 counts each."""
    return {"bcast": (ranks - 1).bit_length(), "scatter": ranks - 1}.get(operation, 1)


def from_mpi(rows):
    """The rows as `heddle bench` would have them."""
    found = []
    for learning in LEARNING:
        mine = [row for row in rows if row["learning"] == learning]
        for (_, operation, size), (with_, without) in operations.pairs(mine, "reuse", "copied").items():
            saved = messages_of_root(operation, with_["ranks"]) * with_["saved_ns"] * 1e-9
            found.append({
                "channel": "mpi", "bytes": size, "buffers": 1, "separate_pages": False, "learning": learning,
                "processes": with_["ranks"], "processors_online": with_["cores"],
                "seconds_with": with_["seconds"], "seconds_without": without["seconds"],
                "expected_gain": saved / middle(without["seconds"])})
    return found


def mpi_verdict(name):
    of_gains = gain_verdict(name, "bytes")

    def verdict(rows):
        found = from_mpi(rows)
        if missing := [text for learning, text in LEARNING.items()
                       if not any(row["learning"] == learning for row in found)]:
            return Verdict("cannot", f"Not measured with reuse and without: {', '.join(missing)}.")
        return of_gains(found)
    return verdict


def mpi_experiment(name, where, title, question, paper, differences):
    def commands(mode):
        words = [operations.SCRIPT, "--way", "reuse", "--way", "copied", "--operation", name, "--ranks", "4",
                 "--turns", "9" if mode == "quick" else "61", "--bytes", "128", "512", "1024", "2048", "4096", "8192"]
        return [[*words, "--fresh"], words]

    return Experiment(
        key=f"reuse-mpi-{name}", paper="reuse", where=where, title=title, question=question, commands=commands,
        seconds={"quick": 12, "full": 60}, columns=("by", "buffers", "bytes"), unit="% of the time without reuse",
        points=lambda rows: points(from_mpi(rows)), panels=lambda rows: size_panels(from_mpi(rows)),
        verdict=mpi_verdict(name), criterion=gain_criterion(name, True),
        differences=f"The paper: {paper}. {ABOUT}{BOTH}{differences}",
        needs=(*operations.NEEDS, "cores", "learning", "saved_ns"), needs_source=True)


SCHEDULER = "With fewer processors than processes the scheduler is nearly all of the time, and nothing can be said."
OWN = "Without an MPI: the operations are the provider's own. "
SPECTRUM = ("The buffers are used in rounds: all of them, then all but the first, and so on, so buffer i of n has i "
            "uses. A registration pays only for those that are used often enough, and n decides how many these are. "
            "The paper's n is not at hand; here it is 200, or 1000 with --full. Where a turn would take longer than "
            "100 times --time it is less, and nothing can be said. ")

EXPERIMENTS = [
    experiment("pingpong", "Fig. 4", "Ping-pong from one buffer", "What not copying saves of a message's time, "
               "by size and channel.", "up to 14 % at 8 KB, where its theory has 15 %",
               "A gain above what is expected comes from the cache: the buffer that would be copied "
               "into is not in the way."),
    experiment("spectrum", "Fig. 5", "Buffer reuse spectrum, two-sided", "What a program gains that uses some buffers "
               "often and others seldom: buffer i of n is sent from i times.", "12.7 % at 8 KB", SPECTRUM,
               repetitions=(5, 15), seconds=(30, 600), has_both=True,
               more=(("--time", "10", "--bytes", "1024", "2048", "4096", "8192"),
                     ("--time", "50", "--bytes", "512", "1024", "2048", "4096", "8192", "--buffers", "1000"))),
    mpi_experiment("put", "Fig. 6", "MPI_Put", "MPI_Put and MPI_Win_fence, from one buffer.",
                   "about 20 % at 8 KB, losses below 1 KB", "The time has the fence in it, as the paper's has."),
    mpi_experiment("get", "Fig. 6", "MPI_Get", "MPI_Get and MPI_Win_fence, into one buffer.",
                   "about 17 % at 8 KB, losses below 1 KB", "The time has the fence in it, as the paper's has."),
    experiment("spectrum-one-sided", "Fig. 7", "Buffer reuse spectrum, one-sided", "The same for RDMA writes and "
               "reads, each waited for.", "its values are not at hand", SPECTRUM, repetitions=(5, 15),
               seconds=(15, 300), has_both=True, benches=("spectrum-put", "spectrum-get"),
               more=(("--time", "10", "--bytes", "1024", "2048", "4096", "8192"),
                     ("--time", "50", "--bytes", "512", "1024", "2048", "4096", "8192", "--buffers", "1000"))),
    mpi_experiment("bcast", "Fig. 8", "MPI_Bcast", "MPI_Bcast on four ranks, from one buffer.",
                   "over 25 % on 4 processes", SCHEDULER),
    mpi_experiment("scatter", "Fig. 8", "MPI_Scatter", "MPI_Scatter on four ranks, from one array.",
                   "its value is not at hand", SCHEDULER),
    experiment("rotation", NOT_IN_THE_PAPER, "Ping-pong from 1 to 1000 buffers in turn", "Whether the gain holds when "
               "many buffers are used equally often.", "it does not have this",
               "With more buffers than the look-up's table keeps, messages are copied.",
               rotation_panels, (7, 31), (18, 80), "buffers"),
    experiment("put", NOT_IN_THE_PAPER, "RDMA writes", "An RDMA write with a wait for each: the copy into a registered "
               "buffer saved.", "it has MPI_Put", OWN),
    experiment("get", NOT_IN_THE_PAPER, "RDMA reads", "An RDMA read with a wait for each: the copy out of a registered "
               "buffer saved.", "it has MPI_Get", OWN),
    experiment("bcast", NOT_IN_THE_PAPER, "Broadcast", "A binomial tree of four processes, from one buffer.",
               "it has MPI_Bcast", OWN + SCHEDULER),
    experiment("scatter", NOT_IN_THE_PAPER, "Scatter", "From one array, to three others.", "it has MPI_Scatter",
               OWN + SCHEDULER),
]
