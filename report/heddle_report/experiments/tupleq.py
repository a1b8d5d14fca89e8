# SPDX-License-Identifier: BSD-2-Clause
"""TupleQ: Fully-Asynchronous and Zero-Copy MPI over InfiniBand."""

from ..model import NOT_IN_THE_PAPER, Experiment, Panel, Point, Series, Verdict
from ..reference import table
from ..values import bytes_text, distinct, middle, middle_between, quartiles, short_of_cores

SIDES = ("receiver", "sender")


def least_times(rows):
    """(side, bytes) -> the time of a message by the way that is the fastest there, without work."""
    found = {}
    for row in rows:
        key, base = (row["side"], row["bytes"]), middle(row["base_us"])
        found[key] = min(base, found.get(key, base))
    return found


def available(row, least):
    """In percent, of each turn: what is left of `least`, the fastest way's time for this side and size, to a
    program that works for so long while the message is under way. It loses the overhead, and it waits for what
    the message takes longer than `least`, whichever is more. 0 if nothing is left."""
    return [100 * max(0, 1 - max(overhead, base - least) / least) if least > 0 else 0
            for overhead, base in zip(row["overhead_us"], row["base_us"])]


def all_available(rows):
    """(row, its values) of each."""
    least = least_times(rows)
    return [(row, available(row, least[row["side"], row["bytes"]])) for row in rows]


def overlap_points(rows):
    return [Point((row["side"], row["way"], row["bytes"]), middle(each), *quartiles(each))
            for row, each in all_available(rows)]


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
    least = least_times(rows)
    for side in SIDES:
        mine = [row for row in rows if row["side"] == side]
        if not mine:
            continue
        sizes = sorted(distinct(row["bytes"] for row in mine))
        for what, values, y_label, marks, scale in (
                ("availability", lambda row: available(row, least[row["side"], row["bytes"]]),
                 "available, % of the fastest way's time",
                 ((95, "95 %"), (0, "")), "linear"),
                ("overhead", lambda row: [max(each, 0.01) for each in row["overhead_us"]],
                 "overhead, us", (), "log")):
            _, series = overlap_series(mine, values)
            panels.append(Panel(f"{side}: {what}", [max(size, 1) for size in sizes],
                                "bytes (0 is drawn at 1)", y_label, series, x_scale="log2",
                                y_scale=scale, y_from_zero=False, marks=marks))
    return panels


NEAR_ALL, NEAR_NONE, BEFORE = 90, 10, 50  # percent
FALLS_AT = 8192  # bytes
# Whose time is the program's by a rendezvous, by the paper: neither side's that has to act meanwhile. A
# sender whose buffer is read (rget) need not.
RENDEZVOUS = (("receiver", "rget"), ("receiver", "rput"), ("sender", "rput"))


def is_as_wanted(way, size, value):
    if way == "tupleq":
        return value >= NEAR_ALL
    return value <= NEAR_NONE if size >= FALLS_AT else value >= BEFORE


def overlap_verdict(rows):
    curves = {}
    for row, each in all_available(rows):
        curves.setdefault((row["side"], row["way"]), {})[row["bytes"]] = middle(each)
    wanted = [*((side, "tupleq") for side in SIDES), *RENDEZVOUS]
    if missing := [" ".join(key) for key in wanted if key not in curves]:
        return Verdict("cannot", f"Not measured: {', '.join(missing)}.")
    parts, good = [], {}
    for side, way in wanted:
        values = curves[side, way]
        right = [size for size, value in values.items() if is_as_wanted(way, size, value)]
        good[side, way] = len(right) == len(values)
        parts.append(f"{side} by {way}: {len(right)} of {len(values)} sizes ({min(values.values()):.0f} to "
                     f"{max(values.values()):.0f} %)")
    queues = [good[key] for key in wanted if key[1] == "tupleq"]
    others = [good[key] for key in RENDEZVOUS]
    state = ("like" if all(good.values()) else
             "partly" if any(queues) and 2 * sum(others) >= len(others) else "unlike")
    return Verdict(state, "Sizes that are as in the paper: " + "; ".join(parts) + ".")


# Sweeps in which auto must not be slower than the fastest of the ways.

BASE_WAY = "rget"  # its times are in every row


