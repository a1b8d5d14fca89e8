# SPDX-License-Identifier: BSD-2-Clause
"""`heddle predict`: what it prints, and what it refuses. The model itself is in tests/predict."""

import glob
import json
import os
import unittest

from harness import BUILD_DIR, SOURCE_DIR, Case, main

HEDDLE = os.path.join(BUILD_DIR, "bin", "heddle")
MACHINE = os.path.join(SOURCE_DIR, "src", "predict", "machines", "connectx4-haswell.toml")
CATEGORIES = ["mpi-everywhere", "2xdynamic", "dynamic", "shared-dynamic", "static", "mpi+threads"]


class Predict(Case):
    def predict(self, *arguments, status=0, out=None, err=None):
        result = self.softhca("predict", *arguments, command=HEDDLE)
        return self.assert_run(result, status, out, err)

    def rows(self, *arguments):
        return [json.loads(line) for line in self.predict(*arguments, "--json").stdout.splitlines()]

    def test_a_table_says_that_it_is_a_prediction(self):
        said = self.predict("--threads", "16", out="Predicted, not measured: ConnectX-4").stdout
        for category in CATEGORIES:
            self.assertIn(category, said)
        self.assertIn("8 of 10 within", said)
        self.assertIn("limited by", said)
        self.assertNotIn("?", said)

    def test_what_the_paper_is_about(self):
        rows = {row["sharing"]: row for row in self.rows("--threads", "16", "--kernel=global-array")}
        self.assertEqual(list(rows), CATEGORIES)
        rates = {name: row["predicted_mmsgs_per_s"] for name, row in rows.items()}
        self.assertLess(rates["mpi+threads"], rates["static"] / 10)
        self.assertLess(rates["static"], rates["dynamic"])
        for row in rows.values():
            self.assertLessEqual(row["low"], row["high"])
            self.assertEqual(row["warnings"], [])
            self.assertEqual((row["post_list"], row["signal_every"]), (1, 1))
        self.assertEqual(rows["mpi+threads"]["limited_by"], "the QP's lock")

    def test_sharing_of_one_object(self):
        shared, alone = (
            self.rows("--threads", "16", "--category", "dynamic", "--signal-every", "1", *share)[0]
            for share in (("--share", "cq=16"), ())
        )
        self.assertEqual(shared["sharing"], "dynamic cq=16")
        self.assertEqual(shared["limited_by"], "the CQ's lock")
        self.assertLess(shared["predicted_mmsgs_per_s"], alone["predicted_mmsgs_per_s"] / 5)

    def test_bounds(self):
        said = self.predict("--threads", "16", "--bounds", out="by counts alone").stdout
        self.assertIn("the link", said)
        for bound, row in zip(self.rows("--bounds"), self.rows(), strict=True):
            self.assertEqual((bound["sharing"], bound["threads"]), (row["sharing"], row["threads"]))
            most = min(bound["at_most_mmsgs_per_s"].values())
            self.assertLess(row["predicted_mmsgs_per_s"], 1.01 * most)

    def test_payloads_that_the_adapter_fetches(self):
        row = self.rows("--threads", "16", "--category", "mpi-everywhere", "--no-inline")[0]
        self.assertEqual((row["inline"], row["limited_by"]), (False, "payload reads"))

    def test_beyond_what_it_was_fitted_with(self):
        said = self.predict("--threads", "32", "--bytes", "4096", "--category", "dynamic").stdout
        self.assertIn("? 32 threads: the model was fitted with at most 16.", said)
        self.assertIn("? messages of 4096 bytes:", said)
        self.assertEqual(len(self.rows("--threads", "32", "--category", "static")[0]["warnings"]), 1)

    def test_a_machine_file_of_ones_own(self):
        with open(MACHINE, encoding="utf-8") as file:
            text = file.read()
        own = self.write("own.toml", text.split("[interval")[0].replace("ConnectX-4 EDR", "Mine"))
        said = self.predict("--machine", own, "--threads=16", out="Predicted, not measured: Mine")
        self.assertIn("? this machine file was never validated.", said.stdout)
        row = self.rows("--machine", own, "--threads", "16")[0]
        self.assertEqual((row["low"], row["high"]), (None, None))

    def test_the_machine_file_of_a_host(self):
        file = self.path("here.toml")
        # It measures for 15 s where two processors do nothing else, and shares them here.
        result = self.softhca("run", "--uar", "static", "--", HEDDLE, "calibrate", "--machine", file, timeout=200)
        self.assert_run(result, 0, err="say nothing of an adapter")
        self.assertIn("figure 10", result.stderr)
        with open(file, encoding="utf-8") as text:
            text = text.read()
        self.assertIn("measured = true", text)
        self.assertIn("fitted on figure 3, All, 1", text)
        self.assertIn("fitted on latency, a message at a time, 1", text)
        said = self.predict("--machine", file, "--threads", "1", out="Predicted by measured costs:")
        self.assertIn("(software HCA)", said.stdout)
        result = self.softhca("run", "--", HEDDLE, "calibrate", "--machine", "/no/where.toml")
        self.assert_run(result, 1, err="/no/where.toml could not be written")
        self.assert_run(self.softhca("calibrate", "--machine", file, "--show", command=HEDDLE), 2)

    def test_a_machine_file_that_is_wrong(self):
        wrong = self.write("wrong.toml", "schema = 1\nname = 'x'\nthreads = 0\nbytes = 8\n")
        self.predict("--machine", wrong, status=1, err="wrong.toml:3: 'threads' has to be a whole")
        self.predict("--machine", self.path("none"), status=1, err="heddle predict: cannot read '")

    def test_what_cannot_be(self):
        for words, said in (
            (("--threads", "0"), "--threads"),
            (("--share", "cq=3"), "16 threads do not divide into groups of 3"),
            (("--share", "qp=2"), "share its context and its completion queue"),
            (("--share", "cq"), "RESOURCE=WAYS"),
            (("--signal-every", "256"), "from 1 to the depth (128)"),
            (("--signal-every", "48"), "a multiple of the other"),
            (("--kernel", "stensil"), "stencil"),
            (("--fit", "9"), "--fit"),
        ):
            self.predict("--threads", "16", "--category=dynamic", *words, status=2, err=said)

    def record(self, *words):
        """The files of a run."""
        recording = ("run", "--record", self.path("run.%p"), "--", HEDDLE, "bench", *words)
        self.assert_run(self.softhca(*recording, "--repetitions", "1"), 0)
        return sorted(glob.glob(self.path("run.*")))

    def test_a_recorded_run(self):
        files = self.record("stencil", "--threads", "8", "--category", "mpi-everywhere",
                            "--iterations", "16")
        rows = {row["endpoints"]: row for row in self.rows("--record", *files)}
        self.assertEqual(list(rows), ["as recorded", *CATEGORIES])
        rates = {name: row["predicted_mmsgs_per_s"] for name, row in rows.items()}
        self.assertEqual(rates["as recorded"], rates["mpi-everywhere"])
        self.assertLess(rates["static"], 0.8 * rates["dynamic"])
        self.assertLess(rates["mpi+threads"], 0.2 * rates["dynamic"])
        recorded = rows["as recorded"]
        self.assertEqual(recorded["warnings"], [])
        # As the device counted them, and in every category.
        totals = {"wqes": 0, "blueflame": 0}
        for name in files:
            with open(name, encoding="ascii") as file:
                for line in map(json.loads, file):
                    for key in totals:
                        totals[key] += line.get("totals", {}).get(key, 0)
        for row in rows.values():
            self.assertEqual({key: row[key] for key in totals}, totals)
            self.assertEqual(row["cqes"], recorded["cqes"])
        self.predict("--record", *files, out="What heddle posted:")

    def test_a_recorded_run_with_reads(self):
        files = self.record("global-array", "--threads", "2", "--category", "dynamic",
                            "--matrix", "32")
        said = self.predict("--record", *files, "--category", "dynamic").stdout
        self.assertIn("are READs or atomics: the model has no cost", said)
        self.assertRegex(said, r"(?m)^dynamic +\d+\.\d+ \?")

    def test_what_is_no_record(self):
        wrong = self.write("wrong", '{"schema":1,"kind":"softhca-record"}\n{"thread":0}\n')
        self.predict("--record", wrong, status=1, err="wrong:2: 'times' has to be a whole number")
        self.predict("--record", self.path("none"), status=1, err="heddle predict: cannot read '")
        empty = self.write("empty", '{"schema":1,"kind":"softhca-record"}\n')
        self.predict("--record", empty, status=2, err="nothing is posted in")

    def test_the_other_papers(self):
        self.predict("--other-papers", out="One-sided messages do not follow it.")
        rows = self.rows("--other-papers")
        for channel, least, most in (("ring", 0, 0.06), ("send", 0.02, 0.1), ("one-sided", 0.2, 1)):
            errors = [abs(row["predicted_uses"] / row["paper_uses"] - 1) for row in rows
                      if row["channel"] == channel and row["bytes"] >= 2048 and row["role"] == "unseen"]
            self.assertEqual(len(errors), 6)
            self.assertTrue(least <= max(errors) <= most, (channel, errors))

    def test_the_papers_points(self):
        lines = self.predict("--figures").stdout.splitlines()
        points = [json.loads(line) for line in lines]
        self.assertEqual({point["figure"] for point in points},
                         {"2b", "3", "5", "7", "8", "9", "10", "11", "12", "14"})
        roles = [point["role"] for point in points]
        self.assertGreater(roles.count("hard"), 140)
        self.assertGreater(roles.count("fitted"), 15)
        self.assertTrue(all(point["predicted_mmsgs_per_s"] > 0 for point in points))


if __name__ == "__main__":
    main()
