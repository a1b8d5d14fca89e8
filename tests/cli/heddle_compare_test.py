# SPDX-License-Identifier: BSD-2-Clause
"""heddle compare: what it runs, what it concludes, and what it says of programs that fail. The times of
the programs differ by their own sleeping, so that no verdict depends on the machine."""

import csv
import io
import json
import os
import signal
import subprocess
import time

from harness import BUILD_DIR, TEST_DIR, Case, main

HEDDLE = os.path.join(BUILD_DIR, "bin", "heddle")
# A program knows by this variable whether it runs over heddle.
OVER_HEDDLE = 'test "$FI_PROVIDER" = heddle'


class Compare(Case):
    def setUp(self):
        super().setUp()
        for name in list(self.environment):
            if name.startswith(("FI_", "MPIR_CVAR_", "OMPI_MCA_", "I_MPI_")):
                del self.environment[name]

    def compare(self, *arguments, status=0, **options):
        result = self.softhca("compare", *arguments, command=HEDDLE, **options)
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        return result

    def result(self, *arguments, status=0, **options):
        return json.loads(self.compare("--json", *arguments, status=status, **options).stdout)

    def script(self, text):
        return self.write("program", "#!/bin/sh\n" + text, 0o755)

    def conclusion(self, result):
        return " ".join(result.stdout.split("Conclusion: ")[1].split())

    def test_slower_over_heddle(self):
        program = self.script(f"if {OVER_HEDDLE}; then sleep 1; fi\n")
        result = self.compare("--rounds", "6", "--warmup", "0", "--", program)
        conclusion = self.conclusion(result)
        self.assertIn("heddle does not help here: the program takes", conclusion)
        self.assertRegex(result.stdout, r"(?m)^heddle .* slower *$")
        self.assertIn("The runs are short", conclusion)

    def test_faster_over_heddle(self):
        program = self.script(f"{OVER_HEDDLE} || sleep 1.5\n")
        report = self.result("--rounds", "6", "--warmup", "0", "--", program)
        self.assertIn(f"Use heddle run -- {program}: it takes 0.", report["conclusion"])
        plain, heddle = report["variants"]
        self.assertEqual((heddle["verdict"], len(plain["seconds"]), len(heddle["seconds"])),
                         ("faster", 6, 6))
        self.assertLess(heddle["interval"][1], 1)

    def test_null_model(self):
        # Each run is much shorter or longer than the one before it: there is noise, and no difference.
        # The sides take turns in beginning a round, so each is the longer one in every other round.
        program = self.script('n=$(cat count 2>/dev/null || echo 0); echo $((n + 1)) > count\n'
                              'test $((n % 2)) = 0 || sleep 0.5\n')
        report = self.result("--null", "--rounds", "8", "--warmup", "0", "--", program,
                             cwd=self.scratch)
        plain, again = report["variants"]
        self.assertEqual((plain["name"], again["name"]), ("plain", "plain again"))
        self.assertEqual(plain["command"], again["command"])
        self.assertLess(again["interval"][0], 1)
        self.assertGreater(again["interval"][1], 1)
        self.assertEqual(again["verdict"], "no difference")
        self.assertIn("Null model: no difference", report["conclusion"])
        os.remove(self.path("count"))
        # The same over heddle, where a first run is not timed and makes the count odd.
        conclusion = self.conclusion(self.compare("--rounds", "8", "--warmup", "0", "--", program,
                                                  cwd=self.scratch))
        self.assertIn("heddle does not help here: no difference from the plain program", conclusion)
        self.assertIn("The runs vary so much", conclusion)

    def test_too_few_rounds(self):
        report = self.result("--rounds", "2", "--", "true")
        self.assertIn("Too few rounds for a conclusion: 6 are the least", report["conclusion"])
        self.assertEqual(report["variants"][1]["verdict"], "too few rounds")

    def test_failure_over_heddle(self):
        program = self.script(f"if {OVER_HEDDLE}; then echo it is bad here >&2; exit 3; fi\n")
        result = self.compare("--", program, status=1)
        conclusion = self.conclusion(result)
        self.assertIn('"heddle" failed: exit status 3 in the first run.', conclusion)
        self.assertIn("runs without heddle and fails over it", conclusion)
        self.assertIn("    | it is bad here", result.stdout)

    def test_failure_everywhere(self):
        result = self.compare("--", "sh", "-c", "exit 7", status=1)
        conclusion = self.conclusion(result)
        self.assertIn('"plain" failed: exit status 7 in the first run.', conclusion)
        self.assertIn('"heddle" failed: exit status 7 in the first run.', conclusion)
        self.assertIn("fails without heddle, too: there is nothing to compare", conclusion)

    def test_failure_without_heddle(self):
        program = self.script(f"{OVER_HEDDLE} || exit 5\n")
        conclusion = self.conclusion(self.compare("--", program, status=1))
        self.assertIn('"plain" failed: exit status 5 in the warm-up', conclusion)

    def test_failure_in_a_round(self):
        program = self.script(f"if {OVER_HEDDLE}; then echo >> runs; test $(wc -l < runs) -lt 4; fi\n")
        report = self.result("--", program, status=1, cwd=self.scratch)
        self.assertEqual(report["variants"][1]["failure"], "exit status 1 in round 2")
        self.assertEqual(len(report["variants"][1]["seconds"]), 1)

    def test_end_by_a_signal(self):
        for name in ("HUP", "SEGV"):
            number = getattr(signal, "SIG" + name)
            program = self.script(f"if {OVER_HEDDLE}; then kill -{name} $$; fi\n")
            conclusion = self.conclusion(self.compare("--", program, status=1))
            self.assertIn(f'"heddle" failed: signal {number:d} (', conclusion)
        program = self.script(f"if {OVER_HEDDLE}; then exit 139; fi\n")
        conclusion = self.conclusion(self.compare("--", program, status=1))
        self.assertIn("exit status 139, which says signal 11", conclusion)

    def test_a_program_that_does_not_end(self):
        # In a session of its own, as launchers start ranks, and deaf to SIGTERM.
        program = self.script(f"{OVER_HEDDLE} || exit 0\ntrap '' TERM\n"
                              "setsid sh -c 'trap \"\" TERM; echo $$ > pid; while :; do sleep 1; done' &\n"
                              "while :; do sleep 1; done\n")
        for patience in ("1", "5", "25"):  # so long that the program has been started
            result = self.compare("--patience", patience, "--", program, status=1, cwd=self.scratch)
            if os.path.exists(self.path("pid")):
                break
        self.assertIn('"heddle" failed: not ended after ', self.conclusion(result))
        with open(self.path("pid"), encoding="ascii") as file:
            pid = int(file.read())
        self.assertRaises(ProcessLookupError, os.kill, pid, 0)

    def test_interrupted(self):
        folder = self.path("tmp")
        os.mkdir(folder)
        program = self.script("echo $$ > started; exec sleep 600\n")
        with subprocess.Popen([HEDDLE, "compare", "--", program], cwd=self.scratch,
                              env={**self.environment, "TMPDIR": folder}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            started = self.path("started")
            while not os.path.exists(started) or not os.path.getsize(started):
                self.assertIsNone(process.poll())
                time.sleep(0.01)
            process.send_signal(signal.SIGHUP)
            _, error = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 128 + signal.SIGHUP, error)
        with open(started, encoding="ascii") as file:
            self.assertRaises(ProcessLookupError, os.kill, int(file.read()), 0)
        self.assertEqual(os.listdir(folder), [])

    def test_plain_runs_know_nothing_of_heddle(self):
        program = self.script("echo run >> runs; env >> runs; readlink /proc/self/fd/0 >> runs\n")
        env = {"FI_PROVIDER": "heddle", "FI_HEDDLE_POST": "verbs", "I_MPI_OFI_PROVIDER": "heddle",
               "FI_PROVIDER_PATH": os.path.join(BUILD_DIR, "lib"), "MPIR_CVAR_NOLOCAL": "1"}
        result = self.softhca("run", HEDDLE, "compare", "--rounds", "1", "--warmup", "0", "--",
                              program, env=env, cwd=self.scratch)
        self.assertEqual(result.returncode, 0, result.stderr)
        with open(self.path("runs"), encoding="utf-8") as file:
            runs = file.read().split("run\n")[1:]
        self.assertEqual(len(runs), 3)  # the profile's, then one of each
        for run in (runs[0], runs[2]):
            self.assertIn("FI_PROVIDER=heddle\n", run)
            self.assertIn("libsofthca.so", run)
        for trace in ("FI_PROVIDER", "FI_HEDDLE_", "I_MPI_OFI_PROVIDER", "libsofthca.so"):
            self.assertNotIn(trace, runs[1])
        self.assertIn("MPIR_CVAR_NOLOCAL=1\n", runs[1])
        for run in runs:
            self.assertTrue(run.endswith("/dev/null\n"), run)

    def test_ranks(self):
        self.write("bin/mpiexec", '#!/bin/sh\nshift 2\nexec "$@"\n', 0o755)
        path = {"PATH": self.path("bin") + ":" + os.environ["PATH"]}
        program = self.script("exit 0\n")
        report = self.result("-n", "3", "--rounds", "1", program, "a b", env=path)
        plain, heddle = (variant["command"] for variant in report["variants"])
        self.assertEqual(plain, f"{self.path('bin', 'mpiexec')} -n 3 {program} 'a b'")
        self.assertEqual(heddle, f"heddle run -n 3 -- {program} 'a b'")

    def test_profile_and_suggestion(self):
        """A program whose messages are known, by what its processes wrote."""
        counts = {"eager": 5000, "inlined": 8000, "received": 13000, "unexpected": 100,
                  "rendezvous": 2000, "connections": 3, "endpoints": 1, "reuse_entries": 2048}
        sizes = [0] * 21
        sizes[12] = 5000
        exchange = os.path.join(TEST_DIR, "fi_exchange")
        known = self.path("known.json")
        self.assert_run(self.softhca("run", "--stats-file", known, "--", exchange, command=HEDDLE), 0)
        with open(known, encoding="utf-8") as file:
            line = json.load(file)
        line = {key: 0 if isinstance(value, int) and not isinstance(value, bool) else value
                for key, value in line.items()}
        line.update(counts, copied_by_size=sizes, gathered_by_size=[0] * 21,
                    buffers_by_uses=[0] * 9 + [12] + [0] * 7)
        self.write("counts", json.dumps(line) + "\n")
        program = self.script('env | grep ^FI_ >> seen; test -z "$FI_HEDDLE_STATS" || '
                              'cat counts >> "$FI_HEDDLE_STATS"\n')
        result = self.compare("--rounds", "1", "--warmup", "0", "--", program, cwd=self.scratch)
        command = "FI_HEDDLE_RINGS=3 FI_HEDDLE_REUSE=64 heddle run --rndv auto -- " + program
        self.assertIn(f"suggested: {command}\n", result.stdout)
        shown = " ".join(result.stdout.split())
        self.assertIn("15000 messages of 1 process: 53 % inline, 33 % up to 4096 B, 13 % by "
                      "rendezvous; 1 % unexpected; 12 of 12 small buffers used 64 times or more",
                      shown)
        self.assertEqual(result.stdout.count("Suggested: "), 3)
        with open(self.path("seen"), encoding="utf-8") as file:
            seen = file.read()
        for variable in ("FI_HEDDLE_RINGS=3", "FI_HEDDLE_REUSE=64", "FI_HEDDLE_RNDV=auto"):
            self.assertEqual(seen.count(variable + "\n"), 1)
        # Messages that come before their receives: no tuple queues.
        line.update(unexpected=9100)
        self.write("counts", json.dumps(line) + "\n")
        result = self.compare("--rounds", "1", "--warmup", "0", "--", program, cwd=self.scratch)
        self.assertNotIn("--rndv", result.stdout)
        self.assertIn("Note: 70 % of the messages come before", " ".join(result.stdout.split()))

    def test_a_program_over_softhca(self):
        """Real messages: the profile is what the program sends."""
        program = self.script(f"{OVER_HEDDLE} || exit 0\nexec {TEST_DIR}/fi_exchange\n")
        report = self.result("--rounds", "6", "--warmup", "0", "--", program)
        self.assertTrue(report["software_hca"])
        self.assertEqual(report["profile"]["rendezvous"], 1)
        self.assertEqual(report["profile"]["endpoints"], 2)
        self.assertIn("do not predict any on hardware", report["conclusion"])
        self.assertIn("heddle does not help here", report["conclusion"])
        self.assertIn("softhca, which does an adapter's work", report["conclusion"])

    def test_many_small_messages(self):
        """They suggest rings, which the program then has."""
        program = self.script(f"{OVER_HEDDLE} || exit 0\nexec {TEST_DIR}/fi_exchange small 2500\n")
        report = self.result("--rounds", "1", "--warmup", "0", "--", program)
        self.assertEqual(report["profile"]["inlined"], 2501)
        self.assertGreaterEqual(report["profile"]["received"], 2503)
        suggested = report["variants"][2]
        self.assertRegex(suggested["command"], r"^FI_HEDDLE_RINGS=\d+ heddle run -- ")
        self.assertIsNone(suggested["failure"])
        self.assertRegex(report["profile"]["suggested"][0], "^100 % of the messages are small")

    def test_csv(self):
        result = self.compare("--format", "csv", "--rounds", "2", "--", "true")
        rows = list(csv.DictReader(io.StringIO(result.stdout)))
        self.assertEqual([(row["variant"], row["round"]) for row in rows],
                         [("plain", "1"), ("plain", "2"), ("heddle", "1"), ("heddle", "2")])
        for row in rows:
            self.assertGreater(float(row["seconds"]), 0)

    def test_bad_arguments(self):
        self.compare(status=125)
        self.compare("--", "no-such-program", status=127)
        for arguments in (("--rounds", "0"), ("--format", "xml"), ("--patience", "-1")):
            self.compare(*arguments, "--", "true", status=2)


if __name__ == "__main__":
    main()
