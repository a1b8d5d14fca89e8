# SPDX-License-Identifier: BSD-2-Clause
"""`heddle reproduce --hosts FILE`: what is read of the file, and the words for mpiexec."""

import os
import platform
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "report"), str(HERE.parents[1] / "tests" / "mpi")]
import mpis  # noqa: E402
from heddle_report import catalogue, hosts, runner  # noqa: E402
from heddle_report.samples import Broken  # noqa: E402

EXPERIMENTS = {each.key: each for each in catalogue.all_experiments()}


class Files(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = Path(scratch.name)
        self.launcher("HYDRA build details:")
        path = mock.patch.dict(os.environ, {"PATH": f"{self.scratch}:/usr/bin:/bin"})
        path.start()
        self.addCleanup(path.stop)

    def launcher(self, says):
        program = self.scratch / "mpiexec"
        program.write_text(f"#!/bin/sh\necho '{says}'\n", encoding="ascii")
        program.chmod(0o755)

    def hosts(self, text="loom1\nloom2 slots=4 # the other\n\n# nobody\nloom1\n"):
        path = self.scratch / "hosts"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return hosts.Hosts(path)

    def test_names(self):
        self.assertEqual(self.hosts().names, ["loom1", "loom2"])
        self.assertEqual(self.hosts(f"{platform.node()}\nlocalhost\nloom2\n").others, ["loom2"])

    def test_files_that_are_of_no_use(self):
        for text, why in (("", "no host in it"), ("# nobody\n", "no host in it"), (b"\xff\xfe", "it is no text")):
            with self.assertRaisesRegex(Broken, why):
                self.hosts(text)
        with self.assertRaisesRegex(Broken, "none: No such file"):
            hosts.Hosts("none")

    def test_no_mpiexec(self):
        with mock.patch.dict(os.environ, {"PATH": "/nowhere"}), self.assertRaisesRegex(Broken, "no mpiexec in PATH"):
            self.hosts()

    def test_words_of_mpiexec(self):
        self.assertEqual(self.hosts().words(2)[1:], ["-hosts", "loom1,loom2", "-ppn", "1", "-n", "2"])
        self.launcher("mpirun (Open MPI) 4.1.4")
        words = self.hosts().words(2)
        self.assertEqual(words[words.index("--host") + 1], "loom1:1024,loom2:1024")
        self.assertEqual(words[-2:], ["-n", "2"])

    def tools(self, **names):
        with mock.patch.object(runner.Tools, "_devices", lambda self, before: [{"software": not names}]):
            return runner.Tools(self.scratch / "heddle", hosts=self.hosts(), **names)

    def test_kernels_run_on_the_hosts(self):
        tools = self.tools()
        for key, processes in (("endpoints-3", 2), ("endpoints-12", 2), ("endpoints-14", 2)):
            command = EXPERIMENTS[key].commands("quick")[0]
            words = tools.words(EXPERIMENTS[key], command)
            at = words.index("-hosts")
            self.assertEqual(words[at + 1], "loom1,loom2")
            self.assertEqual(words[words.index("-n") + 1], str(hosts.processes_of(command)))
            self.assertGreaterEqual(hosts.processes_of(command), processes)
            self.assertEqual(words[-len(command):], command)

    def test_others_run_here(self):
        tools = self.tools()
        for key in ("reuse-pingpong", "endpoints-resources", "reuse-lookup", "direct-point-to-point"):
            words = tools.words(EXPERIMENTS[key], EXPERIMENTS[key].commands("quick")[0])
            self.assertNotIn("loom1", " ".join(words), key)

    def test_one_job_scripts_get_the_hosts(self):
        words = self.tools().words(EXPERIMENTS["direct-lattice"], EXPERIMENTS["direct-lattice"].commands("quick")[0])
        self.assertEqual(words[:2], ["env", "HEDDLE_HOSTS=loom1,loom2"])

    def test_a_software_hca_is_one_machine(self):
        self.assertIn("does not reach loom1, loom2 of --hosts", self.tools().why_none())
        here = SimpleNamespace(names=["localhost"], others=[])
        with mock.patch.object(runner.Tools, "_devices", lambda self, before: [{"software": True}]):
            self.assertEqual(runner.Tools(self.scratch / "heddle", hosts=here).why_none(), "")


class Scripts(unittest.TestCase):
    def words(self, key, names, variables=()):
        mpi = mpis.Mpi(key, Path("/mpi"), key)
        with mock.patch.dict(os.environ, {"HEDDLE_HOSTS": names}):
            return mpi.mpiexec(4, variables)

    def test_mpis_start_ranks_on_the_hosts(self):
        self.assertEqual(self.words("mpich", "loom1,loom2"),
                         ["/mpi/bin/mpiexec", "-hosts", "loom1,loom2", "-ppn", "1", "-n", "4"])
        self.assertEqual(self.words("mpich", ""), ["/mpi/bin/mpiexec", "-launcher", "fork", "-n", "4"])
        words = self.words("openmpi", "loom1")
        self.assertEqual(words[words.index("--host") + 1], "loom1:1024")
        self.assertIn("FI_*", words)
        # Version 4 takes no patterns.
        words = self.words("openmpi-debian", "loom1", {"FI_PROVIDER": "heddle", "LANG": "C"})
        self.assertEqual(words[words.index("FI_PROVIDER") - 1], "-x")
        self.assertNotIn("FI_*", words)
        self.assertNotIn("LANG", words)
        self.assertNotIn("--host", self.words("openmpi-debian", ""))


if __name__ == "__main__":
    unittest.main(verbosity=2)
