# SPDX-License-Identifier: BSD-2-Clause
"""What the report says of predictions: verdicts can fail, and predicted values look like no others."""

import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "report"))
from heddle_report import catalogue, panels  # noqa: E402
from heddle_report.experiments import endpoints, kernels, predicted  # noqa: E402

EXPERIMENTS = {each.key: each for each in catalogue.all_experiments()}


def errors(median=0.05, mean=0.08, rank=0.98, null=0.5):
    def spread(middle, average):
        return {"mean": average, "median": middle, "percentile_95": 0.3}
    whole = {"figure": "all", "points": "hard", "count": 140, "rank": rank, "model": spread(median, mean),
             **{f"null_{name}": spread(null, null) for name in ("constant", "free_sharing", "nearest")}}
    points = [{"figure": figure, "curve": curve, "x": x, "paper_mmsgs_per_s": 100.0, "predicted_mmsgs_per_s": predicted,
               "role": role} for figure, curve, x, predicted, role in (
                   ("14", "2.8", "Dynamic", 129.0, "hard"), ("9", "All", 2, 60.0, "hard"), ("9", "All", 4, 75.0, "hard"),
                   ("9", "All", 8, 110.0, "hard"), ("3", "All", 8, 50.0, "fitted"), ("3", "All", 1, 99.0, "fitted"))]
    return [whole, *points]


def replays(change=lambda name, row: row):
    """As the paper's values, in each category."""
    rows = []
    for name in ("as recorded", *endpoints.CATEGORIES):
        category = "mpi-everywhere" if name == "as recorded" else name
        rate = kernels.paper_of("14", "4.4", category)
        rows.append(change(name, {"kernel": "Stencil", "figure": "14", "curve": "4.4", "endpoints": name,
                                  "predicted_mmsgs_per_s": rate, "low": rate, "high": rate, "wqes": 5,
                                  "counted_wqes": 5, "blueflame": 5, "counted_blueflame": 5}))
    return rows


class Errors(unittest.TestCase):
    def state(self, **values):
        return EXPERIMENTS["endpoints-predicted"].verdict(errors(**values)).state

    def test_what_is_wanted(self):
        said = EXPERIMENTS["endpoints-predicted"].verdict(errors())
        self.assertEqual(said.state, "like")
        self.assertIn("3 of the 4 hard points are off by more than 20 %: Fig. 9, All (2, 4), 25 to 40 % too slow; "
                      "Fig. 14, 2.8 (Dynamic), 29 % too fast. 1 of the 2 fitted points are off by more than 20 %: "
                      "Fig. 3, All (8), 50 % too slow.", said.text)

    def test_each_part_can_fail(self):
        self.assertEqual(self.state(median=0.08), "unlike")
        self.assertEqual(self.state(mean=0.12), "partly")
        self.assertEqual(self.state(rank=0.9), "partly")
        self.assertEqual(self.state(null=0.08), "unlike", "a constant is nearly as good")
        self.assertEqual(EXPERIMENTS["endpoints-predicted"].verdict([]).state, "cannot")


class Replays(unittest.TestCase):
    def state(self, change=lambda name, row: row):
        return EXPERIMENTS["endpoints-replayed"].verdict(replays(change)).state

    def test_the_papers_values(self):
        self.assertEqual(self.state(), "like")

    def test_a_constant_is_unlike(self):
        self.assertEqual(self.state(lambda _, row: {**row, "predicted_mmsgs_per_s": 90.0}), "unlike")

    def test_counts_of_its_own(self):
        self.assertEqual(self.state(lambda name, row: {**row, "wqes": 6} if name == "static" else row), "unlike")

    def test_a_missing_category(self):
        rows = [row for row in replays() if row["endpoints"] != "dynamic"]
        self.assertEqual(EXPERIMENTS["endpoints-replayed"].verdict(rows).state, "unlike")


class Series(unittest.TestCase):
    ROWS = [{"series": "All", "x": x, "x_is": "threads", "path": "verbs", "threads": x, "cores": 16,
             "oversubscribed": False, "mmsgs_per_s": 1.0 * x, "quartiles": [1.0 * x, 1.0 * x],
             "paper_mmsgs_per_s": 16.0 * x, "predicted_mmsgs_per_s": 15.0 * x} for x in (1, 2)]

    def test_three_that_are_told_apart(self):
        for key in ("endpoints-3", "endpoints-9"):
            panel = EXPERIMENTS[key].panels(self.ROWS)[0]
            self.assertEqual([(each.paper, each.predicted) for each in panel.series],
                             [(False, False), (True, False), (False, True)])
            self.assertIn("predicted for ConnectX-4", panel.series[-1].name)

    def test_without_a_prediction_there_is_no_such_series(self):
        rows = [{key: value for key, value in row.items() if key != "predicted_mmsgs_per_s"} for row in self.ROWS]
        panel = EXPERIMENTS["endpoints-9"].panels(rows)[0]
        self.assertFalse(any(each.predicted for each in panel.series))

    def test_runs_beside_each_other_have_it_once(self):
        found = panels.overlaid(EXPERIMENTS["endpoints-9"], [("a", self.ROWS), ("b", self.ROWS)])
        self.assertEqual(sum(each.predicted for each in found[0].series), 1)

    def test_what_is_predicted_says_so(self):
        for experiment in predicted.EXPERIMENTS:
            self.assertIn("predicted", experiment.unit)


if __name__ == "__main__":
    unittest.main()
