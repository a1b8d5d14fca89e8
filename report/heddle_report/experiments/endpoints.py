# SPDX-License-Identifier: BSD-2-Clause
"""Scalable Communication Endpoints for MPI+Threads Applications (ICPADS 2018)."""

from statistics import geometric_mean

from ..model import Experiment, Panel, Point, Series, Verdict
from ..reference import table
from ..values import distinct, middle, quartiles

CATEGORIES = {"mpi-everywhere": "MPI everywhere", "2xdynamic": "2xDynamic", "dynamic": "Dynamic",
              "shared-dynamic": "Shared Dynamic", "static": "Static", "mpi+threads": "MPI+threads"}
CLOSE = 1.5  # a factor, to the paper's

# Figure: what it is of, and what the paper found.
SWEEPS = {
    "2b": ("A process a thread, or threads of one process", "how far threads that share one "
           "endpoint fall behind processes that have one each"),
    "3": ("What the features of the device are worth", "what lists of requests, inlining, unsignaled "
          "completions and BlueFlame are worth as threads are added"),
    "5": ("Sharing the buffer", "whether threads may send from one buffer"),
    "6": ("Buffers on cache lines of their own", "what it costs if the buffers of threads lie on "
          "one cache line"),
    "7": ("Sharing the context", "what is lost when threads share a context, and what doubling or "
          "sharing dynamic UARs does about it"),
    "8": ("Sharing protection domain and memory region", "whether threads may share these"),
    "9": ("Sharing the completion queue", "what is lost when threads share a CQ"),
    "10": ("Sharing the completion queue, by the share of signaled requests", "how much of that is "
           "won back by asking for fewer completions"),
    "11": ("Sharing the queue pair", "what is lost when threads share a queue pair"),
}

ABOUT_PROCESSORS = (
    "The paper had 16 cores for 16 threads and an adapter that executes what they post. On a software "
    "HCA the threads execute it themselves, and if there are fewer processors than threads they take "
    "turns. Rates are therefore by processor time, as if each thread had a processor to itself. Shown is each "
    "path's rate relative to its (geometric) mean over all points of the figure, and the paper's "
    "relative to its own. ")


def sweep_rate(row):
    return row["mmsgs_per_cpu_s"] if row["oversubscribed"] else row["mmsgs_per_s"]


def sweep_quartiles(row):
    return row["cpu_quartiles"] if row["oversubscribed"] else row["quartiles"]


def sweep_points(rows):
    points = []
    for row in rows:
        low, high = sweep_quartiles(row)
        points.append(Point((row["series"], row["x"], row["path"]), sweep_rate(row), low, high,
                            row["paper_mmsgs_per_s"]))
    return points


def relative(rows):
    """By curve, x and path: ours relative to the path's mean of all points, the paper's to that of
    the same points."""
    means, found = {}, {}
    for path in distinct(row["path"] for row in rows):
        mine = [row for row in rows if row["path"] == path and sweep_rate(row) > 0]
        with_paper = [row for row in mine if row["paper_mmsgs_per_s"]] or mine
        means[path] = (geometric_mean([sweep_rate(row) for row in with_paper]),
                       geometric_mean([row["paper_mmsgs_per_s"] or 1 for row in with_paper]))
    for row in rows:
        mean, paper_mean = means[row["path"]]
        paper = row["paper_mmsgs_per_s"]
        found[row["series"], row["x"], row["path"]] = (
            sweep_rate(row) / mean, [each / mean for each in sweep_quartiles(row)],
            paper / paper_mean if paper else None)
    return found


RELATIVE = "rate, relative to the mean of all"


def sweep_panels(rows):
    values = relative(rows)
    xs = distinct(row["x"] for row in rows)
    panels = []
    for name in distinct(row["series"] for row in rows):
        series = []
        for path in distinct(row["path"] for row in rows):
            cells = [values.get((name, x, path)) for x in xs]
            series.append(Series(path, [cell and cell[0] for cell in cells],
                                 [cell and cell[1][0] for cell in cells],
                                 [cell and cell[1][1] for cell in cells]))
        paper = [next((values[key][2] for key in values if key[:2] == (name, x)), None) for x in xs]
        if any(value is not None for value in paper):
            series.append(Series("paper", paper, paper=True))
        panels.append(Panel(name, xs, x_label(rows), RELATIVE, series, x_scale="log2"))
    return [*panels, *resource_panel(rows, xs)]


