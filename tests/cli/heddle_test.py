# SPDX-License-Identifier: BSD-2-Clause
"""The command `heddle` on the software HCA: info, plan and bench."""

import json
import os

from harness import BUILD_DIR, Case, main

HEDDLE = os.path.join(BUILD_DIR, "bin", "heddle")
CATEGORIES = ["mpi-everywhere", "2xdynamic", "dynamic", "shared-dynamic", "static", "mpi+threads"]


class Heddle(Case):
    def heddle(self, *arguments, uar="dynamic", status=0):
        result = self.softhca("run", "--uar", uar, "--", HEDDLE, *arguments)
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        return result

    def test_info(self):
        text = self.heddle("info").stdout
        self.assertIn("mlx5_0  (software HCA)", text)
        device = json.loads(self.heddle("info", "--json").stdout)["devices"][0]
        self.assertEqual(device["paths"], ["verbs", "direct"])
        self.assertGreater(device["max_qps"], 10000)
        self.assertEqual([c["category"] for c in device["categories"]], CATEGORIES)
        self.assertTrue(all(c["as_in_paper"] for c in device["categories"]))

    def test_info_knows_the_place(self):
        allowed = sorted(os.sched_getaffinity(0))
        result = self.softhca("run", "--", "taskset", "-c", str(allowed[-1]), HEDDLE, "info")
        self.assertIn("1 cores we may use", result.stdout)
        device = json.loads(self.heddle("info", "--json").stdout)["devices"][0]
        self.assertLessEqual(set(device["near_processors"]), set(allowed))
        self.assertLessEqual(device["near_cores"], device["allowed_cores"])

    def test_plan_has_the_papers_uars(self):
        for n in (1, 3, 16):
            arguments = ("plan", "--threads", str(n), "--measure", "--json")
            plan = json.loads(self.heddle(*arguments, uar="static").stdout)
            rows = plan["categories"]
            self.assertEqual([row["category"] for row in rows], CATEGORIES)
            expected = [8 * n, 8 + 2 * n, 8 + n, 8 + (n + 1) // 2, 8, 8]
            self.assertEqual([row["uars"] for row in rows], expected)
            self.assertEqual([row["uuars"] for row in rows], [2 * pages for pages in expected])
            self.assertTrue(all(row["bytes"] > 0 for row in rows))

    def test_plan_knows_the_budget(self):
        arguments = ("plan", "--threads", "4", "--processes", "2", "--budget-uars", "24", "--json")
        rows = json.loads(self.heddle(*arguments, uar="static").stdout)["categories"]
        fits = {row["category"]: row["fits_budget"] for row in rows}
        self.assertFalse(fits["mpi-everywhere"])
        self.assertTrue(fits["dynamic"])

    def test_plan_says_what_is_short(self):
        result = self.heddle("plan", "--threads", "600", "--depth", "1", uar="static", status=1)
        self.assertIn("2xdynamic: thread domain", result.stdout)
        self.assertIn("mpi+threads", result.stdout)

    def test_message_rate(self):
        lines = self.heddle(
            *("bench", "message-rate", "--threads", "2", "--path", "both"),
            *("--repetitions", "1", "--seconds", "0.01", "--json"),
        ).stdout.splitlines()
        rows = [json.loads(line) for line in lines]
        self.assertEqual(len(rows), 2 * len(CATEGORIES))
        self.assertTrue(all(row["software_hca"] and row["mmsgs_per_s"] > 0 for row in rows))

    def test_what_is_shared_can_be_said(self):
        line = self.heddle(
            *("bench", "message-rate", "--threads", "4", "--category", "static"),
            *("--share", "cq=2", "--share", "qp=2"),
            *("--repetitions", "1", "--seconds", "0.01", "--json"),
        ).stdout
        row = json.loads(line)
        self.assertEqual((row["qps"], row["cqs"]), (2, 2))

    def test_what_is_not_there_is_refused(self):
        result = self.heddle("bench", "message-rate", "--category", "fast", status=2)
        self.assertIn("there is no such category", result.stdout + result.stderr)
        result = self.heddle("plan", "--threads", "2", "--device", "mlx5_9", status=1)
        self.assertIn("there are: mlx5_0", result.stderr)


if __name__ == "__main__":
    main()
