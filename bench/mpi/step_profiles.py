# SPDX-License-Identifier: BSD-2-Clause
"""What instruction_table.c had callgrind write, as counts of a message. Standard library only.

A poll that finds nothing is no part of a message. If the device is late, there are more of them than in the chunk
with the fewest, and they are subtracted. Where an MPI waits within a call, all chunks have many: the cost of a poll
is then the slope between chunks, and all but one poll of each message are subtracted."""

import re
from collections import defaultdict
from dataclasses import dataclass, field
from statistics import mean, median

import callgrind

# Between MPI and the device. Not the C library: how it copies is its own affair.
BENEATH = re.compile(r"lib(heddle|fabric|uc[pts]|uct_ib|ucm|mlx5|ibverbs)")
# The functions that an MPI polls by.
POLLS = re.compile(r"ucp_worker_progress$|\bread_cq<|\bread_cntr\(")
LINES = "lines"
COUNTS = {"instructions": ("Ir",), "references": ("Dr", "Dw"), LINES: ("D1mr", "D1mw")}
FEW = 4  # polls of a message that does not wait
REST = 16  # calls that progress, after a chunk (instruction_table.c)


def middle(values):
    """The mean without the least and the greatest sixth: what comes with every so many messages is in it, what comes
    by the clock is not."""
    ordered = sorted(values)
    out = len(ordered) // 6
    return mean(ordered[out:len(ordered) - out])


@dataclass
class Profile:
    """The sums of one profile."""

    libraries: dict = field(default_factory=lambda: defaultdict(lambda: dict.fromkeys(COUNTS, 0)))
    polls: int = 0

    def sums(self):
        """(library, count) -> sum."""
        return {(library, name): value for library, of in self.libraries.items() for name, value in of.items()}


def profile_of(lines):
    found, entries, executed = Profile(), set(), defaultdict(int)
    for record in callgrind.records(lines):
        if isinstance(record, callgrind.Calls):
            if POLLS.search(record.called) and not BENEATH.match(record.library):
                entries.add((record.called, record.position))
        elif BENEATH.match(record.library):
            executed[record.function, record.position] += record.costs.get("Ir", 0)
            into = found.libraries[record.library]
            for name, events in COUNTS.items():
                into[name] += sum(record.costs.get(event, 0) for event in events)
    # Calls are also counted where nothing is collected: so many times its first instruction was executed.
    found.polls = sum(executed[entry] for entry in entries)
    return found


def read(folder, rank):
    """(row, "steps" or "rest") -> profiles in their order."""
    found = defaultdict(list)
    for path in sorted(folder.glob(f"profile.{rank}.*"), key=lambda path: int(path.suffix[1:])):
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.readlines()
        trigger = callgrind.trigger_of(lines)
        if trigger:
            found[tuple(trigger.split())].append(profile_of(lines))
    return found


def idle_poll(profiles):
    """(library, count) -> of a poll that finds nothing."""
    return {key: min(each.sums().get(key, 0) / each.polls for each in profiles if each.polls)
            for key in {key for each in profiles for key in each.sums()}}


def waiting_poll(profiles, key):
    """What a poll costs where an MPI waits: the slope between chunks."""
    least = min(profiles, key=lambda each: each.polls)
    slopes = [(each.sums().get(key, 0) - least.sums().get(key, 0)) / (each.polls - least.polls)
              for each in profiles if each.polls > least.polls]
    return median(slopes) if slopes else 0


def steps_of(profiles, messages, idle):
    """(library, count) -> of a message."""
    keys = {key for each in profiles for key in each.sums()}
    found = min(each.polls for each in profiles)
    if found > FEW * messages:
        found, idle = messages, {key: waiting_poll(profiles, key) for key in keys}
    # The polls of one call touch the same lines.
    empty = {key: 0 if key[1] == LINES else idle.get(key, 0) for key in keys}
    return {key: middle(each.sums().get(key, 0) - empty[key] * (each.polls - found) for each in profiles)
            / messages for key in keys}


def rest_of(profiles, messages, idle, idle_call):
    """(library, count) -> of a message: what calls do afterwards beyond finding nothing."""

    def nothing(each, key):
        return REST * idle_call.get(key, 0) if key[1] == LINES else each.polls * idle.get(key, 0)

    keys = {key for each in profiles for key in each.sums()}
    return {key: middle(each.sums().get(key, 0) - nothing(each, key) for each in profiles) / messages
            for key in keys}


def idle_call_of(profiles, messages):
    """(library, count) -> of an MPI_Test that finds nothing, each message of this row being one."""
    return {key: min(each.sums().get(key, 0) for each in profiles) / messages
            for key in {key for each in profiles for key in each.sums()}}


def row_of(profiles, row, messages):
    """{"instructions": ..., "references": ..., "lines": ..., "by_library": {...}} of a message, or None for a rank
    whose calls do not count in it."""
    steps = profiles[row, "steps"]
    if not any(each.libraries for each in steps):
        return None
    idle = idle_poll(profiles["idle", "steps"])
    idle_call = idle_call_of(profiles["idle", "steps"], messages)
    counts = {key: idle_call[key] if key[1] == LINES else value for key, value in idle.items()}
    if row != "idle":
        counts = steps_of(steps, messages, idle)
        rest = rest_of(profiles[row, "rest"], messages, idle, idle_call)
        counts = {key: counts.get(key, 0) + rest.get(key, 0) for key in {*counts, *rest}}
    found = {name: round(sum(value for (_, of), value in counts.items() if of == name), 1) for name in COUNTS}
    found["by_library"] = {library: round(value, 1) for (library, of), value in sorted(counts.items())
                           if of == "instructions" and round(value, 1)}
    return found
