# SPDX-License-Identifier: BSD-2-Clause
"""Programs that draw on a terminal, with keys, signals and sizes as somebody at it gives them."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

PATIENCE = 30


class Terminal:
    """For a Case."""

    def screen(self, argv, columns, actions, lines=24):
        """What it wrote to a terminal while it was given `actions`, and its exit status. An action: what
        has to be seen first, and what is done then, with the terminal and the process."""
        terminal, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        before = termios.tcgetattr(inner)
        with subprocess.Popen(
            argv,
            env=self.environment,
            stdin=inner,
            stdout=inner,
            stderr=inner,
            start_new_session=True,
        ) as process:
            text = b""
            try:
                for wait_for, action in actions:
                    end = time.monotonic() + PATIENCE
                    start = len(text)
                    while wait_for not in text[start:] and time.monotonic() < end:
                        if select.select([terminal], [], [], 0.1)[0]:
                            text += os.read(terminal, 65536)
                    self.assertIn(wait_for, text[start:])
                    action(terminal, process)
                end = time.monotonic() + PATIENCE
                while time.monotonic() < end and b"\x1b[?1049l" not in text:
                    if select.select([terminal], [], [], 0.1)[0]:
                        text += os.read(terminal, 65536)
                status = process.wait(PATIENCE)
            except BaseException:
                process.kill()
                raise
        self.assertEqual(termios.tcgetattr(inner), before, "the terminal is as it was")
        os.close(terminal)
        os.close(inner)
        return text.decode(), status

    def check_screen(self, text, columns):
        self.assertTrue(text.startswith("\x1b[?1049h"))
        self.assertTrue(text.endswith("\x1b[?1049l"))
        for picture in text.split("\x1b[H"):
            for line in re.sub(r"\x1b\[\??[0-9]*[A-Za-z]", "", picture).splitlines():
                self.assertLessEqual(len(line), columns)
