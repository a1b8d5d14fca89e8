# SPDX-License-Identifier: BSD-2-Clause
"""Programs without the reuse of buffers and with it: bench/mpi/phases.py and what the report says of its lines."""

import json
import subprocess
import sys
import tempfile
import unittest
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "report"), str(HERE.parents[1] / "bench" / "mpi")]
import fake_mpi  # noqa: E402
import phases  # noqa: E402
import rndv_modes  # noqa: E402
from heddle_report.experiments.reuse_applications import EXPERIMENTS  # noqa: E402

BY_KEY = {each.key: each for each in EXPERIMENTS}
APPLICATIONS = BY_KEY["reuse-applications"]


def said(key, rows):
    return BY_KEY[key].verdict(list(rows))


def applications(cores=4, **others):
    return said("reuse-applications", fake_mpi.applications(None, {**fake_mpi.APPLICATIONS, **others}, cores))


class Verdicts(unittest.TestCase):
    def test_the_papers_values(self):
        found = applications()
        self.assertEqual(found.state, "like", found.text)
        self.assertEqual(applications(cores=2).state, "partly", "times are not judged")
        self.assertIn("4 ranks take turns on 2 cores", applications(cores=2).text)

    def test_sends_are_judged(self):
        for others in ({"lattice": (44, 1, 0)}, {"lu": (98, 4, 30)}):  # a gain counts as a loss does
            self.assertEqual(applications(**others).state, "partly", "shares are like the paper's")
            self.assertEqual(applications(multigrid=(0, 1, 1), cg=(98, 1, 1), **others).state, "unlike")
        flat = applications(lattice=(44, 1, 12.6), lu=(98, 4, 12.6))
        self.assertIn("Time of sends saved: 0 of 2 curves are like the paper's", flat.text)

    def test_shares_are_judged(self):
        for share in (0, 43, 71, 98, 100):
            same = {name: (share, saved, sends) for name, (_, saved, sends) in fake_mpi.APPLICATIONS.items()}
            self.assertEqual(applications(**same).state, "partly", f"sends are like the paper's, not the constant {share}")
            self.assertEqual(applications(cores=2, **same).state, "unlike", f"the constant {share}")

    def test_losses(self):
        self.assertEqual(applications(cg=(43, -6, 1)).state, "partly", "a loss")
        lost = applications(cg=(43, -6, 1), multigrid=(77, -6, 1), **{"LAMMPS melt": (0, -6, 0)})
        self.assertEqual(lost.state, "unlike", "losses")
        self.assertEqual(applications(cg=(43, -6, 1), lattice=(44, 30, 7)).state, "partly",
                         "gains do not outweigh a loss")

    def test_a_program_without_sends(self):
        rows = list(fake_mpi.applications(None, fake_mpi.APPLICATIONS, 4))
        for row in rows:
            if row["program"] == "cg":
                row["with"]["send_s"] = row["without"]["send_s"] = [0.0] * len(row["with"]["send_s"])
        self.assertEqual(APPLICATIONS.verdict(rows).state, "like")
        keys = {point.key for point in APPLICATIONS.points(rows)}
        self.assertNotIn(("cg", "time saved, sends"), keys)
        self.assertIn(("lu", "time saved, sends"), keys)
        self.assertTrue(APPLICATIONS.panels(rows))

    def test_a_spread_that_hides_a_loss(self):
        rows = list(fake_mpi.applications(None))
        rows[3]["without"]["run_s"] = [0.9, 0.95, 1.0, 1.0, 1.0, 1.05, 1.1]
        found = said("reuse-applications", rows)
        self.assertEqual(found.state, "partly")
        self.assertIn("hides a loss of 5 % of cg", found.text)

    def test_what_is_missing(self):
        for name in fake_mpi.APPLICATIONS:
            rows = [row for row in fake_mpi.applications(None) if row["program"] != name]
            self.assertEqual(said("reuse-applications", rows).text, f"Not measured: {name}.")

    def test_npb(self):
        def of(cores=4, **others):
            return said("reuse-npb", fake_mpi.npb_reuse({**fake_mpi.NPB, **others}, cores=cores)).state

        self.assertEqual(of(), "like")
        self.assertEqual(of(cores=2), "partly", "times are not judged")
        self.assertEqual(of(cg=(43, -6)), "partly", "a loss")
        self.assertEqual(of(cg=(43, -6), lu=(98, -6), ft=(0, -6)), "unlike", "losses")
        for share in (0, 43, 71, 98, 100):
            self.assertEqual(of(cg=(share, 0), lu=(share, 0), cores=2), "unlike", f"the constant {share}")
        self.assertEqual(of(cg=(98, 0), lu=(43, 0), cores=2), "unlike", "the other program's value")
        for name in fake_mpi.NPB:
            rows = [row for row in fake_mpi.npb_reuse() if not row["program"].startswith(name)]
            self.assertEqual(said("reuse-npb", rows).state, "cannot", f"no {name}")

    def test_values(self):
        rows = list(fake_mpi.applications(None))
        found = {point.key: point for point in APPLICATIONS.points(rows)}
        self.assertAlmostEqual(found["lu", "time saved, sends"].value, 18)
        self.assertEqual(found["lu", "time saved, sends"].paper, 18.3)
        self.assertAlmostEqual(found["lu", "time saved, run"].value, 4)
        self.assertIsNone(found["lu", "time saved, run"].paper)
        self.assertEqual(found["lattice", "messages from reused buffers"].paper, 44.26)
        self.assertEqual(len(APPLICATIONS.panels(rows)), 2)


