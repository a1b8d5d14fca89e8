#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Processes that come and go: some endpoints send each other messages of all ways, while at random
one is started, stopped or killed, forty times (--full: a thousand). A process that is stopped ends by itself,
with all it received undamaged and nothing that waits for ever; what the killed leave goes with the last.
"""

import os
import shutil
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "third_party"))
from harness import SOURCE_ROOT, Failure, Suite  # noqa: E402

SHORT, FULL = 40, 1000
MOST = 6  # at once
CASES = 4  # the steps are spread over so many fabrics
PATIENT = 0.8  # of those that start this part is waited for
SECONDS_TO_START = 20.0
SECONDS_TO_END = 40.0  # connections that are being made take 30 to give up


def main():
    def add_options(parser):
        parser.set_defaults(scratch=SOURCE_ROOT / "build" / "guests")
        parser.add_argument("--guest", type=Path, help="fi_guest (default: in tests/ beside softhca)")
        parser.add_argument("--steps", type=int, help=f"{SHORT}, or {FULL} with --full")

    suite = Suite("guests", __doc__.partition("\n\n")[0], add_options=add_options)
    options = suite.options
    build = options.softhca.resolve().parent.parent
    suite.guest = (options.guest or build / "tests" / "fi_guest").resolve()
    if not os.access(suite.guest, os.X_OK):
        print(f"guests: no executable {suite.guest}; build it, or name it with --guest")
        return 2
    steps = options.steps or (FULL if suite.full else SHORT)
    for number in range(CASES):
        begin, end = number * steps // CASES, (number + 1) * steps // CASES
        suite.case(f"{begin + 1} to {end} of {steps}", come_and_go, suite, end - begin)
    return suite.main()


class Party:
    """The guests that run, those that leave, and counts of what became of all."""

    def __init__(self, suite):
        self.suite = suite
        self.folder = suite.scratch("guests") / "cards"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.there = []
        self.leaving = []  # (program, since)
        self.counts = {"started": 0, "stopped": 0, "killed": 0}
        self.sent = self.failed = 0

    def start(self):
        seed = self.suite._random.randrange(1 << 30)
        argv = [self.suite.guest, self.folder, seed]
        guest = self.suite.start(argv, title=f"guest {self.counts['started']}")
        self.there.append(guest)
        self.counts["started"] += 1
        if self.suite._random.random() < PATIENT:
            deadline = time.monotonic() + self.suite.scaled(SECONDS_TO_START)
            while "ready" not in guest.output() and guest.running():
                if time.monotonic() > deadline:
                    raise Failure(f"one does not start\n{guest.describe()}")
                time.sleep(0.01)

    def stop(self):
        guest = self.pick()
        guest.signal_group(signal.SIGTERM)
        self.leaving.append((guest, time.monotonic()))
        self.counts["stopped"] += 1

    def kill(self):
        guest = self.pick()
        guest.signal_group(signal.SIGKILL)
        guest.wait(5)
        self.suite._killed = True
        (self.folder / str(guest.pid)).unlink(missing_ok=True)
        self.counts["killed"] += 1

    def pick(self):
        return self.there.pop(self.suite._random.randrange(len(self.there)))

    def look(self):
        for guest in self.there:
            if not guest.running():
                guest.reap()
                raise Failure(f"one ended by itself: {guest.state()}\n{guest.describe()}")
        self.leaving = [each for each in self.leaving if not self.has_left(*each)]

    def has_left(self, guest, since):
        if guest.running():
            if time.monotonic() - since > self.suite.scaled(SECONDS_TO_END):
                raise Failure(f"one does not end\n{guest.describe()}")
            return False
        guest.reap()
        # One that had not come as far as to catch the signal is ended by it, or was never begun.
        early = "ready" not in guest.output()
        if guest.code != 0 and not early:
            raise Failure(f"one that was stopped ended badly: {guest.state()}\n{guest.describe()}")
        words = guest.output().split()
        if not early:
            self.sent += int(words[words.index("sent,") - 1])
            self.failed += int(words[words.index("failed") - 1])
        else:
            (self.folder / str(guest.pid)).unlink(missing_ok=True)
            self.suite._killed = True
        return True


def come_and_go(suite, steps):
    party = Party(suite)
    for _ in range(steps):
        if len(party.there) < 2:
            action = party.start
        elif len(party.there) >= MOST:
            action = suite._random.choice((party.stop, party.kill))
        else:
            action = suite._random.choice((party.start, party.start, party.stop, party.kill))
        action()
        time.sleep(suite._random.uniform(0, 0.25))
        party.look()
    while party.there:
        party.stop()
    while party.leaving:
        party.look()
        time.sleep(0.02)
    if party.sent == 0:
        raise Failure("nothing was sent")
    suite.check_fabric_gone()
    counts = ", ".join(f"{number} {what}" for what, number in party.counts.items())
    return f"{counts}; those stopped had sent {party.sent}, of which {party.failed} failed"


if __name__ == "__main__":
    sys.exit(main())
