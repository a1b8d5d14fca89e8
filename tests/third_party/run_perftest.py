#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""perftest on softhca: ib_{write,read,send,atomic}_{lat,bw} over each transport that they offer,
all sizes, events, several queue pairs, inline data and post lists, in both memory modes and both
UAR kernels. Two processes, which meet over TCP on 127.0.0.1.

A run passes when both sides exit with 0, no line speaks of an error, the header confirms the
options, and each expected size has its row with the right count and a positive result.
"""

import math
import re
import sys
from dataclasses import dataclass

from harness import DEVICE, ENGINES, UAR_BY_MEMORY, Failure, Mode, Suite

CONNECTIONS = {
    "write": ("RC", "UC", "XRC"),
    "read": ("RC", "XRC"),
    "send": ("RC", "UC", "UD", "XRC"),
    "atomic": ("RC", "XRC"),
}
EVENTS = ("read", "send", "atomic")  # ib_write_* has no -e
ALL_SIZES = ("write", "read", "send")  # ib_atomic_* always moves 8 bytes
INLINE = ("write", "send")
LARGEST = 8 << 20
UD_LARGEST = 4096

# An error message of perftest or of the libraries; its own notes about the CPU's clock are none.
ERROR = re.compile(
    r"fail|couldn't|could not|cannot|unable|error|not support|invalid|mismatch|problem", re.I
)
HARMLESS = re.compile(r"cpu frequency|max msg size in ud is mtu|changing to this mtu", re.I)


@dataclass(frozen=True)
class Run:
    """One invocation: which program, transport and options, and how many operations."""

    verb: str
    figure: str  # lat or bw
    connection: str = "RC"
    options: tuple = ()
    iterations: int = 200

    @property
    def program(self):
        return f"ib_{self.verb}_{self.figure}"

    def __str__(self):
        return " ".join([self.program, self.connection, *self.options])

    def option(self, flag):
        return self.options[self.options.index(flag) + 1] if flag in self.options else None


def main():
    suite = Suite("perftest", __doc__.partition("\n\n")[0])
    for run, mode in full_matrix() if suite.full else short_set():
        suite.case(f"{run}, {mode}", run_pair, suite, run, mode)
    return suite.main()


def short_set():
    """Each program, transport and option at least once, over the modes in turn."""
    runs = []
    for verb, connections in CONNECTIONS.items():
        for connection in connections:
            for figure in ("lat", "bw"):
                runs.append(Run(verb, figure, connection))
    runs += [Run(verb, "bw", options=("-q", "8")) for verb in CONNECTIONS]
    runs += [Run(verb, "bw", options=("-l", "4")) for verb in CONNECTIONS]
    # An event too many, or one for the wrong queue first, and perftest overruns its send queue.
    runs += [Run(verb, "lat", options=("-e",), iterations=5000) for verb in EVENTS]
    runs += [Run("read", "lat", options=("-e", "-s", "1048576"))]
    runs += [Run("send", "bw", options=("-e",)), Run("send", "bw", "UD", ("-e",))]
    runs += [Run(verb, "lat", options=("-I", "128", "-s", "128")) for verb in INLINE]
    runs += [Run("send", "bw", "UD", ("-I", "64", "-s", "64"))]
    runs += [Run("send", "bw", options=("--use-srq", "-q", "4"))]
    # Shifted by one after each round, so that no mode falls to latencies or bandwidths alone.
    paired = [(run, UAR_BY_MEMORY[(n + n // 4) % 4]) for n, run in enumerate(runs)]
    # All sizes once: perftest takes a good fifth of a second for each to find out the CPU's clock.
    largest = ("-s", str(LARGEST))
    paired += [
        (Run("write", "bw", options=largest, iterations=20), Mode(uar="dynamic", memory="auto")),
        (Run("send", "bw", options=("-a",), iterations=20), Mode(uar="static", memory="cma")),
        (Run("read", "lat", options=largest, iterations=20), Mode(uar="static", memory="auto")),
    ]
    return paired


def representative():
    """One run for each verb and transport."""
    for verb, connections in CONNECTIONS.items():
        for connection in connections:
            yield Run(verb, "lat" if connection == "RC" else "bw", connection)


def full_matrix():
    runs = []
    sizes = []
    for verb, connections in CONNECTIONS.items():
        for connection in connections:
            for figure in ("lat", "bw"):
                options = [()]
                if verb in EVENTS:
                    options.append(("-e",))
                if verb in INLINE:
                    options += [("-I", "64", "-s", "64"), ("-I", "128", "-s", "100")]
                if figure == "bw":
                    options += [("-q", "8"), ("-l", "4"), ("-l", "16", "-q", "8"), ("-b",)]
                    options += [("-Q", "1"), ("-b", "-q", "8")]
                if verb == "send" and connection in ("RC", "UD"):
                    options.append(("--use-srq",))
                    if figure == "bw":
                        options += [("--use-srq", "-q", "8"), ("--use-srq", "-l", "4")]
                options.append(("--use_old_post_send",))
                for chosen in options:
                    runs.append(Run(verb, figure, connection, chosen, iterations=1600))
                if verb in ALL_SIZES:
                    sizes.append(Run(verb, figure, connection, ("-a",), iterations=50))
                    if verb in EVENTS and connection == "RC":
                        sizes.append(Run(verb, figure, connection, ("-a", "-e"), iterations=50))
    for mode in UAR_BY_MEMORY:
        for run in runs + sizes:
            yield run, mode
    for engine in ENGINES:
        for run in runs:
            if not run.options or run.options in (("-e",), ("-q", "8"), ("-b",)):
                yield run, Mode(engine=engine, uar="static", memory="cma")
                yield run, Mode(engine=engine)
        for run in sizes:
            if run.connection == "RC":
                yield run, Mode(engine=engine)


def run_pair(suite, run, mode, environment=None):
    suite.need(run.program)
    port = suite.free_port()
    argv = [run.program, "-d", DEVICE, "-p", port, "-F", "-c", run.connection]
    argv += ["-n", run.iterations, *run.options]
    both = suite.pair(argv, [*argv, "127.0.0.1"], port=port, mode=mode, seconds=90,
                      environment=environment)
    for program in both:
        check_silence(program)
        check_header(program, run)
    return check_rows(both[1], run)


def check_silence(program):
    for line in program.output().splitlines():
        if ERROR.search(line) and not HARMLESS.search(line):
            raise Failure(f"the {program.title} reports: {line.strip()}\n{program.describe()}")


def check_header(program, run):
    """perftest prints what it made of its options, after the queue pairs exist."""
    text = program.output()
    wanted = {"Connection type": run.connection, "Device": DEVICE}
    if run.option("-l"):
        wanted["Post List"] = run.option("-l")
    if "--use-srq" in run.options or run.connection == "XRC":
        wanted["Using SRQ"] = "ON"
    # XRC needs an initiator and a target for each flow in a test that goes both ways.
    if run.option("-q") and run.connection != "XRC" and "-b" not in run.options:
        wanted["Number of qps"] = run.option("-q")
    for name, value in wanted.items():
        if not re.search(rf"{name}\s*: {value}\b", text):
            raise Failure(f"the {program.title}'s header lacks {name}: {value}\n{program.describe()}")
    if run.option("-I"):
        found = re.search(r"Max inline data\s*: (\d+)\[B\]", text)
        if not found or int(found[1]) < int(run.option("-I")):
            raise Failure(f"no room for {run.option('-I')} bytes inline\n{program.describe()}")
    if "-e" in run.options and "Test with events" not in text:
        raise Failure(f"the {program.title} does not use events\n{program.describe()}")


def expected_sizes(run):
    if "-a" not in run.options:
        if run.option("-s"):
            return [int(run.option("-s"))]
        return [8] if run.verb == "atomic" else [2] if run.figure == "lat" else None
    largest = UD_LARGEST if run.connection == "UD" else LARGEST
    return [1 << power for power in range(1, largest.bit_length())]


def has_clock(program):
    """Whether perftest found the frequency of its clock, which it cannot beside many busy processes.
    Without it, it prints no times."""
    return "Correlation coefficient" not in program.output()


def check_rows(program, run):
    rows = []
    for line in program.output().splitlines():
        fields = line.split()
        if len(fields) >= 4 and all(re.fullmatch(r"-?[\d.]+|-?inf|-?nan", f) for f in fields):
            rows.append([float(field) for field in fields])
    sizes = expected_sizes(run)
    seen = [int(row[0]) for row in rows]
    if (sizes is not None and seen != sizes) or not rows:
        raise Failure(f"sizes: expected {sizes}, seen {seen}\n{program.describe()}")
    for row in rows:
        if row[1] < run.iterations:
            raise Failure(f"{row[1]:g} operations of {run.iterations}\n{program.describe()}")
        # lat: bytes, count, min, max, typical, average ...; bw: bytes, count, peak, average, rate
        value = row[5] if run.figure == "lat" else row[3]
        if has_clock(program) and (not math.isfinite(value) or value <= 0):
            raise Failure(f"no result for {row[0]:g} bytes\n{program.describe()}")
    unit = "us" if run.figure == "lat" else "MB/s"
    return f"{value:g} {unit} at {seen[-1]} B"


if __name__ == "__main__":
    sys.exit(main())
