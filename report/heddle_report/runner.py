# SPDX-License-Identifier: BSD-2-Clause
"""Runs experiments, one after the other, into a folder (samples.py). What is there already, by the
same commands, is not run again: a run that was interrupted goes on where it was."""

import datetime
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from . import hosts as hosts_of
from . import samples

SOURCE = Path(__file__).resolve().parents[2]
SHOWN_LINES = 3  # of what a command that failed has said
NOT_HERE = 77  # the status of a command that has not what it needs, and says so in its last line
# Programs of their own: beside `heddle` in a build tree, in a folder of their own once installed.
BESIDE = ("post_instructions", "post_counters", "reuse_lookup")


class Interrupted(Exception):
    """By the user, or by a signal."""


def now():
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")


def duration(seconds):
    """ "40 s", "3 min", "1 h 20 min"; rounded up as time that is left should be."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = -int(-seconds // 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


class Tools:
    """The commands, the devices, and whether there are any without starting the software HCA. sources: where
    programs of others are, by their option (model.Outside). hosts: those of --hosts, or None."""

    def __init__(self, heddle, libexec=None, sources=None, hosts=None):
        self.heddle = Path(heddle)
        self.libexec = libexec
        self.sources = sources or {}
        self.hosts = hosts
        self.softhca = self.heddle.with_name("softhca")
        self.devices = self._devices([])
        self.starts_softhca = not self.devices
        if self.starts_softhca and os.access(self.softhca, os.X_OK):
            self.devices = self._devices([str(self.softhca), "run", "--"])
        self.is_software = all(each.get("software") for each in self.devices)

    def _devices(self, before):
        done = subprocess.run([*before, str(self.heddle), "info", "--json"], capture_output=True,
                              text=True, check=False)
        if done.returncode != 0:
            return []
        try:
            found = json.loads(done.stdout)
        except json.JSONDecodeError:
            return []
        return found.get("devices", []) if isinstance(found, dict) else []

    def why_none(self):
        """Empty: there is a device to measure on, which reaches all hosts."""
        if self.devices:
            if self.is_software and self.hosts and self.hosts.others:
                return (f"there is no RDMA device on this host, and its software HCA does not reach "
                        f"{', '.join(self.hosts.others)} of --hosts")
            return ""
        if not os.access(self.softhca, os.X_OK):
            return f"there is no RDMA device, and no software one: {self.softhca} is not there"
        return f"there is no RDMA device, and `{self.softhca} run -- heddle info` found none, too"

    def why_not(self, experiment):
        """Empty: this experiment can be run here."""
        for command in experiment.commands("quick"):
            if command[0] in BESIDE and not os.access(self.program(command[0]), os.X_OK):
                return (f"{command[0]} is not beside {self.heddle}"
                        + (f", nor in {self.libexec}" if self.libexec else ""))
        if experiment.needs_source and not (SOURCE / "bench" / "mpi").is_dir():
            return "it is a script of heddle's source tree, which is not beside this program"
        if self.lacks_program_of(experiment):
            program = experiment.outside
            return (f"it runs {program.name} ({program.where}); once you have unpacked it, --{program.option} "
                    "FOLDER says where it is")
        return ""

    def lacks_program_of(self, experiment):
        return experiment.outside is not None and experiment.outside.option not in self.sources

    def program(self, name):
        beside = self.heddle.with_name(name)
        if self.libexec is None or os.access(beside, os.X_OK):
            return beside
        return self.libexec / name

    def words(self, experiment, command):
        if command[0].endswith(".py"):
            across = ["env", f"{hosts_of.VARIABLE}={self.hosts.text}"] if self.hosts and experiment.one_job else []
            return [*across, sys.executable, str(SOURCE / command[0]), "--heddle", str(self.heddle),
                    *([] if self.starts_softhca else ["--hardware"]), *self.source_words(experiment),
                    *command[1:]]
        before = [str(self.softhca), "run", *experiment.softhca, "--"] if self.starts_softhca else []
        if self.hosts and (processes := hosts_of.processes_of(command)):
            before += self.hosts.words(processes)
        program = ([str(self.program(command[0])), *command[1:]] if command[0] in BESIDE
                   else [str(self.heddle), *command])
        return [*before, *program]

    def source_words(self, experiment):
        if experiment.outside is None or self.lacks_program_of(experiment):
            return []
        return [f"--{experiment.outside.option}", str(self.sources[experiment.outside.option])]

    def facts(self):
        return {"heddle": subprocess.run([str(self.heddle), "--version"], capture_output=True,
                                         text=True, check=False).stdout.strip(),
                "software_hca": self.is_software, "devices": self.devices,
                "hosts": self.hosts.names if self.hosts else []}


def processor():
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def facts_of(tools, mode):
    return {"started": now(), "mode": mode, "host": platform.node(), "processor": processor(),
            "processors": len(os.sched_getaffinity(0)), "kernel": f"{platform.system()} "
            f"{platform.release()}", "load_at_start": round(os.getloadavg()[0], 2), **tools.facts()}


class Progress:
    """What runs, and how long the rest will take: a line that is written over on a terminal, else a
    line for each experiment."""

    def __init__(self, plan, mode, runs=1, to=sys.stderr):
        self.left = [experiment.seconds[mode] * runs_of(experiment, runs) for experiment in plan]
        self.all, self.to, self.mode = len(plan), to, mode
        self.is_terminal = to.isatty()
        self.expected = self.taken = 0.0

    def remaining(self, since):
        """By what is expected, corrected by how long it took so far."""
        factor = (self.taken + 30) / (self.expected + 30)
        current = max(self.left[0] * factor - since, 1) if self.left else 0
        return current + sum(self.left[1:]) * factor

    def line(self, experiment, since, part=""):
        number = self.all - len(self.left) + 1
        return (f"{number} of {self.all}: {experiment.title}{part} ({duration(since)}; about "
                f"{duration(self.remaining(since))} left)")

    def show(self, experiment, since, first=False, part=""):
        """part: which of an experiment's commands it is."""
        if self.is_terminal:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r\033[K{self.line(experiment, since, part)[:width]}", end="", file=self.to, flush=True)
        elif first:
            line = self.line(experiment, since, part)
            print(line if since else line.replace("1 s; ", ""), file=self.to, flush=True)

    def ended(self, experiment, outcome, seconds):
        self.taken += seconds
        self.expected += self.left.pop(0)
        if self.is_terminal:
            print("\r\033[K", end="", file=self.to)
        if outcome.status != "done":
            print(f"{experiment.key}: {outcome.status}: {outcome.reason}", file=self.to, flush=True)


def run_command(words, output, log, tick):
    """Its status. Ends it, with all that it started, if we are interrupted."""
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=log,
                               start_new_session=True)
    ended = threading.Event()
    threading.Thread(target=lambda: (process.wait(), ended.set()), daemon=True).start()
    try:
        while not ended.wait(1):
            tick()
    except BaseException:
        for kind in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, kind)
            except ProcessLookupError:
                break
            if ended.wait(5):
                break
        raise
    return process.returncode


