# SPDX-License-Identifier: BSD-2-Clause
"""Reads callgrind's files: what functions cost themselves, and which function calls which. Standard library only."""

from pathlib import Path
from typing import NamedTuple


class Own(NamedTuple):
    """What a function cost itself, on one line or at one address: event -> count."""

    library: str
    function: str
    position: str
    costs: dict


class Calls(NamedTuple):
    library: str
    function: str
    called_library: str
    called: str
    position: str
    times: int


def trigger_of(lines):
    """The name that the program gave to this dump, or None."""
    for line in lines:
        if line.startswith("desc: Trigger: Client Request: "):
            return line.rstrip("\n").rpartition(": ")[2]
        if line.startswith("events:"):
            break
    return None


def records(lines):
    """Own and Calls, in the file's order. A position is that of the instruction, or else the source line.

    "ob=" and "fn=" set where costs belong, and a line behind "calls=" is what the callee cost. A name is given
    once, with a number in brackets, and then by that number. "cob=" is left out where the callee is in the same
    library."""
    events, names, positions = [], {}, 1
    library = function = called_library = called = ""
    is_callee = False
    for line in lines:
        key, equals, value = line.rstrip("\n").partition("=")
        if line.startswith("events:"):
            events = line.split()[1:]
        elif line.startswith("positions:"):
            positions = len(line.split()) - 1
        elif equals and key in ("ob", "cob", "fn", "cfn"):
            number, _, text = value.partition(") ")
            kind = key[-2:]
            name = names.setdefault((kind, number.rstrip(")")), text) if value.startswith("(") else value
            if key == "ob":
                library = Path(name).name
            elif key == "fn":
                function = name
            elif key == "cob":
                called_library = Path(name).name
            else:
                called = name
        elif key == "calls":
            times, position = value.split()[:2]
            yield Calls(library, function, called_library or library, called, position, int(times))
            called_library, is_callee = "", True
        elif line[:1].isdigit() or line[:1] in ("+", "-", "*"):
            if not is_callee:
                words = line.split()
                costs = dict(zip(events, map(int, words[positions:])))
                yield Own(library, function, words[0], costs)
            is_callee = False
