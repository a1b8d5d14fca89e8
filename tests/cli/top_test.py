# SPDX-License-Identifier: BSD-2-Clause
"""`softhca top`: the rates it shows, keys, signals, and a fabric that ends meanwhile."""

import fcntl
import json
import os
import signal
import struct
import subprocess
import termios

from fabric_case import FabricCase, Holder
from harness import SOFTHCA, main
from terminal import Terminal

TOP = [SOFTHCA, "top", "--interval", "0.2"]


class Top(FabricCase, Terminal):
    def test_rates_add_up(self):
        holder = Holder(self)
        with subprocess.Popen(
            [SOFTHCA, "top", "--json", "--interval", "0.2"],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as top:
            lines = [json.loads(top.stdout.readline())]
            holder.tell("write 500")
            lines += [json.loads(top.stdout.readline()) for _ in range(3)]
            self.assertEqual(holder.end(), 0)
            _, errors = top.communicate(timeout=60)
        counted = sum(line["total"]["wqes"] * line["seconds"] for line in lines)
        self.assertAlmostEqual(counted, 500, delta=0.01)
        self.assertEqual(lines[0]["processes"][0]["pid"], holder.pid)
        self.assertIn("has ended", errors)
        self.assertEqual(top.returncode, 0)

    def test_once(self):
        Holder(self)
        for once in (["--once"], []):  # without a terminal it is the same
            result = self.softhca("top", "--interval", "0.1", *once)
            self.assert_run(result, 0, out="cli_holder")
            self.assertRegex(result.stdout, r"BYTES +RESENT\n.*cli_holder( +\S+){11}\n")

    def test_usage(self):
        for interval in ("0", "-1", "4000", "x"):
            self.assert_run(self.softhca("top", "--interval=" + interval), 2, err="--interval")
        self.assert_run(self.softhca("top"), 1, err="no fabric")

    def test_q_quits(self):
        Holder(self)
        text, status = self.screen(
            TOP, 80, [(b"cli_holder", lambda terminal, _: os.write(terminal, b"q"))]
        )
        self.assertEqual(status, 0)
        self.check_screen(text, 80)

    def test_interrupt_restores_the_terminal(self):
        Holder(self)
        text, status = self.screen(
            TOP, 80, [(b"cli_holder", lambda _, top: top.send_signal(signal.SIGINT))]
        )
        self.assertEqual(status, 0)
        self.check_screen(text, 80)

    def test_resize(self):
        Holder(self)

        def shrink(terminal, process):
            fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 10, 30, 0, 0))
            process.send_signal(signal.SIGWINCH)

        text, status = self.screen(
            TOP,
            80,
            [
                (b"cli_holder", shrink),
                (b"cli_holder", lambda *_: None),
                (b"cli_holder", lambda terminal, _: os.write(terminal, b"q")),
            ],
        )
        self.assertEqual(status, 0)
        last = text.split("\x1b[H")[-1]
        self.check_screen("\x1b[?1049h" + last, 30)

    def test_fabric_ends_meanwhile(self):
        holder = Holder(self)
        text, status = self.screen(
            TOP,
            80,
            [
                (b"cli_holder", lambda *_: self.assertEqual(holder.end(), 0)),
                (b"has ended", lambda *_: Holder(self)),
                (b"cli_holder", lambda terminal, _: os.write(terminal, b"q")),
            ],
        )
        self.assertEqual(status, 0)
        self.check_screen(text, 80)


if __name__ == "__main__":
    main()
