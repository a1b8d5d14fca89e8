# SPDX-License-Identifier: BSD-2-Clause
"""`heddle top` while two endpoints send each other messages, and when there are none."""

import json
import os
import re
import shutil
import subprocess
import sys
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

    def once(self, pid, *arguments):
        return self.softhca("top", "--pid", str(pid), "--once", "--interval", "0.2", *arguments,
                            command=HEDDLE)

    def test_nobody(self):
        with open("/proc/self/comm", encoding="utf-8") as file:
            command = file.read().strip()
        result = self.assert_run(self.once(os.getpid()), 0)
        self.assertIn(f"process {os.getpid()}: {command} does not run over heddle\n", result.stdout)
        (absent,) = json.loads(self.once(os.getpid(), "--json").stdout)["absent"]
        self.assertEqual(absent["pid"], os.getpid())

    def test_no_such_process(self):
        with subprocess.Popen(["true"]) as process:
            process.wait(60)
        self.assert_run(self.once(process.pid), 1,
                        out=f"process {process.pid}: there is no such process")

    @unittest.skipUnless(os.geteuid() == 0, "only root can become another user")
    def test_a_process_of_another_user(self):
        def nobody():
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)

        program = shutil.copy(HEDDLE, self.scratch)
        os.chmod(self.scratch, 0o755)
        result = subprocess.run(
            [program, "top", "--pid", str(os.getpid()), "--once", "--interval", "0.2"],
            preexec_fn=nobody, capture_output=True, text=True, timeout=60, check=False,
            env=self.environment)
        self.assert_run(result, 1, out=" is a process of user root, and this user may not read "
                        "its files (Permission denied): run heddle top as that user or as root")

    def test_what_only_has_the_name_is_not_opened(self):
        """The opening of a FIFO waits until another process writes it."""
        code = (
            "import os, subprocess, sys\n"
            "subprocess.run(['mount', '-t', 'tmpfs', 'none', sys.argv[1]], check=True)\n"
            "path = sys.argv[1] + '/memfd:heddle-live (deleted)'\n"
            "os.mkfifo(path)\n"
            "fifo = os.open(path, os.O_RDONLY | os.O_NONBLOCK)\n"
            "subprocess.run(['umount', '-l', sys.argv[1]], check=True)\n"
            "print('ready', flush=True)\n"
            "sys.stdin.read()\n")
        process = subprocess.Popen(
            ["unshare", "-rm", sys.executable, "-c", code, self.scratch], text=True,
            env={**self.environment, "LD_PRELOAD": ""},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait, 60)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stdin.close)
        if process.stdout.readline() != "ready\n":
            self.skipTest("no name spaces for users here")
        folder = f"/proc/{process.pid}/fd"
        self.assertIn("/memfd:heddle-live (deleted)",
                      [os.readlink(os.path.join(folder, name)) for name in os.listdir(folder)])
        self.assert_run(self.once(process.pid), 0, out=f"process {process.pid}: ")

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
