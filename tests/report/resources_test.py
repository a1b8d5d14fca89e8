# SPDX-License-Identifier: BSD-2-Clause
"""The verdict on what each category takes: the paper's numbers are like it; other UARs, a constant and a straight
line are not."""

import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "report"))
from heddle_report.experiments.resources import EXPERIMENTS, THREADS  # noqa: E402

RESOURCES = EXPERIMENTS[0]
# What a process of n threads has: contexts with a PD and an MR each; QPs, each with a CQ; UARs.
OF_PAPER = {"mpi-everywhere": lambda n: (n, n, 8 * n), "2xdynamic": lambda n: (1, 2 * n, 8 + 2 * n),
            "dynamic": lambda n: (1, n, 8 + n), "shared-dynamic": lambda n: (1, n, 8 + (n + 1) // 2),
            "static": lambda n: (1, n, 8), "mpi+threads": lambda n: (1, 1, 8)}


def lines(of_bytes=lambda value, name, n: value, of_uars=lambda value, name: value, kernel="static"):
    """What `heddle plan` prints where bytes and UARs are the paper's, or something else in their place."""
    for n in THREADS:
        categories = []
        for name, formula in OF_PAPER.items():
            contexts, qps, uars = formula(n)
            size = contexts * ((256 << 10) + 2 * 144) + qps * (89 << 10)
            categories.append({"category": name, "uars": of_uars(uars, name), "uars_by_icpads18": uars,
                               "bytes": of_bytes(size, name, n), "bytes_by_table_1_of_icpads18": size})
        yield {"threads": n, "uar_kernel": kernel, "categories": categories}


def verdict(*words, **names):
    return RESOURCES.verdict(list(lines(*words, **names)))


class Resources(unittest.TestCase):
    def test_the_papers_numbers(self):
        said = verdict()
        self.assertEqual(said.state, "like")
        self.assertIn("UARs are the paper's in 30 of 30 cases", said.text)
        self.assertEqual(verdict(lambda value, name, n: 3 * value).state, "like", "one factor for all")

    def test_null_models(self):
        self.assertEqual(verdict(lambda value, name, n: 1 << 20).state, "partly", "bytes that are a constant")
        self.assertIn("Bytes: 0 of 6", verdict(lambda value, name, n: 10_000_000 * n).text)
        for other in (lambda value, name, n: 1 << 20, lambda value, name, n: 100_000 * n):
            self.assertEqual(verdict(other, lambda value, name: 1).state, "unlike")

    def test_one_category_is_off(self):
        said = verdict(lambda value, name, n: value * (2 if name == "static" else 1))
        self.assertEqual(said.state, "partly")
        self.assertRegex(said.text, r"5 of 6 curves are like the paper's; not Static \(at \d+ 1.8 times\)")

    def test_uars(self):
        said = verdict(of_uars=lambda value, name: value + (name == "dynamic"))
        self.assertEqual(said.state, "partly")
        self.assertIn("UARs are the paper's in 25 of 30 cases, not: Dynamic by 1 threads 10 instead of 9", said.text)
        said = verdict(kernel="dynamic")
        self.assertEqual(said.state, "partly", "they cannot be compared")
        self.assertIn("not those of the paper's kernel", said.text)

    def test_a_category_that_cannot_be_made(self):
        rows = list(lines())
        rows[2]["categories"][1] = {"category": "2xdynamic", "error": "no room for a queue pair"}
        said = RESOURCES.verdict(rows)
        self.assertEqual((said.state, said.text), ("cannot", "Not made: 2xdynamic (no room for a queue pair)."))
        self.assertEqual(len(RESOURCES.panels(rows)), 2)
        self.assertEqual(len(RESOURCES.points(rows)), 2 * 29)


if __name__ == "__main__":
    unittest.main(verbosity=2)