def feature_panels(rows):
    """As the paper draws Fig. 3: all features in one pair of axes; here one for each path."""
    values = relative(rows)
    xs = distinct(row["x"] for row in rows)
    panels = []
    for path in distinct(row["path"] for row in rows):
        series, papers = [], []
        for name in distinct(row["series"] for row in rows):
            cells = [values.get((name, x, path)) for x in xs]
            series.append(Series(name, [cell and cell[0] for cell in cells],
                                 [cell and cell[1][0] for cell in cells],
                                 [cell and cell[1][1] for cell in cells]))
            papers.append(Series(f"paper: {name}", [cell and cell[2] for cell in cells], paper=True,
                                 hue=name))
        panels.append(Panel(f"All features, {path}", xs, x_label(rows), RELATIVE,
                            [*series, *papers], x_scale="log2"))
    return [*panels, *resource_panel(rows, xs)]


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


def sweep_verdict(rows):
    pairs = [(ours, paper) for ours, _, paper in relative(rows).values() if paper]
    if not pairs:
        return Verdict("none", "The paper's values are not at hand.")
    close = sum(1 for ours, paper in pairs if paper / CLOSE <= ours <= paper * CLOSE)
    return Verdict("like" if close >= 0.75 * len(pairs) else "unlike",
                   f"{close} of {len(pairs)} points are within a factor of {CLOSE} of the paper's "
                   "shape.")


def sweep(figure):
    title, question = SWEEPS[figure]

    def commands(mode):
        length = (["--repetitions", "5", "--seconds", "0.03"] if mode == "quick" else
                  ["--repetitions", "9", "--seconds", "0.15"])
        return [["bench", "message-rate", "--figure", figure, "--path", "both", "--json", *length]]

    own = {
        "6": "Of this figure the paper's values are not at hand.",
        "7": "The paper's curves are of contention for the adapter's registers, which a software HCA "
             "does not have; what is left here are locks and cache lines.",
    }.get(figure, "What is compared is what software does: locks, cache lines, the number of "
                  "doorbells.")
    return Experiment(
        key=f"endpoints-{figure}", paper="endpoints", where=f"Fig. {figure}", title=title,
        question=f"Message rate of small RDMA writes: {question}.", commands=commands,
        seconds=SECONDS[figure], columns=("curve", "x", "path"), unit="million messages a second",
        points=sweep_points, panels=feature_panels if figure == "3" else sweep_panels, verdict=sweep_verdict,
        differences=ABOUT_PROCESSORS + own, softhca=("--uar", "static"),
        needs=("series", "x", "x_is", "path", "mmsgs_per_s", "quartiles", "mmsgs_per_cpu_s",
               "cpu_quartiles", "oversubscribed", "paper_mmsgs_per_s"))


# By the number of points mostly, and of repetitions of 30 and of 150 ms.
QUICK_SECONDS = {"2b": 6, "3": 16, "5": 24, "6": 6, "7": 32, "8": 22, "9": 24, "10": 75, "11": 24}
SECONDS = {figure: {"quick": quick, "full": 8 * quick} for figure, quick in QUICK_SECONDS.items()}


# The applications.

def paper_of(figure, curve, category):
    for row in table("icpads18-applications"):
        if (row["figure"], row["curve"], row["category"]) == (figure, curve, CATEGORIES[category]):
            return float(row["mmsgs_per_s"])
    return None


def category_panel(title, rates, paper, y_label):
    """rates: path -> category -> value, relative to MPI everywhere; paper: category -> value."""
    names = list(CATEGORIES.values())
    series = [Series(path, [by.get(category) for category in CATEGORIES])
              for path, by in rates.items()]
    if any(value is not None for value in paper.values()):
        series.append(Series("paper", [paper[category] for category in CATEGORIES], paper=True))
    return Panel(title, names, "", y_label, series)


def to_everywhere(values):
    base = values.get("mpi-everywhere")
    return {category: value / base if base and value is not None else None
            for category, value in values.items()}


def by_category(rows, field, curve, figure):
    rates = {path: to_everywhere({row["category"]: row[field] for row in rows
                                  if row["path"] == path})
             for path in distinct(row["path"] for row in rows)}
    return rates, to_everywhere({each: paper_of(figure, curve, each) for each in CATEGORIES})


def global_array_panels(rows):
    return [category_panel(f"RDMA {what}s", *by_category(rows, f"{what}_mmsgs_per_s",
                                                         f"RDMA {what}", "12"),
                           "rate, relative to MPI everywhere") for what in ("read", "write")]


