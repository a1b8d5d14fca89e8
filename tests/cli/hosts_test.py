# SPDX-License-Identifier: BSD-2-Clause
"""Several hosts: `heddle doctor -hosts` and `heddle run` with them. A command stands in for ssh: its
"hosts" are processes of this machine, each with the environment that the test gives it."""

import json
import os
import shlex
import sys
import time
import unittest

from fabric_case import FabricCase
from harness import BUILD_DIR, SOFTHCA, main

HEDDLE = os.path.join(BUILD_DIR, "bin", "heddle")
PROVIDER = os.path.join(BUILD_DIR, "lib", "libheddle-fi.so")
LAUNCHERS = ("SLURM", "PBS_NODEFILE", "FI_", "MPIR_", "OMPI_", "I_MPI_", "HYDRA_", "HEDDLE_SSH")
# Greets as login shells do, and says whether each word arrives as it was.
SSH = """#!/bin/sh
host=$1
shift
echo "Welcome to $host"
echo "$host $*" >> {log}
[ -f {hosts}/$host ] && . {hosts}/$host
exec sh -c "$*"
"""
LAUNCHER = """#!/bin/sh
if [ "$1" = --version ]; then echo "{version}"; exit 0; fi
for word; do echo "word $word"; done
exec env
"""
VERSIONS = {
    "hydra": "HYDRA build details:",
    "intel": "Intel(R) MPI Library for Linux* OS, Version 2021.18",
    "openmpi": "mpirun (Open MPI) 5.0.11",
    "other": "a launcher",
}


@unittest.skipUnless(os.path.exists(PROVIDER), "the provider is not built")
class HostsCase(FabricCase):
    def setUp(self):
        super().setUp()
        self.forget(LAUNCHERS)
        os.makedirs(self.path("hosts"))
        self.log = self.path("ssh.log")
        text = SSH.format(log=shlex.quote(self.log), hosts=shlex.quote(self.path("hosts")))
        self.ssh = self.write("fake_ssh", text, 0o755)
        self.environment["HEDDLE_SSH"] = self.ssh

    def host(self, name, *lines):
        """What happens on that host before its command."""
        self.write(os.path.join("hosts", name), "".join(line + "\n" for line in lines))

    def on_device(self, *words, **options):
        return self.softhca("run", "--", HEDDLE, *words, **options)