class Measured(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = Path(scratch.name)

    def test_what_a_job_wrote(self):
        path = self.scratch / "phases.json"
        with self.assertRaisesRegex(phases.Broken, "wrote no times"):
            phases.read(path, 4)
        path.write_text('{"ranks": 4, "send_s": 0.1, "communication_s": 0.2, "run_s": 0.3}\n', encoding="ascii")
        self.assertEqual(phases.read(path, 4), {"send_s": 0.1, "communication_s": 0.2, "run_s": 0.3})
        with self.assertRaisesRegex(phases.Broken, "4 of 2 ranks"):
            phases.read(path, 2)

    def test_the_library_comes_behind_what_is_preloaded(self):
        words = [*phases.preloaded("/lib/phases.so"), "printenv", "LD_PRELOAD"]
        for before, after in (({"LD_PRELOAD": ""}, "/lib/phases.so"), ({"LD_PRELOAD": "/lib/x.so"},
                                                                     "/lib/x.so:/lib/phases.so")):
            done = subprocess.run(words, capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin",
                                                                                          **before})
            self.assertEqual(done.stdout.strip(), after)

    def test_programs_that_are_right(self):
        for text in ("multigrid: 4 ranks with 24^3 points, 1.234 s: correct\n", "lattice: 0.512 s: correct\n",
                     "lu: 0.5 s, 0.01 ms an iteration: correct\n", "cg: 0.3 s, 0.1 ms an iteration: correct\n"):
            done = SimpleNamespace(returncode=0, stdout=text)
            self.assertEqual(rndv_modes.why_useless(done, 4), "", text)
            done.stdout = text.replace("correct", "WRONG")
            self.assertIn("not verified: WRONG", rndv_modes.why_useless(done, 4))

    def test_what_is_printed_is_what_the_report_reads(self):
        parts = {part: [1.0, 2.0] for part in phases.PARTS}
        options = SimpleNamespace(ranks=4, hardware=False)
        words = (options, SimpleNamespace(name="an MPI"), "reuse-npb", "lu.B", {"off": parts, "auto": parts},
                 {"inlined": 1, "copied_by_size": [0, 3], "gathered_by_size": [0, 1]})
        with redirect_stdout(StringIO()) as printed:
            phases.print_line(*words)
        self.assertLessEqual(set(APPLICATIONS.needs), set(json.loads(printed.getvalue())))
        with redirect_stdout(StringIO()) as printed:
            phases.print_text(*words)
        self.assertIn("| sends | 1.5000 | 1.5000 | +0.0 |", printed.getvalue())
        self.assertIn("25.0 % of 4 small messages were not copied", printed.getvalue())


if __name__ == "__main__":
    unittest.main(verbosity=2)
