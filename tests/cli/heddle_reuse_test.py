# SPDX-License-Identifier: BSD-2-Clause
"""heddle calibrate and heddle bench reuse-...: what they print, and the file that is kept."""

import json
import os

from harness import BUILD_DIR, TEST_DIR, Case, main


class Reuse(Case):
    def heddle(self, *arguments, status=0, **environment):
        program = os.path.join(BUILD_DIR, "bin", "heddle")
        result = self.softhca("run", "--", program, *arguments,
                              env={"XDG_CACHE_HOME": self.scratch, **environment})
        self.assertEqual(result.returncode, status, result.stderr)
        return result

    def test_calibration_is_kept(self):
        shown = self.heddle("calibrate", "--show", status=1)
        self.assertRegex(shown.stderr, "nothing is known of mlx5_0 on this host yet")
        measured = json.loads(self.heddle("calibrate", "--json").stdout)
        self.assertTrue(measured["file"].startswith(self.scratch))
        self.assertEqual([size["bytes"] for size in measured["sizes"]],
                         [128 << i for i in range(7)])
        for size in measured["sizes"]:
            self.assertGreater(size["registration_ns"], 0)
            self.assertEqual(set(size["ways"]), {"send", "ring", "one-sided"})
        spread = measured["spread"]
        self.assertEqual([size["bytes"] for size in spread["sizes"]], [128 << i for i in range(7)])
        for size, kept in zip(spread["sizes"], measured["sizes"]):
            least, most = size["registration_ns"]
            self.assertTrue(least <= kept["registration_ns"] <= most, (size, kept))
            for way, each in size["ways"].items():
                # Nothing was kept before: the rounds decide.
                pays = each["rounds_that_pay"]
                self.assertEqual(each["uses"][0] is None, pays == 0, (way, each))
                self.assertEqual(each["uses"][1] is None, pays < spread["rounds"], (way, each))
        known = json.loads(self.heddle("calibrate", "--show", "--json").stdout)
        self.assertNotIn("spread", known)
        self.assertEqual(measured["sizes"], known["sizes"])
        self.assertEqual(measured["post"], known["post"])
        self.assertEqual([(size["queue_pairs"], size["bytes"]) for size in known["post"]["sizes"]],
                         [(queue_pairs, size) for queue_pairs in (1, 64)
                          for size in (8, 64, 512, 4096, 8192)])
        for size in known["post"]["sizes"]:
            self.assertGreater(min(size["verbs_ns"], size["direct_ns"]), 0)
        shown = self.heddle("calibrate", "--show").stdout
        self.assertRegex(shown, "(?m)^ *4096 ")
        self.assertRegex(shown, r"(?m)^ *64 +8192 +\d+ +\d+ +\d\.\d\d$")
        self.assertIn(f"FI_HEDDLE_POST=auto is {known['post']['auto']}", shown)
        self.assertIn("Conclusion: " + known["conclusion"], " ".join(shown.split()))
        for way in ("send", "ring", "one-sided"):
            self.assertIn(way, known["conclusion"])
        self.assertIn("a simulator", known["conclusion"])

    def test_damaged_file(self):
        path = json.loads(self.heddle("calibrate", "--json").stdout)["file"]
        with open(path, "w", encoding="utf-8") as file:
            file.write("heddle reuse costs 1\n4096 -1 what\n")
        self.heddle("calibrate", "--show", status=1)

    def test_nowhere_to_keep_it(self):
        done = self.heddle("calibrate", XDG_CACHE_HOME="/proc/nowhere")
        self.assertRegex(done.stderr, "could not be written")
        done = self.heddle("calibrate", XDG_CACHE_HOME="", HOME="")
        self.assertRegex(done.stderr, "it is not kept")

    def rows(self, *arguments):
        done = self.heddle("bench", *arguments, "--json", "--time", "1", "--repetitions", "3")
        return [json.loads(line) for line in done.stdout.splitlines()]

    def test_experiments(self):
        for name, processes in (("pingpong", 2), ("bcast", 3), ("scatter", 3)):
            more = ("--processes", "3") if processes == 3 else ()
            rows = self.rows(f"reuse-{name}", "--bytes", "512", "8192", *more)
            self.assertEqual([(row["channel"], row["bytes"]) for row in rows],
                             [(channel, bytes_) for channel in ("send", "ring")
                              for bytes_ in (512, 8192)])
            for row in rows:
                self.assertEqual(row["processes"], processes)
                self.assertEqual(len(row["seconds_with"]), 3)
                self.assertGreaterEqual(row["without_copy"], 0)
                self.assertLessEqual(row["without_copy"], 1)
        for name in ("put", "get"):
            rows = self.rows(f"reuse-{name}", "--bytes", "256")
            self.assertEqual([row["channel"] for row in rows], ["rma"])

    def test_spectrum(self):
        for name, channel, more in (("", "ring", ("--channel", "ring")), ("-put", "rma", ()),
                                    ("-get", "rma", ())):
            rows = self.rows(f"reuse-spectrum{name}", "--bytes", "8192", "--buffers", "30", *more)
            self.assertEqual([(row["channel"], row["learning"]) for row in rows],
                             [(channel, "inside"), (channel, "before")])
            inside, before = rows
            for row in rows:
                self.assertTrue(row["spectrum"])
                self.assertEqual((row["buffers_wanted"], row["bytes"]), (30, 8192))
                self.assertLessEqual(row["buffers"], 30)
                self.assertEqual(len(row["seconds_with"]), 3)
            # Each repetition learns anew: messages before a registration are copied.
            self.assertLess(inside["without_copy"], 0.95)
            if before["without_copy"] > 0:
                self.assertGreater(before["without_copy"], inside["without_copy"])
            # A registration costs more than the copies of a buffer that few messages are sent from.
            self.assertLessEqual(inside["expected_gain"], before["expected_gain"])

    def test_buffers_that_are_not_used_again(self):
        rows = self.rows("reuse-never", "--bytes", "1024", "--runs", "1")
        self.assertEqual([(row["reuse"], row["buffers"]) for row in rows],
                         [(reuse, buffers) for reuse in ("off", "auto", "16")
                          for buffers in (None, 1000000)])
        for row in rows:
            self.assertEqual(len(row["seconds_with"]), 3)
            self.assertEqual(row["without_copy"], 0)
            if row["reuse"] == "off":
                self.assertEqual((row["looked_up"], row["table_bytes"]), (0, 0))
                continue
            self.assertGreater(row["looked_up"], 200000)
            self.assertGreater(row["rests"], 0)
            # 8192 entries of sources; that of destinations is not used
            self.assertEqual(row["table_bytes"], 16 * (8192 + 1024))

    def test_report_of_a_program(self):
        for program, status in (("true", 0), ("false", 1)):
            done = self.softhca("run", "--softhca", "never", "--reuse-report", "--", program,
                                command=os.path.join(BUILD_DIR, "bin", "heddle"))
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertIn("No process has used heddle to its end", done.stderr)
        exchange = os.path.join(TEST_DIR, "fi_exchange")
        done = self.softhca("run", "--reuse-report", "--", exchange,
                            command=os.path.join(BUILD_DIR, "bin", "heddle"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"Eager messages of \d+ process(es)? ")
        self.assertRegex(done.stderr, r"(?m)^all +\d+ +\d+ ")
        self.assertRegex(done.stderr, r"Conclusion: \S+")
        done = self.softhca("run", "--explain", "--", exchange,
                            command=os.path.join(BUILD_DIR, "bin", "heddle"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("Conclusion: Tuple queues were not asked for. 33 % of the messages", done.stderr)
        self.heddle("run", "--reuse-report", "--stats", "--", "true", status=2)

    def test_bad_arguments(self):
        for arguments in (("--bytes", "0"), ("--bytes", "9000"), ("--channel", "pigeon")):
            self.heddle("bench", "reuse-pingpong", *arguments, status=2)


if __name__ == "__main__":
    main()
