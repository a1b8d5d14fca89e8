# SPDX-License-Identifier: BSD-2-Clause
"""TupleQ: Fully-Asynchronous and Zero-Copy MPI over InfiniBand."""

from ..model import NOT_IN_THE_PAPER, Experiment, Panel, Point, Series, Verdict
from ..reference import table
from ..values import bytes_text, distinct, middle, quartiles

SIDES = ("receiver", "sender")


def available(row):
    return [100 * (1 - overhead / base) if base > 0 else 0
            for overhead, base in zip(row["overhead_us"], row["base_us"])]


def overlap_points(rows):
    points = []
    for row in rows:
        each = available(row)
        points.append(Point((row["side"], row["way"], row["bytes"]), middle(each),
                            *quartiles(each)))
    return points


def overlap_series(rows, values):
    """For each way, by size; values: row -> samples."""
    sizes = sorted(distinct(row["bytes"] for row in rows))
    series = []
    for way in distinct(row["way"] for row in rows):
        by = {row["bytes"]: values(row) for row in rows if row["way"] == way}
        series.append(Series(way, [middle(by[size]) if size in by else None for size in sizes],
                             [quartiles(by[size])[0] if size in by else None for size in sizes],
                             [quartiles(by[size])[1] if size in by else None for size in sizes]))
    return [bytes_text(size) for size in sizes], series


def overlap_panels(rows):
    panels = []
    for side in SIDES:
        mine = [row for row in rows if row["side"] == side]
        if not mine:
            continue
        sizes = sorted(distinct(row["bytes"] for row in mine))
        for what, values, y_label, marks, scale in (
                ("availability", available, "available, % of the message's time",
                 ((95, "95 %"), (0, "")), "linear"),
                ("overhead", lambda row: [max(each, 0.01) for each in row["overhead_us"]],
                 "overhead, us", (), "log")):
            _, series = overlap_series(mine, values)
            panels.append(Panel(f"{side}: {what}", [max(size, 1) for size in sizes],
                                "bytes (0 is drawn at 1)", y_label, series, x_scale="log2",
                                y_scale=scale, y_from_zero=False, marks=marks))
    return panels


def overlap_verdict(rows):
    by_tuple = [middle(available(row)) for row in rows
                if row["way"] == "tupleq" and row["side"] == "receiver" and row["bytes"] >= 65536]
    others = [middle(available(row)) for row in rows
              if row["way"] in ("rget", "rput") and row["side"] == "receiver"
              and row["bytes"] >= 65536]
    if not by_tuple or not others:
        return Verdict("none", "Nothing of 64 KiB or more was measured.")
    good = min(by_tuple) >= 80 and middle(others) <= 30
    return Verdict("like" if good else "unlike", f"Receiver, 64 KiB and more: by a tuple queue at least "
                   f"{min(by_tuple):.0f} % of a message's time is the program's, by a rendezvous "
                   f"{middle(others):.0f} %.")


# Sweeps in which auto must not be slower than rget.

def sweep_points(field):
    def points(rows):
        return [Point((row["way"], row["bytes"], row[field]), row["ratio"], *row["quartiles"])
                for row in rows]
    return points


def sweep_panels(field, label, scale):
    def panels(rows):
        found = []
        for size in distinct(row["bytes"] for row in rows):
            xs = distinct(row[field] for row in rows)
            series = []
            for way in distinct(row["way"] for row in rows):
                by = {row[field]: row for row in rows if (row["way"], row["bytes"]) == (way, size)}
                series.append(Series(way, [by[x]["ratio"] for x in xs],
                                     [by[x]["quartiles"][0] for x in xs],
                                     [by[x]["quartiles"][1] for x in xs]))
            found.append(Panel(bytes_text(size), [max(x, 1) if scale != "linear" else x for x in xs],
                               label, "times as good as rget", series, x_scale=scale,
                               y_from_zero=False, marks=((1, "rget"), (0.95, "0.95"))))
        return found
    return panels


def sweep_verdict(rows):
    below = [row for row in rows if row["way"] == "auto" and row["ratio"] < 0.95]
    mine = [row for row in rows if row["way"] == "auto"]
    least = min((row["ratio"] for row in mine), default=None)
    if least is None:
        return Verdict("none", "auto was not measured.")
    return Verdict("unlike" if below else "like", f"auto is never below {least:.2f} of rget's rate" +
                   (f"; {len(below)} of {len(mine)} points are below 0.95." if below else "."))


