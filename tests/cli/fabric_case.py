# SPDX-License-Identifier: BSD-2-Clause
"""A test case with a fabric that nobody else uses, and processes that hold objects in it."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile

from harness import SOFTHCA, TEST_DIR, Case


class Holder:
    """A running cli_holder (holder.c)."""

    def __init__(self, case, fabric=None):
        environment = dict(case.environment)
        if fabric:
            environment["SOFTHCA_FABRIC"] = fabric
        self.process = subprocess.Popen(
            [SOFTHCA, "run", os.path.join(TEST_DIR, "cli_holder")],
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        case.addCleanup(self.end)
        words = self.process.stdout.readline().split()
        case.assertEqual(words[:1], ["ready"])
        self.qps = [int(word) for word in words[1:]]

    @property
    def pid(self):
        return self.process.pid

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    @contextlib.contextmanager
    def stopped(self):
        """While it is stopped it reclaims nothing."""
        self.process.send_signal(signal.SIGSTOP)
        # The signal is sent; this returns when all of its threads have stopped.
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        """Lets it end by itself; its exit status."""
        if self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()
        self.process.stdin.close()
        self.process.stdout.close()
        return self.process.returncode


class FabricCase(Case):

    def forget(self, prefixes):
        """Programs do not see the variables that begin so."""
        for name in list(self.environment):
            if name.startswith(prefixes):
                del self.environment[name]
    def setUp(self):
        super().setUp()
        # In a directory of its own: each `softhca run` removes the fabrics of killed processes,
        # which other tests start meanwhile.
        base = tempfile.mkdtemp(prefix="softhca-test-", dir="/dev/shm")
        self.addCleanup(shutil.rmtree, base)
        self.environment["SOFTHCA_DIRECTORY"] = base
        self.folder = os.path.join(base, f"softhca-{os.getuid()}")
        # After all holders have ended (cleanups run backwards), nothing may be left.
        self.addCleanup(self.check_nothing_left)

    def check_nothing_left(self):
        self.softhca("clean")
        self.assertEqual(self.files(), [])

    def files(self, fabric=None):
        """What there is of a fabric, of this test's without an argument."""
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return []
        return sorted(name for name in names if name.rsplit(".", 1)[0] == (fabric or self.fabric))

    def stat(self):
        return json.loads(self.assert_run(self.softhca("stat", "--json"), 0).stdout)
