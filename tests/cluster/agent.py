# SPDX-License-Identifier: BSD-2-Clause
"""The first process of a guest, once its files are there: it runs commands for the host, which sends
them by a virtio serial port, and for the other guests, which send them by TCP as by ssh.

From the host, one JSON object a line: {"run": ID, "script": TEXT} starts a bash script,
{"signal": NUMBER, "to": ID} sends its group a signal, and {"clean": ID} ends all processes of the
guest. To the host: {"ready": ...} once, {"id": ID, "text": TEXT} and at the end
{"id": ID, "code": EXIT CODE}. From another guest: a script, then a zero byte; what it writes comes
back (remote.sh). Standard library only.
"""

import json
import os
import selectors
import signal
import socket
import subprocess
from pathlib import Path

PORT = 7514
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LC_ALL": "C.UTF-8",
}


def main():
    agent = Agent(open_channel())
    agent.say({"ready": os.uname().release})
    while True:
        agent.step()


def open_channel():
    for port in Path("/sys/class/virtio-ports").iterdir():
        if (port / "name").read_text().strip() == "agent":
            return os.open(f"/dev/{port.name}", os.O_RDWR)
    raise SystemExit("no virtio serial port named agent")


class Agent:
    def __init__(self, channel):
        self._channel = channel
        self._input = b""
        self._commands = {}  # by process
        self._selector = selectors.DefaultSelector()
        self._selector.register(channel, selectors.EVENT_READ, self._read_channel)
        self._listener = socket.create_server(
            ("::", PORT), family=socket.AF_INET6, dualstack_ipv6=True
        )
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        # A child's end interrupts the wait below.
        self._children, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self._selector.register(self._children, selectors.EVENT_READ, self._reap)

    def say(self, message):
        data = json.dumps(message).encode() + b"\n"
        while data:
            data = data[os.write(self._channel, data) :]

    def step(self):
        for key, _ in self._selector.select():
            key.data()

    def _read_channel(self):
        self._input += os.read(self._channel, 1 << 16)
        while b"\n" in self._input:
            line, _, self._input = self._input.partition(b"\n")
            self._obey(json.loads(line))

    def _obey(self, message):
        if "run" in message:
            self._run(message["run"], message["script"])
        elif "signal" in message:
            for process, command in self._commands.items():
                if command.number == message["to"]:
                    send_signal(process, message["signal"])
        elif "clean" in message:
            try:
                os.kill(-1, signal.SIGKILL)  # every process but the first, which is this one
            except ProcessLookupError:
                pass
            self.say({"id": message["clean"], "code": 0})

    def _run(self, number, script):
        source, sink = os.pipe2(os.O_CLOEXEC)
        process = start(script, sink)
        os.close(sink)
        self._commands[process] = command = Command(number, source)
        self._selector.register(source, selectors.EVENT_READ, lambda: self._forward(command))

    def _forward(self, command):
        data = os.read(command.source, 1 << 14)
        if data:
            self.say({"id": command.number, "text": data.decode(errors="replace")})
        else:
            self._close(command)

    def _close(self, command):
        if command.source is not None:
            self._selector.unregister(command.source)
            os.close(command.source)
            command.source = None

    def _reap(self):
        try:
            os.read(self._children, 4096)
        except BlockingIOError:
            pass
        while True:
            try:
                process, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if process == 0:
                return
            command = self._commands.pop(process, None)
            if command:
                self._finish(command, os.waitstatus_to_exitcode(status))

    def _finish(self, command, code):
        # Descendants may hold the pipe open: what is in it is read, and no more waited for.
        if command.source is not None:
            os.set_blocking(command.source, False)
            try:
                while command.source is not None:
                    self._forward(command)
            except BlockingIOError:
                self._close(command)
        self.say({"id": command.number, "code": code})

    def _accept(self):
        connection, _ = self._listener.accept()
        request = bytearray()

        def read():
            try:
                data = connection.recv(1 << 16)
            except OSError:
                data = b""
            request.extend(data)
            if data and b"\0" not in data:
                return
            self._selector.unregister(connection)
            if data:
                start(request.partition(b"\0")[0].decode(), connection.fileno())
            connection.close()

        self._selector.register(connection, selectors.EVENT_READ, read)


class Command:
    """A script that the host has sent, and the pipe that it writes to."""

    def __init__(self, number, source):
        self.number = number
        self.source = source


def start(script, sink):
    """Starts a script in a session of its own; returns the process."""
    process = subprocess.Popen(
        ["/bin/bash", "-c", script],
        stdin=subprocess.DEVNULL,
        stdout=sink,
        stderr=sink,
        env=ENVIRONMENT,
        cwd="/tmp",
        start_new_session=True,
    )
    process.returncode = 0  # _reap() collects it
    return process.pid


def send_signal(group, number):
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        pass


if __name__ == "__main__":
    main()
