#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Jobs on several hosts over heddle, on the software HCA: by the MPIs' own launchers through a
command in place of ssh, and by Slurm, with srun and sbatch; and `heddle doctor` within a job. All
"hosts" are this machine.

The command in place of ssh starts what it is given with an empty environment, as sshd does with
almost one: what a rank has of variables, the launcher has passed on.

A private Slurm: a slurmctld and a slurmd for each of two nodes, all on this machine and on free ports,
without munge (auth/none). Debian's slurmd is built for several on one host. The daemons are processes
of this script, and end with it. Without Slurm or root the cases are skipped.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import mpis

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "third_party"))
from harness import SOURCE_ROOT, Failure, Skip, Suite  # noqa: E402

HERE = Path(__file__).resolve().parent
FLAGS = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-pthread"]
RANKS = 4
SSH = """\
#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do shift; done
echo "$1" >> {log}
# A directory of its own: Open MPI's daemons make one of the host's name, and all have this one's.
mkdir -p {log}.$1
temporary={log}.$1
shift
exec env -i HOME="$HOME" PATH=/usr/bin:/bin TMPDIR="$temporary" sh -c "$*"
"""
NODES = ("hn1", "hn2")
CONFIGURATION = """\
ClusterName=heddle
SlurmctldHost=localhost
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdSpoolDir={folder}/spool-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
{nodes}
PartitionName=all Nodes={names} Default=YES MaxTime=10 State=UP OverSubscribe=FORCE:8
"""