def least_turns(rows, field):
    """(bytes, x) -> the fastest way's times, turn by turn. For every other turn the way is chosen by the turns
    between: the least of several medians of the same turns would be below all of them if none of the ways is faster."""
    ways = {}
    for row in rows:
        ways.setdefault((row["bytes"], row[field]), []).extend((row["seconds"], row["seconds_rget"]))

    def fastest(each, first):
        return min(each, key=lambda seconds: middle(seconds[first::2] or seconds))

    def in_turns(each):
        by = fastest(each, 1), fastest(each, 0)
        return [by[turn % 2][turn] for turn in range(min(map(len, each)))]

    return {key: in_turns(each) for key, each in ways.items()}


def rates(rows, field):
    """(way, bytes, x) -> the rate as a share of the fastest way's, turn by turn."""
    found, least = {}, least_turns(rows, field)
    for row in rows:
        size, x = row["bytes"], row[field]
        for way, seconds in ((row["way"], row["seconds"]), (BASE_WAY, row["seconds_rget"])):
            found[way, size, x] = [best / mine for best, mine in zip(least[size, x], seconds)]
    return found


def sweep_points(field):
    def points(rows):
        return [Point(key, middle(each), *quartiles(each)) for key, each in rates(rows, field).items()]
    return points


def sweep_panels(field, label, scale):
    def panels(rows):
        found, by = [], rates(rows, field)
        for size in distinct(row["bytes"] for row in rows):
            xs = distinct(row[field] for row in rows)
            series = [Series(way, *zip(*((middle(by[way, size, x]), *quartiles(by[way, size, x])) for x in xs)))
                      for way in distinct(key[0] for key in by)]
            found.append(Panel(bytes_text(size), [max(x, 1) if scale != "linear" else x for x in xs],
                               label, "of the fastest way's rate", series, x_scale=scale,
                               y_from_zero=False, marks=((1, "fastest"), (0.95, "0.95"))))
        return found
    return panels


def sweep_verdict(field):
    def verdict(rows):
        auto = {key: each for key, each in rates(rows, field).items() if key[0] == "auto"}
        if not auto:
            return Verdict("cannot", "auto was not measured.")
        mine = {key: middle(each) for key, each in auto.items()}
        below = [key for key, share in mine.items() if share < 0.95 and middle_between(auto[key])[1] < 1]
        few = 4 * len(below) <= len(mine) and all(mine[key] >= 0.9 for key in below)
        state = "like" if not below else "partly" if few else "unlike"
        return Verdict(state, f"auto is never below {min(mine.values()):.2f} of the fastest way's rate" +
                       (f"; {len(below)} of {len(mine)} points are below 0.95, and not by chance." if below else "."))
    return verdict


def sweep(name, title, question, field, label, scale, ways=("auto",), seconds=(6, 25)):
    def commands(mode):
        length = (["--repetitions", "9", "--time", "20"] if mode == "quick" else
                  ["--repetitions", "61", "--time", "20"])
        return [["bench", f"tuple-{name}", "--json", *length, *(word for way in ways for word in ("--way", way))]]

    return Experiment(
        key=f"tupleq-{name}", paper="tupleq", where=NOT_IN_THE_PAPER, title=title,
        question=question, commands=commands, seconds=dict(zip(("quick", "full"), seconds)),
        columns=("way", "bytes", field), unit="times the fastest way's rate", points=sweep_points(field),
        panels=sweep_panels(field, label, scale), verdict=sweep_verdict(field),
        criterion="All ways have one base at each point: the time of the way that is the fastest there, of "
        f"{', '.join(ways)} and {BASE_WAY}. Every other turn chooses it, for the turns between. auto has at least 0.95 "
        "of its rate at every point, or the median's 95 % interval reaches to 1. Partly: a quarter of "
        "the points may have less, but none less than 0.9. Else it is not as wanted.",
        differences="The paper's prototype does not have this case: it gives every tag a queue for "
        "ever. `auto` asks for queues where they pay and gives them up where they do not, so that a "
        "program never does worse than by a rendezvous.",
        needs=("bytes", "way", "seconds", "seconds_rget", field))


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


NEAR = 0.05  # of the time by rget; no straight line over the ways has both tuple queues right


