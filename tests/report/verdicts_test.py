# SPDX-License-Identifier: BSD-2-Clause
"""What the experiments say of samples whose answer is known: also that a wrong result, or one that is behind,
is not called good."""

import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "report")]
import fake_counts  # noqa: E402
import fake_heddle  # noqa: E402
import fake_mpi  # noqa: E402
from heddle_report import catalogue, model, panels, runner, values  # noqa: E402
from heddle_report.model import Panel, Series  # noqa: E402
from heddle_report.reference import table  # noqa: E402

EXPERIMENTS = {each.key: each for each in catalogue.all_experiments()}


def verdict(key, rows):
    return EXPERIMENTS[key].verdict(list(rows))


def panel(title, *series, **options):
    return Panel(title, [1, 2, 3], "bytes", "gain, %", list(series),
                 **{"y_from_zero": False, **options})


def drawn(*of):
    return panels.with_common_scale(list(of))


class Panels(unittest.TestCase):
    def test_panels_of_a_figure_share_their_scale(self):
        one, other, rate = drawn(panel("one", Series("a", [0, 1, 2])),
                                 panel("other", Series("a", [40, 50, 60])),
                                 Panel("rate", [1], "threads", "M/s", [Series("a", [1000])]))
        self.assertEqual(one.limits, other.limits)
        self.assertLess(one.limits[0], 0)
        self.assertGreater(one.limits[1], 60)
        self.assertLess(one.limits[1], 100)
        self.assertEqual(rate.limits[0], 0, "another quantity, from zero on")
        self.assertGreater(rate.limits[1], 1000)
        log, of_log = drawn(panel("log", Series("a", [1, 2, 4]), y_scale="log"),
                            panel("more", Series("a", [100, 200, 400]), y_scale="log"))
        self.assertEqual(log.limits, of_log.limits)
        self.assertTrue(0 < log.limits[0] < 1 and log.limits[1] > 400)

    def test_error_bars_leave_the_values_room(self):
        wild = Series("a", [5, 10, 15], [-412, 9, 14], [6, 11, 300])
        calm = Series("b", [5, 10, 15], [4, 9, 14], [6, 11, 16])
        found, = drawn(panel("gain", wild, calm))
        low, high = found.limits
        self.assertTrue(-10 < low < 5 and 15 < high < 30, found.limits)
        self.assertEqual(panels.notes(found),
                         "Error bars cut off at the arrows: 2, reaching -412 and 300.")
        found, = drawn(panel("gain", Series("a", [5, 10, 15], [-412, -88, 14], [6, 11, 16])))
        self.assertEqual(panels.notes(found), "Error bars cut off at the arrows: 2, reaching -412.")
        found, = drawn(panel("gain", calm))
        self.assertEqual(panels.notes(found), "")
        self.assertTrue(found.limits[0] < 4 and found.limits[1] > 16)

    def test_what_has_no_value_is_not_drawn_and_said(self):
        found, = drawn(panel("uses", Series("here", [None] * 3), Series("paper", [1, 2, 3], paper=True)))
        self.assertEqual([series.name for series in found.drawn], ["paper"])
        self.assertEqual(panels.notes(found), "No value: here.")
        rows = list(fake_heddle.calibrate(None))
        self.assertEqual([each.title for each in panels.of_run(EXPERIMENTS["reuse-break-even"], rows)
                          if each.title.startswith("ring")], ["ring (the paper's fast path)"])
        for each in rows[0]["sizes"]:
            each["bytes"] = 77  # of which the paper has no value, either
        self.assertEqual([each.title for each in panels.of_run(EXPERIMENTS["reuse-break-even"], rows)
                          if each.title.startswith("ring")], [])

    def test_runs_are_drawn_over_each_other(self):
        before, after = (list(fake_heddle.message_rate(None)) for _ in range(2))
        after = [row for row in after if row["x"] != 4]  # fewer places, in the middle of the other's
        single = panels.of_run(EXPERIMENTS["endpoints-11"], before)
        both = panels.overlaid(EXPERIMENTS["endpoints-11"], [("before", before), ("after", after)])
        self.assertEqual([each.title for each in both], [each.title for each in single])
        for each in both:
            self.assertEqual(each.x, [1, 2, 4])
            names = [series.name for series in each.series]
            self.assertEqual(names, ["verbs, before", "verbs, after", "direct, before",
                                     "direct, after", "paper", "predicted for ConnectX-4"])
            self.assertEqual([series.run for series in each.series], [0, 1, 0, 1, 0, 0])
            self.assertEqual(each.series[0].hue, each.series[1].hue)
            self.assertEqual(each.series[1].values[2], None)
            self.assertNotEqual(each.series[0].values[2], None)

    def test_features_are_in_one_panel(self):
        rows = list(fake_heddle.message_rate(None))
        verbs, direct = panels.of_run(EXPERIMENTS["endpoints-3"], rows)
        self.assertEqual((verbs.title, direct.title), ("All features, verbs", "All features, direct"))
        self.assertEqual(verbs.limits, direct.limits)
        self.assertEqual([series.name for series in verbs.series],
                         ["All", "w/o Inlining", "paper: All", "predicted for ConnectX-4: All",
                          "paper: w/o Inlining", "predicted for ConnectX-4: w/o Inlining"])
        self.assertEqual([series.hue for series in verbs.series if series.paper],
                         ["All", "w/o Inlining"])


