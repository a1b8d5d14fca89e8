# SPDX-License-Identifier: BSD-2-Clause
"""`heddle top` while two endpoints send each other messages, and when there are none."""

import json
import os
import re
import subprocess
import unittest

from harness import BUILD_DIR, SOFTHCA, TEST_DIR, Case, main
from terminal import Terminal

HEDDLE = os.path.join(BUILD_DIR, "bin", "heddle")
GUEST = os.path.join(TEST_DIR, "fi_guest")
MOVING = ("inlined", "eager", "rendezvous", "rma", "received")


@unittest.skipUnless(os.path.exists(GUEST), "the provider is not built")
class HeddleTop(Case, Terminal):
    def guests(self, count=2):
        """Processes that talk to each other until they are ended; of these, as the software HCA's
        command becomes the program."""
        environment = {**self.environment, "PMI_RANK": "7",
                       "FI_PROVIDER_PATH": os.path.join(BUILD_DIR, "lib")}
        processes = []
        for seed in range(count):
            process = subprocess.Popen(
                [SOFTHCA, "run", GUEST, self.scratch, str(seed)], env=environment,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.addCleanup(self.end, process)
            processes.append(process)
        return processes

    @staticmethod
    def end(process):
        process.terminate()
        process.wait(60)

    def top(self, processes, *arguments):
        pids = [word for process in processes for word in ("--pid", str(process.pid))]
        return self.softhca("top", *pids, *arguments, command=HEDDLE)

    def until_they_talk(self, processes, least=1):
        """At least so many messages a second come to each."""
        for _ in range(60):
            result = self.assert_run(self.top(processes, "--json", "--once", "--interval", "0.5"), 0)
            seen = json.loads(result.stdout)
            rates = [endpoint["rates"] for process in seen["processes"]
                     for endpoint in process["endpoints"]]
            if len(rates) == len(processes) and all(
                each["received"] >= least for each in rates):
                return seen
        self.fail(f"they do not talk: {result.stdout}")

    def test_json(self):
        guests = self.guests()
        seen = self.until_they_talk(guests)
        self.assertEqual([process["pid"] for process in seen["processes"]],
                         sorted(guest.pid for guest in guests))
        for process in seen["processes"]:
            self.assertEqual((process["command"], process["rank"], process["rnr_of"]),
                             ("fi_guest", "7", "process"))
            self.assertGreaterEqual(process["values"]["qps"], 1)
            self.assertEqual(process["values"]["endpoints"], 1)
            (endpoint,) = process["endpoints"]
            self.assertLess(endpoint["quiet"], 30)
            self.assertGreaterEqual(endpoint["values"]["peers"], 1)
            self.assertEqual(endpoint["values"]["tuple"], 0)
            for name in MOVING:
                self.assertGreater(endpoint["values"][name], 0, name)
        # What one has sent, the other has received, or will have.
        self.assertGreater(seen["seconds"], 0.4)

    def test_tables(self):
        guests = self.guests()
        self.until_they_talk(guests)
        text = self.assert_run(self.top(guests, "--once", "--interval", "0.5"), 0).stdout
        for guest in guests:
            self.assertEqual(len(re.findall(rf"^ *{guest.pid} .*fi_guest", text, re.MULTILINE)), 3)
        for heading in ("inline", "rndv", "tq out", "RNR", "UARs", "evict"):
            self.assertIn(heading, text)

    def test_screen(self):
        guests = self.guests()
        self.until_they_talk(guests)
        pid = str(guests[0].pid).encode()

        def key(bytes_):
            return lambda terminal, _: os.write(terminal, bytes_)

        text, status = self.screen(
            [HEDDLE, "top", "--interval", "0.2"], 80,
            [(pid, key(b"2")), (b"tq out", key(b"\t")), (b"uUARs", key(b"1")), (b"inline", key(b"e")),
             (b"EPs", key(b"h")), (b"COLUMN", key(b"p")), (b"PAUSED", key(b"p+")),
             (b"every 0.4 s", key(b"\x1b[B")), (b"heddle", key(b"\x1b[F")), (b"heddle", key(b"q"))],
            lines=60)
        self.assertEqual(status, 0)
        self.check_screen(text, 80)

    def test_scrolling(self):
        guests = self.guests(4)
        self.until_they_talk(guests, least=0)
        text, status = self.screen(
            [HEDDLE, "top", *(w for g in guests for w in ("--pid", str(g.pid))), "--interval", "0.2"],
            60,
            [(b"rows 1 to 2 of 4", lambda terminal, _: os.write(terminal, b"\x1b[6~")),
             (b"rows 3 to 4 of 4", lambda terminal, _: os.write(terminal, b"\x1b[A")),
             (b"rows 2 to 3 of 4", lambda terminal, _: os.write(terminal, b"q"))], lines=8)
        self.assertEqual(status, 0)
        self.check_screen(text, 60)

    def test_nobody(self):
        result = self.softhca("top", "--pid", str(os.getpid()), "--once", "--interval", "0.2",
                              command=HEDDLE)
        self.assert_run(result, 0, out="no process of yours runs over heddle now")

    def test_one_that_is_killed_is_gone(self):
        guests = self.guests()
        self.until_they_talk(guests)
        guests[0].kill()
        guests[0].wait(60)
        result = self.assert_run(self.top(guests, "--json", "--once", "--interval", "0.3"), 0)
        self.assertEqual([process["pid"] for process in json.loads(result.stdout)["processes"]],
                         [guests[1].pid])

    def test_usage(self):
        for wrong in (["--interval", "0"], ["--interval", "x"], ["--pid", "0"], ["--pid", "x"]):
            self.assert_run(self.softhca("top", *wrong, command=HEDDLE), 2, err=wrong[0])


if __name__ == "__main__":
    main()
