# SPDX-License-Identifier: BSD-2-Clause
"""`heddle run`: what a program sees, on which device, what is refused and how."""

import fcntl
import os
import pty
import pwd
import shutil
import signal
import subprocess
import sys
import termios
import unittest

from harness import BUILD_DIR, TEST_DIR, Case, main

HEDDLE = os.path.join(BUILD_DIR, "bin", "heddle")
PROVIDER = os.path.join(BUILD_DIR, "lib", "libheddle-fi.so")
# seccomp(2) with a filter by which sched_yield fails.
YIELDS = """
import ctypes, os, platform, struct, sys
number = {"x86_64": 24, "aarch64": 124}[platform.machine()]
load, equal, give = 0x20, 0x15, 0x06
steps = [(load, 0, 0, 0), (equal, 0, 1, number), (give, 0, 0, 0x00050001), (give, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
filter = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
if libc.prctl(22, 2, ctypes.byref(filter), 0, 0) != 0:
    sys.exit("no filter: " + os.strerror(ctypes.get_errno()))
reached = 0
for _ in range(int(sys.argv[1])):
    try:
        os.sched_yield()
    except PermissionError:
        reached += 1
print(reached)
"""
OURS = ("FI_", "MPIR_CVAR_", "OMPI_MCA_", "I_MPI_")


