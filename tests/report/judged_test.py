# SPDX-License-Identifier: BSD-2-Clause
"""Rows beside the peers, with values that say nothing or something known: two equal jobs are level, and a job that is
slowed by a tenth is behind, through the noise of a shared machine."""

import random
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "report"))
from heddle_report import catalogue, judged  # noqa: E402

EXPERIMENTS = {each.key: each for each in catalogue.all_experiments()}


def turns(numbers, slower=1.0, count=41):
    """Seconds of two jobs in neighbouring turns: of heddle, which is so much slower than it might be, and of a peer.
    What the machine is worth changes for some turns, by up to two, for both. Each turn has noise of its own, and one in
    twenty is interrupted."""
    ours, theirs, worth = [], [], 1.0
    for _ in range(count):
        if numbers.random() < 0.1:
            worth = numbers.uniform(1, 2)
        for side, factor in ((ours, slower), (theirs, 1.0)):
            interrupted = numbers.uniform(1, 4) if numbers.random() < 0.05 else 1
            side.append(1e-6 * worth * factor * numbers.lognormvariate(0, 0.08) * interrupted)
    return ours, theirs


def peer_rows(numbers, slower, operations=200, runs=1):
    """Lines of operations.py --beside rc_verbs."""
    for run in range(runs):
        for number in range(operations):
            for way, seconds in zip(("heddle", "rc_verbs"), turns(numbers, slower)):
                yield {"mpi": "MPICH", "operation": f"operation {number}", "bytes": 8, "ranks": 2, "cores": 2,
                       "way": way, "beside": "rc_verbs", "seconds": seconds, "run": run}


class Peers(unittest.TestCase):
    def states(self, slower, runs=1):
        """How many of 200 rows have each verdict."""
        rows = EXPERIMENTS["peers-messages"].rows(list(peer_rows(random.Random(7), slower, runs=runs)))
        self.assertEqual(len(rows), 200)
        return judged.counts(rows)

    def test_equal_jobs_are_level(self):
        found = self.states(1.0)
        self.assertGreaterEqual(found["level"], 186)  # 95 % of the intervals contain 1
        self.assertEqual(self.states(1.0, runs=3)["level"], 200)

    def test_a_job_that_is_slowed_by_a_tenth_is_behind(self):
        self.assertGreaterEqual(self.states(1.1)["behind"], 180)
        self.assertGreaterEqual(self.states(1 / 1.1)["better"], 180)
        self.assertGreaterEqual(self.states(1.1, runs=3)["behind"], 160)
        self.assertEqual(self.states(1.1, runs=3)["better"], 0)

    def test_two_percent_are_level(self):
        sure = [0.985] * 41
        self.assertEqual(judged.state_of(sure), "level")
        self.assertEqual(judged.state_of([0.975] * 41), "behind")
        self.assertEqual(judged.state_of([1.03] * 41), "better")

    def test_one_run_is_not_enough(self):
        slow, equal, fast = [0.8] * 9, [0.9, 1.1] * 5, [1.3] * 9
        for runs, state in (((slow, slow, slow), "behind"), ((slow, equal, slow), "level"), ((slow, fast, slow), "level"),
                            ((fast, fast), "better"), ((fast, equal), "level")):
            row = judged.judge("a peer", ("MPICH",), runs)
            self.assertEqual(row.state, state)
        row = judged.judge("a peer", ("MPICH",), (slow, equal, slow))
        self.assertEqual(row.said, "level (behind, level, behind)")
        self.assertIn("1 are behind in some runs and not in all", judged.verdict([row]).text)

    def test_few_turns_are_not_sure(self):
        """A difference that five turns show is not sure; the interval is their whole range."""
        self.assertEqual(judged.state_of([0.8, 0.8, 0.8, 0.8, 1.01]), "level")

    def test_a_level_row_that_may_hide_a_loss_is_counted(self):
        rows = [judged.judge("a peer", ("MPICH",), [[0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3]])]
        said = judged.verdict(rows)
        self.assertEqual(said.state, "like")
        self.assertIn("The interval of 1 level rows reaches below 0.90", said.text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
