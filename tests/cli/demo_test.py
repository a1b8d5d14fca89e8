# SPDX-License-Identifier: BSD-2-Clause
"""scripts/demo marks its commands on a terminal, and writes plain text elsewhere. Programs that print a
line stand for softhca and heddle, so it ends at once."""

import os
import pty
import subprocess

from harness import SOURCE_DIR, Case, main

ESCAPE = "\x1b"


class Demo(Case):
    def setUp(self):
        super().setUp()
        for name in ("softhca", "heddle"):
            self.write(f"build/bin/{name}", "#!/bin/sh\necho '#bytes'\n", 0o755)
        self.words = [os.path.join(SOURCE_DIR, "scripts", "demo"), self.path("build")]
        self.environment.pop("NO_COLOR", None)

    def on_terminal(self, **environment):
        terminal, inner = pty.openpty()
        process = subprocess.Popen(self.words, env={**self.environment, **environment},
                                   stdin=subprocess.DEVNULL, stdout=inner, stderr=inner)
        os.close(inner)
        text = b""
        while True:
            try:
                part = os.read(terminal, 4096)
            except OSError:  # EIO: the last process with the terminal has ended
                break
            if not part:
                break
            text += part
        os.close(terminal)
        self.assertEqual(process.wait(60), 0, text)
        return text.decode()

    def test_a_terminal(self):
        self.assertIn(f"{ESCAPE}[1m$ softhca run ibv_devinfo{ESCAPE}[0m", self.on_terminal())

    def test_a_terminal_without_colours(self):
        text = self.on_terminal(NO_COLOR="1")
        self.assertIn("$ softhca run ibv_devinfo", text)
        self.assertNotIn(ESCAPE, text)

    def test_a_file(self):
        done = subprocess.run(self.words, env=self.environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=True, timeout=60)
        self.assertIn("\n$ softhca run ibv_devinfo\n", done.stdout)
        self.assertNotIn(ESCAPE, done.stdout + done.stderr)


if __name__ == "__main__":
    main()
