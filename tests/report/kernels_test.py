# SPDX-License-Identifier: BSD-2-Clause
"""The verdicts of the two kernels of the endpoints paper: each category is judged, and UARs are compared. That
null models are unlike the paper is in null_models_test.py."""

import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from null_models_test import EXPERIMENTS, FIGURES, rate_rows, verdict  # noqa: E402


class Kernels(unittest.TestCase):
    def test_each_category_of_a_kernel_is_judged(self):
        """By all operations, or all splits: one of them that is off is enough. A gain counts as a loss does."""
        for figure, point in (("12", ("RDMA write", "MPI+threads")), ("14", ("1.16", "Dynamic"))):
            for factor in (0.5, 2):
                off = {key: value * (factor if key == point else 1) for key, value in FIGURES[figure].items()}
                said = verdict(f"endpoints-{figure}", rate_rows(figure, off))
                self.assertIn(f"5 of 6 categories are like the paper's; not {point[1]} (at {point[0]} ", said.text)

    def test_uars_that_differ_are_partly(self):
        for figure in ("12", "14"):
            rows = [{**row, "uar_kernel": "static", "uars": 8, "paper_uars": 8}
                    for row in rate_rows(figure, FIGURES[figure])]
            self.assertEqual(verdict(f"endpoints-{figure}", rows).state, "like")
            rows[0]["uars"] = 9
            said = verdict(f"endpoints-{figure}", rows)
            self.assertEqual(said.state, "partly")
            self.assertIn("5 of 6 categories, not in MPI everywhere", said.text)

    def test_batches_are_not_judged(self):
        rows = rate_rows("12", FIGURES["12"])
        batched = [{**row, "posting": "batched", "read_mmsgs_per_s": 1} for row in rows]
        self.assertEqual(verdict("endpoints-12", rows + batched).state, "like")
        self.assertEqual(verdict("endpoints-12", rows + [{**batched[0], "result": "wrong"}]).state, "unlike")
        names = {point.key[0] for point in EXPERIMENTS["endpoints-12"].points(rows + batched)}
        self.assertEqual(names, {"RDMA read", "RDMA write", "RDMA read, batched", "RDMA write, batched"})

    def test_resources_are_beside_the_rates(self):
        for figure in ("12", "14"):
            rows = [{**row, "uars": 8, "paper_uars": 9, "qps": 4, "cqs": 2, "driver_bytes": 3 << 10}
                    for row in rate_rows(figure, FIGURES[figure])]
            panels = {panel.y_label: panel for panel in EXPERIMENTS[f"endpoints-{figure}"].panels(rows)}
            self.assertEqual([series.values[0] for series in panels["UARs"].series], [8, 9], figure)
            for label, value in (("QPs", 4), ("CQs", 2), ("KiB of the driver", 3)):
                self.assertEqual(panels[label].series[0].values, [value] * 6, figure)


if __name__ == "__main__":
    unittest.main(verbosity=2)
