# SPDX-License-Identifier: BSD-2-Clause
"""`heddle reproduce` and `heddle report`: what is run and what not, what an interruption leaves, and that
the page is whole, needs nothing else, and shows nothing without saying how it came about."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "cli"), str(HERE.parents[1] / "report")]
from heddle_report.catalogue import all_experiments  # noqa: E402
from heddle_report.findings import others, rows  # noqa: E402
from heddle_report.runs import Run, state_text  # noqa: E402
from heddle_report.samples import load_outcome  # noqa: E402
from harness import BUILD_DIR, SOURCE_DIR, Case, main  # noqa: E402

VOID = {"meta", "link", "br", "img", "input", "hr", "col"}


class Page(HTMLParser):
    """Fails where tags do not close as they open, or an id is there twice."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.ids, self.links, self.text, self.tags = [], [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append((tag, attributes))
        if "id" in attributes:
            assert attributes["id"] not in self.ids, attributes["id"]
            self.ids.append(attributes["id"])
        self.links += [value for name, value in attributes.items()
                       if name in ("href", "src", "xlink:href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (tag, self.open[-3:], self.getpos())
        self.open.pop()

    def handle_data(self, data):
        self.text.append(data)


class Reports(Case):
    def setUp(self):
        super().setUp()
        self.log = self.path("calls")
        tree = Path(self.path("tree"))
        shutil.copytree(Path(SOURCE_DIR, "report"), tree / "report",
                        ignore=shutil.ignore_patterns("__pycache__"))
        reference = Path("src", "experiments", "reference")
        shutil.copytree(Path(SOURCE_DIR) / reference, tree / reference)
        self.scripts = tree / "bench" / "mpi"
        self.scripts.mkdir(parents=True)
        for name in ("operations.py", "heap.py", "counts.py", "overlap.py", "rndv_modes.py", "programs.py",
                     "categories.py", "outside.py", "applications.py"):
            shutil.copy(HERE / "fake_mpi.py", self.scripts / name)
        shutil.copy(HERE / "fake_mpi.py", tree / "bench" / "replay.py")
        self.programs = tree / "bin"
        self.programs.mkdir()
        shutil.copy(HERE / "fake_heddle.py", self.programs / "heddle")
        for name in ("post_instructions", "post_counters", "reuse_lookup"):
            shutil.copy(HERE / "fake_counts.py", self.programs / name)
        self.environment.update(PYTHONPATH=str(tree / "report"), FAKE_LOG=self.log)
        self.environment.pop("LD_PRELOAD", None)

    def words(self, *arguments):
        return ["/usr/bin/python3", "-m", "heddle_report", "--heddle", str(self.programs / "heddle"),
                *map(str, arguments)]

    def heddle(self, *arguments, status=0, **environment):
        done = subprocess.run(self.words(*arguments), env={**self.environment, **environment},
                              capture_output=True, text=True, check=False, timeout=240)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def calls(self):
        if not os.path.exists(self.log):
            return []
        return Path(self.log).read_text(encoding="utf-8").splitlines()

    def reason(self):
        """Why this run's tupleq-late is of no use."""
        experiment = next(each for each in all_experiments() if each.key == "tupleq-late")
        outcome = load_outcome(self.path("run"), experiment)
        self.assertEqual(outcome.status, "failed")
        return outcome.reason

    def page(self, *names):
        return Page(Path(self.path(*names)).read_text(encoding="utf-8"))

    def test_a_whole_run(self):
        self.heddle("reproduce", "--out", self.path("all"))
        page = self.page("all", "report.html")
        listed = self.heddle("reproduce", "--list").stdout
        for key in re.findall(r"^([a-z]+-[\w-]+) ", listed, re.M):
            self.assertIn(key, page.ids)
            self.assertIn(f"#{key}", page.links)
        outside = [link for link in page.links if not link.startswith(("#", "data:"))]
        self.assertEqual(outside, [])
        self.assertNotIn("@import", "".join(page.text))
        targets = [link[1:] for link in page.links if link.startswith("#")]
        self.assertEqual([target for target in targets if target not in page.ids], [])
        text = "".join(page.text)
        self.assertIn("software HCA", text)
        late = text[text.index("Late receivers"):]
        self.assertIn("as wanted. auto is never below", late[:late.index("Many tags")])
        # how each was obtained, and its samples
        self.assertEqual(text.count("How it was obtained"), text.count("All samples"))
        self.assertIn("bench message-rate --figure 2b --path both --json", text)
        for tag, attributes in page.tags:
            if tag == "svg":
                self.assertEqual(attributes.get("role"), "img")
                self.assertTrue(attributes.get("aria-label"))

    def test_the_document_says_what_the_page_says(self):
        self.heddle("reproduce", "--only", "endpoints", "--only", "tupleq-late", "--only", "reuse-pingpong",
                    "--out", self.path("run"))
        # without matplotlib
        self.write("stub/matplotlib/__init__.py", "raise ModuleNotFoundError(name='matplotlib')\n")
        self.heddle("report", "--markdown", self.path("run"), "--out", self.path("results.md"),
                    PYTHONPATH=self.path("stub") + ":" + self.environment["PYTHONPATH"])
        document = Path(self.path("results.md")).read_text(encoding="utf-8")
        for sign in ("\\", "*"):
            document = document.replace(sign, "")
        words = " ".join(document.split())
        run = Run(self.path("run"), all_experiments())
        page = " ".join("".join(self.page("run", "report.html").text).split())
        self.assertIn("imitates by `--uar static`; another", words)
        self.assertIn("imitates by --uar static; another", page, "its backticks make it code")
        for experiment in all_experiments():
            state, text = run.state_of(experiment)
            self.assertIn(experiment.title, words)
            said = state_text(experiment, state)
            self.assertIn(f"{said.capitalize()}. {text}".replace("*", ""), words)
            self.assertIn(" ".join(experiment.criterion.split()), words)
            if run.is_done(experiment):
                self.assertIn(f"{said}. {text}", page)
                self.assertIn(experiment.criterion, page)
        overview = document[document.index("## Overview"):document.index("## Scalable endpoints")]
        shown = [*rows(run, all_experiments()), *others(all_experiments())]
        self.assertEqual(overview.count("\n|"), 2 * 2 + len(shown), "no row is missing")
        self.assertNotRegex(overview, r"\| *\|", "no cell is empty")
        self.assertEqual(document.count("As of \""), 2 * len(all_experiments())
                         - len({each.criterion for each in all_experiments()})
                         - len({each.differences for each in all_experiments()}), "each is said once")
        self.assertLessEqual(max(len(line) for line in document.splitlines() if not line.startswith(("|", " "))),
                             100)
        self.assertNotIn(self.scratch, document, "no folder of this machine")

    def test_markdown_is_of_one_run(self):
        done = self.heddle("report", "--markdown", self.path("a"), self.path("b"), status=2)
        self.assertIn("--markdown is of one run", done.stderr)

    def test_the_page_as_a_document(self):
        self.heddle("reproduce", "--only", "endpoints-3", "--only", "tupleq-late", "--out",
                    self.path("two"))
        page = self.page("two", "report.html")
        text = "".join(page.text)
        self.assertIn("Differences in set-up:", text)
        self.assertNotIn("Unlike the paper", text)
        self.assertRegex(text, r"Not run: \d+ of \d+ experiments")
        folded = [attributes for tag, attributes in page.tags if tag == "details"]
        self.assertIn("missing", [attributes.get("class") for attributes in folded])
        self.assertTrue(all("open" not in attributes for attributes in folded))
        # what is folded is printed: by the style sheet, and by a script for older browsers
        printed = text.split("@media print")[1]
        self.assertIn("details::details-content", printed)
        self.assertNotRegex(printed, r"details[^{]*\{ *display: none")
        self.assertNotRegex(printed, r"section[^{]*\{[^}]*break-inside: avoid")
        self.assertIn('addEventListener("beforeprint"', text)

    def test_colours_are_the_pages(self):
        self.heddle("reproduce", "--only", "endpoints-11", "--out", self.path("one"))
        text = Path(self.path("one", "report.html")).read_text(encoding="utf-8")
        drawn = "".join(re.findall(r"<svg.*?</svg>", text, re.S))
        self.assertEqual(set(re.findall(r"#[0-9a-f]{6}\b", drawn)) - {"#ffffff", "#000000"}, set())
        used = set(re.findall(r"var\((--[\w-]+)\)", drawn))
        self.assertIn("--paper", used)
        for theme in text.split("<style>")[1].split("@media (prefers-color-scheme: dark)")[:2]:
            self.assertLessEqual(used, set(re.findall(r"(--[\w-]+):", theme)))

    def test_what_is_there_is_not_run_again(self):
        self.heddle("reproduce", "--no-page", "--only", "endpoints-3", "--out", self.path("run"))
        first = self.calls()
        again = self.heddle("reproduce", "--no-page", "--only", "endpoints-3", "--only", "tupleq-late",
                            "--out", self.path("run"))
        self.assertIn("1 of 2 experiments are in", again.stderr)
        self.assertEqual(len(self.calls()), len(first) + 1)
        # other repetitions are another measurement
        self.heddle("reproduce", "--no-page", "--full", "--only", "endpoints-3", "--out", self.path("run"))
        self.assertEqual(len(self.calls()), len(first) + 2)

    def test_interrupted_and_gone_on(self):
        arguments = ("reproduce", "--only", "tupleq-overlap", "--only", "tupleq-late", "--out",
                     self.path("run"))
        process = subprocess.Popen(self.words(*arguments), stderr=subprocess.PIPE, text=True,
                                   env={**self.environment, "FAKE_SLOW": "tuple-late"})
        until = time.monotonic() + 60
        while len(self.calls()) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, said)
        self.assertIn("goes on", said)
        self.assertTrue(os.path.exists(self.path("run", "samples", "tupleq-overlap.json")))
        self.assertFalse(os.path.exists(self.path("run", "samples", "tupleq-late.json")))
        self.heddle(*arguments)
        self.assertEqual(sum("overlap" in call for call in self.calls()), 1)
        self.assertIn("tupleq-late", self.page("run", "report.html").ids)

    def test_what_failed_says_why_and_the_rest_goes_on(self):
        done = self.heddle("reproduce", "--only", "tupleq", "--out", self.path("run"), status=1,
                           FAKE_FAIL="tuple-late")
        self.assertIn("failed: tupleq-late", done.stderr)
        text = "".join(self.page("run", "report.html").text)
        self.assertIn("no more queue pairs <&>", text)
        self.assertIn("status 3", text)
        self.assertIn("bench tuple-late", text)
        # and is tried again
        self.heddle("reproduce", "--only", "tupleq", "--out", self.path("run"))
        self.assertNotIn("status 3", "".join(self.page("run", "report.html").text))

    def test_what_needs_the_source_is_skipped_without_it(self):
        shutil.rmtree(self.scripts)
        self.heddle("reproduce", "--only", "direct-heap", "--out", self.path("run"))
        text = "".join(self.page("run", "report.html").text)
        self.assertIn("skipped. it is a script of heddle's source tree", text)

    def test_programs_of_an_installed_tree(self):
        libexec = Path(self.path("tree", "libexec"))
        libexec.mkdir()
        os.rename(self.programs / "reuse_lookup", libexec / "reuse_lookup")
        self.heddle("--libexec", libexec, "reproduce", "--no-page", "--only", "reuse-lookup", "--out",
                    self.path("run"))
        experiment = next(each for each in all_experiments() if each.key == "reuse-lookup")
        self.assertEqual(load_outcome(self.path("run"), experiment).status, "done")

    def test_what_is_not_to_be_had_is_skipped_with_the_reason(self):
        (self.programs / "reuse_lookup").unlink()
        self.heddle("reproduce", "--only", "direct-lammps", "--only", "direct-lattice", "--only",
                    "reuse-lookup", "--out", self.path("run"), FAKE_MISSING="lammps")
        text = "".join(self.page("run", "report.html").text)
        self.assertIn("skipped. rndv_modes: no lammps <&>", text)
        self.assertNotIn("installing this and that", text)
        self.assertRegex(text, "skipped. reuse_lookup is not beside .*heddle")
        self.assertIn("rndv_modes.py --heddle", text)
        # and is tried again
        self.heddle("reproduce", "--only", "direct-lammps", "--out", self.path("run"))
        self.assertNotIn("no lammps", "".join(self.page("run", "report.html").text))

    def test_programs_of_others_are_run_from_the_folder_that_the_user_names(self):
        folder = self.path("Sandia")
        os.mkdir(folder)
        only = ("--only", "tupleq-smb", "--only", "tupleq-sp", "--out", self.path("run"))
        done = self.heddle("reproduce", *only)
        for where in ("github.com/sandialabs/SMB", "--smb FOLDER", "nas.nasa.gov/software/npb.html", "--npb FOLDER"):
            self.assertIn(where, done.stderr)
        self.assertIn("skipped. it runs Sandia's SMB", "".join(self.page("run", "report.html").text))
        self.assertEqual(self.calls(), [])
        self.heddle("reproduce", *only, "--smb", folder)
        text = "".join(self.page("run", "report.html").text)
        self.assertIn(f"--smb {folder}", text)
        self.assertNotIn("it runs Sandia's SMB", text)
        self.assertEqual([call for call in self.calls() if "--smb" in call], [f"outside --smb {folder}"])
        # What is there stays without the option, and is measured again from another folder.
        self.heddle("reproduce", *only)
        self.assertNotIn("it runs Sandia's SMB", "".join(self.page("run", "report.html").text))
        self.assertEqual(len(self.calls()), 1)
        os.rename(folder, self.path("other"))
        self.heddle("reproduce", *only, "--smb", self.path("other"))
        self.assertEqual(len(self.calls()), 2)

    def test_a_program_whose_own_test_fails_has_failed(self):
        os.mkdir(self.path("npb"))
        done = self.heddle("reproduce", "--only", "tupleq-sp", "--npb", self.path("npb"), "--out", self.path("run"),
                           status=1, FAKE_UNVERIFIED="sp")
        self.assertIn("failed: tupleq-sp", done.stderr)
        text = "".join(self.page("run", "report.html").text)
        self.assertIn("its answer is not verified: Verification = UNSUCCESSFUL", text)

    def test_a_folder_that_is_not_there_is_an_error(self):
        said = self.heddle("reproduce", "--only", "tupleq-smb", "--smb", self.path("none"), status=2).stderr
        self.assertIn(f"--smb {self.path('none')}: there is no such folder", said)
        self.assertIn("github.com/sandialabs/SMB", said)

    def test_damaged_files(self):
        self.heddle("reproduce", "--no-page", "--only", "tupleq", "--out", self.path("run"))
        late = Path(self.path("run", "samples", "tupleq-late.jsonl"))
        lines = late.read_text(encoding="utf-8").splitlines()
        good = json.loads(lines[0])
        damages = {
            lines[0] + "\n{\"way\": \"au": "line 2: not JSON",
            "\n".join([lines[0], "[1]"]): "line 2: not an object",
            json.dumps({key: value for key, value in good.items() if key != "seconds"}): "has no seconds",
            json.dumps({**good, "seconds": 7}): "cannot be made sense of",
            json.dumps({**good, "seconds_rget": ["much"]}): "cannot be made sense of",
            "": "has no lines",
        }
        for text, message in damages.items():
            late.write_text(text, encoding="utf-8")
            self.assertIn(message, self.reason())
            self.assertIn("tupleq-late.jsonl", self.reason())
        late.write_bytes(b"\xff\xfe")
        self.assertIn("is not UTF-8", self.reason())
        late.unlink()
        self.assertIn("cannot be read: No such file", self.reason())
        late.with_suffix(".json").write_text("{", encoding="utf-8")
        self.assertIn("tupleq-late.json, line 1: not JSON", self.reason())
        # and the page is there all the same, with the reason
        self.heddle("report", self.path("run"))
        self.assertIn("tupleq-late.json, line 1: not JSON",
                      "".join(self.page("run", "report.html").text))

    def test_no_run(self):
        self.assertIn("is no folder", self.heddle("report", self.path("none"), status=1).stderr)
        os.mkdir(self.path("empty"))
        self.assertIn("run.json is not there",
                      self.heddle("report", self.path("empty"), status=1).stderr)
        self.write("later/run.json", '{"format": 99}')
        self.assertIn("format 99", self.heddle("report", self.path("later"), status=1).stderr)

    def test_runs_of_the_peers(self):
        """They repeat the commands; each row keeps its run, and what counts is on the page and in the document."""
        words = ("reproduce", "--only", "peers-rate", "--only", "tupleq-late", "--out", self.path("run"), "--runs", "3")
        said = self.heddle(*words)
        self.assertIn("Beside the peers 4 of 4 rows better or level (4 better), 0 behind.", said.stdout)
        self.assertIn("Rates of small messages, by threads, 12 of 12", said.stderr)
        rates = next(each for each in all_experiments() if each.key == "peers-rate")
        outcome = load_outcome(self.path("run"), rates)
        self.assertEqual({row["run"] for row in outcome.rows}, {0, 1, 2})
        self.assertEqual({row.by_run for row in rates.rows(outcome.rows)}, {("better",) * 3})
        self.assertEqual(len([call for call in self.calls() if "tuple-late" in call]), 1)  # it is no peer
        text = "".join(self.page("run", "report.html").text)
        self.assertIn("Beside the peers4 of 4 rows better or level (4 better), 0 behind.", text)
        self.heddle("report", "--markdown", self.path("run"))
        document = Path(self.path("run", "report.md")).read_text(encoding="utf-8")
        self.assertIn("# Results: the papers' experiments", document)
        self.heddle("report", "--markdown", "--only", "peers-rate", self.path("run"))
        document = Path(self.path("run", "report.md")).read_text(encoding="utf-8")
        self.assertIn("# Results: beside the peers", document)
        self.assertNotIn("tuple", document)
        self.assertIn("| all | 0 | 0 | 4 | 0 | 0 | 0 |", document)
        said = self.heddle(*words).stderr
        self.assertIn("2 of 2 experiments are in", said)
        said = self.heddle(*words[:-1], "2").stderr  # another number of runs is another measurement
        self.assertIn("1 of 2 experiments are in", said)
        samples = Path(self.path("run", "samples", "peers-rate.jsonl"))
        samples.write_text(samples.read_text(encoding="utf-8")[:-10], encoding="utf-8")
        self.assertIn("and its runs end at", load_outcome(self.path("run"), rates).reason)
        self.heddle("reproduce", "--runs", "0", status=2)

    def test_matplotlib_is_looked_for_before_measuring(self):
        """A stub stands for a Python without it."""
        self.write("stub/matplotlib/__init__.py", "raise ModuleNotFoundError(name='matplotlib')\n")
        path = self.path("stub") + ":" + self.environment["PYTHONPATH"]
        run = ("reproduce", "--only", "tupleq-late", "--out", self.path("run"))
        said = self.heddle(*run, status=1, PYTHONPATH=path).stderr
        self.assertIn("the page needs Python's matplotlib (Debian and Ubuntu: python3-matplotlib)",
                      said)
        self.assertIn("--no-page measures without it", said)
        self.assertEqual([call for call in self.calls() if "tuple-late" in call], [])
        self.heddle(*run, "--no-page", PYTHONPATH=path)
        self.assertNotEqual([call for call in self.calls() if "tuple-late" in call], [])
        self.assertFalse(os.path.exists(self.path("run", "report.html")))
        self.heddle("report", self.path("run"))
        self.assertTrue(os.path.exists(self.path("run", "report.html")))

    def test_the_list_names_places_of_the_papers_only_where_there_are_any(self):
        listed = self.heddle("reproduce", "--list").stdout
        self.assertIn("(Fig. 3)", listed)
        self.assertNotIn("()", listed)

    def test_nothing_of_the_working_directory_is_run(self):
        heddle = os.path.join(BUILD_DIR, "bin", "heddle")
        for name in ("json", "argparse", "datetime", "runpy", "importlib", "heddle_report"):
            self.write(f"work/{name}.py", f"open({self.path('run')!r}, 'w').close()\n")
        for python_path in (None, "", ".", ":" + self.path("none")):
            environment = {name: value for name, value in self.environment.items()
                           if name != "PYTHONPATH"}
            if python_path is not None:
                environment["PYTHONPATH"] = python_path
            for words, status in ((("reproduce", "--list"), 0), (("report", "none"), 1)):
                done = subprocess.run([heddle, *words], cwd=self.path("work"), env=environment,
                                      capture_output=True, text=True, check=False, timeout=240)
                self.assertEqual(done.returncode, status, done.stderr)
                self.assertFalse(os.path.exists(self.path("run")), (words, python_path))

    def test_unknown_names(self):
        said = self.heddle("reproduce", "--only", "tuplek", status=2).stderr
        self.assertIn("endpoints, reuse, direct, tupleq, peers", said)

    def test_runs_beside_each_other(self):
        for name in ("before", "after"):
            self.heddle("reproduce", "--only", "tupleq-late", "--out", self.path(name))
        late = Path(self.path("after", "samples", "tupleq-late.jsonl"))
        late.write_text(late.read_text(encoding="utf-8").replace("1.02e-06", "2.04e-06"), encoding="utf-8")
        self.heddle("report", self.path("before"), self.path("after"))
        text = "".join(self.page("after", "comparison.html").text)
        self.assertIn("after / before", text)
        alone = Path(self.path("after", "report.html")).read_text(encoding="utf-8")
        both = Path(self.path("after", "comparison.html")).read_text(encoding="utf-8")
        self.assertEqual(both.count("<figure>"), alone.count("<figure>"))
        for name in ("auto, before", "auto, after"):
            self.assertIn(f">{name}</text>", both)
        self.assertIn("0.50", text)

    def test_the_command(self):
        """The real one, on the software HCA."""
        heddle = os.path.join(BUILD_DIR, "bin", "heddle")
        done = subprocess.run([heddle, "reproduce", "--only", "reuse-break-even", "--out",
                               self.path("real")], capture_output=True, text=True, check=False,
                              timeout=240, env={**self.environment, "PYTHONPATH": "",
                                                "XDG_CACHE_HOME": self.scratch})
        self.assertEqual(done.returncode, 0, done.stderr)
        text = "".join(self.page("real", "report.html").text)
        self.assertIn("mlx5_0", text)
        self.assertIn("softhca run", text)


if __name__ == "__main__":
    main()
