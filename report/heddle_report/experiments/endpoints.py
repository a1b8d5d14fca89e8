# SPDX-License-Identifier: BSD-2-Clause
"""Scalable Communication Endpoints for MPI+Threads Applications (ICPADS 2018)."""

from dataclasses import replace
from statistics import geometric_mean

from .. import likeness
from ..model import Experiment, Panel, Point, Series, Verdict
from ..reference import table
from ..values import distinct

CATEGORIES = {"mpi-everywhere": "MPI everywhere", "2xdynamic": "2xDynamic", "dynamic": "Dynamic",
              "shared-dynamic": "Shared Dynamic", "static": "Static", "mpi+threads": "MPI+threads"}
# Rates of two machines differ by a factor; what is compared is how points relate to each other.
CRITERION = likeness.Criterion(ratios=True, tolerance=1.25, scaled=True)
BOTH_PATHS = (" Each path to the device is judged by itself; where they differ, the figure is partly like the "
              "paper's. Where threads are more than the cores, nothing is judged. They take turns, and the "
              "clock shows the scheduler.")

# Figure: what it is of, and what the paper found.
SWEEPS = {
    "2b": ("A process a thread, or threads of one process", "how far threads that share one "
           "endpoint fall behind processes that have one each"),
    "3": ("What the features of the device are worth", "what lists of requests, inlining, unsignaled "
          "completions and BlueFlame are worth as threads are added"),
    "5": ("Sharing the buffer", "whether threads may send from one buffer"),
    "6": ("Buffers on cache lines of their own", "what it costs if the buffers of threads lie on "
          "one cache line (a), and what the device reads for each message (b)"),
    "7": ("Sharing the context", "what is lost when threads share a context, and what doubling or "
          "sharing dynamic UARs does about it"),
    "8a": ("Sharing the protection domain", "whether threads may share one; each has its memory region"),
    "8b": ("Sharing the memory region", "whether threads may share one; all have one protection domain"),
    "9": ("Sharing the completion queue", "what is lost when threads share a CQ"),
    "10": ("Sharing the completion queue, by the share of signaled requests", "how much of that is "
           "won back by asking for fewer completions"),
    "11": ("Sharing the queue pair", "what is lost when threads share a queue pair"),
}

ABOUT_PROCESSORS = (
    "The paper had 16 cores for 16 threads and an adapter that executes what they post. On a software "
    "HCA the threads execute it themselves. Both processes are on one machine here. Rates are by the clock. Shown is each path's rate relative to "
    "its (geometric) mean over all points of the figure. The paper's rates and the predicted ones are relative to "
    "their own means. ")


def turns_note(rows):
    """Where there are fewer cores than threads: (what a plot says of it, from which x on; None: at all)."""
    short = [row for row in rows if row["oversubscribed"]]
    if not short:
        return "", None
    cores = short[0]["cores"]
    if rows[0]["x_is"] == "threads":
        return f"more than {cores} threads take turns on {cores} cores", cores
    return f"{short[0]['threads']} threads take turns on {cores} cores", None


def cannot_be_shown(rows):
    """Why; empty: it can."""
    short = [row for row in rows if row["oversubscribed"]]
    if not short:
        return ""
    most = max(row["threads"] for row in short)
    return (f"{most} threads take turns on {short[0]['cores']} cores ({len(short)} of {len(rows)} points), and "
            f"the clock shows the scheduler. The same command shows it where {most} cores are.")


def sweep_points(rows):
    return [Point((row["series"], row["x"], row["path"]), row["mmsgs_per_s"], *row["quartiles"],
                  row["paper_mmsgs_per_s"]) for row in rows]


PREDICTED = "predicted for ConnectX-4"  # by heddle predict


