# SPDX-License-Identifier: BSD-2-Clause
"""The log says, once for each thing, what a program asks for that the device does not have."""

import os
import shutil
import unittest

from fabric_case import FabricCase
from harness import TEST_DIR, main

ASKS = os.path.join(TEST_DIR, "asks_for_more")


class Missing(FabricCase):
    def lines(self, *command, **environment):
        result = self.softhca("run", "--", *command, env=environment)
        self.assertEqual(result.returncode, 0, result.stderr)
        return [line for line in result.stderr.splitlines() if line.startswith("softhca[")]

    def test_each_thing_is_named_once(self):
        raw, = self.lines(ASKS)
        self.assertIn("warn: the program asks for raw packet queue pairs, which this device", raw)

    def test_what_libraries_try_is_less_important(self):
        _, buffers = self.lines(ASKS, SOFTHCA_LOG="info")
        self.assertIn("info: the program asks for memory regions on dma-bufs", buffers)

    def test_nothing_is_written_at_error(self):
        self.assertEqual(self.lines(ASKS, SOFTHCA_LOG="error"), [])

    def test_programs_that_get_what_they_ask_for_hear_nothing(self):
        if not shutil.which("ibv_devinfo"):
            self.skipTest("ibv_devinfo (package ibverbs-utils) is not installed")
        self.assertEqual(self.lines("ibv_devinfo", "-v"), [])


if __name__ == "__main__":
    main()