class Verdicts(unittest.TestCase):
    def test_keys_and_times(self):
        self.assertEqual(len(EXPERIMENTS), len(catalogue.all_experiments()))
        for each in EXPERIMENTS.values():
            self.assertIn(each.paper, catalogue.PAPERS)
            self.assertEqual(set(each.seconds), {"quick", "full"})
            self.assertGreater(len(each.differences), 40)
            self.assertNotEqual(each.commands("quick"), [])

    def test_a_wrong_result_is_said(self):
        rows = list(fake_heddle.kernel(None))
        self.assertNotIn("WRONG", verdict("endpoints-14", rows).text)
        rows[1]["result"] = "wrong"
        for key in ("endpoints-12", "endpoints-14"):
            self.assertEqual(verdict(key, rows).state, "unlike")
            self.assertIn("1 of 6 results are WRONG", verdict(key, rows).text)

    def test_counts(self):
        rows = [dict(fake_counts.MADE_UP[name]) for name in ("post_instructions", "post_counters")]
        said = verdict("direct-instructions", rows)
        self.assertEqual(said.state, "like")
        self.assertIn("60% fewer", said.text)
        self.assertIn("Not counted: cycles (this machine", said.text)
        points = {point.key: point.value for point in EXPERIMENTS["direct-instructions"].points(rows)}
        self.assertEqual(points["processor time, ns", "direct"], 105.0)
        rows[0]["direct"] = fake_counts.part(151.0)
        self.assertEqual(verdict("direct-instructions", rows).state, "partly")
        rows[0]["direct"] = fake_counts.part(300.0)
        self.assertEqual(verdict("direct-instructions", rows).state, "unlike")
        self.assertEqual(verdict("direct-instructions", rows[1:]).state, "cannot")

    def test_programs_by_path(self):
        def of(*seconds):
            return verdict("direct-lattice", [{"program": "lattice", "way": "verbs", "seconds": [2.0] * len(seconds)},
                                              {"program": "lattice", "way": "direct", "seconds": list(seconds)}]).state

        self.assertEqual(of(1.99, 2.0, 2.0, 2.01, 1.98, 2.02), "like")
        self.assertEqual(of(1.8, 1.9, 1.9, 1.8, 1.9, 1.9), "unlike", "a gain that the paper has not")
        self.assertEqual(of(2.1, 2.2, 2.3, 2.1, 2.2, 2.3), "unlike", "a loss is none better")
        self.assertEqual(of(1.8, 1.9, 2.3, 1.8, 1.9, 1.9), "cannot", "six of six are needed")

    def test_medians(self):
        # the table of the sign test: 6 of 6, 8 of 9 with 95 %, the 8th to 18th of 25, 40th to 61st of 100
        for count, first in ((5, 1), (6, 1), (9, 2), (25, 8), (100, 40)):
            self.assertEqual(values.middle_between(range(1, count + 1)), (first, count + 1 - first))
        self.assertEqual(values.middle_between([7]), (7, 7))

    def test_lookups(self):
        self.assertIn("31 instructions", verdict("reuse-lookup", [fake_counts.MADE_UP["reuse_lookup"]]).text)

    def test_what_programs_send(self):
        rows = list(fake_mpi.programs(None))
        said = verdict("reuse-programs", rows).text
        self.assertIn("68 to 68 % were used 16 times", said)  # 30 of 44
        self.assertIn("multigrid: not run: no hypre", said)
        self.assertEqual(EXPERIMENTS["reuse-programs"].points(rows)[0].value, 75)  # 9 of 12
        rows[1]["good"] = False
        self.assertEqual(verdict("reuse-programs", rows),
                         model.Verdict("unlike", "Failed or wrong: adi."))

    def test_a_registration_that_never_pays(self):
        rows = list(fake_heddle.calibrate(None))
        self.assertIn("ring never", verdict("reuse-break-even", rows).text)
        self.assertEqual(verdict("reuse-break-even", rows).state, "unlike")
        points = EXPERIMENTS["reuse-break-even"].points(rows)
        self.assertNotIn("ring (the paper's fast path)", {point.key[0] for point in points})
        self.assertEqual({point.paper for point in points if point.key == ("SEND", 512)}, {1568})

    def test_overlap(self):
        rows = list(fake_heddle.overlap(None))
        self.assertEqual(verdict("tupleq-overlap", rows).state, "like")
        for row in rows:
            row["overhead_us"] = [5, 5]
        self.assertEqual(verdict("tupleq-overlap", rows).state, "unlike")

    def test_auto_must_not_be_behind(self):
        rows = list(fake_heddle.sweep("late")(None))
        self.assertEqual(verdict("tupleq-late", rows).state, "like")
        rows[2]["seconds"] = [1.07e-6] * 3
        self.assertEqual(verdict("tupleq-late", rows).state, "unlike")
        self.assertIn("1 of 3 points", verdict("tupleq-late", rows).text)
        rows = list(fake_heddle.sweep("late")(None))
        rows[1]["seconds"] = [0.5e-6] * 3  # another way than rget is twice as fast
        said = verdict("tupleq-late", rows)
        self.assertEqual(said.state, "unlike")
        self.assertIn("never below 0.49 of the fastest way's rate", said.text)

    def test_peers(self):
        rows = list(fake_mpi.operations(["--beside", "rc_verbs"]))
        said = verdict("peers-messages", rows)
        self.assertEqual(said.state, "like")
        self.assertTrue(said.text.startswith("9 of 9 rows better or level (9 better), 0 behind"), said.text)
        for row in rows:
            if (row["operation"], row["bytes"], row["way"]) == ("latency", 8, "heddle"):
                row["seconds"] = [2e-6, 4e-6]
        said = verdict("peers-messages", rows)
        self.assertEqual(said.state, "partly")
        self.assertIn("8 of 9 rows better or level (8 better), 1 behind: MPICH latency 8 B beside UCX rc_verbs (0.50; 0.50 "
                      "to 0.50)", said.text)
        first = EXPERIMENTS["peers-messages"].points(rows)[0]
        self.assertEqual((first.key, first.said), (("UCX rc_verbs", "MPICH", "latency", "8 B"), "behind"))
        for row in rows:
            if row["bytes"] != 8 and row["way"] == "heddle":  # no size is left out
                row["seconds"] = [2e-6, 4e-6]
        self.assertEqual(verdict("peers-messages", rows).state, "unlike")

    def test_peers_that_are_not_here_are_rows_too(self):
        rows = [row for peer in ("rc_verbs", "dc_mlx5", "rxm") for row in fake_mpi.operations(["--beside", peer])]
        said = verdict("peers-messages", rows)
        self.assertEqual(said.state, "like")
        self.assertIn("9 of 9 rows better or level (9 better), 2 not available, 0 behind.", said.text)
        self.assertIn("UCX dc_mlx5: not available: UCX: transport 'dc_mlx5' is not available", said.text)
        points = EXPERIMENTS["peers-messages"].points(rows)
        self.assertEqual(points[-1].key, ("libfabric verbs;ofi_rxm", "MPICH"))
        self.assertIsNone(points[-1].value)
        said = verdict("peers-messages", list(fake_mpi.operations(["--beside", "rxm"])))
        self.assertEqual(said.state, "cannot")

    def test_what_does_not_compare_is_shown_and_not_judged(self):
        for words, why in ((["--beside", "rc_mlx5"], "its doorbells are found by looking for them"),
                           (["--beside", "shm"], "no network"),
                           (["--beside", "rc_verbs", "--ranks", "4"], "4 ranks take turns on 2 cores")):
            rows = list(fake_mpi.operations(words))
            said = verdict("peers-collectives", rows)
            self.assertEqual(said.state, "cannot")
            self.assertIn(f"not judged: {why}", said.text)
            self.assertEqual(EXPERIMENTS["peers-collectives"].points(rows)[0].value, 2)
        rows = [{**row, "engine": "dedicated"} for row in fake_mpi.operations(["--beside", "rc_mlx5"])]
        self.assertEqual(verdict("peers-messages", rows).state, "like")

    def test_each_pair_has_its_own_turns(self):
        """Heddle's turns beside one peer are not mixed with those beside another."""
        rows = list(fake_mpi.operations(["--beside", "rc_verbs"]))
        rows += [{**row, "seconds": [10 * each for each in row["seconds"]]}
                 for row in fake_mpi.operations(["--beside", "tcp"])]
        self.assertEqual({point.value for point in EXPERIMENTS["peers-messages"].points(rows)}, {2.0})

    def test_rates_of_peers(self):
        rows = list(fake_mpi.operations(["--beside", "rc_verbs", "--threads", "1", "2"]))
        self.assertEqual(verdict("peers-rate", rows).state, "like")
        rows[2]["seconds"] = [3e-6, 6e-6]
        self.assertEqual(verdict("peers-rate", rows).state, "unlike")
        self.assertIn("rate of 2 threads", verdict("peers-rate", rows).text)

    def test_overlap_of_peers(self):
        rows = list(fake_mpi.overlap(["--beside", "rc_verbs"]))
        self.assertEqual(verdict("peers-overlap", rows).state, "like")
        self.assertEqual(EXPERIMENTS["peers-overlap"].points(rows)[0].value, 8.5)
        for row in rows:
            row["overhead"] = [9e-6, 11e-6] if row["way"] == "heddle" else row["overhead"]
        self.assertEqual(verdict("peers-overlap", rows).state, "unlike")
        for row in rows:  # what is below the clock is no difference
            row["overhead"] = [1e-9, -1e-9] if row["way"] == "heddle" else [1e-8, 2e-8]
        self.assertEqual({point.value for point in EXPERIMENTS["peers-overlap"].points(rows)}, {1.0})
        self.assertEqual(verdict("peers-overlap", list(fake_mpi.overlap(["--beside", "rxm"]))).state, "cannot")

    def test_memory_of_peers(self):
        rows = list(fake_mpi.heap(["--way", "heddle", "--way", "rc_verbs", "--way", "dc_mlx5"]))
        said = verdict("peers-memory", rows)
        self.assertEqual(said.state, "like")
        self.assertIn("2 of 2 rows better or level (2 better), 1 not available", said.text)
        for row in rows:
            row["memory_bytes"] = [1 << 30] if row["way"] == "heddle" else row["memory_bytes"]
        self.assertEqual(verdict("peers-memory", rows).state, "unlike")

    def test_programs_beside_a_peer(self):
        rows = list(fake_mpi.applications(["--vary", "peer"]))
        said = verdict("peers-programs", rows)
        self.assertEqual(said.state, "like")
        self.assertIn("3 of 3 rows better or level (1 better), 1 not available, 0 behind.", said.text)
        self.assertIn("adi", EXPERIMENTS["peers-programs"].points(rows)[-1].key)
        for row in rows:
            row["run_s"] = [1.03 * each for each in row["run_s"]] if row["way"] == "heddle" else row["run_s"]
        said = verdict("peers-programs", rows)
        self.assertIn("MPICH cg 2 ranks beside UCX rc_verbs (0.97; 0.97 to 0.97)", said.text)
        shown = [{**row, "cores": 1} for row in rows]
        self.assertEqual(verdict("peers-npb", shown).state, "cannot")  # ranks take turns
        panels = EXPERIMENTS["peers-programs"].panels(rows)
        self.assertEqual([panel.title for panel in panels], ["Programs", "In MPI"])
        self.assertEqual(panels[0].x, ["multigrid", "lattice", "cg"])

    def test_heap(self):
        rows = list(fake_mpi.heap([]))
        self.assertEqual(verdict("direct-heap", rows).state, "unlike")  # it grows on both paths
        for row in rows:
            row["heap_bytes"] = [20000] if row["way"] == "direct" else row["heap_bytes"]
        self.assertEqual(verdict("direct-heap", rows).state, "like")

    def test_program(self):
        rows = list(fake_mpi.ways(None))
        self.assertEqual(verdict("tupleq-adi", rows).state, "like")
        self.assertIn("tupleq 0.75 (paper: 0.74)", verdict("tupleq-adi", rows).text)
        self.assertEqual(verdict("tupleq-adi", [{**row, "seconds": [2.0]} for row in rows]).state,
                         "unlike")

    def test_values_of_the_papers(self):
        self.assertEqual(len(table("icpads18-applications")), 42)
        self.assertEqual(table("not-there"), ())

    def test_mpi_by_category(self):
        key = "endpoints-mpi"
        said = verdict(key, fake_mpi.categories(None))
        self.assertEqual(said.state, "cannot", said.text)
        self.assertIn("The counts of all 6 rows are those", said.text)
        self.assertIn("take turns on 2 cores", said.text)
        self.assertEqual(verdict(key, fake_mpi.categories(None, cores=4)).state, "like")
        # each count that a category does not allow
        for category, field, value in (
                ("mpi-everywhere", "contexts", 1), ("2xdynamic", "uar_pages", 5), ("dynamic", "register_locks", 1),
                ("dynamic", "domain_locks", 1), ("shared-dynamic", "uar_pages", 7), ("static", "register_locks", 0),
                ("mpi+threads", "qps", 5), ("mpi+threads", "cqs", 3), ("mpi+threads", "domain_locks", 1999),
                ("static", "blueflame", 899)):
            rows = list(fake_mpi.categories(None, cores=4))
            next(row for row in rows if row["category"] == category)[field] = value
            said = verdict(key, rows)
            self.assertEqual(said.state, "unlike", (category, field))
            self.assertIn(category, said.text)
        # a queue pair that only receives may find room on a page, or not
        rows = list(fake_mpi.categories(None, cores=4))
        for row in rows:
            row["uar_pages"] += row["category"] == "shared-dynamic"
        self.assertEqual(verdict(key, rows).state, "like")
        # rates count on cores enough alone
        for cores, state in ((4, "partly"), (2, "cannot")):
            rows = list(fake_mpi.categories(None, cores))
            rows[2]["seconds"] = [9e-6] * 3
            self.assertEqual(verdict(key, rows).state, state)

    def test_durations(self):
        for seconds, text in ((0.2, "1 s"), (89, "89 s"), (91, "2 min"), (3599, "1 h 00 min"),
                              (3601, "1 h 01 min")):
            self.assertEqual(runner.duration(seconds), text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
