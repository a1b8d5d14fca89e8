# SPDX-License-Identifier: BSD-2-Clause
"""The verdicts on tuple queues can fail: see null_models_test.py."""

import random
import unittest

from null_models_test import EXPERIMENTS, verdict


class TupleQueues(unittest.TestCase):
    def test_overlap(self):
        def of(available):
            rows = []
            for side in ("sender", "receiver"):
                for way in ("tupleq", "rget", "rput"):
                    for size in (0, 1024, 8192, 65536, 1 << 20):
                        rows.append({"side": side, "way": way, "bytes": size, "base_us": [10.0] * 3,
                                     "overhead_us": [10 - available(side, way, size) / 10] * 3})
            return verdict("tupleq-overlap", rows).state

        def papers(_side, way, size):
            return 98 if way == "tupleq" else 95 if size < 8192 else 0

        self.assertEqual(of(papers), "like")
        self.assertEqual(of(lambda side, way, size: papers(side, way, size) if side == "receiver" or way != "tupleq"
                            else 20), "partly", "the sender's queue is behind")
        for value in (0, 50, 98, 100):
            self.assertEqual(of(lambda side, way, size, value=value: value), "unlike", "a constant")
        self.assertEqual(of(lambda side, way, size: 100 * (1 - size / (1 << 20))), "unlike", "a straight line")
        self.assertEqual(of(lambda side, way, size: papers(side, "rget" if way == "tupleq" else "tupleq", size)),
                         "unlike", "the other way's values")
        self.assertEqual(of(lambda side, way, size: 40 if (way, size) == ("tupleq", 0) else papers(side, way, size)),
                         "unlike", "small sizes are not left out")

    def test_solver(self):
        names = ("rget", "rput", "tupleq", "tupleq, copy", "auto")

        def of(*shares, **more):
            return verdict("tupleq-adi", [{"program": "adi", "way": way, "seconds": [share] * 3, **more}
                                          for way, share in zip(names, shares)]).state

        self.assertEqual(of(1, 1, 0.74, 0.78, 0.8), "like")
        self.assertEqual(of(1, 1.2, 0.74, 0.78, 0.8), "partly")
        self.assertEqual(of(1, 1, 1, 1, 1), "unlike", "a constant")
        for slope in range(-20, 1):
            self.assertEqual(of(*(1 + 0.01 * slope * place for place in range(5))), "unlike", "a straight line")
        self.assertEqual(of(1, 1, 0.4, 0.4, 0.4), "unlike", "more than the paper's gain")
        self.assertEqual(of(1, 1, 0.74, 0.78, 0.8, ranks=4, cores=2), "cannot")

    def test_a_slower_way_has_less(self):
        """All ways have one base: a message that takes three times the fastest way's time may be under way
        during all the work, and yet the program has not the time that it would have by the fastest way."""
        def rows(slower, overhead=0.1):
            return [{"side": "receiver", "way": way, "bytes": 8192, "base_us": [base] * 3,
                     "overhead_us": [overhead * base] * 3}
                    for way, base in (("rget", 10.0), ("tupleq", 10.0 * slower))]

        def of(slower, overhead=0.1):
            found = EXPERIMENTS["tupleq-overlap"].points(rows(slower, overhead))
            return {point.key[1]: point.value for point in found}

        for slower in (3, 3.4, 10):
            for overhead in (0, 0.01):
                self.assertLessEqual(of(slower, overhead)["tupleq"], 100 / 3 + 1, slower)
                self.assertGreaterEqual(of(slower, overhead)["rget"], 99, "the fastest way is its own base")
        self.assertAlmostEqual(of(1.25)["tupleq"], 75)
        self.assertAlmostEqual(of(1.05)["tupleq"], 100 - 10.5)
        self.assertAlmostEqual(of(0.5)["rget"], 0)

    def test_queues_that_are_slower_are_unlike(self):
        def of(factor):
            rows = [{"side": side, "way": way, "bytes": size, "base_us": [base] * 3,
                     "overhead_us": [0.02 * base if way == "tupleq" or size < 8192 else base] * 3}
                    for side in ("sender", "receiver")
                    for way, base in (("tupleq", 10.0 * factor), ("rget", 10.0), ("rput", 10.0))
                    for size in (0, 1024, 8192, 65536, 1 << 20)]
            return verdict("tupleq-overlap", rows).state

        self.assertEqual(of(1), "like")
        for factor in (1.2, 3, 3.4):
            self.assertEqual(of(factor), "unlike", factor)

    def test_ways_where_queues_may_be_a_loss(self):
        def of(*shares):
            return verdict("tupleq-late", [
                {"way": "auto", "bytes": 1024, "late": late, "seconds": [1 / share] * 3, "seconds_rget": [1.0] * 3}
                for late, share in enumerate(shares)]).state

        self.assertEqual(of(0.98, 0.98, 0.98), "like")
        self.assertEqual(of(0.98, 0.98, 0.80), "unlike")
        self.assertEqual(of(*[0.98] * 7, 0.92), "partly")

    def test_ways_that_are_equal_but_for_noise(self):
        """The fastest of four equal ways is below them all only by chance."""
        def of(share, chance):
            def noisy(seconds):
                return [seconds * chance.lognormvariate(0, 0.1) for _ in range(9)]

            rows = []
            for late in range(24):
                rget = noisy(1)
                rows += [{"way": way, "bytes": 1024, "late": late, "seconds_rget": rget,
                          "seconds": noisy(1 / share if way == "auto" else 1)} for way in ("auto", "tupleq", "rput")]
            return verdict("tupleq-late", rows).state

        equal = [of(1, random.Random(number)) for number in range(20)]
        self.assertGreaterEqual(sum(state == "like" for state in equal), 10, equal)
        self.assertLessEqual(equal.count("unlike"), 2, equal)
        self.assertEqual({of(0.8, random.Random(number)) for number in range(20)}, {"unlike"})

    def test_sweeps_have_one_base(self):
        for name in ("late", "many", "wildcards"):
            self.assertIn("one base", EXPERIMENTS[f"tupleq-{name}"].criterion)


if __name__ == "__main__":
    unittest.main(verbosity=2)
