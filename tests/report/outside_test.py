# SPDX-License-Identifier: BSD-2-Clause
"""bench/mpi/outside.py: what it understands of what programs of others print, and that it builds them without
a change to their folder."""

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
MPI_SCRIPTS = HERE.parents[1] / "bench" / "mpi"
sys.path.insert(0, str(MPI_SCRIPTS))
import outside  # noqa: E402
import rndv_modes  # noqa: E402

# What mpi_overhead prints, after what an MPI may say: a line of names in columns, a line of values.
SMB = """\
some warning of a library
msgsize iterations  iter_t      work_t      overhead    base_t      avail(%)    
65536   100         17.250      14.755      2.495       10.104      75.3        
"""
# What NPB prints at its end.
NPB = """\
 SP Benchmark Completed.
 Class           =                        S
 Size            =             12x  12x  12
 Time in seconds =                     1.25
 Total processes =                        4
 Mop/s total     =                   412.11
 Verification    =               SUCCESSFUL
"""


class Printed(unittest.TestCase):
    def why(self, text, size=65536):
        with self.assertRaises(outside.Broken) as raised:
            outside.smb_values(text, size)
        return str(raised.exception)

    def test_smb(self):
        values = outside.smb_values(SMB, 65536)
        self.assertEqual((values["base_t"], values["overhead"], values["avail(%)"]), (10.104, 2.495, 75.3))

    def test_smb_that_says_nothing(self):
        self.assertIn("printed no values", self.why(""))
        self.assertIn("printed no values", self.why(SMB.splitlines()[1]))
        self.assertIn("printed no values", self.why(SMB.replace("avail(%)", "other")))
        self.assertIn("printed no values", self.why(SMB.replace("75.3", "-")))
        self.assertIn("measured 65536 B instead of 8 B", self.why(SMB, 8))
        self.assertIn("messages took no time", self.why(SMB.replace("10.104", "0.000")))
        self.assertIn("left it out", self.why(SMB.replace("17.250", "10.100")))

    def test_npb(self):
        def why(text, status=0):
            return rndv_modes.why_useless(SimpleNamespace(returncode=status, stdout=text), 4)

        self.assertEqual(why(NPB), "")
        self.assertEqual(why(NPB.replace("SUCCESSFUL", "UNSUCCESSFUL")),
                         "its answer is not verified: Verification    =               UNSUCCESSFUL")
        self.assertIn("not verified", why(NPB.replace("SUCCESSFUL", "NOT PERFORMED")))
        self.assertIn("not verified", why(""))
        self.assertIn("how long", why(NPB.replace("Time in", "Time of")))
        self.assertIn("status 6", why(NPB, 6))


class Built(unittest.TestCase):
    """A compiler of MPI is one of C, and a make of NPB writes a script: neither MPI nor Fortran is needed."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.source, self.scratch = Path(scratch.name, "source"), Path(scratch.name, "scratch")
        self.scratch.mkdir()
        self.mpi = SimpleNamespace(name="an MPI", mpicc="cc", mpifort="/usr/bin/true")

    def write(self, name, text):
        path = self.source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def files(self):
        return sorted(str(path) for path in self.source.rglob("*"))

    def test_smb(self):
        # As theirs: of 1989, with work that an optimizer leaves out.
        self.write("src/mpi_overhead/mpi_overhead.c", "#include <stdio.h>\nint main(argc, argv) int argc; "
                   "char **argv;\n{\n#ifdef __OPTIMIZE__\n return 1;\n#endif\n return argc - 1; }\n")
        before = self.files()
        program = outside.smb(self.mpi, self.source, self.scratch)
        self.assertEqual(subprocess.run([program], check=False).returncode, 0)
        self.assertEqual(self.files(), before)

    def test_smb_that_is_not_there(self):
        self.source.mkdir()
        with self.assertRaisesRegex(outside.Broken, "SMB is not in .*source: there is no mpi_overhead/mpi_overhead.c"):
            outside.smb(self.mpi, self.source, self.scratch)

    def test_smb_that_cannot_be_built(self):
        self.write("mpi_overhead/mpi_overhead.c", "int main(void) { return none; }\n")
        with self.assertRaisesRegex(outside.Broken, "(?s)none.*SMB's mpi_overhead cannot be built: `cc` ended with"):
            outside.smb(self.mpi, self.source, self.scratch)

    def benchmark(self, letter="S"):
        return outside.npb(self.mpi, self.source, self.scratch, "sp", letter, 4)

    def test_npb(self):
        top = "NPB3.4/NPB3.4-MPI"
        self.write(f"{top}/SP/sp.f90", "")
        self.write(f"{top}/MPI_dummy/README", "")
        self.write(f"{top}/bin/sp.S.x", "an old one\n")
        self.write(f"{top}/config/make.def.template", "MPIFC = none\n")
        self.write(f"{top}/Makefile", "include config/make.def\nsp:\n\techo $(MPIFC) $(NPROCS) > bin/sp.$(CLASS).x\n")
        before = self.files()
        program = self.benchmark()
        self.assertEqual(program.read_text(encoding="utf-8"), "/usr/bin/true 4\n")
        self.assertEqual(self.files(), before)

    def test_npb_that_cannot_be_built(self):
        self.write("MPI_dummy/README", "")
        self.write("SP/sp.f90", "")
        self.write("config/make.def.template", "")
        self.write("Makefile", "sp:\n\tfalse\n")
        with self.assertRaisesRegex(outside.Broken, "NPB's sp.B cannot be built: `make` ended with status 2"):
            self.benchmark("B")

    def test_npb_that_is_not_there(self):
        self.write("SP/sp.f90", "")  # another NPB than that for MPI
        with self.assertRaisesRegex(outside.Broken, "NPB for MPI is not in"):
            self.benchmark()

    def test_no_fortran(self):
        for compiler in ("/none/mpifort", "/usr/bin/false"):
            self.mpi.mpifort = compiler
            with self.assertRaisesRegex(outside.Unavailable, r"no Fortran for an MPI \(Debian: gfortran\)"):
                self.benchmark()


class Lines(unittest.TestCase):
    def test_what_is_printed_is_what_the_report_reads(self):
        sys.path.insert(0, str(HERE.parents[1] / "report"))
        from heddle_report.experiments import outside as experiments
        needs = {each.key: each.needs for each in experiments.EXPERIMENTS}
        mpi = SimpleNamespace(name="an MPI")
        values = outside.smb_values(SMB, 65536)
        for key, write in (("tupleq-smb", lambda: outside.smb_lines(mpi, {("sender", 65536, "auto"): [values, values]})),
                           ("tupleq-sp", lambda: rndv_modes.print_lines("sp.B", mpi, 4, {"rget": [1.0, 2.0]}))):
            with redirect_stdout(StringIO()) as printed:
                write()
            row = json.loads(printed.getvalue())
            self.assertLessEqual(set(needs[key]), set(row), key)


if __name__ == "__main__":
    unittest.main(verbosity=2)
