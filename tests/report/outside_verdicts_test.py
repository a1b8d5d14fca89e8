# SPDX-License-Identifier: BSD-2-Clause
"""What the report says of programs of others: the paper's values are like it. A constant, a straight line, a loss
and a gain that is too large are not."""

import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "report")]
import fake_mpi  # noqa: E402
from heddle_report import catalogue  # noqa: E402

EXPERIMENTS = {each.key: each for each in catalogue.all_experiments()}


def verdict(key, rows):
    return EXPERIMENTS[key].verdict(list(rows))


class Outside(unittest.TestCase):
    def test_smb(self):
        def of(cores=2, **others):
            return verdict("tupleq-smb", fake_mpi.smb({**fake_mpi.SMB, **others}, cores=cores)).state

        papers = {"rget": (95, 0, 10.0), "rput": (95, 0, 10.0)}
        self.assertEqual(of(**papers), "like")
        self.assertEqual(of(**{**papers, "rget": (95, 40, 10.0)}), "partly", "the receiver has time by rget")
        self.assertEqual(of(**{**papers, "rput": (95, 40, 10.0)}), "unlike", "both sides have time by rput")
        self.assertEqual(of(**{**papers, "tupleq": (80, 97, 10.0)}), "unlike", "short messages are not left out")
        self.assertEqual(of(**{**papers, "tupleq": (99, 99, 13.0)}), "unlike", "of a message that takes longer")
        self.assertEqual(of(**{**papers, "auto": (97, 97, 10.4)}), "like")
        self.assertEqual(of(**{**papers, "auto": (97, 97, 10.6)}), "partly", "auto is slower")
        self.assertEqual(of(**{**papers, "auto": (97, 120, 10.0)}), "cannot", "an overhead below zero")
        self.assertEqual(of(**papers, cores=1), "cannot")
        for value in (0, 50, 98, 100):
            self.assertEqual(of(**{way: (value, value, 10.0) for way in fake_mpi.SMB}), "unlike", "a constant")
        for way in ("rget", "rput", "tupleq"):
            rows = [row for row in fake_mpi.smb({**fake_mpi.SMB, **papers}) if row["way"] != way]
            self.assertEqual(verdict("tupleq-smb", rows).state, "cannot", f"no {way}")

        def line(falling):
            rows = []
            for row in fake_mpi.smb(sizes=(8, 64, 512, 4096, 32768, 1 << 20)):
                share = (1 << 20) - row["bytes"] if falling else row["bytes"]
                row["overhead_us"] = [10 * (1 - share / (1 << 20))] * 3
                row["available"] = [100 * share / (1 << 20)] * 3
                rows.append(row)
            return verdict("tupleq-smb", rows).state

        self.assertEqual(line(True), "unlike", "a straight line")
        self.assertEqual(line(False), "unlike", "a straight line")

    def test_smb_shows_what_smb_prints(self):
        rows = list(fake_mpi.smb({**fake_mpi.SMB, "tupleq": (90, 90, 20.0)}))
        found = {point.key: point.value for point in EXPERIMENTS["tupleq-smb"].points(rows)}
        self.assertEqual(found["sender", "tupleq", 8, "as SMB prints it"], 90)
        self.assertAlmostEqual(found["sender", "tupleq", 8, "of the fastest protocol's time"], 0)
        self.assertEqual(found["sender", "rget", 8, "as SMB prints it"], 70)

    def test_sp(self):
        def of(letter="B", cores=4, **shares):
            seconds = {"rget": 1.0, "rput": 1.0, "tupleq": 0.74, "tupleq, copy": 0.78, "auto": 0.9, **shares}
            return verdict("tupleq-sp", fake_mpi.sp(seconds, letter, cores)).state

        self.assertEqual(verdict("tupleq-sp", fake_mpi.sp()).state, "like", "the paper's values")
        self.assertEqual(of(rput=1.2), "partly")
        self.assertEqual(of(auto=1.1), "partly", "auto is slower")
        self.assertEqual(of(tupleq=1.0), "unlike")
        self.assertEqual(of(**{"tupleq, copy": 1.0}), "unlike")
        self.assertEqual(of(tupleq=0.6, **{"tupleq, copy": 0.6}), "unlike", "more than the paper's gain")
        self.assertEqual(of(tupleq=2.0, **{"tupleq, copy": 1.7}), "unlike", "a loss")
        self.assertEqual(of("A"), "cannot", "the paper has class B")
        self.assertEqual(of(cores=2), "cannot")
        ways = list(fake_mpi.SP)
        for slope in range(-20, 21):
            self.assertEqual(of(**{way: 1 + 0.01 * slope * place for place, way in enumerate(ways)}), "unlike",
                             f"a straight line, or the constant {slope}")
        for way in ways[1:]:
            rows = [row for row in fake_mpi.sp() if row["way"] != way]
            self.assertEqual(verdict("tupleq-sp", rows).state, "cannot", f"no {way}")

    def test_both_classes_of_sp(self):
        slow = dict.fromkeys(fake_mpi.SP, 1.0)
        rows = [*fake_mpi.sp(slow, "A"), *fake_mpi.sp()]
        self.assertEqual(verdict("tupleq-sp", rows).state, "like", "class B is judged")
        found = {point.key: point for point in EXPERIMENTS["tupleq-sp"].points(rows)}
        self.assertEqual(found["sp.A", "tupleq"].value, 1)
        self.assertIsNone(found["sp.A", "tupleq"].paper)
        self.assertAlmostEqual(found["sp.B", "tupleq"].paper, 27.38 / 36.78)
        self.assertAlmostEqual(found["sp.B", "tupleq"].value, 27.38 / 36.78)


if __name__ == "__main__":
    unittest.main(verbosity=2)
