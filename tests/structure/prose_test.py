# SPDX-License-Identifier: BSD-2-Clause
"""scripts/check-prose: the examples of docs/style.md, what is prose in a file, and the baseline."""
import importlib.machinery
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
import unittest

SOURCE = os.environ["HEDDLE_SOURCE_DIR"]
SCRIPT = os.path.join(SOURCE, "scripts/check-prose")
loader = importlib.machinery.SourceFileLoader("check_prose", SCRIPT)
spec = importlib.util.spec_from_loader(loader.name, loader)
check_prose = importlib.util.module_from_spec(spec)
loader.exec_module(check_prose)


def rules(text, kind="comment"):
    return {rule for _, rule in check_prose.prose_findings(kind, check_prose.plain(text))}


def places(path, text):
    return [(line, rule) for line, rule, _ in check_prose.findings_in(path, text)]


class Style(unittest.TestCase):
    def rows(self):
        with open(os.path.join(SOURCE, "docs/style.md"), encoding="utf-8") as file:
            table = file.read().partition("| not | but | rule |")[2]
        for line in table.splitlines()[2:]:
            if not line.startswith("|"):
                break
            yield [cell.strip() for cell in line.strip("|").split("|")]

    def test_each_example_is_caught_by_its_rule_and_each_better_one_passes(self):
        rows = list(self.rows())
        self.assertGreaterEqual(len(rows), 9)
        for bad, good, rule in rows:
            with self.subTest(bad=bad):
                self.assertEqual(rules(good, "document"), set())
                if rule == "-":  # a riddle that no pattern finds
                    self.assertEqual(rules(bad), set())
                else:
                    self.assertIn(rule, rules(bad))
        self.assertEqual({rule for _, _, rule in rows} & {"who", "of", "is-to-be", "retired-word"},
                         {"who", "of", "is-to-be", "retired-word"})


class Rules(unittest.TestCase):
    def test_caught(self):
        for rule, texts in {
            "who": ["Who posts meanwhile waits.", "The lock is held by who posts.",
                    "It ends, and who waited is woken.", "A process who ends is cleaned up.",
                    "The next who uses it waits.", "The one who runs looks again.",
                    "Held: who holds it looks again.", "Kept for who opens.",
                    "Whose lock it was has died.", "The lock is free; whose it was is gone."],
            "of": ["Of one domain.", "It is held. Of the fork under way.", "For who opens a device.",
                   "(Of the header of a message.)"],
            "is-to-be": ["It is to be cleared.", "What was not to be sent.", "They were to go by it.",
                         "The count is still to be sent."],
            "were-it": ["A header, were it an eager one.", "Were there no lock, both would run."],
            "but-for": ["All of it but for the times."],
            "please": ["The range, please."],
            "archaic": ["It ends for want of room.", "The end thereof."],
            "retired-word": ["An operation of several works.", "a work under way", "libc's faces",
                             "Each lane has one.", "requests of one piece", "the bound of the short cut",
                             "Numbered messages sent.", "Nobody is told.", "bytes that a peer has ahead"],
        }.items():
            for text in texts:
                with self.subTest(text=text):
                    self.assertIn(rule, rules(text))

    def test_passes(self):
        for text in [
            "The user who starts it pays.", "People of a site who build it.", "Anyone who builds it.",
            "A user, who may be root, starts it.", "Each field says who writes it.",
            "It matters who holds the lock.", "Who holds the lock?", "A lock whose owner died is freed.",
            "Of course it ends.", "It consists of parts.", "For whom it is.",
            "The aim is to keep order.", "That is to say, none.", "It has to be sent.",
            "The counts are as they were.", "It is not for users but for developers.",
            "This works as expected, and so does the other.", "A work request is posted.",
            "All of this works without a lock.", "A work queue entry.", "the interface's surface",
            "Two pieces of code.", "They are told apart by their order.", "The reader looks ahead of it.",
            "Call `who()` or see \"who posts\".", "[who](https://who.int) is linked as `lanes`.",
        ]:
            with self.subTest(text=text):
                self.assertEqual(rules(text), set() if "[who]" not in text else {"who"})

    def test_long_sentences_in_documents_only(self):
        words = "It has " + "many " * 28
        self.assertEqual(rules(words + ".", "document"), set())
        self.assertEqual(rules(words + "words.", "document"), {"long-sentence"})
        self.assertEqual(rules(words + "words.", "comment"), set())
        self.assertEqual(rules(words + ", e.g. `a b c d`.", "document"), {"long-sentence"})
        self.assertEqual(rules(words + ". And more, with `a b c d` it is short.", "document"), set())

    def test_retired_names(self):
        for name in ("Courtesy", "kMaxPieces", "lane_of", "by_short_cut", "not_there", "stat_faces",
                     "NumberedSlot", "works", "told_"):
            self.assertTrue(check_prose.retired_identifier(name), name)
        for name in ("interfaces", "network", "framework", "planes", "WorksInAHandler", "taken",
                     "narrow_cast", "surfaces", "entries", "answers_to"):
            self.assertFalse(check_prose.retired_identifier(name), name)
        self.assertEqual(places("src/a/b.h", "struct Body {\n};\nstruct Body* x;\nclass Name;\n"),
                         [(1, "retired-name")])
        self.assertEqual(places("src/a/stat_faces.cc", ""), [(1, "retired-name")])