def relative(rows):
    """By curve, x and path: ours relative to the path's mean of all points, the paper's and what is predicted
    to those of the same points."""
    means, found = {}, {}
    for path in distinct(row["path"] for row in rows):
        mine = [row for row in rows if row["path"] == path and row["mmsgs_per_s"] > 0]
        with_paper = [row for row in mine if row["paper_mmsgs_per_s"]] or mine
        means[path] = (geometric_mean([row["mmsgs_per_s"] for row in with_paper]),
                       geometric_mean([row["paper_mmsgs_per_s"] or 1 for row in with_paper]),
                       geometric_mean([row.get("predicted_mmsgs_per_s") or 1 for row in with_paper]))
    for row in rows:
        mean, paper_mean, predicted_mean = means[row["path"]]
        paper, predicted = row["paper_mmsgs_per_s"], row.get("predicted_mmsgs_per_s")
        found[row["series"], row["x"], row["path"]] = (
            row["mmsgs_per_s"] / mean, [each / mean for each in row["quartiles"]],
            paper / paper_mean if paper else None, predicted / predicted_mean if predicted else None)
    return found


def not_measured(values, name, xs):
    """The paper's curve and the predicted one of that name, if there are any."""
    found = []
    for place, series in ((2, Series("paper", [], paper=True)), (3, Series(PREDICTED, [], predicted=True))):
        at = [next((values[key][place] for key in values if key[:2] == (name, x)), None) for x in xs]
        if any(value is not None for value in at):
            found.append(replace(series, values=at))
    return found


RELATIVE = "rate, relative to the mean of all"


def sweep_panels(rows):
    values = relative(rows)
    note, shaded = turns_note(rows)
    xs = distinct(row["x"] for row in rows)
    panels = []
    for name in distinct(row["series"] for row in rows):
        series = []
        for path in distinct(row["path"] for row in rows):
            cells = [values.get((name, x, path)) for x in xs]
            series.append(Series(path, [cell and cell[0] for cell in cells],
                                 [cell and cell[1][0] for cell in cells],
                                 [cell and cell[1][1] for cell in cells]))
        series += not_measured(values, name, xs)
        panels.append(Panel(name, xs, x_label(rows), RELATIVE, series, x_scale="log2", note=note,
                            shaded_above=shaded))
    return [*panels, *resource_panel(rows, xs)]


def feature_panels(rows):
    """As the paper draws Fig. 3: all features in one pair of axes; here one for each path."""
    values = relative(rows)
    note, shaded = turns_note(rows)
    xs = distinct(row["x"] for row in rows)
    panels = []
    for path in distinct(row["path"] for row in rows):
        series, papers = [], []
        for name in distinct(row["series"] for row in rows):
            cells = [values.get((name, x, path)) for x in xs]
            series.append(Series(name, [cell and cell[0] for cell in cells],
                                 [cell and cell[1][0] for cell in cells],
                                 [cell and cell[1][1] for cell in cells]))
            papers += [replace(each, name=f"{each.name}: {name}", hue=name) for each in not_measured(values, name, xs)]
        panels.append(Panel(f"All features, {path}", xs, x_label(rows), RELATIVE,
                            [*series, *papers], x_scale="log2", note=note, shaded_above=shaded))
    return [*panels, *resource_panel(rows, xs)]


def alignment_panels(rows):
    """Fig. 6: (a) rates, (b) what the device reads. A device that does not count has no (b)."""
    panels = sweep_panels(rows)
    counted = [row for row in rows if "payload_reads_per_message" in row]
    xs = distinct(row["x"] for row in counted)
    series = []
    for name in distinct(row["series"] for row in counted):
        for field, what in (("wqe_reads_per_message", "WQEs"), ("payload_reads_per_message", "payloads")):
            by = {row["x"]: row[field] for row in counted if row["series"] == name}
            series.append(Series(f"{name}, {what}", [by.get(x) for x in xs]))
    if series:
        panels.append(Panel("What the device reads (b)", xs, x_label(rows), "DMA reads a message", series,
                            x_scale="log2"))
    return panels


def x_label(rows):
    return "threads that share one" if rows[0]["x_is"] == "x" else rows[0]["x_is"]


def resource_panel(rows, xs):
    """Registers that the endpoints took; the same for all curves mostly, then one is drawn."""
    by = {(row["series"], row["x"]): row.get("uuars") for row in rows}
    curves = {}
    for name in distinct(row["series"] for row in rows):
        curves.setdefault(tuple(by.get((name, x)) for x in xs), []).append(name)
    series = [Series(", ".join(names) if len(names) < 3 else f"{names[0]} and {len(names) - 1} more",
                     list(values))
              for values, names in curves.items() if any(value is not None for value in values)]
    if not series:
        return []
    return [Panel("What they take of the device", xs, x_label(rows), "uUARs allocated", series,
                  x_scale="log2")]


