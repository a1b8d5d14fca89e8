# SPDX-License-Identifier: BSD-2-Clause
"""scripts/run-tidy --changed: which sources and lines it takes, with a stand-in for clang-tidy."""
import json
import os
import shutil
import subprocess
import tempfile
import unittest

SCRIPT = os.path.join(os.environ["HEDDLE_SOURCE_DIR"], "scripts/run-tidy")
STAND_IN = """#!/bin/bash
for word; do case $word in --line-filter=*) filter=${word#*=} ;; esac; done
echo "checked $word $filter"
! grep -q WRONG "$word"
"""


@unittest.skipUnless(shutil.which("git"), "needs git")
class Changed(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = os.path.realpath(directory.name)
        self.write("tidy", STAND_IN)
        os.chmod(os.path.join(self.root, "tidy"), 0o755)
        names = ["src/a.cc", "src/b.cc", "src/c.cc", "src/new.cc"]
        self.write("build/compile_commands.json",
                   json.dumps([{"file": os.path.join(self.root, name)} for name in names]))
        self.write("src/a.cc", '#include "a.h"\n')
        self.write("src/b.cc", '#include "a.h"\n#include "x/only.h"\n')
        self.write("src/c.cc", "// longer than the others\n" * 9 + '#include "x/only.h"\n')
        self.write("src/a.h", "")
        self.write("src/x/only.h", "")
        self.git("init")
        self.commit()

    def write(self, name, text, mode="w"):
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, mode, encoding="utf-8") as file:
            file.write(text)

    def git(self, *words):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *words],
                       cwd=self.root, check=True, capture_output=True)

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-m", "x")

    def tidy(self, *words, **environment):
        result = subprocess.run([SCRIPT, "./tidy", "build", "1", "--changed", *words], cwd=self.root,
                                capture_output=True, text=True, env={**os.environ, **environment})
        checked = dict(line.split(" ", 2)[1:] for line in result.stdout.splitlines()
                       if line.startswith("checked "))
        return result.returncode, checked, result.stdout + result.stderr

    def test_changed_source_and_its_lines(self):
        self.write("src/a.cc", "int x;\n", "a")
        self.commit()
        status, checked, _ = self.tidy("HEAD~1")
        self.assertEqual((status, list(checked)), (0, ["src/a.cc"]))
        self.assertEqual(json.loads(checked["src/a.cc"]), [{"name": "src/a.cc", "lines": [[2, 2]]}])

    def test_header_is_checked_by_its_own_source_or_the_shortest_that_includes_it(self):
        self.write("src/a.h", "int x;\n")
        self.write("src/x/only.h", "int y;\n")  # not committed
        status, checked, _ = self.tidy("HEAD")
        self.assertEqual((status, sorted(checked)), (0, ["src/a.cc", "src/b.cc"]))

    def test_newest_first_and_once_without_deleted_ones(self):
        for name in ("src/c.cc", "src/b.cc", "src/c.cc", "src/a.cc"):
            self.write(name, "int x;\n", "a")
            self.commit()
        os.remove(os.path.join(self.root, "src/b.cc"))
        self.assertEqual(list(self.tidy("HEAD~4")[1]), ["src/a.cc", "src/c.cc"])

    def test_last_tag_is_the_base(self):
        self.write("src/a.cc", "int x;\n", "a")
        self.commit()
        self.git("tag", "v1")
        self.write("src/b.cc", "int x;\n", "a")
        self.commit()
        self.assertEqual(list(self.tidy()[1]), ["src/b.cc"])

    def test_finding_fails(self):
        self.write("src/a.cc", "WRONG\n")
        self.assertEqual(self.tidy("HEAD")[0], 1)
        self.assertEqual(self.tidy("no-such-commit")[0], 2)

    def test_names_what_there_was_no_time_for(self):
        self.write("src/a.cc", "WRONG\n")
        status, checked, text = self.tidy("HEAD", TIDY_SECONDS="0")
        self.assertEqual((status, checked), (0, {}))
        self.assertIn("no time for 1 sources, which `make tidy` checks: src/a.cc", text)


if __name__ == "__main__":
    unittest.main()