class Doctor(HostsCase):
    def doctor(self, *words, status=0, **options):
        result = self.assert_run(self.on_device("doctor", "--json", *words, **options), status)
        return json.loads(result.stdout)

    def test_hosts_and_pairs(self):
        result = self.assert_run(self.on_device("doctor", "-hosts", "alpha,beta,gamma"), 0)
        lines = result.stdout.splitlines()
        for line, name in zip(lines, ("alpha", "beta", "gamma")):
            self.assertRegex(line, rf"^{name} +heddle [0-9.]+, libfabric .*mlx5_0 ACTIVE .*InfiniBand.*MTU 4096$")
        self.assertIn("3 of 3 pairs exchange 8 bytes and 1 MiB", result.stdout)
        # One connection to a host is enough.
        with open(self.log, encoding="utf-8") as file:
            self.assertEqual(sorted(line.split()[0] for line in file), ["alpha", "beta", "gamma"])

    def test_files_of_hosts(self):
        file = self.write("hosts.txt", "# ours\nalpha slots=4\nbeta:2  # the second\n\nalpha\n")
        for option in ("-f", "-hostfile", "--hostfile"):
            report = self.doctor(option, file)
            self.assertEqual([each["host"] for each in report["hosts"]], ["alpha", "beta"])
            self.assertEqual(len(report["pairs"]), 1)
        self.environment["PBS_NODEFILE"] = file
        self.assertEqual(len(self.doctor()["hosts"]), 2)
        for wrong in ("-oProxyCommand=x", "a b;c"):
            bad = self.write("bad.txt", wrong.split()[-1] + "\n")
            self.assert_run(self.on_device("doctor", "-f", bad), 1, err="not the name of a host")
        self.assert_run(self.on_device("doctor", "-f", self.path("none")), 1, err="No such file")

    def test_hosts_of_a_slurm_job(self):
        """Without a command that stands in for it, srun reaches them."""
        self.write("scontrol", "#!/bin/sh\n[ \"$3\" = 'n[1-2]' ] && printf 'n1\\nn2\\n'\n", 0o755)
        srun = f"#!/bin/sh\nwhile [ $1 != --nodelist ]; do echo $1 >> {self.log}; shift; done\nshift\nshift\nexec \"$@\"\n"
        self.write("srun", srun, 0o755)
        del self.environment["HEDDLE_SSH"]
        slurm = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]",
                 "PATH": self.scratch + ":" + self.environment["PATH"]}
        report = self.doctor(env=slurm)
        self.assertEqual([each["host"] for each in report["hosts"]], ["n1", "n2"])
        self.assertEqual(report["pairs"][0]["error"], "")
        with open(self.log, encoding="utf-8") as file:
            self.assertIn("--export=ALL", file.read())

    def test_a_host_without_an_answer_is_a_line(self):
        self.host("refuses", "echo 'ssh: connect to host refuses port 22: Connection refused' >&2", "exit 255")
        self.host("hangs", "exec sleep 600")
        self.host("empty", "unset LD_PRELOAD")
        begin = time.monotonic()
        words = ("doctor", "-hosts", "alpha,refuses,hangs,beta,empty", "--timeout", "5")
        result = self.assert_run(self.on_device(*words), 1)
        self.assertLess(time.monotonic() - begin, 40)
        self.assertRegex(result.stdout, "refuses  no answer: ssh: connect to host refuses port 22: Connection refused")
        self.assertRegex(result.stdout, "hangs    no answer: no answer in time")
        self.assertIn("libibverbs lists no device", result.stdout)
        self.assertIn("1 of 10 pairs exchange 8 bytes and 1 MiB", result.stdout)
        self.assertIn("9 not tried", result.stdout)

    def test_hosts_that_do_not_fit(self):
        self.host("roce", "export SOFTHCA_PORT=roce SOFTHCA_FABRIC=${SOFTHCA_FABRIC}2")
        report = self.doctor("-hosts", "alpha,roce", "--timeout", "5", status=1)
        differs = {each["seen"]: each for each in report["comparisons"]}
        (seen,) = [seen for seen in differs if seen.startswith("the link layer")]
        self.assertEqual(seen, "the link layer differs: InfiniBand on alpha; RoCE on roce")
        self.assertIn("FI_HEDDLE_DEVICE", differs[seen]["remedy"])
        (pair,) = report["pairs"]
        self.assertIn("No route to host", pair["error"])
        self.assertIn("one fabric", pair["remedy"])

    def test_versions_differ(self):
        """A heddle of another version prints another report."""
        script = f"""#!{sys.executable}
import json, subprocess, sys
agent = subprocess.run({[HEDDLE, "doctor", "--agent"]!r}, stdin=subprocess.DEVNULL, capture_output=True, text=True)
mark, line = agent.stdout.split(" ", 1)
report = json.loads(line)
report.update(heddle="0.0.1", address=None)
print(mark, json.dumps(report))
"""
        old = self.write("old.py", script, 0o755)
        self.host("old", f"exec {shlex.quote(old)}")
        report = self.doctor("-hosts", "alpha,old", status=1)
        self.assertIn("the version of heddle differs: 0.0.1 on old;", json.dumps(report["comparisons"]))

    def test_options_reach_the_hosts(self):
        """Also those whose value a shell would take apart."""
        report = self.doctor("-hosts", "alpha,beta", env={"FI_HEDDLE_DEVICE": "mlx5_[0-3]:1", "FI_HEDDLE_STATS": "/a b'c"})
        checks = {check["name"]: check for check in report["hosts"][0]["answer"]["checks"]}
        self.assertIn("2 FI_HEDDLE_ variables", checks["options"]["seen"])
        with open(self.log, encoding="utf-8") as file:
            self.assertIn("FI_HEDDLE_STATS=", file.read())


