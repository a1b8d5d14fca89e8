# SPDX-License-Identifier: BSD-2-Clause
"""The paper's own pair, UCX's rc_verbs and rc_mlx5, beside heddle's: its verdict knows what the paper says from a
constant, a straight line and the other pair's values, and does not judge where a device is unfair to one side."""

import random
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "report")]
import fake_mpi  # noqa: E402
from heddle_report import catalogue  # noqa: E402
from heddle_report.experiments import direct_ucx  # noqa: E402

EXPERIMENTS = {each.key: each for each in catalogue.all_experiments()}
SIZES = (8, 512, 8192, 65536, 1 << 20)


def papers(size):
    return 10 if size < 4096 else 4 if size <= 16384 else 0


def rows(ucx, heddle=papers, engine=None, cores=4, spread=0.0, turns=9):
    """ucx, heddle: bytes -> percent of the time by verbs that the other way gains."""
    numbers = random.Random(11)
    gain = {"rc_mlx5": ucx, "direct": heddle}
    return [{"mpi": "MPICH", "operation": name, "bytes": size, "ranks": 2, "cores": cores, "way": way,
             "engine": engine, "seconds": [1e-6 * (1 - gain.get(way, lambda _: 0)(size) / 100)
                                           * (1 + numbers.uniform(-spread, spread)) for _ in range(turns)]}
            for name in ("latency", "bandwidth") for size in SIZES for way in direct_ucx.WAYS]


def verdict(*arguments, **more):
    return EXPERIMENTS["direct-ucx"].verdict(rows(*arguments, **more))


class Pair(unittest.TestCase):
    def test_the_papers_statements_are_like_it(self):
        said = verdict(papers)
        self.assertEqual(said.state, "like", said.text)
        self.assertIn("UCX's pair, below 4 KiB a gain: 4 of 4 (+10 to +10 %)", said.text)
        self.assertEqual(verdict(papers, engine="dedicated").state, "like")

    def test_null_models_are_unlike(self):
        for constant in (-5, 0, 3, 4, 10):
            self.assertEqual(verdict(lambda size, value=constant: value).state, "unlike", constant)
        for first, zero in ((a, b) for a in (3, 6, 10, 30) for b in (65536, 1 << 20)):
            self.assertEqual(verdict(lambda size, a=first, b=zero: a * (1 - size / b)).state, "unlike",
                             (first, zero))
        self.assertEqual(verdict(lambda size: size / (1 << 20)).state, "unlike", "a rising line")

    def test_the_other_pairs_values_do_not_serve(self):
        self.assertEqual(verdict(lambda size: 0, papers).state, "unlike", "heddle's gain is not UCX's")
        self.assertEqual(verdict(papers, lambda size: -20).state, "like", "heddle's loss is not UCX's")
        self.assertIn("heddle's pair, below 4 KiB a gain: 0 of 4 (-20 to -20 %)",
                      verdict(papers, lambda size: -20).text)

    def test_a_loss_beyond_16_kib_is_unlike(self):
        self.assertEqual(verdict(lambda size: -10 if size > 16384 else papers(size)).state, "unlike")
        self.assertEqual(verdict(lambda size: 0 if size == 512 else papers(size)).state, "partly")

    def test_what_the_spread_hides_is_not_judged(self):
        said = verdict(papers, spread=0.3)
        self.assertEqual(said.state, "cannot", said.text)
        self.assertIn("hidden by the spread", said.text)

    def test_a_device_that_looks_for_doorbells_shows_nothing(self):
        said = verdict(papers, engine="hybrid")
        self.assertEqual(said.state, "cannot")
        self.assertIn("by looking for them", said.text)
        self.assertIn("UCX's pair, below 4 KiB a gain: 4 of 4", said.text)

    def test_more_ranks_than_cores_show_nothing(self):
        self.assertEqual(verdict(papers, cores=1).state, "cannot")

    def test_a_way_that_was_not_measured(self):
        for way in direct_ucx.WAYS:
            few = [row for row in rows(papers) if row["way"] != way]
            self.assertEqual(EXPERIMENTS["direct-ucx"].verdict(few).state, "cannot", way)
        few = [row for row in rows(papers) if row["bytes"] < 4096]
        self.assertEqual(EXPERIMENTS["direct-ucx"].verdict(few).state, "cannot")

    def test_both_pairs_are_series_of_their_own(self):
        of = EXPERIMENTS["direct-ucx"]
        panels = of.panels(rows(papers))
        self.assertEqual([panel.title for panel in panels], ["latency", "bandwidth"])
        self.assertEqual([series.name for series in panels[0].series],
                         ["MPICH over UCX: rc_mlx5 beside rc_verbs", "MPICH over heddle: direct beside verbs"])
        self.assertEqual(len(of.points(rows(papers))), 2 * 2 * len(SIZES))

    def test_its_commands_measure_every_way(self):
        for mode in ("quick", "full"):
            command, = EXPERIMENTS["direct-ucx"].commands(mode)
            measured = list(fake_mpi.operations(command))
            self.assertEqual({row["way"] for row in measured}, set(direct_ucx.WAYS), mode)
            self.assertTrue(EXPERIMENTS["direct-ucx"].points(measured))


class Heap(unittest.TestCase):
    def test_all_four_ways_are_measured_and_shown(self):
        of = EXPERIMENTS["direct-heap"]
        for mode in ("quick", "full"):
            measured = list(fake_mpi.heap(of.commands(mode)[0]))
            self.assertEqual({row["way"] for row in measured}, set(direct_ucx.WAYS), mode)
        self.assertEqual({series.name for series in of.panels(measured)[0].series}, set(direct_ucx.WAYS))
        self.assertIn("UCX: rc_verbs: from 39 to 78 KiB. rc_mlx5: from 39 to 78 KiB.", of.verdict(measured).text)

    def test_ucx_does_not_decide(self):
        of = EXPERIMENTS["direct-heap"]
        measured = list(fake_mpi.heap(of.commands("quick")[0]))
        for row in measured:
            row["heap_bytes"] = [20000] if row["way"] == "rc_mlx5" else row["heap_bytes"]
        self.assertEqual(of.verdict(measured).state, "unlike", "heddle's direct path grows as fast")


if __name__ == "__main__":
    unittest.main(verbosity=2)
