# SPDX-License-Identifier: BSD-2-Clause
"""Hosts of a small cluster: QEMU guests that share one Ethernet and see this machine's files, so that
the programs built here run in them. Each has one processor, and is named node1, node2 and so on.

Without KVM, QEMU translates: a guest boots in seconds, and computes 10 to 50 times slower. Nothing is
changed outside a guest, and no right beyond the user's own is needed. Standard library only.
"""

import json
import os
import select
import signal
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import images

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "third_party"))
from program import Program  # noqa: E402

AGENT = Path(__file__).resolve().parent / "agent.py"
KERNEL_OPTIONS = "console=ttyS0 quiet panic=-1 no_timer_check tsc=unstable mitigations=off nokaslr"

ADAPTERS = 3  # eth0, eth1, eth2
SHARED = (0, 2)  # those that lead to the other guests


class GuestError(Exception):
    """A guest that did not boot, or that ended; the text has the end of its console."""


@dataclass
class Result:
    """What a command in a guest did. `code` is None if it was ended at its deadline."""

    title: str
    code: int | None = None
    text: str = ""
    seconds: float = 0

    def describe(self, lines=25):
        shown = self.text.rstrip().splitlines()[-lines:] or ["(no output)"]
        state = "did not end" if self.code is None else f"exit code {self.code}"
        return "\n".join([f"  {self.title}: {state}", *("    | " + line for line in shown)])


class Command:
    """A command that runs in a guest."""

    def __init__(self, guest, number, title):
        self.guest = guest
        self.number = number
        self.result = Result(f"{guest.name}: {title}")
        self._started = time.monotonic()

    @property
    def is_running(self):
        return self.result.code is None

    def take(self, message):
        self.result.text += message.get("text", "")
        if "code" in message:
            self.result.code = message["code"]
            self.result.seconds = time.monotonic() - self._started

    def wait_for(self, condition, seconds):
        """Waits until condition(result) holds or the command has ended; whether the condition holds."""
        self.guest.pump(lambda: not self.is_running or condition(self.result), seconds)
        return condition(self.result)

    def finish(self, seconds):
        """Waits for the end; kills the command's group at the deadline. Returns the result."""
        if not self.guest.pump(lambda: not self.is_running, seconds):
            self.result.seconds = time.monotonic() - self._started
            late = Result(**vars(self.result))  # without the exit code that SIGKILL gives
            self.signal(signal.SIGKILL)
            self.guest.pump(lambda: not self.is_running, 5)
            return late
        return self.result

    def signal(self, number):
        """Sends a signal to the group of the command's shell."""
        self.guest.send({"signal": int(number), "to": self.number})


class Guest:
    """One guest. Guests are made by a Cluster."""

    def __init__(self, number, program, channel, monitor, console):
        self.number = number
        self.name = f"node{number}"
        self.program = program
        self.console = console
        self.release = None  # of the kernel, once the agent runs
        self._channel = channel
        self._monitor = monitor.makefile("rw", encoding="ascii")
        self._negotiated = False
        self._input = b""
        self._commands = {}
        self._last = 0

    # Commands

    def start(self, script, *, title=None):
        """Starts a bash script in the guest; returns its Command."""
        self._last += 1
        command = Command(self, self._last, title or script.strip().splitlines()[-1][:100])
        self._commands[command.number] = command
        self.send({"run": command.number, "script": script})
        return command

    def run(self, script, seconds, *, title=None):
        """Runs a bash script in the guest to its end or the deadline; returns the Result."""
        return self.start(script, title=title).finish(seconds)

    def end_processes(self, seconds=20):
        """Ends everything that runs in the guest, except the agent."""
        self._last += 1
        command = Command(self, self._last, "clean")
        self._commands[command.number] = command
        self.send({"clean": command.number})
        command.finish(seconds)

    def send(self, message):
        try:
            self._channel.sendall(json.dumps(message).encode() + b"\n")
        except OSError as reason:
            raise GuestError(f"{self.name} has ended: {reason}\n{self.console_end()}") from reason

    def pump(self, condition, seconds):
        """Takes what the agent says until the condition holds; whether it does. Raises GuestError."""
        deadline = time.monotonic() + seconds
        while not condition():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            if not select.select([self._channel], [], [], left)[0]:
                continue
            data = self._channel.recv(1 << 16)
            if not data:
                raise GuestError(f"{self.name} has ended\n{self.console_end()}")
            self._input += data
            while b"\n" in self._input:
                line, _, self._input = self._input.partition(b"\n")
                self._take(json.loads(line))
        return True

    def _take(self, message):
        if "ready" in message:
            self.release = message["ready"]
            return
        command = self._commands[message["id"]]
        command.take(message)
        if not command.is_running:
            del self._commands[command.number]

    # The machine

    @property
    def is_running(self):
        return self.program.running()

    def wait_ready(self, seconds):
        if not self.pump(lambda: self.release is not None, seconds):
            raise GuestError(f"{self.name} did not boot in {seconds:g} s\n{self.console_end()}")

    def set_link(self, is_up, adapter=0):
        """Takes an adapter's link down, as if its cable were pulled, or up again."""
        self._ask("set_link", name=f"nic{adapter}", up=is_up)

    def kill(self):
        """Ends the guest at once, as if its power were cut."""
        self.program.reap()

    def _ask(self, command, **arguments):
        """One command of QEMU's monitor (QMP), which takes others after "qmp_capabilities" only."""
        if not self._negotiated:
            self._negotiated = True
            self._ask("qmp_capabilities")
        self._monitor.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
        self._monitor.flush()
        reply = {}
        while "return" not in reply:  # events come between
            reply = json.loads(self._monitor.readline() or "{}")
            if not reply or "error" in reply:
                raise GuestError(f"{self.name}: {command}: {reply}")

    def console_end(self, lines=12):
        try:
            text = self.console.read_text(errors="replace")
        except OSError:
            text = ""
        shown = (text + self.program.output()).rstrip().splitlines()[-lines:]
        return "\n".join("    | " + line for line in shown)


