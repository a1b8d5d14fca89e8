# SPDX-License-Identifier: BSD-2-Clause
"""Runs tests where a mutant can do no harm: in a namespace of processes and mounts of their own. They
see no process and no fabric of anybody else, and may write only to the build tree, /tmp and /dev/shm,
which are theirs alone. The kernel ends every process of the namespace with its first.

run_tests() starts this file by unshare; main() is that first process.
"""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

SLOTS = 10  # of a quarter of a processor: what runs at once on two processors, as scripts/run-ctest has it
SKIPPED = 77
MEMORY = 8 << 30  # bytes of data a process may have


def run_tests(tests, build, serial=False, go_on=False):
    """Runs tests in their order until one fails, or all if `go_on`. Returns the failures, each
    [name, "failed" or "time limit", words of its output], and the names of those that passed."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    request, answer = build / "mutation/request.json", build / "mutation/answer.json"
    request.write_text(json.dumps({"tests": tests, "build": str(build), "answer": str(answer),
                                   "slots": 1 if serial else SLOTS, "go_on": go_on}), encoding="utf-8")
    answer.write_text("", encoding="utf-8")
    # Ends with this process, however that ends.
    command = ["setpriv", "--pdeathsig", "KILL", "unshare", *user, "--mount", "--pid", "--fork",
               "--kill-child", "--mount-proc", sys.executable, __file__, str(request)]
    # The sum of all limits is the last resort; each test has its own.
    limit = 60 + sum(test["limit"] for test in tests)
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as child:
        try:
            status = child.wait(limit)
        except BaseException:
            child.kill()  # unshare, and by --kill-child all that it started
            raise
    text = answer.read_text(encoding="utf-8")
    if status != 0 or not text:
        raise SystemExit(f"mutate: the sandbox did not work (status {status}); is unshare allowed?")
    return json.loads(text)


def mount(*arguments):
    subprocess.run(["mount", *arguments], check=True)


def confine(build):
    """Only `build` and what is private can be written."""
    mount("--bind", build, build)
    if not build.startswith("/tmp/"):
        mount("-t", "tmpfs", "-o", "size=2g,mode=1777", "tmpfs", "/tmp")
    mount("-t", "tmpfs", "-o", "size=6g,mode=1777", "tmpfs", "/dev/shm")
    mount("-o", "remount,bind,ro", "/")
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def last_words(path):
    """The case that failed, or the last line that says something."""
    lines = [line.strip() for line in path.read_text(encoding="utf-8", errors="replace").splitlines()]
    for sign in ("[  FAILED  ]", "FAIL:", "ERROR:", "assertion"):
        for line in lines:
            if sign in line:
                return re.sub(r"\[ +RUN +\]|, where .*|\(\d+ ms\)", "", line.replace(sign, "")).strip(" :")[:120]
    return next((line[:160] for line in reversed(lines) if line), "")


def main():
    assert os.getpid() == 1
    request = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    confine(request["build"])
    result = run_here(request)
    Path(request["answer"]).write_text(json.dumps(result), encoding="utf-8")


def run_here(request):
    waiting, running, passed, failures = list(request["tests"]), {}, [], []

    def start(test):
        output = Path(f"/tmp/output.{len(waiting)}")
        with open(output, "wb") as file:
            process = subprocess.Popen(
                test["command"], env={**os.environ, **test["environment"]}, cwd=test["folder"],
                stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True)
        running[process.pid] = (test, process, output, time.monotonic() + test["limit"])

    while (waiting or running) and (request["go_on"] or not failures):
        used = sum(test["slots"] for test, *_ in running.values())
        if waiting and (not running or used + waiting[0]["slots"] <= request["slots"]):
            start(waiting.pop(0))
            continue
        # As the first process it also inherits orphans, whose death tests wait for.
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid in running:
            test, process, output, _ = running.pop(pid)
            process.returncode = code = os.waitstatus_to_exitcode(status)
            if code in (0, SKIPPED):
                passed.append(test["name"])
            else:
                failures.append((test["name"], "failed", last_words(output) or f"status {code}"))
            output.unlink()
        elif pid == 0:
            time.sleep(0.01)
            for pid, (test, process, output, limit) in list(running.items()):
                if time.monotonic() > limit:
                    os.killpg(pid, signal.SIGKILL)
                    process.wait()
                    failures.append((test["name"], "time limit", last_words(output)))
                    del running[pid]
    for pid in running:
        os.killpg(pid, signal.SIGKILL)
    return failures, passed


if __name__ == "__main__":
    main()
