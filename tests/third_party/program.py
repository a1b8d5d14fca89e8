# SPDX-License-Identifier: BSD-2-Clause
"""A program that a script has started: the leader of a session of its own, with its output in an
unnamed file. Only that session's group is ever signalled.
"""

import ctypes
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path

libc = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1


def end_with_parent():
    """In the child: a program outlives neither this script nor a runner that kills it."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Program:
    """A started program: its own session, output to an unnamed file, waited for with a deadline."""

    def __init__(
        self, argv, *, environment, directory=None, title=None, stdin=subprocess.DEVNULL, pass_fds=()
    ):
        self.argv = [str(part) for part in argv]
        self.title = title or Path(self.argv[0]).name
        self._output = tempfile.TemporaryFile()
        self._started = time.monotonic()
        self.timed_out = False
        self.process = subprocess.Popen(
            self.argv,
            stdin=stdin,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=directory,
            start_new_session=True,
            pass_fds=pass_fds,
            preexec_fn=end_with_parent,
        )

    @property
    def pid(self):
        return self.process.pid

    def _exited(self):
        # WNOWAIT leaves the leader a zombie, which keeps its group's number from being reused.
        if self.process.returncode is not None:
            return True
        found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return found is not None

    def running(self):
        return not self._exited()

    def wait(self, seconds):
        """Waits for the program's end, at most `seconds`; whether it ended."""
        deadline = time.monotonic() + seconds
        pause = 0.001
        while not self._exited():
            if time.monotonic() > deadline:
                return False
            time.sleep(pause)
            pause = min(pause * 1.5, 0.02)
        self.reap()
        return True

    def reap(self):
        """Ends what is left of the group, then collects the leader."""
        if self.process.returncode is None:
            self.signal_group(signal.SIGKILL)
            self.process.wait()

    def signal_group(self, number):
        if self.process.returncode is None:
            try:
                os.killpg(self.pid, number)
            except ProcessLookupError:
                pass

    def signal_leader(self, number):
        if self.process.returncode is None:
            os.kill(self.pid, number)

    @property
    def code(self):
        return self.process.returncode

    def output(self):
        # pread: the program shares this file description, so its position must stay where it is.
        text = b""
        while chunk := os.pread(self._output.fileno(), 1 << 20, len(text)):
            text += chunk
        return text.decode(errors="replace")

    def state(self):
        if self.timed_out:
            return "did not end, killed by the harness"
        if self.code is None:
            return "running"
        if self.code < 0:
            return f"ended by {signal.Signals(-self.code).name}"
        return f"exit code {self.code}"

    def describe(self, lines=60):
        text = self.output().rstrip().splitlines()
        shown = text[-lines:]
        if len(text) > lines:
            shown.insert(0, f"... {len(text) - lines} lines before")
        body = "\n".join("    | " + line for line in shown) or "    | (no output)"
        return f"  {self.title}: {self.state()}\n    $ {' '.join(self.argv)}\n{body}"


def describe(programs):
    return "\n".join(program.describe() for program in programs)
