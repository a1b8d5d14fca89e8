# SPDX-License-Identifier: BSD-2-Clause
"""Starting the command under test. ctest sets SOFTHCA, HEDDLE_* (cmake/HeddleTesting.cmake)."""

import os
import shutil
import subprocess
import tempfile
import unittest

SOFTHCA = os.environ["SOFTHCA"]
LIBRARY = os.environ["SOFTHCA_LIBRARY"]
SOURCE_DIR = os.environ["HEDDLE_SOURCE_DIR"]
BUILD_DIR = os.environ["HEDDLE_BUILD_DIR"]
TEST_DIR = os.environ["HEDDLE_TEST_DIR"]
SANITIZER = os.environ.get("HEDDLE_SANITIZER_PRELOAD", "")


def preload(*libraries):
    """LD_PRELOAD for libraries of the tests: a sanitizer's runtime comes before them."""
    paths = [os.path.join(TEST_DIR, library) for library in libraries]
    return ":".join([SANITIZER, *paths] if SANITIZER else paths)


class Case(unittest.TestCase):
    """A test case with a scratch directory, a clean environment and a fabric of its own."""

    maxDiff = None

    def setUp(self):
        self.scratch = tempfile.mkdtemp(prefix="softhca-test-")
        self.addCleanup(shutil.rmtree, self.scratch)
        name = self.id().split(".", 1)[1].replace(".", "-")
        self.fabric = (os.environ["HEDDLE_FABRIC_PREFIX"] + "cli-" + name)[:64]
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("SOFTHCA") and name != "LD_PRELOAD"
        }
        self.environment["SOFTHCA_FABRIC"] = self.fabric
        if SANITIZER:
            self.environment["LD_PRELOAD"] = SANITIZER

    def path(self, *names):
        return os.path.join(self.scratch, *names)

    def write(self, name, text, mode=0o644):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, mode)
        return path

    def softhca(self, *arguments, command=SOFTHCA, env=None, timeout=60, **options):
        """Runs `softhca ARGUMENT...` and returns its CompletedProcess, output as text. timeout: in seconds, after
        which it hangs."""
        environment = dict(self.environment)
        for name, value in (env or {}).items():
            if value is None:
                environment.pop(name, None)
            else:
                environment[name] = value
        return subprocess.run(
            [command, *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            **options,
        )

    def assert_run(self, result, status, out=None, err=None):
        """Exit status, and texts that standard output and standard error must contain."""
        shown = f"stdout: {result.stdout}\nstderr: {result.stderr}"
        self.assertEqual(result.returncode, status, shown)
        if out is not None:
            self.assertIn(out, result.stdout, shown)
        if err is not None:
            self.assertIn(err, result.stderr, shown)
        return result


def main():
    unittest.main(verbosity=2)