def times_text(by, paper=paper_share):
    """By way the time as a share of rget's, in a sentence."""
    return "All answers are right. Times, of rget's: " + ", ".join(
        f"{way} {value:.2f}" + (f" (paper: {paper(way):.2f})" if paper(way) else "")
        for way, value in by.items() if way != "rget") + "."


def program_verdict(rows):
    by = {way: middle(each) for way, each in shares(rows).items()}
    text = times_text(by)
    wanted = [way for way in PAPERS_NAMES if way != "rget"]
    if missing := [way for way in wanted if way not in by]:
        return Verdict("cannot", f"Not measured: {', '.join(missing)}.")
    if all("ranks" in row for row in rows) and (why := short_of_cores(rows)):
        return Verdict("cannot", f"{text} But {why}")
    good = {way: abs(by[way] - paper_share(way)) <= NEAR for way in wanted}
    return Verdict("like" if all(good.values()) else "partly" if good["tupleq"] and good["tupleq, copy"]
                   else "unlike", text)


EXPERIMENTS = [
    Experiment(
        key="tupleq-overlap", paper="tupleq", where="Fig. 5", title="Post, work, wait",
        question="How much of a message's time sender and receiver have for themselves, as in "
        "Sandia's micro-benchmark, of the fastest way's time: by tuple queues, by RGET and by RPUT.",
        commands=lambda mode: [["bench", "overlap", "--json", *(
            ["--repetitions", "5", "--time", "2"] if mode == "quick" else ["--repetitions", "15"])]],
        seconds={"quick": 12, "full": 60}, columns=("side", "way", "bytes"),
        unit="% of the fastest way's time", points=overlap_points, panels=overlap_panels,
        verdict=overlap_verdict,
        criterion="All ways have one base, for each side and size: the time of a message by the fastest way. A program "
        "works for so long; what it then loses to the message is not available, so a slower way has less. "
        "A curve is a side by a protocol; all its sizes must be right. By a tuple queue at least 90 % is "
        "available at every size, to receiver and sender. By RGET and RPUT at least 50 % is available to the "
        "receiver below 8 KiB, and at most 10 % from there on; to the sender, too, by RPUT. It is like the paper if "
        "all five curves are so, partly if one of the tuple queues' and half of the others are, else unlike.",
        differences="The paper: near 100 % at all sizes, where RPUT and RGET fall to 0 at 8 KB. If "
        "a message takes a microsecond, the two calls of the library are a third of it, so less is "
        "available of short ones here. A software HCA's work is done by a processor of this machine: "
        "below 32 KiB by the thread that posts, above by another one. On the sender's side it is "
        "therefore the software HCA that is measured.",
        needs=("side", "bytes", "way", "base_us", "overhead_us")),
    Experiment(
        key="tupleq-adi", paper="tupleq", where="Fig. 6", title="A solver with the messages of NAS SP",
        question="Nonblocking exchanges of borders, overlapped with line solves, on four ranks; the answer "
        "is verified. By each way that large messages can take.",
        commands=lambda mode: [["bench/mpi/rndv_modes.py", "--json", "--rounds",
                                "3" if mode == "quick" else "9"]],
        seconds={"quick": 60, "full": 180}, columns=("way",), unit="times rget's time",
        points=program_points, panels=program_panels, verdict=program_verdict, more_is_better=False,
        criterion="The times by tuple queues, with copies and without, and by RPUT are within 0.05 of the paper's, as "
        "shares of RGET's. Partly: both times by tuple queues are. Else it is unlike, faster or slower. With "
        "more ranks than cores it cannot be shown.",
        differences="The paper had a processor for each process and an adapter that works while they "
        "compute. Four ranks on fewer processors overlap nothing, as the software HCA takes their time. A "
        "sender that waits for a late receiver has to get a processor first. A rendezvous is moved by the thread "
        "that posts the receive.",
        needs=("program", "way", "seconds"), needs_source=True, one_job=True),
    sweep("late", "Late receivers", "Windows of messages whose receives are posted late.", "late",
          "receives come late by, us", "log10", ("auto", "tupleq", "rput"), (45, 170)),
    sweep("many", "Many tags", "Windows of messages with many tags in turn.", "tags", "tags",
          "log10"),
    sweep("wildcards", "Wildcards", "Windows of messages of which some are received from any source.",
          "wildcards", "received from any source, %", "linear"),
]