def paper_figures():
    """The paper's values: figure -> (curve, x) -> value."""
    figures = {}
    for row in table("icpads18"):
        # There is one set of values for both parts of figure 8.
        for name in ("8a", "8b") if row["figure"] == "8" else (row["figure"],):
            figures.setdefault(name, {})[row["series"], int(row["x"])] = float(row["mmsgs_per_s"])
    for row in table("icpads18-applications"):
        figures.setdefault(row["figure"], {})[row["curve"], row["category"]] = float(row["mmsgs_per_s"])
    return figures


def other_figures(figure, paper):
    """Null models: what another figure's values would be in this one's places, and where they have the
    same names."""
    models = {}
    for name, values in paper_figures().items():
        if name == figure or values == paper:
            continue
        models[f"the paper's Fig. {name}, by its order,"] = likeness.by_place(values, paper)
        same = {key: values[key] for key in paper if key in values}
        if len(same) == len(paper):
            models[f"the paper's Fig. {name}"] = same
    return models


def judged(figure, by_path, by=likeness.CURVES):
    """by_path: path -> (curve, x) -> value; by: what is judged one by one."""
    paper = paper_figures().get(figure)
    if not paper:
        return Verdict("cannot", "The paper's values are not at hand.")
    others = other_figures(figure, paper)
    found = {path: likeness.compare(values, paper, CRITERION, others, by=by) for path, values in by_path.items()}
    return Verdict(likeness.together(each.state for each in found.values()),
                   ". ".join(f"{path[0].upper()}{path[1:]}: {each.text()}" for path, each in found.items()) + ".")


def sweep_verdict(figure):
    def verdict(rows):
        if why := cannot_be_shown(rows):
            return Verdict("cannot", why)
        by_path = {}
        for row in rows:
            by_path.setdefault(row["path"], {})[row["series"], row["x"]] = row["mmsgs_per_s"]
        return judged(figure, by_path)
    return verdict


def sweep(figure):
    title, question = SWEEPS[figure]

    def commands(mode):
        length = (["--repetitions", "3", "--seconds", "0.03"] if mode == "quick" else
                  ["--repetitions", "9", "--seconds", "0.15"])
        return [["bench", "message-rate", "--figure", figure, "--path", "both", "--json", *length]]

    own = {
        "6": "The paper's values of this figure are not at hand. It counts PCIe reads of the adapter; "
             "here the software HCA counts its own, of queue entries and of payloads.",
        "7": "The paper's curves are of contention for the adapter's registers, which a software HCA "
             "does not have; what is left here are locks and cache lines.",
    }.get(figure, "What is compared is what software does: locks, cache lines, the number of "
                  "doorbells.")
    if figure in ("8a", "8b"):
        own += " The paper's values are one set for 8a and 8b."
    return Experiment(
        key=f"endpoints-{figure}", paper="endpoints", where=f"Fig. {figure}", title=title,
        question=f"Message rate of small RDMA writes: {question}.", commands=commands,
        seconds=SECONDS[figure], columns=("curve", "x", "path"), unit="million messages a second",
        points=sweep_points, panels={"3": feature_panels, "6": alignment_panels}.get(figure, sweep_panels),
        verdict=sweep_verdict(figure),
        criterion="The paper's values are not at hand, so nothing is judged." if figure == "6" else
        CRITERION.text() + BOTH_PATHS,
        differences=ABOUT_PROCESSORS + own, softhca=("--uar", "static"),
        needs=("series", "x", "x_is", "path", "threads", "cores", "mmsgs_per_s", "quartiles",
               "oversubscribed", "paper_mmsgs_per_s"))


# By the number of points mostly, and of repetitions of 30 and of 150 ms.
QUICK_SECONDS = {"2b": 4, "3": 10, "5": 16, "6": 4, "7": 18, "8a": 13, "8b": 12, "9": 13, "10": 41, "11": 13}
SECONDS = {figure: {"quick": quick, "full": 14 * quick} for figure, quick in QUICK_SECONDS.items()}


EXPERIMENTS = [sweep(figure) for figure in SWEEPS]
