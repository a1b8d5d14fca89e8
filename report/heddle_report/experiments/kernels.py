# SPDX-License-Identifier: BSD-2-Clause
"""The two kernels of Scalable Communication Endpoints for MPI+Threads Applications (ICPADS 2018), section VII:
a global array and a stencil, in each of the six categories of endpoints."""

from dataclasses import replace

from ..model import Experiment, Panel, Point, Series, Verdict
from ..reference import table
from ..values import distinct, middle, quartiles
from .endpoints import BOTH_PATHS, CATEGORIES, CRITERION, PREDICTED, judged

# Each category of endpoints is judged by itself: at all operations, or all splits into processes.
BY_CATEGORY = (1, "category", "categories")
OPERATIONS = ("read", "write")
RELATIVE = "rate, relative to MPI everywhere"


def paper_of(figure, curve, category):
    for row in table("icpads18-applications"):
        if (row["figure"], row["curve"], row["category"]) == (figure, curve, CATEGORIES[category]):
            return float(row["mmsgs_per_s"])
    return None


def turns_text(rows):
    """What the clock shows instead, where threads outnumber the cores; empty: nothing else."""
    if not any(row["oversubscribed"] for row in rows):
        return ""
    threads = max(row.get("processes", 1) * row["threads"] for row in rows)
    return f"{threads} threads take turns on {rows[0]['cores']} cores"


# What is drawn.

def relative(cells):
    """category -> [low, middle, high], relative to the middle of MPI everywhere."""
    base = cells.get("mpi-everywhere", (None, None, None))[1]
    return {category: [value / base if base and value is not None else None for value in values]
            for category, values in cells.items()}


def rate_panel(title, cells_by_series, paper, predicted, note):
    """cells_by_series: name -> category -> (low, middle, high); paper, predicted: category -> value."""
    series = []
    for name, cells in cells_by_series.items():
        found = relative(cells)
        low, values, high = zip(*(found.get(category, [None] * 3) for category in CATEGORIES))
        series.append(Series(name, list(values), list(low), list(high)))
    for values, what in ((paper, Series("paper", [], paper=True)), (predicted, Series(PREDICTED, [], predicted=True))):
        if base := values.get("mpi-everywhere"):
            series.append(replace(what, values=[values.get(each) and values[each] / base for each in CATEGORIES]))
    return Panel(title, list(CATEGORIES.values()), "", RELATIVE, series, note=note)


def predicted_of(rows):
    return {row["category"]: row["predicted_mmsgs_per_s"] for row in rows if "predicted_mmsgs_per_s" in row}


RESOURCES = {"uars": "UARs", "qps": "QPs", "cqs": "CQs", "driver_bytes": "KiB of the driver"}


def resource_panels(rows, title=""):
    """Beside the rates: what the endpoints of a process take. They are the same by either path, mostly."""
    path = rows[0]["path"]
    by = {row["category"]: row for row in rows if row["path"] == path}
    panels = []
    for field, what in RESOURCES.items():
        unit = 1024 if field == "driver_bytes" else 1
        cells = [by.get(category, {}).get(field) for category in CATEGORIES]
        series = [Series("a process", [value if value is None else value / unit for value in cells])]
        if field == "uars":
            series.append(Series("paper", [by.get(category, {}).get("paper_uars") for category in CATEGORIES],
                                 paper=True))
        if not series[0].is_empty:
            panels.append(Panel(f"{what}{title}", list(CATEGORIES.values()), "", what, series))
    return panels


# What is judged.

def resources_like(rows):
    """(Whether UARs are the paper's, or None if they cannot be compared; a sentence)."""
    rows = [row for row in rows if row.get("uars") is not None]
    if not rows or any(row.get("uar_kernel") != "static" for row in rows):
        return None, "UARs are not compared: they are not those of the paper's kernel."
    wrong = distinct(CATEGORIES[row["category"]] for row in rows if row["uars"] != row["paper_uars"])
    all_of_them = len(distinct(row["category"] for row in rows))
    text = f"UARs are the paper's in {all_of_them - len(wrong)} of {all_of_them} categories"
    return not wrong, f"{text}, not in {', '.join(wrong)}." if wrong else f"{text}."


