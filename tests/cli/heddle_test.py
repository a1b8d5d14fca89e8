# SPDX-License-Identifier: BSD-2-Clause
"""The command `heddle` on the software HCA: info, plan and bench."""

import csv
import json
import os

from harness import BUILD_DIR, SOURCE_DIR, Case, main, preload

HEDDLE = os.path.join(BUILD_DIR, "bin", "heddle")
CATEGORIES = ["mpi-everywhere", "2xdynamic", "dynamic", "shared-dynamic", "static", "mpi+threads"]


class Heddle(Case):
    def heddle(self, *arguments, uar="dynamic", status=0):
        result = self.softhca("run", "--uar", uar, "--", HEDDLE, *arguments)
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        return result

    def test_info_shows_every_port(self):
        arguments = ("run", "--devices", "2", "--ports", "2", "--", HEDDLE, "info")
        text = self.softhca(*arguments).stdout
        self.assertRegex(text, r"(?m)^  port 2 +InfiniBand, active, LID 4, GID fe80::[0-9a-f:]+, packets of 4096")
        devices = json.loads(self.softhca(*arguments, "--json").stdout)["devices"]
        names = [port["name"] for device in devices for port in device["ports"]]
        self.assertEqual(names, ["mlx5_0", "mlx5_0:2", "mlx5_1", "mlx5_1:2"])
        arguments = ("run", "--port", "roce", "--", HEDDLE, "info", "--json")
        (device,) = json.loads(self.softhca(*arguments).stdout)["devices"]
        self.assertEqual([port["gid_type"] for port in device["ports"]], ["RoCE v2"])

    def test_info(self):
        text = self.heddle("info").stdout
        self.assertIn("mlx5_0  (software HCA)", text)
        device = json.loads(self.heddle("info", "--json").stdout)["devices"][0]
        self.assertEqual(device["paths"], ["verbs", "direct"])
        self.assertGreater(device["max_qps"], 10000)
        self.assertEqual([c["category"] for c in device["categories"]], CATEGORIES)
        self.assertTrue(all(c["as_in_paper"] for c in device["categories"]))
        self.assertIn("stays registered", text)
        self.assertTrue(device["keeps_memory_registered"])

    def test_info_without_userfaultfd(self):
        """`info` says why memory does not stay registered."""
        self.environment["SOFTHCA_DEVICE"] = "no-userfaultfd"
        self.assertIn("is registered anew: userfaultfd is refused", self.heddle("info").stdout)
        device = json.loads(self.heddle("info", "--json").stdout)["devices"][0]
        self.assertFalse(device["keeps_memory_registered"])

    def test_device_without_thread_domains(self):
        """`info` says what the endpoints are made as, and so they are made."""
        self.environment["LD_PRELOAD"] = preload("libwithout_thread_domains.so")
        others = ["2xdynamic", "dynamic", "shared-dynamic"]
        said = "made as static, since the driver has no thread domains"
        self.assertIn(f"{', '.join(others)}: {said}", self.heddle("info").stdout)
        device = json.loads(self.heddle("info", "--json").stdout)["devices"][0]
        self.assertFalse(device["thread_domains"])
        self.assertEqual(
            [c["category"] for c in device["categories"] if not c["as_in_paper"]], others
        )
        text = self.heddle("plan", "--threads", "2").stdout
        self.assertIn(said, text)
        rows = json.loads(self.heddle("plan", "--threads", "2", "--json").stdout)["categories"]
        made = {row["category"]: row for row in rows}
        for category, row in made.items():
            self.assertEqual(row["made_as"], "static" if category in others else category)
            self.assertEqual(row["qps"], 1 if category == "mpi+threads" else 2)
            self.assertEqual(row["thread_domains"], 0)
        arguments = ("bench", "message-rate", "--seconds", "0.01", "--repetitions", "1")
        self.assertIn("no thread domains", self.heddle(*arguments).stdout)
        result = self.heddle(*arguments, "--figure", "3", "--threads", "1", status=1)
        self.assertIn("the device's driver has no thread domains", result.stderr)

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
            self.assertEqual([row["uars_by_icpads18"] for row in rows], expected)
            self.assertEqual([row["uuars"] for row in rows], [2 * pages for pages in expected])
            self.assertTrue(all(row["bytes"] > 0 for row in rows))

    def test_plan_names_who_shares_registers(self):
        arguments = ("plan", "--threads", "16")
        rows = json.loads(self.heddle(*arguments, "--json", uar="static").stdout)["categories"]
        uuars = {row["category"]: row["uuar_threads"] for row in rows}
        pages = {row["category"]: row["uar_threads"] for row in rows}
        alone = [[thread] for thread in range(16)]
        pairs = [[thread, thread + 1] for thread in range(0, 16, 2)]
        for category in ("mpi-everywhere", "2xdynamic", "dynamic"):
            self.assertEqual((uuars[category], pages[category]), (alone, alone), category)
        self.assertEqual((uuars["shared-dynamic"], pages["shared-dynamic"]), (alone, pairs))
        # the paper's appendix B: the 5th and the 16th QP are on one uUAR
        self.assertEqual(uuars["static"], [*alone[:4], [4, 15], *alone[5:15]])
        self.assertEqual(uuars["mpi+threads"], [list(range(16))])
        text = self.heddle(*arguments, uar="static").stdout
        self.assertIn("uUARs by threads {4, 15}\n", text)
        self.assertIn("UAR pages by threads {0-1} {2-3} {4-5}", text)
        self.assertIn("uUARs by threads {0-15}\n", text)

    def test_plan_knows_the_budget(self):
        arguments = ("plan", "--threads", "4", "--processes", "2", "--budget-uars", "24", "--json")
        rows = json.loads(self.heddle(*arguments, uar="static").stdout)["categories"]
        fits = {row["category"]: row["fits_budget"] for row in rows}
        self.assertFalse(fits["mpi-everywhere"])
        self.assertTrue(fits["dynamic"])

    def test_plan_with_rates(self):
        arguments = ("plan", "--threads", "16", "--rates")
        text = self.heddle(*arguments, uar="static").stdout
        self.assertIn("Predicted, not measured: ConnectX-4", text)
        self.assertRegex(text, r"Recommended: dynamic, 9\d % \(\d+ to \d+\) of mpi-everywhere "
                               r"for 19 % of its UARs\.")
        for at_least, wanted in (("95", "2xdynamic"), ("90", "dynamic"), ("60", "shared-dynamic"), ("50", "static")):
            plan = json.loads(self.heddle(*arguments, "--at-least", at_least, "--json",
                                          uar="static").stdout)["rates"]
            self.assertEqual(plan["recommended"], wanted, plan)
        self.assertEqual([row["category"] for row in plan["categories"]], CATEGORIES)
        slow = plan["categories"][-1]
        self.assertLess(slow["of_mpi_everywhere"], 0.05)
        self.assertEqual(slow["limited_by"], "the QP's lock")

    def test_plan_with_rates_that_cannot_be(self):
        result = self.heddle("plan", "--threads", "16", "--processes", "100", "--rates", status=2)
        self.assertIn("1600 threads; the model is for at most 1024", result.stderr)
        result = self.heddle("plan", "--threads", "2", "--at-least", "50", status=2)
        self.assertIn("--rates", result.stderr)
        result = self.heddle("plan", "--threads", "2", "--rates", "--machine", "/no.toml", status=1)
        self.assertIn("heddle plan: cannot read '/no.toml'", result.stderr)
        # Where a budget forbids, nothing is recommended.
        arguments = ("plan", "--threads", "16", "--rates", "--budget-uars", "4")
        self.assertIn("No category that fits keeps 90 %", self.heddle(*arguments).stdout)

    def test_plan_of_both_kernels(self):
        arguments = ("plan", "--threads", "4", "--kernels", "both")
        for uar, other in (("static", "dynamic"), ("dynamic", "static")):
            plan = json.loads(self.heddle(*arguments, "--json", uar=uar).stdout)
            tables = {plan["uar_kernel"]: plan, other: plan["other_kernel"]}
            self.assertEqual(plan["other_kernel"]["uar_kernel"], other)
            uars = {k: [row["uars"] for row in t["categories"]] for k, t in tables.items()}
            self.assertEqual(uars["static"], [32, 16, 12, 10, 8, 8])
            self.assertEqual(uars["dynamic"][:4], [4, 8, 4, 2])
        text = self.heddle(*arguments).stdout
        self.assertIn("dynamic UAR kernel", text)
        self.assertIn("static UAR kernel", text)

    def test_plan_without_kernels_measures_the_one_there_is(self):
        plan = json.loads(self.heddle("plan", "--threads", "2", "--measure", "--json").stdout)
        self.assertNotIn("other_kernel", plan)
        result = self.heddle("plan", "--threads", "2", "--kernels", "old", status=2)
        self.assertIn("old not in {this,both}", result.stdout + result.stderr)

    def test_plan_knows_the_limits_of_the_device(self):
        arguments = ("plan", "--threads", "16", "--processes", "8000")
        rows = json.loads(self.heddle(*arguments, "--json").stdout)["categories"]
        fits = {row["category"]: row["fits_device"] for row in rows}
        self.assertFalse(fits["dynamic"])
        self.assertTrue(fits["mpi+threads"])
        self.assertIn("dynamic: more than the device has of QPs (128000 of ", self.heddle(*arguments).stdout)

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
        # of a message; what the driver took is another number
        self.assertTrue(all(row["bytes"] == 2 and row["driver_bytes"] > 4096 for row in rows))

    def test_what_is_shared_can_be_said(self):
        line = self.heddle(
            *("bench", "message-rate", "--threads", "4", "--category", "static"),
            *("--share", "cq=2", "--share", "qp=2"),
            *("--repetitions", "1", "--seconds", "0.01", "--json"),
        ).stdout
        row = json.loads(line)
        self.assertEqual((row["qps"], row["cqs"]), (2, 2))

    def figure(self, name, *arguments):
        lines = self.heddle(
            *("bench", "message-rate", "--figure", name, "--json"),
            *("--repetitions", "2", "--seconds", "0.002", *arguments),
            uar="static",
        ).stdout.splitlines()
        return [json.loads(line) for line in lines]

    def test_figures_have_the_papers_curves(self):
        with open(os.path.join(SOURCE_DIR, "src/experiments/reference/icpads18.csv"), encoding="utf-8") as f:
            paper = list(csv.DictReader(f))
        for figure in ("2b", "3", "5", "7", "8a", "8b", "9", "10", "11"):
            wanted = {row["series"] for row in paper if row["figure"] == {"8a": "8", "8b": "8"}.get(figure, figure)}
            rows = self.figure(figure, "--threads", "2")
            self.assertEqual({row["series"] for row in rows}, wanted, figure)
            self.assertEqual({row["x"] for row in rows}, {1, 2})
            for row in rows:
                self.assertTrue(row["software_hca"])
                self.assertEqual(len(row["samples"]), 2)
                self.assertEqual(row["uar_kernel"], "static")
                self.assertTrue(row["host"]["libmlx5"].startswith("libmlx5"))

    def test_the_papers_value_stands_beside_what_it_is_of(self):
        rows = {(row["series"], row["x"]): row for row in self.figure("3", "--threads", "2")}
        self.assertEqual(rows["All", 2]["paper_mmsgs_per_s"], 30.79)
        # x-way sharing among 2 threads is not what the paper measured
        self.assertTrue(all(r["paper_mmsgs_per_s"] is None for r in self.figure("8a", "--threads", "2")))

    def test_features_of_a_figure(self):
        rows = {(r["series"], r["path"]): r for r in self.figure("3", "--threads", "1", "--path", "both")}
        self.assertEqual(len(rows), 10)
        for path in ("verbs", "direct"):
            self.assertEqual(rows["All", path]["post_list"], 32)
            self.assertEqual(rows["w/o Postlist", path]["post_list"], 1)
            self.assertFalse(rows["w/o BlueFlame", path]["blueflame"])
            self.assertFalse(rows["w/o Inlining", path]["inlining"])
            self.assertEqual(rows["w/o Unsignaled", path]["signal_every"], 1)

    def test_protection_domains_and_regions_are_shared_apart(self):
        for figure, pds, mrs in (("8a", (4, 2, 1), (4, 4, 4)), ("8b", (1, 1, 1), (4, 2, 1))):
            rows = [row for row in self.figure(figure, "--threads", "4", "--path", "verbs") if row["series"] == "All"]
            self.assertEqual([row["x"] for row in rows], [1, 2, 4])
            self.assertEqual(tuple(row["pds"] for row in rows), pds, figure)
            self.assertEqual(tuple(row["mrs"] for row in rows), mrs, figure)
            self.assertEqual({row["contexts"] for row in rows}, {1})

    def test_reads_of_the_device_do_not_depend_on_alignment(self):
        rows = self.figure("6", "--threads", "2", "--path", "both")
        self.assertEqual({row["series"] for row in rows}, {"aligned", "not aligned"})
        for row in rows:
            # lists of 32: each entry is read, and each payload
            self.assertEqual((row["wqe_reads_per_message"], row["payload_reads_per_message"]), (1, 1))
        self.assertNotIn("wqe_reads_per_message", self.figure("2b", "--threads", "1")[0])

    def test_figure_as_a_table(self):
        result = self.heddle(
            *("bench", "message-rate", "--figure", "6", "--threads", "2"),
            *("--repetitions", "1", "--seconds", "0.002"),
        )
        self.assertIn("software HCA, Mmsg/s", result.stdout)
        self.assertIn("not aligned", result.stdout)
        self.assertIn("payload reads", result.stdout)
        self.assertEqual(result.stderr, "", "short: nothing is said of its progress")

    def test_more_threads_than_cores_is_said(self):
        threads = len(os.sched_getaffinity(0)) + 1
        arguments = ("bench", "message-rate", "--threads", str(threads), "--category", "dynamic")
        arguments += ("--repetitions", "1", "--seconds", "0.002")
        self.assertIn("more threads than cores", self.heddle(*arguments).stdout)
        self.assertTrue(json.loads(self.heddle(*arguments, "--json").stdout)["oversubscribed"])

    def test_threads_run_where_the_process_may(self):
        cpu = max(os.sched_getaffinity(0))
        arguments = ("bench", "message-rate", "--category", "dynamic", "--json")
        arguments += ("--repetitions", "1", "--seconds", "0.002")
        result = self.softhca("run", "--", "taskset", "-c", str(cpu), HEDDLE, *arguments)
        self.assertEqual(json.loads(result.stdout)["processors"], [cpu])

    def test_bad_figures_are_refused(self):
        bench = ("bench", "message-rate")
        for arguments, reason in (
            (("--figure", "4"), "4 not in {2b,3,5"),
            (("--figure", "3", "--depth", "4"), "excludes --depth"),
            (("--figure", "3", "--category", "dynamic"), "excludes --category"),
            (("--figure", "3", "--threads", "0"), "--threads"),
            (("--figure", "3", "--repetitions", "0"), "--repetitions"),
            (("--threads", "2", "--category", "dynamic", "--share", "qp=2", "--share", "cq=2"),
             "in thread domains"),
        ):
            status = 1 if "--share" in arguments else 2
            result = self.heddle(*bench, *arguments, status=status)
            self.assertIn(reason, result.stdout + result.stderr)

    def test_what_is_not_there_is_refused(self):
        result = self.heddle("bench", "message-rate", "--category", "fast", status=2)
        self.assertIn("there is no such category", result.stdout + result.stderr)
        result = self.heddle("plan", "--threads", "2", "--device", "mlx5_9", status=1)
        self.assertIn("the devices are: mlx5_0", result.stderr)


if __name__ == "__main__":
    main()