def global_array_points(rows):
    return [Point((f"RDMA {what}", row["category"], row["path"]), row[f"{what}_mmsgs_per_s"],
                  paper=paper_of("12", f"RDMA {what}", row["category"]))
            for what in ("read", "write") for row in rows]


def splits(rows):
    return distinct((row["processes"], row["threads"]) for row in rows)


def stencil_rows(rows, split):
    return [row for row in rows if (row["processes"], row["threads"]) == split]


def stencil_panels(rows):
    return [category_panel(f"{processes} x {threads} (processes x threads)",
                           *by_category(stencil_rows(rows, (processes, threads)), "mmsgs_per_s",
                                        f"{processes}.{threads}", "14"),
                           "rate, relative to MPI everywhere")
            for processes, threads in splits(rows)]


def stencil_points(rows):
    points = []
    for row in rows:
        rates = [row["messages"] / seconds / 1e6 for seconds in row["samples"]]
        low, high = quartiles(rates)
        points.append(Point((f"{row['processes']} x {row['threads']}", row["category"],
                             row["path"]), middle(rates), low, high,
                            paper_of("14", f"{row['processes']}.{row['threads']}",
                                     row["category"])))
    return points


def application_verdict(points):
    """Compares the extremes: threads that share everything, and processes."""
    def verdict(rows):
        wrong = sum(1 for row in rows if row["result"] != "correct")
        if wrong:
            return Verdict("unlike", f"{wrong} of {len(rows)} results are WRONG.")
        by = {point.key: point for point in points(rows)}
        pairs = [(point, by[what, "mpi-everywhere", path])
                 for (what, category, path), point in by.items()
                 if category == "mpi+threads" and (what, "mpi-everywhere", path) in by]
        shares = [low.value / high.value for low, high in pairs if high.value]
        papers = [low.paper / high.paper for low, high in pairs if low.paper and high.paper]
        if not shares:
            return Verdict("none", f"All {len(rows)} results are correct.")
        beside = f" (paper: {middle(papers):.2f})" if papers else ""
        return Verdict("like" if middle(shares) <= 0.8 else "unlike",
                       f"All {len(rows)} results are correct. MPI+threads has {middle(shares):.2f} of "
                       f"MPI everywhere's rate{beside}, the median of all cases.")
    return verdict


def repetitions(mode):
    return ["--repetitions", "3" if mode == "quick" else "15"]


EXPERIMENTS = [
    *(sweep(figure) for figure in SWEEPS),
    Experiment(
        key="endpoints-12", paper="endpoints", where="Fig. 12", title="Global array",
        question="C = A B with tiles fetched by RDMA read and put by RDMA write, in each category of "
        "endpoints; the product is checked.",
        commands=lambda mode: [["bench", "global-array", "--threads", "16", "--path", "both",
                                "--json", *repetitions(mode)]],
        seconds={"quick": 2, "full": 10}, columns=("operation", "category", "path"),
        unit="million messages a second", points=global_array_points, panels=global_array_panels,
        verdict=application_verdict(global_array_points),
        differences="The benchmark that the paper's authors published has no warm-up runs and its "
        "tiles overlap, so that its C is no product; this one is, and it is compared with one made "
        "in one thread. Sizes are chosen for small machines.",
        needs=("category", "path", "read_mmsgs_per_s", "write_mmsgs_per_s", "result")),
    Experiment(
        key="endpoints-14", paper="endpoints", where="Fig. 14", title="5-point stencil",
        question="Halos by RDMA write, as many processes by as many threads as the paper has, in each "
        "category; the grid is checked.",
        commands=lambda mode: [["bench", "stencil", "--processes", str(16 // threads), "--threads",
                                str(threads), "--path", "both", "--json", *repetitions(mode)]
                               for threads in (1, 2, 4, 8, 16)],
        seconds={"quick": 20, "full": 90}, columns=("split", "category", "path"),
        unit="million messages a second", points=stencil_points, panels=stencil_panels,
        verdict=application_verdict(stencil_points),
        differences="16 threads on fewer processors than 16 wait for each other most of the time, and "
        "for the scheduler to run the one they wait for; the paper's differences between categories "
        "are of registers and locks that 16 cores want at once.",
        needs=("category", "path", "processes", "threads", "messages", "mmsgs_per_s", "samples",
               "result")),
]