class Run(HostsCase):
    def setUp(self):
        super().setUp()
        self.prog = self.write("prog", "#!/bin/sh\n", 0o755)

    def launcher(self, kind, name="mpiexec"):
        folder = os.path.join("bin-" + kind, name)
        return self.write(folder, LAUNCHER.format(version=VERSIONS.get(kind, "")), 0o755)

    def started(self, result):
        """The launcher's words, and its environment."""
        lines = self.assert_run(result, 0).stdout.splitlines()
        words = [line[5:] for line in lines if line.startswith("word ")]
        return words, dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("word "))

    def run_by(self, launcher, *words, **options):
        return self.on_device("run", *words, "--", launcher, *options.pop("own", ()), self.prog, **options)

    def test_a_line_for_each_host(self):
        result = self.run_by(self.launcher("hydra"), "-hosts", "alpha,beta")
        self.started(result)
        for name in ("alpha", "beta "):
            self.assertRegex(result.stderr, rf"(?m)^{name} +heddle [0-9.]+, .*mlx5_0 ACTIVE")
        self.assertNotIn("pairs", result.stderr)
        result = self.run_by(self.launcher("hydra"), "--no-check", "-hosts", "alpha,beta")
        self.started(result)
        self.assertNotIn("alpha", result.stderr)

    def test_hydra(self):
        for kind in ("hydra", "intel"):
            words, _ = self.started(self.run_by(self.launcher(kind), "-hosts", "alpha,beta"))
            at = words.index("FI_PROVIDER_PATH")
            self.assertEqual(words[at - 1 : at + 2], ["-genv", "FI_PROVIDER_PATH", os.path.dirname(PROVIDER)])
            self.assertIn("MPIR_CVAR_CH4_NETMOD", words)
            self.assertEqual(words[-3:], ["-hosts", "alpha,beta", self.prog])

    def test_openmpi(self):
        words, _ = self.started(
            self.run_by(self.launcher("openmpi"), "-hosts", "alpha,beta", env={"FI_HEDDLE_RNDV": "auto"})
        )
        passed = {words[i + 1] for i, word in enumerate(words) if word == "-x"}
        self.assertLessEqual({"FI_PROVIDER", "FI_PROVIDER_PATH", "FI_HEDDLE_RNDV", "LD_PRELOAD"}, passed)
        self.assertFalse([name for name in passed if name.startswith("OMPI_")])
        self.assertEqual(words[-3:], ["--host", "alpha:*,beta:*", self.prog])

    def test_srun(self):
        words, _ = self.started(self.run_by(self.launcher("", "srun"), "-hosts", "alpha,beta"))
        self.assertEqual(words, ["--export=ALL", "--nodelist=alpha,beta", "--nodes=2", self.prog])
        own = ("--export=NONE",)
        words, _ = self.started(self.run_by(self.launcher("", "srun"), "-hosts", "alpha,beta", own=own))
        self.assertNotIn("--export=ALL", words)

    def test_hosts_of_the_launchers_own_words(self):
        file = self.write("hosts.txt", "alpha\nbeta\n")
        for own in (("-hosts", "alpha,beta"), ("-genv", "A", "b", "-f", file), ("-n", "4", "-machinefile", file)):
            result = self.run_by(self.launcher("hydra"), own=own)
            words, _ = self.started(result)
            self.assertIn("-genv", words, own)
            self.assertEqual(words.count("-hosts"), own.count("-hosts"))
            self.assertRegex(result.stderr, "(?m)^beta", own)

    def test_words_of_the_program_are_its_own(self):
        """-f names a file of the program's, and -H is no list of hosts."""
        for own in ((), ("-n", "4"), ("-verbose",)):
            words = ("run", "--", self.launcher("hydra"), *own, self.prog, "-f", "/nowhere", "-H", "a,b")
            seen, _ = self.started(self.on_device(*words))
            self.assertEqual(seen, [*own, self.prog, "-f", "/nowhere", "-H", "a,b"])

    def test_one_host_is_as_ever(self):
        for own in ((), ("-hosts", "localhost"), ("-host", os.uname().nodename)):
            result = self.run_by(self.launcher("hydra"), own=own)
            words, variables = self.started(result)
            self.assertEqual(words, [*own, self.prog])
            self.assertEqual(variables["FI_PROVIDER"], "heddle")
            self.assertFalse(os.path.exists(self.log))

    def test_pbs(self):
        """Its file has a line for each slot, so the launcher reads the file."""
        file = self.write("nodes", "alpha\nalpha\nbeta\nbeta\n")
        env = {"PBS_NODEFILE": file}
        words, _ = self.started(self.run_by(self.launcher("hydra"), env=env))
        self.assertEqual(words[-3:], ["-f", file, self.prog])
        words, _ = self.started(self.run_by(self.launcher("openmpi"), env=env))
        self.assertEqual(words[-3:], ["--hostfile", file, self.prog])
        # A program that is no launcher is started here.
        self.assert_run(self.on_device("run", "--", "env", env=env), 0)

    def test_ranks(self):
        self.launcher("openmpi")
        path = {"PATH": self.path("bin-openmpi") + ":" + self.environment["PATH"]}
        words, _ = self.started(self.on_device("run", "-n", "5", "-hosts", "alpha,beta", self.prog, env=path))
        self.assertEqual(words[-5:], ["--host", "alpha:3,beta:3", "-n", "5", self.prog])

    def test_no_decision_for_others(self):
        """A login node without an adapter is normal: softhca is not started, and the hosts are asked."""
        member = self.softhca("run", "--", "sh", "-c", "echo $LD_PRELOAD").stdout.strip()
        for name in ("alpha", "beta"):
            self.host(name, f"export LD_PRELOAD={shlex.quote(member)}")
        words = ("run", "-hosts", "alpha,beta", "--", self.launcher("hydra"), self.prog)
        result = self.softhca(*words, command=HEDDLE)
        _, variables = self.started(result)
        self.assertNotIn("libsofthca.so", variables.get("LD_PRELOAD", ""))
        self.assertEqual(variables.get("MPIR_CVAR_NOLOCAL"), None)

    def test_hosts_without_an_adapter(self):
        words = ("run", "-hosts", "alpha,beta", "--", self.launcher("hydra"), self.prog)
        result = self.assert_run(self.softhca(*words, command=HEDDLE), 125, err="libibverbs lists no device")
        self.assertIn("it has no network between them yet", result.stderr)
        self.assertIn("--no-check", result.stderr)
        result = self.softhca(words[0], "--softhca", "always", *words[1:], command=HEDDLE)
        self.assert_run(result, 125, err="no network between hosts yet")

    def test_what_is_no_launcher(self):
        words = ("run", "-hosts", "alpha,beta", "--", self.launcher("other"), self.prog)
        self.assert_run(self.on_device(*words), 125, err="is not known as a launcher")


if __name__ == "__main__":
    main()