def kernel_verdict(figure, values, papers_rows=lambda rows: rows):
    """values: rows -> path -> (curve, category) -> rate. papers_rows: those of the paper's program."""
    def verdict(rows):
        wrong = sum(1 for row in rows if row["result"] != "correct")
        if wrong:
            return Verdict("unlike", f"{wrong} of {len(rows)} results are WRONG.")
        compared = papers_rows(rows)
        same, resources = resources_like(compared)
        text = f"All {len(rows)} results are correct. {resources} "
        if turns := turns_text(compared):
            threads = turns.split()[0]
            return Verdict("cannot", f"{text}{turns}, and the clock shows the scheduler. The same command shows it "
                           f"where {threads} cores are.")
        said = judged(figure, values(compared), BY_CATEGORY)
        state = "partly" if said.state == "like" and same is False else said.state
        return Verdict(state, text + said.text)
    return verdict


CRITERION_TEXT = (CRITERION.text(by=BY_CATEGORY) + BOTH_PATHS + " A wrong result is unlike the paper, whatever the "
                  "rates. With the kernel of the paper, UARs that differ from its formulas leave the figure partly "
                  "like it.")


# The global array.

def of_the_paper(rows):
    """Without the batched series, which the paper does not have."""
    return [row for row in rows if row["posting"] == "conservative"]


def series_of(row):
    return row["path"] if row["posting"] == "conservative" else f"{row['path']}, {row['posting']}"


def global_array_cell(row, what):
    samples = row.get(f"{what}_samples") or [row[f"{what}_mmsgs_per_s"]]
    low, high = quartiles(samples)
    return low, row[f"{what}_mmsgs_per_s"], high


def global_array_panels(rows):
    panels = []
    for what in OPERATIONS:
        cells = {}
        for row in rows:
            cells.setdefault(series_of(row), {})[row["category"]] = global_array_cell(row, what)
        paper = {each: paper_of("12", f"RDMA {what}", each) for each in CATEGORIES}
        predicted = predicted_of(rows) if what == "write" else {}  # the model has no reads
        panels.append(rate_panel(f"RDMA {what}s", cells, paper, predicted, turns_text(rows)))
    return [*panels, *resource_panels(of_the_paper(rows))]


def global_array_points(rows):
    points = []
    for what in OPERATIONS:
        for row in rows:
            conservative = row["posting"] == "conservative"
            low, value, high = global_array_cell(row, what)
            name = f"RDMA {what}" if conservative else f"RDMA {what}, {row['posting']}"
            paper = paper_of("12", name, row["category"]) if conservative else None
            points.append(Point((name, row["category"], row["path"]), value, low, high, paper))
    return points


def global_array_values(rows):
    found = {}
    for row in rows:
        for what in OPERATIONS:
            found.setdefault(row["path"], {})[f"RDMA {what}", CATEGORIES[row["category"]]] = \
                row[f"{what}_mmsgs_per_s"]
    return found


# The stencil.

NODES = 2  # of the paper; the processes of one machine stand for those of both


def split_of(row):
    """Processes of a node, and threads of each."""
    return row["processes"] // NODES, row["threads"]


def stencil_cell(row):
    rates = [row["messages"] / seconds / 1e6 for seconds in row["samples"]]
    low, high = quartiles(rates)
    return low, middle(rates), high


def stencil_panels(rows):
    panels, resources = [], []
    for split in distinct(map(split_of, rows)):
        here = [row for row in rows if split_of(row) == split]
        cells = {}
        for row in here:
            cells.setdefault(row["path"], {})[row["category"]] = stencil_cell(row)
        paper = {each: paper_of("14", f"{split[0]}.{split[1]}", each) for each in CATEGORIES}
        panels.append(rate_panel(f"{split[0]} x {split[1]} (processes of a node x threads)", cells, paper,
                                 predicted_of(here), turns_text(here)))
        resources += resource_panels(here, f", {split[0]} x {split[1]}")
    return [*panels, *resources]


