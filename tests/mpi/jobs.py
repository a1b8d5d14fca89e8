# SPDX-License-Identifier: BSD-2-Clause
"""Ending an MPI job that hangs, and saying where it hung. Launchers put ranks into sessions of their
own, so killing the launcher's group is not enough: each job has a number in its environment, and only
processes that carry it are ended. Standard library only.
"""

import os
import signal
import shutil
import subprocess
import time

MARKER = "HEDDLE_TEST_JOB"
FOLDER = os.path.dirname(os.path.realpath(__file__)) + "/"


def members(marker):
    """The processes that carry this job's number: [(pid, name)]."""
    wanted = f"{MARKER}={marker}".encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if wanted not in file.read().split(b"\0"):
                    continue
            with open(f"/proc/{name}/comm", encoding="utf-8", errors="replace") as file:
                found.append((int(name), file.read().strip()))
        except OSError:
            continue
    return found


def end(program, marker):
    """Ends what is left of a job: asks the launcher, then kills the members by their ids."""
    if program.running():
        program.signal_leader(signal.SIGTERM)
        program.wait(3)
    program.reap()
    deadline = time.monotonic() + 10
    while (left := members(marker)) and time.monotonic() < deadline:
        for pid, _ in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.05)


def where(marker, deepest=14):
    """Where the ranks of a hanging job are, if there is gdb: of each the threads that are in a program
    of this folder, not those of the libraries beneath.
    """
    if not shutil.which("gdb"):
        return "    (no gdb: where the ranks hang is not known)"
    launchers = ("mpiexec", "mpirun", "prterun", "prted", "hydra", "sh", "softhca")
    lines = []
    for pid, name in members(marker):
        if name.startswith(launchers):
            continue
        argv = ["gdb", "-p", str(pid), "-batch", "-ex", f"thread apply all backtrace {deepest}"]
        try:
            shown = subprocess.run(
                argv, capture_output=True, text=True, timeout=60, check=False,
                env={k: v for k, v in os.environ.items() if k != "LD_PRELOAD"},
            ).stdout
        except subprocess.TimeoutExpired:
            continue
        lines.append(f"    process {pid} ({name}):")
        threads = [text for text in shown.split("\nThread ")[1:]]
        ours = [text for text in threads if FOLDER in text] or threads
        for text in ours:
            lines += ["    | " + line[:150] for line in text.splitlines() if line.startswith("#")]
    return "\n".join(lines)
