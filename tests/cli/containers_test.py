# SPDX-License-Identifier: BSD-2-Clause
"""softhca under the limits that container engines set (confined.c): it works, or says what to
allow."""

import os
import shutil
import subprocess
import unittest

from fabric_case import FabricCase
from harness import SOFTHCA, TEST_DIR, main

CONFINED = os.path.join(TEST_DIR, "cli_confined")
CANNOT = 77  # confined could not make namespaces
USUAL = ("--shm", "64", "--read-only-sys")
KERNEL_COPIES = ("--deny", "process_vm_readv", "--deny", "process_vm_writev", "--deny", "ptrace")

# Both sides of a pingpong. The client tries until the server listens.
PINGPONG = """
ibv_rc_pingpong -p "$0" -n 100 -s 65536 >server.txt & server=$!
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    ibv_rc_pingpong -p "$0" -n 100 -s 65536 localhost >client.txt 2>client.err && break
    sleep 0.2
done
wait $server && grep -q '100 iters' client.txt
"""
PORTS = iter(range(24761, 24800))


class Containers(FabricCase):
    def confined(self, limits, *command):
        # The fabric is in the /dev/shm that the program sees.
        environment = {name: value for name, value in self.environment.items()
                       if name != "SOFTHCA_DIRECTORY"}
        result = subprocess.run([CONFINED, *limits, "--", SOFTHCA, "run", *command],
                                env=environment, capture_output=True, text=True, timeout=120,
                                cwd=self.path(), check=False)
        if result.returncode == CANNOT:
            self.skipTest(f"this machine does not allow it: {result.stderr.strip()}")
        return result

    def pingpong(self, limits, *options):
        if not shutil.which("ibv_rc_pingpong"):
            self.skipTest("ibv_rc_pingpong (package ibverbs-utils) is not installed")
        result = self.confined(limits, *options, "--", "sh", "-c", PINGPONG, str(next(PORTS)))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr, "")

    def test_small_shared_memory_and_a_read_only_sys(self):
        self.pingpong(USUAL)

    def test_without_userfaultfd(self):
        self.pingpong((*USUAL, "--deny", "userfaultfd"))

    def test_without_copies_by_the_kernel(self):
        self.pingpong((*USUAL, "--deny", "userfaultfd", *KERNEL_COPIES))

    def test_memory_that_only_the_kernel_reaches(self):
        self.pingpong((*USUAL, *KERNEL_COPIES), "--memory", "cma")

    def test_shared_memory_that_is_refused_is_named(self):
        result = self.confined(("--deny", "memfd_create"), "--", "ibv_devinfo")
        self.assertIn("memfd_create: Operation not permitted", result.stderr)
        self.assertIn("seccomp", result.stderr)
        self.assertEqual(len(result.stderr.strip().splitlines()), 2, result.stderr)


if __name__ == "__main__":
    main()
