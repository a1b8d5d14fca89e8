# SPDX-License-Identifier: BSD-2-Clause
"""heddle bench overlap and heddle bench tuple-...: what they print. Not how long anything takes."""

import json
import os

from harness import BUILD_DIR, Case, main

WAYS = ["tupleq", "tupleq+copy", "rput", "rget", "auto"]


class Tuples(Case):
    def heddle(self, *arguments, status=0):
        program = os.path.join(BUILD_DIR, "bin", "heddle")
        result = self.softhca("run", "--", program, "bench", *arguments)
        self.assertEqual(result.returncode, status, result.stderr)
        return result

    def rows(self, *arguments, repetitions=2):
        done = self.heddle(*arguments, "--json", "--time", "0.5",
                           "--repetitions", str(repetitions))
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        for row in rows:
            self.assertTrue(row["software_hca"])
            self.assertLessEqual(row["found_no_receive"], 1)
        return rows

    def test_overlap(self):
        # Few turns: each message is a hand-over, which takes a time slice where others compute.
        rows = self.rows("overlap", "--bytes", "65536", repetitions=1)
        self.assertEqual([(row["side"], row["bytes"], row["way"]) for row in rows],
                         [(side, 65536, way) for side in ("sender", "receiver") for way in WAYS])
        for row in rows:
            for what in ("base_us", "overhead_us", "post_us", "wait_us", "work_us"):
                self.assertEqual(len(row[what]), 1)
            # One base for all: the fastest way's time.
            fastest = min(each["base_us"][0] for each in rows if each["side"] == row["side"])
            self.assertEqual(row["fastest_us"], fastest)
            lost = max(row["overhead_us"][0], row["base_us"][0] - fastest)
            self.assertAlmostEqual(row["availability"], max(0, 1 - lost / fastest))
            # Where there are queues, messages go through them once they are open.
            if row["way"].startswith("tupleq") or row["way"] == "auto":
                self.assertGreater(row["by_tuple"], 0.5)
            else:
                self.assertEqual(row["by_tuple"], 0)

    def test_overlap_of_one_side(self):
        for peer in ("spin", "sleep"):
            rows = self.rows("overlap", "--side", "receiver", "--peer", peer, "--bytes", "16384",
                             "--way", "rget", repetitions=1)
            self.assertEqual([(row["side"], row["way"], row["peer"]) for row in rows],
                             [("receiver", "rget", peer)])

    def test_latency(self):
        rows = self.rows("tuple-latency", "--bytes", "8", "8192")
        self.assertEqual([(row["bytes"], row["receives"], row["way"]) for row in rows],
                         [(size, receives, way) for size in (8, 8192)
                          for receives in ("before", "in turn") for way in ("tupleq+copy", "auto")])
        for row in rows:
            if row["receives"] == "before" and row["way"] == "tupleq+copy":
                self.assertGreater(row["by_tuple"], 0.5)

    def test_windows(self):
        for name, option, values in (("late", "--late", (0, 20)), ("many", "--tags", (1, 300)),
                                     ("wildcards", "--wildcards", (0, 50))):
            rows = self.rows(f"tuple-{name}", "--bytes", "16384", option, *map(str, values))
            self.assertEqual([(row["bytes"], row[name if name != "many" else "tags"], row["way"])
                              for row in rows], [(16384, value, "auto") for value in values])
            for row in rows:
                self.assertEqual(len(row["seconds"]), 2)
                self.assertEqual(len(row["seconds_rget"]), 2)
                self.assertGreater(row["ratio"], 0)

    def test_tables(self):
        shown = self.heddle("overlap", "--bytes", "8", "--way", "rget", "--time", "0.5",
                            "--repetitions", "1").stdout
        self.assertRegex(shown, r"(?m)^sender +8 +rget +\d")
        self.assertIn("software HCA", shown)
        shown = self.heddle("tuple-late", "--bytes", "0", "--late", "1", "--time", "0.5",
                            "--repetitions", "1").stdout
        self.assertRegex(shown, r"(?m)^ +0 +1 +auto +\d")

    def test_bad_arguments(self):
        for arguments in (("overlap", "--way", "pigeon"), ("overlap", "--side", "left"),
                          ("tuple-latency", "--late", "1"), ("tuple-wildcards", "--wildcards", "101"),
                          ("tuple-many", "--tags", "0")):
            self.heddle(*arguments, status=2)


if __name__ == "__main__":
    main()
