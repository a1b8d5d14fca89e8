# SPDX-License-Identifier: BSD-2-Clause
"""Cases in which a process, a link or a host fails while messages are on their way. The others end
with an error soon: when the retries of their queue pairs are used up. Standard library only.
"""

import signal
import time

from harness import Failure
from lab import command, wait_listening
from network import Network

PINGPONG_PORT = 47592
SHORT_TIMEOUT = 14  # FI_HEDDLE_TIMEOUT: 4.096 us << 14, which is 67 ms
DEFAULT_TIMEOUT = 18
TRIES = 7  # FI_HEDDLE_RETRY is 6
GRACE = 3  # seconds
ENDLESS = 10_000_000


def cases(full):
    chosen = [("a process is killed", kill_process), ("a link goes down", take_link_down)]
    if full:
        chosen += [
            ("a process is killed, default timeout", kill_process_by_default),
            ("mpich: a rank is killed", kill_rank_of_mpich),
            ("openmpi: a rank is killed", kill_rank_of_openmpi),
        ]
    return [*chosen, ("a host ends", end_host)]


def kill_process(bench):
    return survive(bench, lambda other, server: server.signal(signal.SIGKILL))


def kill_process_by_default(bench):
    return survive(bench, lambda other, server: server.signal(signal.SIGKILL), timeout=DEFAULT_TIMEOUT)


def take_link_down(bench):
    """The survivor is the one whose link stays up; the other must end, too."""
    try:
        return survive(bench, lambda other, server: other.set_link(False), both_end=True)
    finally:
        bench.lab.forget_network()


def end_host(bench):
    return survive(bench, lambda other, server: other.kill())


def retry_time(timeout):
    return TRIES * 4.096e-6 * 2**timeout


def survive(bench, fail, *, timeout=SHORT_TIMEOUT, both_end=False):
    """Runs fi_pingpong, makes the server's side fail, and waits for the client's error."""
    survivor, other = bench.lab.hosts(2, Network())
    environment = {**bench.environment(), "FI_HEDDLE_TIMEOUT": timeout}
    argv = ["fi_pingpong", "-p", "heddle", "-e", "rdm", "-I", ENDLESS, "-S", 64]
    server = other.start(command(environment, *argv), title="server")
    wait_listening(other, PINGPONG_PORT, bench.scaled(60))
    client = survivor.start(command(environment, *argv, other.name), title="client")
    wait_exchanging(survivor, client, bench.scaled(60))
    fail(other, server)
    ended = expect_error(client, retry_time(timeout), bench)
    if both_end:
        ended = max(ended, expect_error(server, retry_time(timeout), bench))
    return f"ended after {ended:.1f} s"


def wait_exchanging(guest, command_there, seconds):
    """Waits until the device of a guest has sent a few messages, and the command still runs."""
    script = """
counter=/sys/class/infiniband/rxe0/ports/1/hw_counters/rdma_sends
before=$(cat $counter)
until [ $(cat $counter) -gt $((before + 40)) ]; do sleep 0.2; done"""
    result = guest.run(script, seconds, title="wait for messages")
    if result.code != 0 or not command_there.is_running:
        raise Failure(f"no messages\n{result.describe()}\n{command_there.result.describe()}")


def expect_error(running, seconds, bench):
    """Waits for a command's end, which must be an error; returns the seconds that it took."""
    begin = time.monotonic()
    limit = bench.scaled(seconds + GRACE)
    result = running.finish(limit)
    spent = time.monotonic() - begin
    if result.code is None:
        raise Failure(f"still running after {limit:.1f} s\n{result.describe()}")
    if result.code == 0:
        raise Failure(f"ended as if nothing had failed\n{result.describe()}")
    return spent


def kill_rank_of_mpich(bench):
    return kill_rank(bench, "mpich")


def kill_rank_of_openmpi(bench):
    return kill_rank(bench, "openmpi-debian")


def kill_rank(bench, key):
    """A rank on the second host is killed; the launcher ends the job with an error."""
    extra = {"FI_HEDDLE_TIMEOUT": SHORT_TIMEOUT}
    job = bench.start_mpi(key, "pingpong", 2, (1 << 20,), extra=extra)
    first, second = bench.lab.hosts_now()
    if not job.wait_for(lambda result: "blocking" in result.text, bench.scaled(120)):
        raise Failure(f"the job does not start\n{job.result.describe()}")
    killed = second.run("pkill -9 -x pingpong", bench.scaled(20))
    if killed.code != 0:
        raise Failure(f"no rank to kill\n{killed.describe()}\n{job.result.describe()}")
    return f"ended after {expect_error(job, retry_time(SHORT_TIMEOUT), bench):.1f} s"


def host_of_three_ends(bench):
    """A host of three ends in the middle of a job; the launcher ends the job."""
    extra = {"FI_HEDDLE_TIMEOUT": SHORT_TIMEOUT}
    job = bench.start_mpi("mpich", "collectives", 3, (), hosts=3, extra=extra)
    if not job.wait_for(lambda result: "barrier" in result.text, bench.scaled(120)):
        raise Failure(f"the job does not start\n{job.result.describe()}")
    bench.lab.hosts_now()[2].kill()
    return f"ended after {expect_error(job, retry_time(SHORT_TIMEOUT), bench):.1f} s"