def stencil_points(rows):
    points = []
    for row in rows:
        low, value, high = stencil_cell(row)
        processes, threads = split_of(row)
        points.append(Point((f"{processes} x {threads}", row["category"], row["path"]), value, low, high,
                            paper_of("14", f"{processes}.{threads}", row["category"])))
    return points


def stencil_values(rows):
    found = {}
    for row in rows:
        processes, threads = split_of(row)
        found.setdefault(row["path"], {})[f"{processes}.{threads}", CATEGORIES[row["category"]]] = \
            row["mmsgs_per_s"]
    return found


def repetitions(mode):
    return ["--repetitions", "3" if mode == "quick" else "15"]


def stencil_commands(mode):
    """16 threads a node. A repetition has as many messages, whatever the split."""
    commands = []
    for threads in (1, 2, 4, 8, 16):
        processes = NODES * 16 // threads
        iterations = (1 if mode == "quick" else 8) * 64 // processes
        commands.append(["bench", "stencil", "--processes", str(processes), "--threads", str(threads), "--iterations",
                         str(iterations), "--path", "both", "--json", *repetitions(mode)])
    return commands


EXPERIMENTS = [
    Experiment(
        key="endpoints-12", paper="endpoints", where="Fig. 12", title="Global array",
        question="C = A B with tiles fetched by RDMA read and put by RDMA write, in each category of "
        "endpoints; the product is checked.",
        commands=lambda mode: [["bench", "global-array", "--threads", "16", "--path", "both", "--posting", "both",
                                "--matrix", "64" if mode == "quick" else "128", "--json", *repetitions(mode)]],
        seconds={"quick": 8, "full": 150}, columns=("operation", "category", "path"),
        unit="million messages a second", points=global_array_points, panels=global_array_panels,
        verdict=kernel_verdict("12", global_array_values, of_the_paper), criterion=CRITERION_TEXT,
        differences="As in the paper, each message is posted alone, goes by BlueFlame, and completes; a row of C is "
        "inline; each QP has three memory regions. The benchmark that the paper's authors published has no warm-up "
        "runs. Its tiles overlap, and each product of two tiles overwrites the last, so its C is no product. Here the "
        "tile that is written holds the sum so far, and C is compared with that of one thread. Tiles are those of the "
        "published benchmark, 4 x 4; matrices are smaller than its 512 x 512. The batched series is not in the paper: "
        "the rows of two tiles are one list with one completion, and C is written once.",
        softhca=("--uar", "static"),
        needs=("category", "path", "posting", "threads", "cores", "oversubscribed", "read_mmsgs_per_s",
               "write_mmsgs_per_s", "result")),
    Experiment(
        key="endpoints-14", paper="endpoints", where="Fig. 14", title="5-point stencil",
        question="Halos by RDMA write, as many processes by as many threads of two nodes as the paper has, in each "
        "category; the grid is checked.",
        commands=stencil_commands, seconds={"quick": 16, "full": 300}, columns=("split", "category", "path"),
        unit="million messages a second", points=stencil_points, panels=stencil_panels,
        verdict=kernel_verdict("14", stencil_values), criterion=CRITERION_TEXT,
        differences="As in the paper, each element of a halo is a message, posted alone, inline, by BlueFlame, with a "
        "completion. The benchmark that the paper's authors published does not wait for halos and overwrites what "
        "others still read, so its grid is no result. Here each thread waits for its halos, and the grid is compared "
        "with that of one thread. So rates include waiting, and the computation, which the paper's do not. The "
        "processes of both nodes are on one machine. 32 threads on fewer processors wait for each other, and for the "
        "scheduler. The paper's differences between categories are of registers and locks that 16 cores of a node want "
        "at once.",
        softhca=("--uar", "static"),
        needs=("category", "path", "processes", "threads", "cores", "oversubscribed", "messages",
               "mmsgs_per_s", "samples", "result")),
]