class Cluster:
    """Some guests on one Ethernet. Use it in a `with`, which ends them.

    Each guest has three adapters: eth0 and eth2 are on two Ethernets that all guests share, eth1 is
    on one of its own. The hubs that join the guests are in the first, so only the others can be
    killed alone.
    """

    def __init__(self, hosts, *, kernel, initramfs, scratch, memory):
        self.guests = []
        self._scratch = Path(scratch)
        self._scratch.mkdir(parents=True, exist_ok=True)
        cables = [(hub, number, *socket.socketpair()) for hub in SHARED for number in range(2, hosts + 1)]
        try:
            for number in range(1, hosts + 1):
                if number == 1:
                    ends = [(hub, first) for hub, _, first, _ in cables]
                else:
                    ends = [(hub, other) for hub, to, _, other in cables if to == number]
                self._boot(number, ends, kernel, initramfs, memory)
        except BaseException:
            self.end()
            raise
        finally:
            for _, _, *ends in cables:
                for end in ends:
                    end.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def __getitem__(self, index):
        return self.guests[index]

    def __iter__(self):
        return iter(self.guests)

    def wait_ready(self, seconds=240):
        deadline = time.monotonic() + seconds
        for guest in self.guests:
            guest.wait_ready(max(1, deadline - time.monotonic()))

    def end(self):
        for guest in self.guests:
            guest.kill()

    def _boot(self, number, cables, kernel, initramfs, memory):
        channel, channel_inside = socket.socketpair()
        monitor, monitor_inside = socket.socketpair()
        inside = [channel_inside, monitor_inside, *(end for _, end in cables)]
        console = self._scratch / f"node{number}.console"
        console.unlink(missing_ok=True)
        argv = machine(kernel, initramfs, memory, console)
        argv += ["-chardev", f"socket,id=agent,fd={channel_inside.fileno()}"]
        argv += ["-chardev", f"socket,id=monitor,fd={monitor_inside.fileno()}"]
        argv += ["-mon", "chardev=monitor,mode=control"]
        argv += adapters(number, [(hub, end.fileno()) for hub, end in cables])
        for end in inside:
            os.set_inheritable(end.fileno(), True)
        try:
            program = Program(
                argv,
                environment=dict(os.environ),
                title=f"node{number}",
                pass_fds=[end.fileno() for end in inside],
            )
        finally:
            channel_inside.close()
            monitor_inside.close()
        self.guests.append(Guest(number, program, channel, monitor, console))


def machine(kernel, initramfs, memory, console):
    """The words that start QEMU, without the adapters and the host's ends of its channels."""
    return [
        images.qemu(),
        *("-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"),
        *("-machine", "q35", "-accel", "tcg", "-cpu", "max"),
        *("-smp", "1", "-m", str(memory), "-serial", f"file:{console}"),
        *("-kernel", kernel.image, "-initrd", initramfs),
        *("-append", f"{KERNEL_OPTIONS} cluster.agent={AGENT}"),
        *("-fsdev", "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap"),
        *("-device", "virtio-9p-pci,fsdev=host,mount_tag=host"),
        *("-device", "virtio-rng-pci", "-device", "virtio-serial-pci"),
        *("-device", "virtserialport,chardev=agent,name=agent"),
    ]


def adapters(number, cables):
    """QEMU's words for a guest's adapters, each on a hub, and for the cables that lead to the hubs."""
    words = []
    for index, (hub, cable) in enumerate(cables):
        words += ["-netdev", f"socket,id=cable{index},fd={cable}"]
        words += ["-netdev", f"hubport,id=port{index},hubid={hub},netdev=cable{index}"]
    for adapter in range(ADAPTERS):
        device = f"virtio-net-pci,id=nic{adapter},netdev=end{adapter},romfile="
        words += ["-netdev", f"hubport,id=end{adapter},hubid={adapter}"]
        words += ["-device", f"{device},mac=52:54:00:07:{adapter:02x}:{number:02x}"]
    return words