def sweep(name, title, question, field, label, scale):
    def commands(mode):
        length = (["--repetitions", "15", "--time", "20"] if mode == "quick" else
                  ["--repetitions", "61", "--time", "20"])
        return [["bench", f"tuple-{name}", "--json", *length]]

    return Experiment(
        key=f"tupleq-{name}", paper="tupleq", where=NOT_IN_THE_PAPER, title=title,
        question=question, commands=commands, seconds={"quick": 20, "full": 80},
        columns=("way", "bytes", field), unit="times rget's rate", points=sweep_points(field),
        panels=sweep_panels(field, label, scale), verdict=sweep_verdict,
        differences="The paper's prototype does not have this case: it gives every tag a queue for "
        "ever. `auto` asks for queues where they pay and gives them up where they do not, so that a "
        "program never does worse than by a rendezvous.",
        needs=("bytes", "way", "ratio", "quartiles", field))


# A program, by each way.

PAPERS_NAMES = {"tupleq": "tupleq", "tupleq, copy": "tupleq+copy", "rget": "rget", "rput": "rput"}


def paper_share(way):
    """The paper's time by this way, as a share of its time by RGET; None if the paper has none."""
    by = {row["way"]: float(row["seconds"]) for row in table("tupleq-sp")}
    name = PAPERS_NAMES.get(way)
    return by[name] / by["rget"] if name in by else None


def shares(rows):
    base = next(row["seconds"] for row in rows if row["way"] == "rget")
    return {row["way"]: [mine / rget for mine, rget in zip(row["seconds"], base)] for row in rows}


def program_points(rows):
    return [Point((way,), middle(each), *quartiles(each), paper_share(way))
            for way, each in shares(rows).items()]


def program_panels(rows):
    by = shares(rows)
    return [Panel("Time of the program", list(by), "", "of the time by rget", [
        Series("ADI solver here", [middle(each) for each in by.values()]),
        Series("paper: NAS SP class B, 64 processes", [paper_share(way) for way in by],
               paper=True)])]


def program_verdict(rows):
    by = {way: middle(each) for way, each in shares(rows).items()}
    return Verdict("like" if by["tupleq"] < 0.9 else "unlike",
                   f"All answers are right. By tuple queues the solver takes {by['tupleq']:.2f} times as "
                   f"long as by rget (paper: {paper_share('tupleq'):.2f}), by auto {by['auto']:.2f}.")


EXPERIMENTS = [
    Experiment(
        key="tupleq-overlap", paper="tupleq", where="Fig. 5", title="Post, work, wait",
        question="How much of a message's time sender and receiver have for themselves, as in "
        "Sandia's micro-benchmark: by tuple queues, by RGET and by RPUT.",
        commands=lambda mode: [["bench", "overlap", "--json", *(
            ["--repetitions", "5", "--time", "2"] if mode == "quick" else ["--repetitions", "15"])]],
        seconds={"quick": 12, "full": 60}, columns=("side", "way", "bytes"),
        unit="% of the message's time", points=overlap_points, panels=overlap_panels,
        verdict=overlap_verdict,
        differences="The paper: near 100 % at all sizes, where RPUT and RGET fall to 0 at 8 KB. Of a "
        "message that takes a microsecond the two calls of the library are a third, so less is "
        "available of short ones here. A software HCA's work is done by a processor of this machine: "
        "below 32 KiB by the thread that posts, above by another one. On the sender's side it is "
        "therefore the software HCA that is measured.",
        needs=("side", "bytes", "way", "base_us", "overhead_us")),
    Experiment(
        key="tupleq-adi", paper="tupleq", where="Fig. 6", title="A solver with the messages of NAS SP",
        question="Nonblocking exchanges of faces, overlapped with line solves, on four ranks; the answer "
        "is verified. By each way that large messages can take.",
        commands=lambda mode: [["bench/mpi/rndv_modes.py", "--json", "--rounds",
                                "3" if mode == "quick" else "9"]],
        seconds={"quick": 60, "full": 180}, columns=("way",), unit="times rget's time",
        points=program_points, panels=program_panels, verdict=program_verdict, more_is_better=False,
        differences="The paper had a processor for each process and an adapter that works while they "
        "compute. Four ranks on fewer processors than that, with a software HCA that takes their time, "
        "overlap nothing: who waits for a receiver that is late has to get a processor first, where a "
        "rendezvous is moved by who posts.",
        needs=("program", "way", "seconds"), needs_source=True),
    sweep("late", "Late receivers", "Windows of messages whose receives are posted late.", "late",
          "receives come late by, us", "log10"),
    sweep("many", "Many tags", "Windows of messages with many tags in turn.", "tags", "tags",
          "log10"),
    sweep("wildcards", "Wildcards", "Windows of messages of which some are received from any source.",
          "wildcards", "received from any source, %", "linear"),
]
