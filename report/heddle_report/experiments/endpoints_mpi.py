# SPDX-License-Identifier: BSD-2-Clause
"""MPI with threads over each endpoint category: what bench/mpi/categories.py prints. No figure of the paper."""

from ..model import NOT_IN_THE_PAPER, Experiment, Panel, Point, Series, Verdict
from ..values import distinct, middle, quartiles
from .endpoints import CATEGORIES

SCRIPT = "bench/mpi/categories.py"
TITLES = {"rate": "Messages of 8 B, both directions", "stencil": "Stencil, halos of 512 B"}
OWN = ("2xdynamic", "dynamic", "shared-dynamic")  # a thread has a register of its own
ONE_FOR_ALL = "mpi+threads"
# With the kernel of the paper: pages of a process by threads. Where threads have no registers of their own,
# heddle's connector has one, on a page of its own.
PAPER_PAGES = {"mpi-everywhere": lambda n: 8 * n + 1, "2xdynamic": lambda n: 8 + 2 * n, "dynamic": lambda n: 8 + n,
               "shared-dynamic": lambda n: 8 + (n + 1) // 2, "static": lambda n: 8 + 1, ONE_FOR_ALL: lambda n: 8 + 1}
# With today's kernels the queue pairs that only receive have pages, too, as many in each category, but for the
# last one, which may find room on a page. So what is compared is by how much two categories differ, to one page.
MORE_PAGES = (("2xdynamic", "dynamic", lambda n: n), ("dynamic", "shared-dynamic", lambda n: n // 2))
NOTHING_LOST = 0.9  # of the rate of one lock for all, at least, where each thread has queues of its own


def key_of(row):
    return row["program"], row["kernel"], row["threads"]


def is_short(row):
    return row["ranks"] * row["threads"] > row["cores"]


def each_message(row, field):
    """What the device counted in the turns; None: there is no software HCA."""
    return row[field] / row["messages"] if row.get("messages") else None


def locks(row):
    """A message, of both sides together."""
    return (row["domain_locks"] + row["register_locks"]) / row["sent"]


def rates(row):
    """Million messages a second, of each turn."""
    return [1e-6 / seconds for seconds in row["seconds"]]


def number(value, digits=2):
    return "-" if value is None else f"{value:.{digits}f}"


def mebibytes(row, field):
    return row[field] / (1 << 20) if field in row else None


def points(rows):
    return [Point((row["program"], row["kernel"] or "-", row["threads"], row["category"], row["contexts"],
                   row["uar_pages"], row["qps"], row["cqs"], number(mebibytes(row, "queue_bytes")),
                   number(mebibytes(row, "mr_bytes")), number(mebibytes(row, "memory_bytes")),
                   number(row["domain_locks"] / row["sent"]), number(row["register_locks"] / row["sent"]),
                   number(each_message(row, "doorbells")), number(each_message(row, "blueflame"))),
                  middle(rates(row)), *quartiles(rates(row))) for row in rows]


# Panels.

def by_category(rows, value):
    """A curve for each category: what `value` gives for its row, None without one."""
    threads = sorted(distinct(row["threads"] for row in rows))
    found = {(row["category"], row["threads"]): value(row) for row in rows}
    return threads, [(category, [found.get((category, count)) for count in threads])
                     for category in CATEGORIES if any(row["category"] == category for row in rows)]


def counts_panel(rows, title, label, value):
    threads, curves = by_category(rows, value)
    return Panel(title, threads, "threads of a process", label,
                 [Series(category, values) for category, values in curves], x_scale="log2")


def rate_panel(rows, program):
    threads, curves = by_category(rows, lambda row: row)
    series = [Series(category, [row and middle(rates(row)) for row in of],
                     [row and quartiles(rates(row))[0] for row in of],
                     [row and quartiles(rates(row))[1] for row in of]) for category, of in curves]
    short = [row for row in rows if is_short(row)]
    if not short:
        return Panel(TITLES[program], threads, "threads of a process", "million messages a second", series,
                     x_scale="log2")
    cores, ranks = short[0]["cores"], short[0]["ranks"]
    fewest = min(row["threads"] for row in short)
    enough = [count for count in threads if count < fewest]
    return Panel(TITLES[program], threads, "threads of a process", "million messages a second", series,
                 x_scale="log2", note=f"{ranks} processes of more threads than {cores} cores have room for",
                 shaded_above=(enough[-1] + fewest) / 2 if enough else None)


def panels(rows):
    kernels = distinct(row["kernel"] for row in rows)
    result = []
    for program in TITLES:
        of = [row for row in rows if row["program"] == program and row["kernel"] == kernels[0]]
        if of:
            result.append(rate_panel(of, program))
    for kernel in kernels:
        of = [row for row in rows if row["kernel"] == kernel]
        result.append(counts_panel(of, "UAR pages of a process" + (f", {kernel} UARs" if kernel else ""),
                                   "pages", lambda row: row["uar_pages"]))
    of = [row for row in rows if row["kernel"] == kernels[0]]
    result += [counts_panel(of, "Queue pairs of a process", "queue pairs", lambda row: row["qps"]),
               counts_panel(of, "Completion queues of a process", "completion queues", lambda row: row["cqs"])]
    rated = [row for row in of if row["program"] == "rate"]
    if rated:
        result += [counts_panel(rated, "Locks taken by heddle, 8 B", "a message, both sides", locks),
                   counts_panel(rated, "Doorbells and BlueFlame writes, 8 B", "a message",
                                lambda row: row.get("messages") and (each_message(row, "doorbells") +
                                                                     each_message(row, "blueflame"))),
                   counts_panel(rated, "Memory of a process", "MiB", lambda row: mebibytes(row, "memory_bytes"))]
    return result


# What a category promises.

def broken_by(row):
    """Which counts of a row its category does not allow, in words."""
    category, threads = row["category"], row["threads"]
    queues = 1 if category == ONE_FOR_ALL else threads
    wanted = {"contexts": threads if category == "mpi-everywhere" else 1,
              "qps": 2 * queues + 1,  # to the peer, from it, and the connector's
              "cqs": queues + 1}
    if row["kernel"] == "static":
        wanted["uar_pages"] = PAPER_PAGES[category](threads)
    found = [f"{row[field]} {field}, not {value}" for field, value in wanted.items() if row[field] != value]
    if category in OWN and row["register_locks"]:
        found.append(f"{row['register_locks']} locks of registers, not 0")
    if category not in OWN and row["register_locks"] < row["sent"]:
        found.append(f"{row['register_locks']} locks of registers for {row['sent']} messages")
    if category != ONE_FOR_ALL and row["domain_locks"]:
        found.append(f"{row['domain_locks']} locks of domains, not 0")
    if category == ONE_FOR_ALL and row["domain_locks"] < 2 * row["sent"]:  # a message is sent and received
        found.append(f"{row['domain_locks']} locks of domains for {row['sent']} messages")
    if row.get("messages") and row["doorbells"] + row["blueflame"] < row["messages"]:
        found.append(f"{row['doorbells'] + row['blueflame']} doorbells for {row['messages']} messages")
    return [f"{category} with {threads} threads: {each}" for each in found]


def broken_between(rows):
    """Where two categories of one place do not differ as they should, with today's kernels."""
    found = []
    pages = {(*key_of(row), row["category"]): row["uar_pages"] for row in rows if row["kernel"] == "dynamic"}
    for place in distinct(key[:3] for key in pages):
        for more, less, wanted in MORE_PAGES:
            if (*place, more) not in pages or (*place, less) not in pages:
                continue
            difference = pages[*place, more] - pages[*place, less]
            if abs(difference - wanted(place[2])) > 1:
                found.append(f"{more} with {place[2]} threads: {difference} UAR pages more than {less}, not "
                             f"about {wanted(place[2])}")
    return found


def slower(rows):
    """Where threads with queues of their own are slower than with one for all, on cores enough."""
    by = {(*key_of(row), row["category"]): middle(rates(row)) for row in rows if not is_short(row)}
    return [f"{category} with {key[2]} threads, {key[0]} ({by[*key, category] / by[*key, ONE_FOR_ALL]:.2f})"
            for *key, category in by if category in OWN and key[2] > 1 and (*key, ONE_FOR_ALL) in by and
            by[*key, category] < NOTHING_LOST * by[*key, ONE_FOR_ALL]]


def verdict(rows):
    broken = [each for row in rows for each in broken_by(row)] + broken_between(rows)
    if broken:
        return Verdict("unlike", f"Not what the category promises: {'; '.join(broken)}.")
    text = f"The counts of all {len(rows)} rows are those that the categories promise, and every grid is right"
    judged = [row for row in rows if row["threads"] > 1 and not is_short(row)]
    if not judged:
        row = max(rows, key=lambda row: row["threads"])
        return Verdict("cannot", f"{text}. Nothing is said of rates: {row['ranks']} processes of 2 threads or more "
                       f"take turns on {row['cores']} cores, and the clock shows the scheduler.")
    behind = slower(rows)
    if behind:
        return Verdict("partly", f"{text}. Slower than one queue for all: {', '.join(behind)}.")
    return Verdict("like", f"{text}. Threads with queues of their own are nowhere slower than with one for all.")


def commands(mode):
    if mode == "quick":
        return [[SCRIPT, "--threads", "2", "4", "--turns", "3"],
                [SCRIPT, "--threads", "4", "--turns", "3", "--program", "stencil", "--kernel", "static"]]
    return [[SCRIPT], [SCRIPT, "--program", "stencil", "--kernel", "static"]]


EXPERIMENTS = [Experiment(
    key="endpoints-mpi", paper="endpoints", where=NOT_IN_THE_PAPER, title="MPI with threads, by category",
    question="What MPI_THREAD_MULTIPLE costs and uses with an unmodified MPICH over each category: message rate and "
    "a stencil, beside UAR pages, queues, memory, locks and doorbells.",
    commands=commands, seconds={"quick": 8, "full": 240},
    columns=("program", "UARs", "threads", "category", "contexts", "UAR pages", "QPs", "CQs", "queues, MiB",
             "registered, MiB", "memory, MiB", "locks of domains a message", "locks of registers a message",
             "doorbells a message", "BlueFlame writes a message"),
    unit="million messages a second", points=points, panels=panels, verdict=verdict,
    criterion="The counts of every row must be those that its category promises. These are contexts, queue pairs, "
    "completion queues, UAR pages (with today's kernels to one page), and locks taken. A thread with a register of its "
    "own takes no lock of heddle's. Else each doorbell takes one, and with one queue for all each call does, too. One count that differs is not as wanted, and "
    "a wrong grid ends the experiment. Rates are judged where each thread of both processes has a core: then 2xdynamic, "
    "dynamic and shared-dynamic must have 0.9 of the rate of mpi+threads or more. If some have not, it is partly as "
    "wanted. Where no row of two threads has the cores, rates are shown and not judged.",
    differences="No figure of the paper, which has no MPI library. Two processes on one machine. MPICH gives a "
    "thread's communicator a virtual communication interface, and each interface has a domain and an endpoint of heddle. "
    "MPICH's own locks, one for each interface, are the same in every category and are not counted; nor are the "
    "mutexes of setting up connections and of registering memory. The path is the direct one: by libibverbs the "
    "driver's locks would be taken instead of heddle's. UAR pages and queue pairs include those of heddle's connector. "
    "Locks are of a whole run, also those of polls that find nothing; doorbells are of the turns alone.",
    needs=("program", "category", "kernel", "threads", "ranks", "cores", "seconds", "sent", "contexts", "uar_pages",
           "qps", "cqs", "domain_locks", "register_locks"), needs_source=True)]
