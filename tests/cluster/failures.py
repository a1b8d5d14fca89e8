# SPDX-License-Identifier: BSD-2-Clause
"""Cases in which a process, a link or a host fails while ranks of MPI exchange messages. The other
rank ends with an error soon: when the retries of its queue pair are used up. A rank that only waits
for a message has nothing to retry; heddle first probes the silent peer. Standard library only.

fi_pingpong would not do: it receives from any peer, so no peer's end is an error of its receives.
"""

import re
import time
from dataclasses import dataclass

from harness import Failure
from lab import check

TRIES = 7  # FI_HEDDLE_RETRY is 6
DEFAULT_TIMEOUT, DEFAULT_KEEPALIVE = 18, 20
GRACE = 3  # seconds
KILL_RANK = "pkill -9 -x pingpong || { ps -ef; exit 1; }"  # in a guest
# MPICH's launcher leaves the other rank alone, so that it ends by heddle's error.
LEAVE_OTHERS = ("-disable-auto-cleanup",)


@dataclass(frozen=True)
class Limits:
    """The options that bound how long a failure is unnoticed; None leaves heddle's default."""

    timeout: int | None = None
    keepalive: int | None = None

    def environment(self):
        values = {"FI_HEDDLE_TIMEOUT": self.timeout, "FI_HEDDLE_KEEPALIVE": self.keepalive}
        return {name: value for name, value in values.items() if value is not None}

    def seconds(self):
        """Two turns of the keepalive pass until a silent peer is probed; then come the tries."""
        timeout = DEFAULT_TIMEOUT if self.timeout is None else self.timeout
        keepalive = DEFAULT_KEEPALIVE if self.keepalive is None else self.keepalive
        return TRIES * 4.096e-6 * 2**timeout + 2 * keepalive + GRACE


QUICK = Limits(timeout=14, keepalive=1)  # 67 ms a try


def cases(full):
    chosen = [
        ("a rank is killed", lambda bench: survive(bench, kill_rank)),
        ("a link goes down", take_link_down),
    ]
    if full:
        chosen += [
            ("a rank is killed, default times", lambda bench: survive(bench, kill_rank, Limits())),
            ("mpich ends a job when a rank is killed", lambda bench: end_job(bench, "mpich")),
            ("openmpi ends a job when a rank is killed", lambda bench: end_job(bench, "openmpi-debian")),
        ]
    return [*chosen, ("a host ends", lambda bench: survive(bench, lambda guest: guest.kill()))]


def kill_rank(guest):
    check(guest.run(KILL_RANK, 30))


def take_link_down(bench):
    """Neither host reaches the other: both ranks end."""
    try:
        return survive(bench, lambda guest: guest.set_link(False), both=True)
    finally:
        bench.lab.forget_network()


def survive(bench, fail, limits=QUICK, *, both=False):
    """Two ranks; fail(guest) makes the second's guest fail, and the first rank must end."""
    job, guests = start_pingpong(bench, "mpich", limits, LEAVE_OTHERS)
    watches = [watch(bench, job, guest) for guest in (guests[:2] if both else guests[:1])]
    refuse_early_end(job)
    begin = time.monotonic()
    fail(guests[1])
    limit = bench.scaled(limits.seconds())
    for one in watches:
        if one.finish(max(0.1, begin + limit - time.monotonic())).code is None:
            job.finish(0.1)
            raise Failure(f"a rank runs after {limit:.1f} s\n{job.result.describe()}")
    spent = time.monotonic() - begin
    # The launcher may wait for a host that is gone: its end is not asked for, only what it shows.
    if not job.wait_for(lambda result: re.search("Fatal error|Abort", result.text), bench.scaled(5)):
        raise Failure(f"no error of MPI\n{job.result.describe()}")
    return f"ended after {spent:.1f} s"


def end_job(bench, key):
    """A rank on the second host is killed; the launcher ends the job with an error."""
    job, guests = start_pingpong(bench, key, QUICK)
    kill_rank(guests[1])
    return f"ended after {expect_error(job, bench.scaled(QUICK.seconds() + 2)):.1f} s"


def host_of_three_ends(bench):
    """A host of three ends in the middle of a job; the rank on the first ends."""
    job = bench.start_mpi(
        "mpich", "collectives", 3, (), hosts=3, extra=QUICK.environment(), launcher=LEAVE_OTHERS
    )
    guests = bench.lab.hosts_now()
    wait_started(bench, job, "barrier")
    watches = [watch(bench, job, guest, "collectives") for guest in guests[:2]]
    refuse_early_end(job)
    begin = time.monotonic()
    guests[2].kill()
    limit = bench.scaled(QUICK.seconds())
    for one in watches:
        if one.finish(max(0.1, begin + limit - time.monotonic())).code is None:
            raise Failure(f"a rank runs after {limit:.1f} s\n{job.result.describe()}")
    return f"ended after {time.monotonic() - begin:.1f} s"


# Parts


def start_pingpong(bench, key, limits, launcher=()):
    """Starts two ranks that exchange messages; returns when they do."""
    job = bench.start_mpi(
        key, "pingpong", 2, ("blocking",), extra=limits.environment(), launcher=launcher
    )
    wait_started(bench, job, "blocking")
    return job, bench.lab.hosts_now()


def wait_started(bench, job, step):
    if not job.wait_for(lambda result: f"{step} ..." in result.text, bench.scaled(120)):
        raise Failure(f"the job does not start\n{job.result.describe()}")


def refuse_early_end(job):
    """What ends by itself shows nothing about the failure to come."""
    if not job.is_running or re.search("Fatal error|Abort", job.result.text):
        raise Failure(f"the job ended before anything failed\n{job.result.describe()}")


def watch(bench, job, guest, program="pingpong"):
    """Starts a command in a guest that ends when this guest's rank does."""
    script = f"""
rank=$(pgrep -x {program}) || {{ ps -ef; exit 1; }}
echo watching
while [ -e /proc/$rank ]; do sleep 0.1; done"""
    watching = guest.start(script, title=f"wait for the end of {program}")
    if not watching.wait_for(lambda result: "watching" in result.text, bench.scaled(30)):
        job.wait_for(lambda _: False, 1)
        raise Failure(f"no rank is there\n{watching.result.describe()}\n{job.result.describe()}")
    return watching


def expect_error(running, limit):
    """Waits for a command's end, which must be an error; returns the seconds that it took."""
    begin = time.monotonic()
    result = running.finish(limit)
    spent = time.monotonic() - begin
    if result.code is None:
        raise Failure(f"still running after {limit:.1f} s\n{result.describe()}")
    if result.code == 0:
        raise Failure(f"ended as if nothing had failed\n{result.describe()}")
    return spent