@unittest.skipUnless(os.path.exists(PROVIDER), "the provider is not built")
class HeddleRun(Case):
    def setUp(self):
        super().setUp()
        for name in list(self.environment):
            if name.startswith(OURS) or name == "LD_LIBRARY_PATH":
                del self.environment[name]

    def heddle(self, *arguments, **options):
        return self.softhca("run", *arguments, command=options.pop("command", HEDDLE), **options)

    def variables(self, *arguments, **options):
        result = self.assert_run(self.heddle(*arguments, "--", "env", **options), 0)
        return dict(line.split("=", 1) for line in result.stdout.splitlines() if "=" in line)

    def of_mpi(self, *arguments, **options):
        seen = self.variables(*arguments, **options)
        return {name: value for name, value in seen.items() if name.startswith(OURS)}

    def test_variables_of_every_mpi(self):
        self.assertEqual(
            self.of_mpi("--softhca", "always"),
            {
                "FI_PROVIDER": "heddle",
                "FI_PROVIDER_PATH": os.path.join(BUILD_DIR, "lib"),
                "MPIR_CVAR_CH4_NETMOD": "ofi",
                "MPIR_CVAR_NOLOCAL": "1",
                "OMPI_MCA_pml": "cm",
                "OMPI_MCA_mtl": "ofi",
                "OMPI_MCA_osc": "^ucx,sm",
                "OMPI_MCA_btl": "ofi,self",
                "I_MPI_OFI_PROVIDER": "heddle",
                "I_MPI_FABRICS": "ofi",
            },
        )

    def test_variables_of_one_mpi(self):
        for mpi, prefix in (("mpich", "MPIR_"), ("openmpi", "OMPI_"), ("intel", "I_MPI_")):
            seen = self.of_mpi("--softhca", "always", "--mpi", mpi)
            prefixes = {name.split("_")[0] for name in seen if not name.startswith("FI_")}
            self.assertEqual(prefixes, {prefix.split("_")[0]})

    def test_a_recorded_run(self):
        seen = self.variables("--record", "run.%p", "--softhca", "always", cwd=self.scratch)
        self.assertEqual(seen["SOFTHCA_RECORD"], self.path("run.%p"))
        # On softhca already: the program is not started by it once more.
        result = self.softhca("run", "--", HEDDLE, "run", "--record", self.path("a"), "--", "env")
        self.assertIn(f"SOFTHCA_RECORD={self.path('a')}\n", self.assert_run(result, 0).stdout)
        result = self.heddle("--record", "/nowhere/run", "--softhca", "always", "--", "env")
        self.assert_run(result, 125, err="the run record /nowhere/run")

    def test_yield_of_a_thread_that_is_alone(self):
        """Of calls that a filter of the kernel's refuses, it shows how many reach the kernel."""
        program = self.write("yields.py", YIELDS)
        calls = 6400

        def reached(*options):
            result = self.heddle("--softhca", "never", *options, "--", sys.executable, program, str(calls))
            if "no filter" in result.stderr:
                self.skipTest(result.stderr.strip().splitlines()[-1])
            return int(self.assert_run(result, 0).stdout)

        self.assertEqual(reached("--yield", "always"), calls)
        few = reached()
        self.assertGreaterEqual(few, calls // 64)
        self.assertLess(few, calls // 2)

    def test_yield_beside_what_else_is_preloaded(self):
        ours = os.path.join(BUILD_DIR, "lib", "libheddle-yield.so")
        libm = "libm.so.6"
        for before, after in ((libm, f"{ours}:{libm}"), (f"/another/{os.path.basename(ours)}:{libm}", f"{ours}:{libm}")):
            self.environment["LD_PRELOAD"] = before
            self.assertEqual(self.variables("--softhca", "never")["LD_PRELOAD"], after)
        self.assertEqual(self.variables("--softhca", "never", "--yield", "always")["LD_PRELOAD"], before)
        self.environment["LD_PRELOAD"] = libm
        with_device = self.variables("--softhca", "always")["LD_PRELOAD"].split(":")
        self.assertEqual(with_device[:2], [ours, libm])
        self.assertEqual([os.path.basename(each) for each in with_device[2:]], ["libsofthca.so"])

    def test_options_become_variables(self):
        seen = self.of_mpi(
            *("--endpoints", "shared-dynamic", "--post=verbs", "--stats", "--threads", "4"),
            *("--softhca", "always"),
        )
        self.assertEqual(seen["FI_HEDDLE_ENDPOINTS"], "shared-dynamic")
        self.assertEqual(seen["FI_HEDDLE_POST"], "verbs")
        self.assertTrue(os.path.isabs(seen["FI_HEDDLE_STATS"]))
        self.assertFalse(os.path.exists(seen["FI_HEDDLE_STATS"]), "gone with the report")
        self.assertEqual(seen["MPIR_CVAR_CH4_NUM_VCIS"], "4")
        self.assertEqual(seen["I_MPI_THREAD_SPLIT"], "1")
        seen = self.of_mpi("--stats-file", "numbers", "--softhca", "always", cwd=self.scratch)
        self.assertEqual(seen["FI_HEDDLE_STATS"], os.path.realpath(self.path("numbers")))

    def test_stats_of_a_job(self):
        exchange = os.path.join(TEST_DIR, "fi_exchange")
        result = self.assert_run(self.heddle("--stats", "--softhca", "always", exchange), 0)
        self.assertRegex(result.stderr, r"heddle: 1 process, mlx5_0 \(software HCA\), endpoints \S+; "
                         r"3 messages sent: 33 % inline, 33 % eager, 33 % by rendezvous")
        self.assertRegex(result.stderr, r"(?m)^messages sent by rendezvous +1$")
        self.assertNotRegex(result.stderr, r"(?m) 0$", "what is zero is left out")
        # Two processes, and a file that has lines of another job.
        known = self.write("known.json", '{"of": "another job"}\n')
        both = f"{exchange} && {exchange}"
        result = self.heddle("--stats", "--stats-file", known, "--softhca", "always", "sh", "-c", both)
        self.assert_run(result, 0)
        self.assertRegex(result.stderr, r"heddle: 2 processes, .*; 6 messages sent")
        self.assertRegex(result.stderr, r"(?m)^messages sent by rendezvous +2 +1 +1$")
        self.assertNotIn("not counted", result.stderr)
        with open(known, encoding="utf-8") as file:
            self.assertEqual(len(file.readlines()), 3)
        result = self.heddle("--stats", "--softhca", "never", "sh", "-c", "exit 4")
        self.assert_run(result, 4, err="no process has used heddle")

    def test_an_interrupt_from_the_terminal_comes_once(self):
        program = self.write("program.py", """import signal
wanted = {signal.SIGINT, signal.SIGTERM}
signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
print("ready", flush=True)
number = 0
while number != signal.SIGTERM:
    number = signal.sigwaitinfo(wanted).si_signo
    print(signal.Signals(number).name, flush=True)
""")
        terminal, inner = pty.openpty()
        with subprocess.Popen(
            [HEDDLE, "run", "--stats", "--softhca", "never", "--", sys.executable, program],
            env=self.environment, stdin=inner, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)) as process:
            self.assertEqual(process.stdout.readline(), "ready\n")
            os.write(terminal, b"\x03")
            self.assertEqual(process.stdout.readline(), "SIGINT\n")
            process.send_signal(signal.SIGTERM)  # which is forwarded
            self.assertEqual(process.stdout.read(), "SIGTERM\n")
        self.assertEqual(process.returncode, 0)
        os.close(terminal)
        os.close(inner)

    def test_what_the_user_has_set_stays(self):
        env = {"OMPI_MCA_pml": "ob1", "FI_PROVIDER": "tcp", "MPIR_CVAR_NOLOCAL": "0"}
        seen = self.of_mpi("--softhca", "always", env=env)
        self.assertEqual(seen["OMPI_MCA_pml"], "ob1")
        self.assertEqual(seen["MPIR_CVAR_NOLOCAL"], "0")
        self.assertEqual(seen["FI_PROVIDER"], "heddle")

    def test_within_the_node(self):
        seen = self.of_mpi("--softhca", "always", "--within-node", "mpi")
        self.assertNotIn("MPIR_CVAR_NOLOCAL", seen)
        self.assertEqual(seen["I_MPI_FABRICS"], "shm:ofi")
        seen = self.of_mpi("--softhca", "never", "--within-node", "heddle")
        self.assertEqual(seen["MPIR_CVAR_NOLOCAL"], "1")

    def test_softhca_is_started_when_asked(self):
        self.assertIn("libsofthca.so", self.variables("--softhca", "always")["LD_PRELOAD"])
        self.assertNotIn("libsofthca.so", self.variables("--softhca", "never").get("LD_PRELOAD", ""))

    def test_softhca_is_started_without_a_device(self):
        if os.path.isdir("/sys/class/infiniband") and os.listdir("/sys/class/infiniband"):
            self.skipTest("there is a device")
        result = self.assert_run(self.heddle("env"), 0, err="on the software HCA")
        self.assertIn("libsofthca.so", result.stdout)

    def test_softhca_is_not_started_twice(self):
        result = self.softhca("run", HEDDLE, "run", "--verbose", "--", "env")
        self.assert_run(result, 0)
        self.assertNotIn("softhca run", result.stderr)
        line = next(l for l in result.stdout.splitlines() if l.startswith("LD_PRELOAD="))
        self.assertEqual(line.count("libsofthca.so"), 1)
        self.assertIn("MPIR_CVAR_NOLOCAL=1", result.stdout)
        # heddle, which looked for devices, has left the fabric again
        self.assertNotIn(self.fabric, self.softhca("list", "--names").stdout)

    def test_verbose_says_what_it_does(self):
        result = self.heddle("--verbose", "--softhca", "always", "--", "true", "--an-option")
        self.assert_run(result, 0, err="heddle run: FI_PROVIDER=heddle")
        self.assertIn("run -- true --an-option", result.stderr)
        result = self.heddle("-v", "true", env={"OMPI_MCA_mtl": "psm2"})
        self.assert_run(result, 0, err="OMPI_MCA_mtl=psm2 (as it was)")

    def test_intel_libraries_are_found(self):
        os.makedirs(self.path("intel", "bin"))
        shutil.copy(shutil.which("env"), self.path("intel", "bin", "mpiexec"))
        for name in ("libfabric.so.1", "libmpi.so.12", "libmpifort.so.12"):
            self.write(os.path.join("intel", "lib", name), "")
        program = self.path("intel", "bin", "mpiexec")
        lib = os.path.realpath(self.path("intel", "lib"))
        for before, after in ((None, lib), ("/other", lib + ":/other")):
            result = self.heddle("--softhca", "never", program, env={"LD_LIBRARY_PATH": before})
            self.assert_run(result, 0, out="LD_LIBRARY_PATH=" + after + "\n")
        self.assertNotIn("LD_LIBRARY_PATH", self.variables("--softhca", "never"))

    def test_the_programs_own_options_are_its_own(self):
        for separator in ([], ["--"]):
            result = self.heddle("--post", "auto", *separator, "printf", "<%s>", "--post", "--", "-h")
            self.assert_run(result, 0)
            self.assertEqual(result.stdout, "<--post><--><-h>")

    def test_exit_status_is_the_programs(self):
        for softhca in ("always", "never"):
            self.assert_run(self.heddle("--softhca", softhca, "sh", "-c", "exit 42"), 42)
            self.assert_run(self.heddle("--softhca", softhca, "no-such-program"), 127)
        self.assert_run(self.heddle(), 125, err="no command")

    def test_wrong_values_name_what_is_possible(self):
        for flag, known in (
            ("endpoints", "2xdynamic"), ("post", "direct"), ("softhca", "always"), ("mpi", "intel"),
        ):
            result = self.heddle("--" + flag, "fast", "true")
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(known, result.stdout + result.stderr)

    def test_without_the_provider(self):
        os.makedirs(self.path("bin"))
        command = shutil.copy(HEDDLE, self.path("bin", "heddle"))
        self.assert_run(self.heddle("true", command=command), 125, err="libheddle-fi.so is not there")

    def test_moved_tree(self):
        for folder in ("bin", "lib"):
            os.makedirs(self.path(folder))
        command = shutil.copy(HEDDLE, self.path("bin", "heddle"))
        self.write("lib/libheddle-fi.so", "")
        seen = self.of_mpi("--softhca", "never", command=command)
        self.assertEqual(seen["FI_PROVIDER_PATH"], os.path.realpath(self.path("lib")))

    def mpi(self, name):
        """A folder with an mpiexec that says what it is asked for, and a program of that MPI."""
        os.makedirs(self.path(name, "lib"))
        self.write(f"{name}/bin/mpiexec", f"#!/bin/sh\necho '{name}:' \"$@\"; env\n", 0o755)
        library = self.path(name, "lib", "libmpi.so.40")
        source = self.write("mpi.c", "int MPI_Init(void) { return 0; }\n")
        subprocess.run(["cc", "-shared", "-fPIC", "-Wl,-soname,libmpi.so.40", "-o", library, source],
                       check=True)
        source = self.write("main.c", "int MPI_Init(void);\nint main(void) { return MPI_Init(); }\n")
        subprocess.run(["cc", "-o", self.path("program"), source, library,
                        f"-Wl,-rpath,{os.path.dirname(library)}"], check=True)
        return self.path("program")

    def test_ranks_by_the_mpi_of_the_program(self):
        program = self.mpi("own")
        self.write("other/mpiexec", "#!/bin/sh\necho other\n", 0o755)
        path = {"PATH": self.path("other") + ":" + os.environ["PATH"]}
        result = self.assert_run(self.heddle("-n", "3", program, "--size", "4", env=path), 0,
                                 err="own/bin/mpiexec, of the MPI it is linked with; on ")
        self.assertIn(f"own: -n 3 {program} --size 4", result.stdout)
        self.assertIn("FI_PROVIDER=heddle", result.stdout)
        if "on the software HCA" in result.stderr:  # more ranks than processors are let be
            self.assertIn("PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe", result.stdout)

    def test_ranks_as_mpiexec_spells_them(self):
        program = self.mpi("own")
        for flag in ("-n", "-np", "--np", "--ranks"):
            result = self.assert_run(self.heddle(flag, "2", program, "-np", "3"), 0, err="2 ranks by")
            self.assertIn(f"own: -n 2 {program} -np 3\n", result.stdout)
        self.assert_run(self.heddle("-np", "1", program), 0, err="heddle run: 1 rank by")

    def test_no_device_and_no_software_hca(self):
        if os.path.isdir("/sys/class/infiniband") and os.listdir("/sys/class/infiniband"):
            self.skipTest("there is a device")
        result = self.assert_run(self.heddle("-n", "2", "--softhca", "never", self.mpi("own")), 0,
                                 err="; on no device")
        self.assertNotIn("on the RDMA device", result.stderr)
        self.assert_run(self.heddle("--softhca", "never", "true"), 0,
                        err="there is no RDMA device with an active port")

    def elsewhere(self):
        """PATH with an mpiexec of another MPI first."""
        self.write("other/mpiexec", "#!/bin/sh\necho \"other: $@\"\n", 0o755)
        return {"PATH": self.path("other") + ":" + os.environ["PATH"]}

    def environment_of_python(self):
        """A virtual environment with an mpiexec, as PyPI's MPI libraries make it."""
        os.makedirs(self.path("venv", "bin"))
        python = self.path("venv", "bin", "python")
        interpreter = os.path.realpath(sys.executable)
        os.symlink(interpreter, python)
        self.write("venv/pyvenv.cfg", f"home = {os.path.dirname(interpreter)}\n")
        self.write("venv/bin/mpiexec", '#!/bin/sh\necho "venv: $@"\n', 0o755)
        self.write("x.py", "")
        return python

    def mpi4py_linked_with(self, library, name="MPI.cpython-3-linux-gnu.so"):
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.write(f"venv/lib/{version}/site-packages/mpi4py/__init__.py", "raise SystemError\n")
        source = self.write("module.c", "int MPI_Init(void);\nint module(void) { return MPI_Init(); }\n")
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-o",
             self.path("venv", "lib", version, "site-packages", "mpi4py", name), source, library,
             f"-Wl,-rpath,{os.path.dirname(library)}"], check=True)

    def test_ranks_of_a_virtual_environment(self):
        python = self.environment_of_python()
        script = self.write("venv/bin/tool", f"#!{python}\n", 0o755)
        for command in ((python, "x.py"), (script, "--size")):
            result = self.assert_run(self.heddle("-n", "2", *command, env=self.elsewhere()), 0,
                                     err="venv/bin/mpiexec, beside the interpreter; on ")
            self.assertEqual(result.stdout, f"venv: -n 2 {' '.join(command)}\n")

    def test_ranks_by_the_mpi_of_mpi4py(self):
        python = self.environment_of_python()
        self.mpi("own")
        self.mpi4py_linked_with(self.path("own", "lib", "libmpi.so.40"))
        result = self.assert_run(self.heddle("-n", "2", python, "x.py", env=self.elsewhere()), 0,
                                 err="own/bin/mpiexec, of the MPI that mpi4py is linked with; on ")
        self.assertIn(f"own: -n 2 {python} x.py\n", result.stdout)
        # A wheel of PyPI's has a module for each MPI, and takes the one of its environment.
        self.mpi4py_linked_with(self.path("own", "lib", "libmpi.so.40"), "MPI.mpich.so")
        self.assert_run(self.heddle("-n", "2", python, "x.py", env=self.elsewhere()), 0,
                        out="venv: -n 2", err="beside the interpreter")

    def test_nothing_of_the_working_directory_is_run(self):
        python = self.environment_of_python()
        for module in ("importlib", "mpi4py", "json"):
            self.write(f"work/{module}/__init__.py", f"open({self.path('run')!r}, 'w').close()\n")
        for path in ("", "."):
            self.assert_run(self.heddle("-n", "2", python, "x.py", cwd=self.path("work"),
                                        env={**self.elsewhere(), "PYTHONPATH": path}), 0,
                            out="venv: -n 2")
        self.assertFalse(os.path.exists(self.path("run")))

    def test_what_others_may_write_is_not_started(self):
        program = self.mpi("own")
        for name, mode in (("own/bin/mpiexec", 0o777), ("own/bin", 0o777), ("own", 0o757)):
            before = os.stat(self.path(name)).st_mode & 0o7777
            os.chmod(self.path(name), mode)
            result = self.heddle("-n", "2", program, env=self.elsewhere())
            self.assert_run(result, 0, out=f"other: -n 2 {program}", err="found in PATH")
            self.assertIn("not started: " + os.path.realpath(self.path("own", "bin", "mpiexec")) +
                          ": everybody may write " + os.path.realpath(self.path(name)),
                          result.stderr)
            os.chmod(self.path(name), before)
        self.assert_run(self.heddle("-n", "2", program, env=self.elsewhere()), 0, out="own: -n 2")

    @unittest.skipUnless(os.geteuid() == 0, "only root makes files of others")
    def test_what_belongs_to_others_is_not_started(self):
        program = self.mpi("own")
        for name in ("own/bin/mpiexec", "own/bin", "own"):
            os.chown(self.path(name), 12345, 0)
            self.assert_run(self.heddle("-n", "2", program, env=self.elsewhere()), 0,
                            out="other: -n 2", err=" belongs to user 12345")
            os.chown(self.path(name), 0, 0)
        nobody = pwd.getpwnam("nobody")
        os.chmod(self.path("own"), 0o775)
        self.assert_run(self.heddle("-n", "2", program, env=self.elsewhere()), 0, out="own: -n 2")
        os.chown(self.path("own"), 0, nobody.pw_gid)
        self.assert_run(self.heddle("-n", "2", program, env=self.elsewhere()), 0, out="other: -n 2",
                        err=f"group {nobody.pw_gid} may write ")

    def test_launchers_are_not_looked_for_far_above(self):
        """If a library is in /home/user/project/build/lib, /home/bin is not part of its MPI."""
        program = self.mpi("far/a/b/c")
        os.rename(self.path("far/a/b/c/bin"), self.path("far/bin"))
        self.assert_run(self.heddle("-n", "2", program, env=self.elsewhere()), 0, out="other: -n 2")
        os.rename(self.path("far/bin"), self.path("far/a/b/bin"))  # as of lib/x86_64-linux-gnu
        self.assert_run(self.heddle("-n", "2", program, env=self.elsewhere()), 0,
                        out="far/a/b/c: -n 2")

    def test_no_shell_reads_a_name(self):
        for name in ("$(touch run)", "a; touch run; b", "`touch run`", "-v"):
            program = self.mpi(name + " lib")
            named = self.path("work", name)
            os.makedirs(self.path("work"), exist_ok=True)
            shutil.move(program, named)
            result = self.heddle("-n", "2", "./" + name, "$(touch run)", cwd=self.path("work"))
            self.assert_run(result, 0, err="of the MPI it is linked with")
            self.assertIn(f"{name} lib: -n 2 ./{name} $(touch run)\n", result.stdout)
            self.assertFalse(os.path.exists(self.path("work", "run")), name)

    def test_ranks_of_a_script(self):
        script = self.write("script", "#!/bin/sh\n", 0o755)
        self.write("bin/mpiexec", '#!/bin/sh\necho "found: $@"\n', 0o755)
        path = {"PATH": self.path("bin") + ":" + os.environ["PATH"]}
        result = self.assert_run(self.heddle("-n", "2", script, env=path), 0, err="found in PATH")
        self.assertIn(f"found: -n 2 {script}", result.stdout)

    def test_ranks_in_a_job_of_slurm(self):
        script = self.write("script", "#!/bin/sh\n", 0o755)
        self.write("bin/srun", '#!/bin/sh\necho "srun: $@"\n', 0o755)
        for tool in ("sh", "ldd"):
            os.symlink(shutil.which(tool), self.path("bin", tool))
        path = {"PATH": self.path("bin"), "SLURM_JOB_ID": "7"}
        result = self.assert_run(self.heddle("-n", "2", script, env=path), 0, err="job of Slurm's")
        self.assertIn(f"srun: --export=ALL -n 2 {script}", result.stdout)

    def test_ranks_without_an_mpi(self):
        script = self.write("script", "#!/bin/sh\n", 0o755)
        tree = self.path("tree", "bin")  # without what `make demo` may have installed
        os.makedirs(tree)
        for name in ("heddle", "softhca"):
            shutil.copy(os.path.join(BUILD_DIR, "bin", name), tree)
        os.symlink(os.path.join(BUILD_DIR, "lib"), self.path("tree", "lib"))
        result = self.heddle("-n", "2", script, env={"PATH": tree},
                             command=os.path.join(tree, "heddle"))
        self.assert_run(result, 127, err="no mpiexec")
        for tried in ("is linked with no MPI", "PATH", "venvs"):
            self.assertIn(tried, result.stderr)

    def test_help(self):
        result = subprocess.run(
            [HEDDLE, "run", "--help"], env=self.environment, capture_output=True, text=True, check=False
        )
        self.assert_run(result, 0, out="mpiexec")


if __name__ == "__main__":
    main()