class Extraction(unittest.TestCase):
    def test_c_comments(self):
        self.assertEqual(places("src/a/b.cc", """\
// SPDX-License-Identifier: BSD-2-Clause
// It has a first line. Of that
// line more: by who reads.
//
//     Of this example: who writes code
int x;  // please
/* Who posts
 * is told. */
const char* text = "// Of no comment, in strings";
"""), [(2, "of"), (3, "who"), (6, "please"), (7, "who"), (8, "retired-word")])

    def test_sentence_across_lines_is_one(self):
        self.assertEqual(places("src/a/b.cc", "// The user\n// who starts it.\n"), [])
        self.assertEqual(places("src/a/b.cc", "int a;  // kept by the process\nint b;  // of a user\n"), [])

    def test_strings_of_four_words(self):
        text = 'f("the range of a number, please", "who", "by who "\n  "posts it then");\n'
        self.assertEqual(places("src/a/b.cc", text), [(1, "please"), (1, "who")])
        self.assertEqual(places("tests/a/b.cc", text), [])

    def test_markdown(self):
        self.assertEqual(places("docs/a.md", """\
\x23 Of headings
It is `who posts`.

    Of code: please

```
Of code
```
- Of a list
- by who
  reads
| Of a cell | please |
|---|---|
<!-- prose: off -->
Of an example
<!-- prose: on -->
Were it so.
"""), [(1, "of"), (9, "of"), (10, "who"), (12, "of"), (12, "please"), (17, "were-it")])

    def test_wide_lines_of_markdown(self):
        wide = "x" * 101
        self.assertEqual(places("docs/a.md", f"{wide}\n| {wide} |\n```\n{wide}\n```\n\n    {wide}\n"
                                f"{wide[1:]}\n- {wide}\n"), [(1, "wide-line"), (9, "wide-line")])
        self.assertEqual(places("src/a.h", f"// {wide}\n"), [])

    def test_manual_page(self):
        self.assertEqual(places("man/a.1", """\
.TH A 1
.SH SYNOPSIS
.B please
.SH DESCRIPTION
The \\fBlane\\fR of
.B softhca
.nf
please
.fi
Of it.
"""), [(5, "retired-word"), (10, "of")])

    def test_python_and_shell(self):
        self.assertEqual(places("scripts/a.py", '"""Of a docstring.\n\nplease\n"""\nx = 1  # by who\n'),
                         [(1, "of"), (3, "please"), (5, "who")])
        self.assertEqual(places("scripts/a", "#!/bin/bash\n# Of a script\n"), [(2, "of")])


class Baseline(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = directory.name
        os.makedirs(os.path.join(self.root, "scripts/structure"))

    def write(self, name, text):
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def run_check(self, *options):
        return subprocess.run([SCRIPT, "--root", self.root, *options], capture_output=True, text=True)

    def test_counts_may_fall_but_not_rise(self):
        self.write("src/a/x.cc", "// Of one.\n// Of two.\n")
        self.assertEqual(self.run_check().returncode, 1)  # without a baseline nothing is allowed
        self.assertEqual(self.run_check("--update").returncode, 0)
        self.assertEqual(self.run_check().returncode, 0)
        self.write("src/a/x.cc", "// Of one.\n// Of two.\n// Of three.\n")
        result = self.run_check()
        self.assertEqual(result.returncode, 1)
        self.assertIn("src/a/x.cc:3: of: Of three.", result.stdout)
        self.assertEqual(self.run_check("--update").returncode, 1)
        self.write("src/a/x.cc", "// Of one.\n")
        self.assertIn("lower it", self.run_check().stdout)
        self.assertEqual(self.run_check("--update").returncode, 0)
        self.write("src/a/x.cc", "// Of one.\n// Of two.\n")
        self.assertEqual(self.run_check().returncode, 1)

    @unittest.skipUnless(shutil.which("git"), "git is not installed")
    def test_prints_what_is_new_since_the_baseline_was_committed(self):
        def git(*words):
            subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *words],
                           cwd=self.root, check=True, capture_output=True)

        self.write("src/a/x.cc", "// Of one.\n// Of two.\n")
        self.run_check("--update")
        git("init")
        git("add", "-A")
        git("commit", "-m", "baseline")
        self.write("src/a/x.cc", "// Of two.\n// Of three.\n// Of one.\n")
        for _ in ("uncommitted", "committed"):
            result = self.run_check()
            self.assertEqual(result.returncode, 1)
            self.assertIn("src/a/x.cc:2: of: Of three.\n", result.stdout)
            self.assertNotIn("Of two", result.stdout)
            git("commit", "--allow-empty", "-am", "more")

    def test_folder_without_findings_stays_so_and_text_may_move(self):
        self.write("src/a/x.cc", "// Of one.\n")
        self.run_check("--update")
        self.write("src/b/x.cc", "// Of one.\n")
        self.write("src/a/x.cc", "")
        self.assertEqual(self.run_check().returncode, 1)
        self.assertEqual(self.run_check("--update").returncode, 0)
        self.assertEqual(self.run_check().returncode, 0)

    def test_list_and_count(self):
        self.write("src/a/x.cc", "// Of one.\n")
        self.write("docs/x.md", "please\n")
        self.assertEqual(self.run_check("--list", "docs").stdout, "docs/x.md:1: please: please\n")
        table = self.run_check("--count").stdout
        self.assertTrue(re.search(r"^src/a +0 +1 ", table, re.M))


if __name__ == "__main__":
    unittest.main()