def said(log):
    lines = log.read_text(encoding="utf-8", errors="replace").replace("\r", "\n").splitlines()
    return " / ".join(line for line in lines[-SHOWN_LINES:] if line.strip())


def runs_of(experiment, runs):
    """How often it is run: only a verdict by rows knows of runs."""
    return runs if experiment.rows else 1


def run_one(tools, experiment, mode, folder, progress, runs=1):
    commands = [tools.words(experiment, command) for command in experiment.commands(mode)]
    runs = runs_of(experiment, runs)
    outcome = samples.Outcome(experiment.key, "done", commands, mode=mode, started=now())
    if why := tools.why_not(experiment):
        outcome.status, outcome.reason, outcome.commands = "skipped", why, []
        samples.save_outcome(folder, outcome)
        progress.ended(experiment, outcome, 0)
        return outcome
    rows = folder / "samples" / f"{experiment.key}.jsonl"
    log = rows.with_suffix(".log")
    begun = time.monotonic()
    part = rows.with_name(rows.name + ".part")
    with open(part, "wb") as output, open(log, "wb") as errors:
        for number, words in enumerate(commands * runs):
            which = f", {number + 1} of {len(commands) * runs}" if len(commands) * runs > 1 else ""
            progress.show(experiment, time.monotonic() - begun if number else 0, first=True, part=which)
            try:
                status = run_command(words, output, errors, lambda part=which: progress.show(
                    experiment, time.monotonic() - begun, part=part))
            except OSError as error:
                outcome.status, outcome.reason = "failed", f"{words[0]}: {error.strerror}"
                break
            if status == NOT_HERE:
                outcome.status, outcome.reason = "skipped", said(log).rpartition(" / ")[2]
                break
            if status != 0:
                ended = f"status {status}" if status > 0 else f"signal {-status}"
                outcome.status = "failed"
                outcome.reason = f"`{' '.join(words)}` ended with {ended}: {said(log)}"
                break
            if runs > 1 and (number + 1) % len(commands) == 0:
                outcome.run_ends.append(output.tell())
    outcome.seconds = time.monotonic() - begun
    if outcome.status == "done":
        try:
            samples.parse_runs(part.read_bytes(), outcome.run_ends, part, experiment.needs)
        except samples.Broken as error:
            outcome.status, outcome.reason = "failed", str(error)
    os.replace(part, rows)
    samples.save_outcome(folder, outcome)
    progress.ended(experiment, outcome, outcome.seconds)
    return outcome


def is_there(tools, experiment, mode, folder, runs=1):
    found = samples.load_outcome(folder, experiment)
    if found is None or found.status != "done" or found.mode != mode:
        return False
    if tools.lacks_program_of(experiment):  # what it gave with --OPTION stays
        return True
    if len(found.run_ends or [0]) != runs_of(experiment, runs):
        return False
    return found.commands == [tools.words(experiment, each) for each in experiment.commands(mode)]


def run(tools, experiments, mode, folder, runs=1):
    """Outcomes by key. runs: how often those are run whose verdict knows of runs. Throws Interrupted; what was finished is kept."""
    (folder / "samples").mkdir(parents=True, exist_ok=True)
    if not (folder / "run.json").exists():
        samples.save_run(folder, facts_of(tools, mode))
    samples.load_run(folder)
    plan = [each for each in experiments if not is_there(tools, each, mode, folder, runs)]
    if len(plan) < len(experiments):
        print(f"{len(experiments) - len(plan)} of {len(experiments)} experiments are in {folder} "
              "already", file=sys.stderr)
    progress = Progress(plan, mode, runs)

    def stop(number, _frame):
        raise Interrupted(signal.Signals(number).name)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return {each.key: run_one(tools, each, mode, folder, progress, runs) for each in plan}
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
