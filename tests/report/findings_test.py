# SPDX-License-Identifier: BSD-2-Clause
"""The table of what the papers found has every experiment that reproduces something, and the papers' own numbers."""

import re
import sys
import unittest
from pathlib import Path
from types import SimpleNamespace

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "report"))
from heddle_report import catalogue, findings, model  # noqa: E402
from heddle_report.reference import table  # noqa: E402

EXPERIMENTS = {each.key: each for each in catalogue.all_experiments()}


def rate(file, figure, name, x):
    """As the tables have it: with one decimal."""
    heads = list(table(file)[0])
    for row in table(file):
        values = [row[head] for head in heads]
        if values[:3] == [figure, name, str(x)]:
            return float(values[3])
    raise AssertionError(f"{file} has no {figure}, {name}, {x}")


def found(paper, where, word=""):
    return next(each.what for each in findings.FINDINGS
                if each.paper == paper and each.where == where and word in each.what)


class Findings(unittest.TestCase):
    def test_each_names_experiments_of_its_paper(self):
        for each in findings.FINDINGS:
            self.assertTrue(each.where and each.what and each.differs, each)
            for key in each.by:
                self.assertEqual(EXPERIMENTS[key].paper, each.paper, key)

    def test_no_experiment_of_a_paper_is_missing(self):
        cited = {key for each in findings.FINDINGS for key in each.by}
        for key, each in EXPERIMENTS.items():
            if each.where and each.where != model.NOT_IN_THE_PAPER:
                self.assertIn(key, cited)
                figures = set(re.findall(r"\d+", each.where))
                rows = [row for row in findings.FINDINGS if key in row.by]
                self.assertLessEqual(figures, {number for row in rows for number in re.findall(r"\d+", row.where)}, key)

    def numbers(self, text):
        return [float(each) for each in re.findall(r"\d+(?:\.\d+)?", text)]

    def test_numbers_are_those_of_the_reference(self):
        def icpads(figure, name, x):
            return round(rate("icpads18", figure, name, x), 1)

        for figure, values in (
                ("2b", [icpads("2b", "MPI+threads", 16), icpads("2b", "MPI everywhere", 16)]),
                ("3", [icpads("3", "All", 16), icpads("3", "w/o Inlining", 16), icpads("3", "w/o Postlist", 16)]),
                ("5", [icpads("5", "w/o Inlining", 1), icpads("5", "w/o Inlining", 16)]),
                ("7", [icpads("7", "w/o Postlist", 1), icpads("7", "w/o Postlist", 16),
                       icpads("7", "w/o Postlist Sharing 2", 16)]),
                ("9", [icpads("9", "All", 1), icpads("9", "All", 16), icpads("9", "w/o Unsignaled", 16)])):
            said = self.numbers(found("endpoints", f"Fig. {figure}"))
            for value in values:
                self.assertTrue(any(abs(value - each) < 0.11 for each in said), (figure, value, said))
        write = {row["category"]: float(row["mmsgs_per_s"]) for row in self.global_array()}
        self.assertEqual(round(100 * write["2xDynamic"] / write["MPI everywhere"]), 108)
        self.assertIn("108 %", found("endpoints", "headline", "2xDynamic"))
        uses = {row["channel"]: row["uses"] for row in table("reuse-break-even") if row["bytes"] == "8192"}
        self.assertEqual(self.numbers(found("reuse", "Table 2"))[:3],
                         [float(uses[way]) for way in ("ring", "send", "one-sided")])
        shares = [round(float(row["reused_percent"])) for row in table("reuse-programs")]
        self.assertEqual([each for each in self.numbers(found("reuse", "Table 3"))], shares)
        seconds = [round(float(row["seconds"]), 1) for row in table("tupleq-sp")]
        self.assertEqual(self.numbers(found("tupleq", "Fig. 6", "class B")), seconds)

    def global_array(self):
        for row in table("icpads18-applications"):
            figure, curve, category, value, *_ = row.values()
            if (figure, curve) == ("12", "RDMA write"):
                yield {"category": category, "mmsgs_per_s": value}


class Rows(unittest.TestCase):
    """With a run whose experiments have the states that a test gives them."""

    def rows(self, states):
        run = SimpleNamespace(state_of=lambda each: (states[each.key], ""))
        return findings.rows(run, [EXPERIMENTS[key] for key in states])

    def test_one_verdict_for_experiments_that_agree(self):
        row, = self.rows({"endpoints-8a": "like", "endpoints-8b": "like"})
        self.assertEqual(row.verdict, "as in the paper")
        row, = self.rows({"endpoints-8a": "like", "endpoints-8b": "unlike"})
        self.assertEqual(row.verdict, "endpoints-8a: as in the paper; endpoints-8b: unlike the paper")

    def test_what_nobody_has_is_shown_with_its_paper(self):
        rows = self.rows({"tupleq-smb": "partly"})
        self.assertEqual([row.verdict for row in rows], ["partly as in the paper", "cannot be shown here"])
        self.assertEqual(self.rows({"peers-messages": "like"}), [])

    def test_a_failure_is_visible(self):
        row, = self.rows({"endpoints-3": "failed"})
        self.assertEqual(row.verdict, "failed")

    def test_the_others_reproduce_nothing(self):
        others = findings.others(catalogue.all_experiments())
        self.assertTrue({"peers-messages", "tupleq-late", "reuse-rotation"} <= {each.key for each in others})
        self.assertTrue(all(not each.where or each.where == model.NOT_IN_THE_PAPER for each in others))


if __name__ == "__main__":
    unittest.main(verbosity=2)