class Cluster:
    """The daemons of two nodes, in a folder of its own."""

    def __init__(self, suite):
        for program in ("slurmctld", "slurmd", "srun", "sbatch", "scontrol", "sinfo"):
            if not self.found(program):
                raise Skip(f"{program} is not installed (scripts/install-deps slurm)")
        if os.geteuid() != 0:
            raise Skip("slurmd runs as root")
        # Paths of sockets have at most 107 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix="heddle-slurm-"))
        self.daemons = []
        (self.folder / "state").mkdir()
        lines = []
        for node in NODES:
            (self.folder / f"spool-{node}").mkdir()
            lines.append(
                f"NodeName={node} NodeHostname=localhost NodeAddr=127.0.0.1 Port={suite.free_port()} CPUs={RANKS}"
            )
        self.file = self.folder / "slurm.conf"
        self.file.write_text(
            CONFIGURATION.format(
                controller=suite.free_port(),
                folder=self.folder,
                nodes="\n".join(lines),
                names=",".join(NODES),
            ),
            encoding="ascii",
        )
        # A job that this script is in is none of the cluster's.
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_"))
        }
        self.environment["SLURM_CONF"] = str(self.file)
        for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
            self.environment[name] = "1"
        self.start("slurmctld", "-D", "-i")
        for node in NODES:
            self.start("slurmd", "-D", "-N", node)
        self.wait_idle(60)

    @staticmethod
    def found(program):
        return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")

    def start(self, program, *arguments):
        with open(self.folder / f"{program}{len(self.daemons)}.log", "wb") as log:
            self.daemons.append(
                subprocess.Popen(
                    [self.found(program), *arguments],
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )

    def wait_idle(self, seconds):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            shown = self.client("sinfo", "--noheader", "--format=%T %D").stdout
            if shown.strip() == f"idle {len(NODES)}":
                return
            if any(daemon.poll() is not None for daemon in self.daemons):
                break
            time.sleep(0.2)
        raise Failure("the nodes are not idle\n" + self.logs())

    def client(self, *words, seconds=60):
        return subprocess.run(
            words, env=self.environment, capture_output=True, text=True, timeout=seconds, check=False
        )

    def logs(self):
        texts = []
        for log in sorted(self.folder.glob("*.log")):
            lines = log.read_text(errors="replace").splitlines()[-15:]
            texts.append("\n".join([f"{log.name}:", *("  | " + line for line in lines)]))
        return "\n".join(texts)

    def close(self):
        self.client("scancel", "--user=root")
        for daemon in reversed(self.daemons):
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Hosts:
    def __init__(self, suite):
        self.suite = suite
        self.cluster = None
        self.missing = None
        self.heddle = suite.options.softhca.parent / "heddle"
        self.mpis, self.not_there = {}, {}

    def close(self):
        if self.cluster:
            self.cluster.close()

    def ready(self, key):
        """The cluster, started for the first of its cases, and an MPI's hello."""
        if self.missing:
            raise Skip(self.missing)
        if not self.cluster:
            try:
                self.cluster = Cluster(self.suite)
            except Skip as reason:
                self.missing = str(reason)
                raise
        return self.hello(key)

    def hello(self, key):
        if key not in self.mpis:
            found, missing = mpis.find([key], self.suite.options.venvs)
            if missing:
                raise Skip(missing[key])
            self.mpis[key] = found[key]
        mpi = self.mpis[key]
        program = self.suite.scratch("hosts") / f"hello-{key}"
        sources = [HERE / name for name in ("hello.c", "support.c")]
        self.suite.run_plain([mpi.mpicc, *FLAGS, *sources, "-o", program, "-lm"], seconds=120)
        return mpi, program

    def run(self, *words, seconds=120, expect=0, **more):
        environment = dict(self.cluster.environment if self.cluster else os.environ, **more)
        for name in ("FI_PROVIDER", "FI_PROVIDER_PATH", "LD_PRELOAD"):
            environment.pop(name, None)
        words = self.suite.command([str(word) for word in words])
        result = subprocess.run(
            words,
            env=environment,
            capture_output=True,
            text=True,
            timeout=self.suite.scaled(seconds),
            check=False,
            stdin=subprocess.DEVNULL,
            cwd=self.suite.scratch("hosts"),
        )
        shown = f"{' '.join(words)}\nexit code {result.returncode}\n{result.stdout}\n{result.stderr}"
        logs = self.cluster.logs() if self.cluster else ""
        if result.returncode != expect:
            raise Failure(f"exit code {result.returncode}, expected {expect}\n{shown}\n{logs}")
        return result, shown

    def batch(self, *lines, **options):
        """sbatch waits for the job, whose output is a file."""
        output = self.cluster.folder / "job.out"
        output.unlink(missing_ok=True)
        script = self.cluster.folder / "job.sh"
        script.write_text("\n".join(["#!/bin/sh", *lines, ""]), encoding="utf-8")
        words = ("sbatch", "--wait", "-N", len(NODES), "-n", RANKS, f"--output={output}", script)
        try:
            _, shown = self.run(*words, **options)
        except Failure as failure:
            text = output.read_text(errors="replace") if output.exists() else "no output"
            raise Failure(f"{failure}\n{text}") from failure
        text = output.read_text(errors="replace")
        return text, shown + text

    @staticmethod
    def check(shown, processes=RANKS):
        """--stats counts the processes that have used heddle."""
        if f"heddle: {processes} processes" not in shown:
            raise Failure(f"it was not run over heddle by {processes} processes\n{shown}")

    # Cases

    def by_ssh(self, key):
        """--no-check, since the software HCA is not on a host without the variables."""
        _, program = self.hello(key)
        folder = self.suite.scratch("hosts")
        log = folder / "ssh.log"
        log.unlink(missing_ok=True)
        ssh = folder / "ssh"
        ssh.write_text(SSH.format(log=log), encoding="ascii")
        ssh.chmod(0o755)
        launchers = {
            "HYDRA_LAUNCHER": "ssh",
            "HYDRA_LAUNCHER_EXEC": str(ssh),
            "OMPI_MCA_plm": "rsh",
            "OMPI_MCA_plm_rsh_agent": str(ssh),
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }
        hosts = ("-hosts", ",".join(NODES))
        _, shown = self.run(
            self.heddle, "run", "--no-check", "--stats", "-n", RANKS, *hosts, program, **launchers
        )
        self.check(shown)
        if sorted(log.read_text(encoding="ascii").split()) != sorted(NODES):
            raise Failure(f"it was not started on each host\n{shown}")

    def srun(self):
        mpi, program = self.ready("mpich")
        _, shown = self.run(
            self.heddle, "run", "--stats", "--", "srun", "-N", len(NODES), "-n", RANKS, "--mpi=pmi2", program,
            LD_LIBRARY_PATH=mpi.home / "lib",
        )
        self.check(shown)

    def srun_without_variables(self):
        """SLURM_EXPORT_ENV=NONE keeps the environment from the tasks, if --export does not say otherwise."""
        _, program = self.ready("mpich")
        _, shown = self.run(
            self.heddle, "run", "--stats", "--", "srun", "-N", len(NODES), "-n", RANKS, "--mpi=pmi2", program,
            SLURM_EXPORT_ENV="NONE",
        )
        self.check(shown)

    def sbatch(self, key, *words):
        """Each node is examined first, through srun."""
        _, program = self.ready(key)
        line = " ".join(str(word) for word in (self.heddle, "run", "--stats", *words, program))
        text, shown = self.batch(f"{line} 2>&1")
        self.check(shown)
        for node in NODES:
            if not any(line.startswith(node) and "ACTIVE" in line for line in text.splitlines()):
                raise Failure(f"no line about {node}\n{shown}")

    def doctor(self):
        self.ready("mpich")
        text, shown = self.batch(f"{self.heddle} doctor 2>&1")
        if "1 of 1 pairs exchange 8 bytes and 1 MiB" not in text:
            raise Failure(f"the pair has exchanged nothing\n{shown}")


def main():
    def add_options(parser):
        parser.add_argument("--venvs", type=Path, default=SOURCE_ROOT / "build" / "venvs")

    suite = Suite("hosts", __doc__, add_options=add_options)
    hosts = Hosts(suite)
    count = ("-n", RANKS)
    for key in ("mpich", "openmpi-debian"):
        suite.case(f"ssh, heddle run -n 4 -hosts, {key}", hosts.by_ssh, key)
    suite.case("srun -N 2 -n 4", hosts.srun)
    suite.case("srun that would pass no variables on", hosts.srun_without_variables)
    suite.case("sbatch, heddle run -n 4", hosts.sbatch, "mpich", *count)
    suite.case("sbatch, heddle run -- srun", hosts.sbatch, "mpich", "--", "srun", *count, "--mpi=pmi2")
    suite.case("sbatch, heddle run -n 4 by Open MPI", hosts.sbatch, "openmpi-debian", *count)
    suite.case("sbatch, heddle doctor", hosts.doctor)
    try:
        return suite.main()
    finally:
        hosts.close()


if __name__ == "__main__":
    sys.exit(main())
