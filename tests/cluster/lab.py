# SPDX-License-Identifier: BSD-2-Clause
"""The guests that cases run in: booted when the first case needs them, given the network that a case
asks for, and booted again after a case that ended one. Standard library only.
"""

import shlex
from pathlib import Path

import guests
import images
import network
from harness import Failure

HERE = Path(__file__).resolve().parent
REMOTE = HERE / "remote.sh"
BOOT_SECONDS = 400
DEFAULT_NETWORK = network.Network()


class Lab:
    """One cluster at a time. Raises Failure for whatever a guest does not do."""

    def __init__(self, suite, kernel, busybox, memory):
        """memory: MiB of each guest."""
        self.suite = suite
        self._memory = memory
        self._kernel = kernel
        self._scratch = suite.options.scratch
        self._initramfs = images.make_initramfs(kernel, busybox, self._scratch / "initramfs")
        self._cluster = None
        self._network = None

    def hosts(self, count, wanted=DEFAULT_NETWORK):
        """At least so many guests with this network, in which nothing runs."""
        cluster = self._cluster
        if cluster and (len(cluster.guests) < count or any(not one.is_running for one in cluster)):
            self.end()
        if not self._cluster:
            self._boot(max(2, count))
        elif self._network == wanted:
            for guest in self._cluster:
                guest.end_processes()
        if self._network != wanted:
            self._network = None
            for guest in self._cluster:
                guest.set_link(True)
                guest.end_processes()
                setup = network.script(wanted, guest.number, len(self._cluster.guests))
                check(guest.run(setup, self.suite.scaled(120), title="network"))
            self._network = wanted
        return self._cluster.guests[:count]

    def hosts_now(self):
        """The guests that hosts() gave last, without ending what runs in them."""
        return self._cluster.guests

    def forget_network(self):
        """The next case sets the network anew: this one has changed it."""
        self._network = None

    def end(self):
        if self._cluster:
            self._cluster.end()
        self._cluster = self._network = None

    def _boot(self, count):
        self._cluster = guests.Cluster(
            count,
            kernel=self._kernel,
            initramfs=self._initramfs,
            scratch=self._scratch / "consoles",
            memory=self._memory,
        )
        try:
            self._cluster.wait_ready(self.suite.scaled(BOOT_SECONDS))
        except guests.GuestError:
            self.end()
            raise


def guarded(run):
    """A case's function that takes a guest's end for a failure of the case."""

    def guarded_run(*arguments):
        try:
            return run(*arguments)
        except guests.GuestError as reason:
            raise Failure(str(reason)) from reason

    return guarded_run


def check(*results):
    """Fails unless all these commands have ended with 0."""
    if any(result.code != 0 for result in results):
        states = ", ".join(state(result) for result in results)
        raise Failure(f"{states}\n" + "\n".join(result.describe() for result in results))


def state(result):
    if result.code is None:
        return f"did not end in {result.seconds:.0f} s"
    return f"exit code {result.code}"


def exports(environment):
    """The lines of a script that set these variables."""
    return "".join(f"export {name}={shlex.quote(str(value))}\n" for name, value in environment.items())


def command(environment, *argv):
    return exports(environment) + "exec " + shlex.join(str(word) for word in argv)


def launcher_variables():
    """What makes the launchers of MPICH and Open MPI use remote.sh in the place of ssh."""
    return {
        "HYDRA_LAUNCHER": "ssh",
        "HYDRA_LAUNCHER_EXEC": REMOTE,
        "OMPI_MCA_plm_rsh_agent": REMOTE,
    }


def wait_listening(guest, port, seconds):
    """Waits until a process in the guest listens on a TCP port."""
    wanted = f":{port:04X} [0:]* 0A "
    script = f"until grep -q '{wanted}' /proc/net/tcp /proc/net/tcp6; do sleep 0.2; done"
    check(guest.run(script, seconds, title=f"wait for a listener on port {port}"))
