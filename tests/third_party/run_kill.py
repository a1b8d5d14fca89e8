#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Death in the middle: one side of ib_send_bw is ended by SIGKILL, client and server in turn, at a
random moment. The other must end by itself, with an error, within the timeout of its queue pair
(perftest: 4.096 us * 2^14, 7 retries): a client, which sends, by its retries; a server, which only
receives, because it runs with --lost-peer flush. And nothing of the dead may stay: no object in the
fabric while others use it, no segment, tree or lock when nobody does.
"""

import re
import sys
import time
from dataclasses import replace

from harness import DEVICE, UAR_BY_MEMORY, Failure, Mode, Suite

SHORT_KILLS = 10
FULL_KILLS = 200
# Timeout 14 and 7 retries: 8 * 67 ms without the slack that an adapter may take (4 times as long).
SECONDS_TO_NOTICE = 5.0
LOWEST_DELAY, HIGHEST_DELAY = 0.25, 0.9

VARIANTS = (("-s", "65536"), ("-s", "8"), ("-b", "-s", "4096"), ("-q", "4"))

# What perftest prints when a completion carries an error, and how wc.status is called there.
COMPLETION_ERROR = re.compile(r"Failed status (\d+)|Completion with error")
EXPECTED_STATUS = {
    5: "flushed",
    12: "transport retry exceeded",
}


def main():
    def add_options(parser):
        parser.add_argument("--kills", type=int, help=f"{SHORT_KILLS}, or {FULL_KILLS} with --full")

    suite = Suite("kill", __doc__.partition("\n\n")[0], add_options=add_options)
    kills = suite.options.kills or (FULL_KILLS if suite.full else SHORT_KILLS)
    for number in range(kills):
        mode = UAR_BY_MEMORY[number // 2 % len(UAR_BY_MEMORY)]
        options = VARIANTS[(number // 2 + number // 8) % len(VARIANTS)]
        victim = ("server", "client")[number % 2]
        # With another process in the fabric its objects are counted; alone, its files are.
        company = number % 4 >= 2
        name = f"{number + 1}: the {victim} dies, {' '.join(options)}, {mode}"
        name += ", others in the fabric" if company else ""
        suite.case(name, run_kill, suite, victim, options, mode, company)
    return suite.main()


def run_kill(suite, victim, options, mode, company):
    other = None
    if company:
        other = suite.start(["ibv_asyncwatch"], mode=mode)
        wait_until(lambda: is_in_fabric(suite, other.pid), 5, "ibv_asyncwatch is not in the fabric")
    port = suite.free_port()
    # Enough iterations for longer than anybody waits; peak figures would take memory for each.
    argv = ["ib_send_bw", "-d", DEVICE, "-p", port, "-F", "-N", "-n", "100000000", *options]
    # The server only receives: it learns of the client's end only if it asks for that.
    listening = replace(mode, lost_peer="flush") if victim == "client" else mode
    server = suite.start(argv, mode=listening, title="server")
    suite.wait_listening(server, port)
    client = suite.start([*argv, "127.0.0.1"], mode=mode, title="client")
    time.sleep(suite._random.uniform(LOWEST_DELAY, HIGHEST_DELAY))
    dead, alive = (server, client) if victim == "server" else (client, server)
    for program in (dead, alive):
        if not program.running():
            program.wait(1)
            raise Failure(f"ended before the kill\n{server.describe()}\n{client.describe()}")
    dead.signal_group(9)
    killed = time.monotonic()
    dead.wait(5)
    if not alive.wait(suite.scaled(SECONDS_TO_NOTICE)):
        busy = stack(alive)
        alive.timed_out = True
        alive.reap()
        raise Failure(f"the {alive.title} did not notice within {SECONDS_TO_NOTICE:g} s{busy}\n"
                      f"{alive.describe()}")
    noticed = time.monotonic() - killed
    note = check_survivor(suite, alive, options)
    if company:
        check_objects(suite, (dead.pid, alive.pid), other)
    else:
        suite.check_fabric_gone()
    return f"{note} after {noticed:.2f} s"


def check_survivor(suite, alive, options):
    if alive.code <= 0:
        raise Failure(f"the survivor must end with an error of its own\n{alive.describe()}")
    suite.refuse_device_errors([alive])
    text = alive.output()
    if not COMPLETION_ERROR.search(text):
        # Killed while the two still exchanged addresses over TCP: that connection breaks.
        if re.search(r"Couldn't read|Failed to exchange|Unable to (read|write)|socket", text):
            return "lost the TCP connection"
        raise Failure(f"no completion with an error\n{alive.describe()}")
    expected = [12] if alive.title == "client" else [5]
    if "-b" in options:  # both send and receive: either queue's completions may be polled first
        expected = [5, 12]
    status = [int(value) for value in re.findall(r"Failed status (\d+)", text)]
    if any(value not in expected for value in status):
        wanted = " or ".join(f"{EXPECTED_STATUS[value]} ({value})" for value in expected)
        raise Failure(f"expected {wanted}\n{alive.describe()}")
    return ", ".join(EXPECTED_STATUS[value] for value in status) or "completion with an error"


def check_objects(suite, gone, other):
    """Another process keeps the fabric in use: of these two nothing may be left in it."""
    found = []

    def nothing_left():
        fabric = suite.stat() or {}
        found[:] = processes(fabric)
        queues = [kind for kind in ("qps", "cqs", "srqs") if fabric.get(kind)]
        return not set(found) & set(gone) and not queues  # ibv_asyncwatch has none

    wait_until(nothing_left, 3, lambda: f"of processes {gone} something is left: {suite.stat()}")
    if other.pid not in found:
        raise Failure(f"process {other.pid} is missing in softhca stat: {found}")
    other.signal_group(9)
    other.wait(5)
    # Everybody was killed or left: the next to come, or this command, removes what remains.
    suite.run_plain([suite.options.softhca, "clean", "--fabric", suite.fabric], seconds=20)
    suite.check_fabric_gone()


def is_in_fabric(suite, pid):
    return pid in processes(suite.stat())


def processes(value):
    """Every value of a "pid" in the JSON: processes, and the objects that name their owner."""
    found = []
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "pid" and isinstance(item, int):
                found.append(item)
            found += processes(item)
    elif isinstance(value, list):
        for item in value:
            found += processes(item)
    return sorted(set(found))


def wait_until(condition, seconds, message):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise Failure(message() if callable(message) else message)
        time.sleep(0.02)


def stack(program):
    """Where a process hangs, as far as the kernel tells."""
    try:
        with open(f"/proc/{program.pid}/wchan", encoding="ascii") as file:
            return f" (in {file.read().strip() or 'user space'})"
    except OSError:
        return ""


if __name__ == "__main__":
    sys.exit(main())
