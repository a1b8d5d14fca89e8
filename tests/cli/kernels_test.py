# SPDX-License-Identifier: BSD-2-Clause
"""The kernels of ICPADS'18 as `heddle bench` runs them: output, exit status, mpiexec, lost peers."""

import json
import os
import shutil
import signal
import subprocess
import time
import unittest

from harness import BUILD_DIR, SANITIZER, SOFTHCA, Case, main

HEDDLE = os.path.join(BUILD_DIR, "bin", "heddle")
CATEGORIES = ["mpi-everywhere", "2xdynamic", "dynamic", "shared-dynamic", "static", "mpi+threads"]
SMALL_ARRAY = ("--matrix", "24", "--repetitions", "1")
SMALL_GRID = ("--grid", "24x16", "--iterations", "10", "--repetitions", "1")


class Kernels(Case):
    def bench(self, *arguments, uar="dynamic", status=0, **options):
        result = self.softhca("run", "--uar", uar, "--", HEDDLE, "bench", *arguments, **options)
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        return result

    def rows(self, *arguments, **options):
        output = self.bench(*arguments, "--path", "both", "--json", **options).stdout
        rows = [json.loads(line) for line in output.splitlines()]
        self.assertEqual([row["category"] for row in rows[::2]], CATEGORIES)
        self.assertEqual({row["path"] for row in rows}, {"verbs", "direct"})
        self.assertEqual({row["result"] for row in rows}, {"correct"})
        return rows

    def test_global_array(self):
        for threads in ("1", "2"):
            for row in self.rows("global-array", *SMALL_ARRAY, "--threads", threads):
                self.assertEqual(len(row["processors"]), int(threads))
                self.assertGreater(row["read_mmsgs_per_s"], 0)
                self.assertGreater(row["write_mmsgs_per_s"], 0)
                self.assertEqual(row["posting"], "conservative")
                self.assertEqual((row["reads"], row["writes"]), (36 * 6 * 8, 36 * 6 * 4))
                self.assertEqual(row["mrs"], 3 * int(threads))

    def test_global_array_in_both_ways(self):
        text = self.bench("global-array", *SMALL_ARRAY, "--category", "dynamic", "--posting", "both", "--json").stdout
        rows = [json.loads(line) for line in text.splitlines()]
        self.assertEqual([row["posting"] for row in rows], ["conservative", "batched"])
        self.assertEqual([row["writes"] for row in rows], [36 * 6 * 4, 36 * 4])

    def test_stencil(self):
        for processes, threads in ((1, 2), (2, 1), (2, 2), (3, 1)):
            arguments = ("--processes", str(processes), "--threads", str(threads))
            for row in self.rows("stencil", *SMALL_GRID, *arguments):
                self.assertEqual(len(row["processors"]), processes * threads)
                self.assertLessEqual(set(row["processors"]), os.sched_getaffinity(0))
                self.assertEqual(row["messages"], processes * 24 * 2 * 10)

    def test_they_take_what_the_papers_do(self):
        for arguments in (("stencil", *SMALL_GRID, "--processes", "2"), ("global-array", *SMALL_ARRAY)):
            for row in self.rows(*arguments, "--threads", "4", uar="static"):
                self.assertEqual(row["uars"], row["paper_uars"], row["category"])
                self.assertEqual(row["uuars"], row["paper_uuars"], row["category"])

    def test_tables(self):
        text = self.bench("global-array", *SMALL_ARRAY, "--category", "static").stdout
        self.assertRegex(text, r"static +verbs .* correct")
        text = self.bench("stencil", *SMALL_GRID, "--processes", "2", "--category", "static").stdout
        self.assertRegex(text, r"static +verbs .* correct")

    def test_what_cannot_be_is_refused(self):
        result = self.bench("stencil", "--grid", "10", status=2)
        self.assertIn("ROWSxCOLUMNS", result.stdout + result.stderr)
        for grid in ("9x1", "1x9"):
            result = self.bench("stencil", "--grid", grid, "--processes", "2", "--threads", "2", status=1)
            self.assertIn("each needs one", result.stderr)
        result = self.bench("global-array", "--category", "fast", status=2)
        self.assertIn("there is no such category", result.stdout + result.stderr)
        result = self.bench("global-array", "--device", "mlx5_9", status=1)
        self.assertIn("the devices are: mlx5_0", result.stderr)

    def test_a_killed_process_is_missed(self):
        arguments = ("stencil", "--processes", "3", "--grid", "30x30", "--category", "dynamic")
        command = [SOFTHCA, "run", "--", HEDDLE, "bench", *arguments, "--repetitions", "10000"]
        with subprocess.Popen(
            command, env=self.environment, stderr=subprocess.PIPE, text=True
        ) as first:
            children = f"/proc/{first.pid}/task/{first.pid}/children"
            end = time.monotonic() + 30
            victims = []
            while len(victims) < 2 and time.monotonic() < end:
                time.sleep(0.05)
                with open(children, encoding="ascii") as file:
                    victims = file.read().split()
            self.assertEqual(len(victims), 2)
            time.sleep(0.5)
            os.kill(int(victims[1]), signal.SIGKILL)
            error = first.communicate(timeout=30)[1]
        self.assertEqual(first.returncode, 1, error)
        self.assertIn("process 2 is gone", error)

    def job(self, rank, size):
        return {"PMI_RANK": str(rank), "PMI_SIZE": str(size)}

    def test_a_process_that_does_not_come_is_missed(self):
        arguments = ("--exchange", self.path("here"), "--patience", "1")
        result = self.bench("stencil", *arguments, status=1, env=self.job(0, 2))
        self.assertIn("process 1 of 2 did not come to", result.stderr)
        result = self.bench("stencil", *arguments, status=1, env=self.job(1, 2))
        self.assertIn("process 0 of 2 did not come to", result.stderr)

    def test_a_job_of_the_wrong_size(self):
        result = self.bench("global-array", status=1, env=self.job(0, 3))
        self.assertIn("the job has 3 processes", result.stderr)

    @unittest.skipUnless(shutil.which("mpiexec"), "there is no mpiexec")
    @unittest.skipIf(SANITIZER, "mpiexec is not ours to run with a sanitizer's library")
    def test_mpiexec(self):
        environment = {**self.environment, "TMPDIR": self.scratch}
        # Should it be Open MPI's: as root, and with more processes than there are cores, only if told.
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        environment["OMPI_MCA_rmaps_base_oversubscribe"] = "1"
        environment["PRTE_MCA_rmaps_default_mapping_policy"] = ":oversubscribe"
        # what a job that died would have left
        stale = self.path("stale")
        self.write("stale/hello.1", "0123456789abcdef")
        self.write("stale/job", "fedcba9876543210 0123456789abcdef")
        for processes, arguments in (
            (2, ("global-array", *SMALL_ARRAY)),
            (2, ("global-array", *SMALL_ARRAY, "--exchange", stale)),
            (3, ("stencil", *SMALL_GRID, "--threads", "2")),
        ):
            command = ["mpiexec", "-n", str(processes), SOFTHCA, "run", "--", HEDDLE, "bench"]
            result = subprocess.run(
                [*command, *arguments, "--json"],
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=50,
                check=False,
            )
            self.assertEqual(result.returncode, 0, result.stderr)
            rows = [json.loads(line) for line in result.stdout.splitlines()]
            self.assertEqual([row["category"] for row in rows], CATEGORIES)
            self.assertEqual({row["result"] for row in rows}, {"correct"})
        left = [name for name in os.listdir(self.scratch) if name.startswith("heddle-")]
        self.assertEqual(left, [])


if __name__ == "__main__":
    main()
