# SPDX-License-Identifier: BSD-2-Clause
"""What the third-party scripts share: starting unmodified programs under `softhca run`, in pairs of
server and client where they come in pairs, with free ports, deadlines and captured output; and a
list of cases with a readable progress line for each and a closing count.

Standard library only. A script ends only processes it started (program.py).
"""

import argparse
import json
import os
import random
import re
import signal
import socket
import sys
import time
from dataclasses import astuple, dataclass
from pathlib import Path

import rdma_core_tree
from program import Program, describe

SOURCE_ROOT = Path(__file__).resolve().parent.parent.parent
DEVICE = "mlx5_0"
LISTEN_STATE = "0A"  # TCP_LISTEN in /proc/net/tcp


class Failure(Exception):
    """A case that did not do what it must; the text says what ran and what came out."""


class Skip(Exception):
    """A case that cannot be run here; the text says what is missing."""


@dataclass(frozen=True)
class Mode:
    """One choice of the device's options; None leaves softhca's default."""

    uar: str | None = None
    engine: str | None = None
    memory: str | None = None
    lost_peer: str | None = None
    port: str | None = None
    devices: str | None = None
    ports: str | None = None
    address: str | None = None

    def flags(self):
        flags = []
        for option in ("uar", "engine", "memory", "lost_peer", "port", "devices", "ports", "address"):
            value = getattr(self, option)
            if value is not None:
                flags += [f"--{option.replace('_', '-')}", value]
        return flags

    def __str__(self):
        chosen = [value for value in astuple(self) if value]
        return "/".join(chosen) or "defaults"


UAR_KERNELS = ("dynamic", "static")
ENGINES = ("hybrid", "inline", "thread")
MEMORY_MODES = ("auto", "cma")
EVERY_MODE = tuple(
    Mode(uar, engine, memory) for uar in UAR_KERNELS for engine in ENGINES for memory in MEMORY_MODES
)
UAR_BY_MEMORY = tuple(Mode(uar, None, memory) for uar in UAR_KERNELS for memory in MEMORY_MODES)


class Suite:
    """Options, cases, progress and the closing count of one script."""

    def __init__(self, name, description, *, add_options=None):
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument(
            "--softhca",
            type=Path,
            default=SOURCE_ROOT / "build" / "bin" / "softhca",
            help="the softhca command to run programs with (default: %(default)s)",
        )
        length = parser.add_mutually_exclusive_group()
        length.add_argument(
            "--short", dest="full", action="store_false", help="a short set (default)"
        )
        length.add_argument("--full", dest="full", action="store_true", help="the whole matrix")
        parser.add_argument("--only", metavar="PATTERN", help="run cases whose name matches")
        parser.add_argument("--list", action="store_true", help="print the cases and end")
        parser.add_argument(
            "--scratch",
            type=Path,
            default=SOURCE_ROOT / "build" / "third_party",
            help="directory for unpacked and compiled files (default: %(default)s)",
        )
        parser.add_argument("--stop", action="store_true", help="end at the first failure")
        parser.add_argument(
            "--timeout-scale", type=float, default=1.0, help="multiplies each deadline"
        )
        parser.add_argument(
            "--rdma-core",
            type=Path,
            metavar="FOLDER",
            help="use this rdma-core: an installation, a build tree, or sources, which are built",
        )
        parser.set_defaults(full=False)
        if add_options:
            add_options(parser)
        self.options = parser.parse_args()
        self.rdma_core = None
        if self.options.rdma_core:
            try:
                self.rdma_core = rdma_core_tree.use(self.options.rdma_core, self.options.scratch)
            except (rdma_core_tree.Unusable, OSError) as reason:
                parser.error(f"--rdma-core: {reason}")
        self.name = name
        self.full = self.options.full
        self.fabric = os.environ.get("SOFTHCA_FABRIC", "") or f"{name}-{os.getpid()}"
        self.cases = []
        self._programs = []
        self._killed = False  # has a program on the device been ended by force?
        self._ports = set()
        self._random = random.Random(os.getpid() ^ time.time_ns())
        os.environ.pop("LD_PRELOAD", None)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))

    # Cases

    def case(self, name, function, *arguments, **keywords):
        self.cases.append((name, lambda: function(*arguments, **keywords)))

    def main(self):
        chosen = [
            (name, run)
            for name, run in self.cases
            if not self.options.only or re.search(self.options.only, name)
        ]
        if self.options.list:
            print("\n".join(name for name, _ in chosen))
            return 0
        softhca = self.options.softhca
        if not (softhca.is_file() and os.access(softhca, os.X_OK)):
            print(f"{self.name}: no executable {softhca}; build it, or name it with --softhca")
            return 2
        if not chosen:
            print(f"{self.name}: no case matches {self.options.only!r}")
            return 2
        passed, failed, skipped = [], [], []
        begin = time.monotonic()
        chosen.append(("the fabric is gone", self.check_fabric_gone))
        width = max(len(name) for name, _ in chosen)
        for number, (name, run) in enumerate(chosen, 1):
            if failed and self.options.stop and number < len(chosen):
                continue
            started = time.monotonic()
            detail = ""
            try:
                note = run()
                word, bucket = "ok", passed
                detail = note if isinstance(note, str) else ""
            except Skip as reason:
                word, bucket, detail = "skip", skipped, str(reason)
            except Failure as reason:
                word, bucket, detail = "FAIL", failed, str(reason)
            except KeyboardInterrupt:
                print("interrupted")
                return 130
            finally:
                self.end_programs()
            self._killed |= bucket is failed
            spent = time.monotonic() - started
            first, _, rest = detail.partition("\n")
            bucket.append(f"{name}: {first}")
            print(f"{number:4d}/{len(chosen)} {word:4} {name:{width}} {spent:6.2f} s  {first}".rstrip())
            if rest:
                print(rest)
            sys.stdout.flush()
        for case in failed:
            print(f"failed: {case}")
        print(
            f"{self.name}: {len(passed)} passed, {len(failed)} failed, {len(skipped)} skipped"
            f" ({time.monotonic() - begin:.1f} s)"
        )
        return 1 if failed or not passed else 0

    # Programs

    def environment(self, extra=None):
        environment = dict(os.environ)
        for name in ("SOFTHCA_UAR", "SOFTHCA_ENGINE", "SOFTHCA_MEMORY", "SOFTHCA_MEMLOCK"):
            environment.pop(name, None)
        environment.update(extra or {})
        return environment

    def command(self, argv, mode=Mode()):
        return [
            str(self.options.softhca),
            "run",
            *mode.flags(),
            "--fabric",
            self.fabric,
            "--",
            *[str(part) for part in argv],
        ]

    def start(self, argv, *, mode=Mode(), title=None, environment=None, **keywords):
        """Starts a program on the device. The leader is the program itself: softhca execs it."""
        program = Program(
            self.command(argv, mode),
            environment=self.environment(environment),
            **keywords,
            title=title or Path(str(argv[0])).name,
        )
        self._programs.append(program)
        return program

    def start_plain(self, argv, *, environment=None, directory=None):
        """Starts a program without the device (softhca's other commands, compilers)."""
        program = Program(argv, environment=self.environment(environment), directory=directory)
        self._programs.append(program)
        return program

    def end_programs(self):
        for program in self._programs:
            self._killed |= program.running() or (program.code or 0) < 0  # a signal has ended it
            program.reap()
        self._programs.clear()

    def scaled(self, seconds):
        return seconds * self.options.timeout_scale

    def run(self, argv, *, seconds=30, expect=0, **keywords):
        """Runs one program to its end on the device and returns it; fails on another exit code."""
        program = self.start(argv, **keywords)
        self.finish([program], seconds)
        if program.code != expect or program.timed_out:
            raise Failure(f"{program.state()}, expected exit code {expect}\n{program.describe()}")
        self.refuse_device_errors([program])
        return program

    def run_plain(self, argv, *, seconds=60, expect=0, **keywords):
        program = self.start_plain(argv, **keywords)
        self.finish([program], seconds)
        if expect is not None and program.code != expect:
            raise Failure(f"exit code {program.code}, expected {expect}\n{program.describe()}")
        return program

    def finish(self, programs, seconds):
        """Waits until all have ended. When one fails, the others get little time to notice."""
        deadline = time.monotonic() + self.scaled(seconds)
        while waiting := [program for program in programs if program.code is None]:
            for program in waiting:
                if program.wait(0.02) and program.code != 0:
                    deadline = min(deadline, time.monotonic() + self.scaled(5))
            if time.monotonic() > deadline:
                for program in waiting:
                    if program.code is None:
                        program.timed_out = program.running()
                        program.reap()

    def pair(self, server, client, *, port, seconds=30, prefix="", **keywords):
        """Runs a server, then, when it listens on `port`, a client, both on the device to the end.

        Both must exit with 0 and must not have logged an error of the device.
        """
        one = self.start(server, **keywords, title=f"{prefix}server")
        self.wait_listening(one, port)
        other = self.start(client, **keywords, title=f"{prefix}client")
        both = [one, other]
        self.finish(both, seconds)
        self.refuse_failures(both, seconds)
        return one, other

    def refuse_failures(self, programs, seconds):
        """Fails unless all ended by themselves, with 0 and without an error of the device."""
        if any(program.code != 0 and not program.timed_out for program in programs):
            states = ", ".join(f"{program.title}: {program.state()}" for program in programs)
            raise Failure(f"{states}\n{describe(programs)}")
        if any(program.timed_out for program in programs):
            raise Failure(f"not done after {self.scaled(seconds):g} s\n{describe(programs)}")
        self.refuse_device_errors(programs)

    def wait_listening(self, server, port, seconds=20):
        deadline = time.monotonic() + self.scaled(seconds)
        while not is_listening(port):
            if not server.running():
                server.wait(1)
                raise Failure(f"the server ended before it listened on {port}\n{server.describe()}")
            if time.monotonic() > deadline:
                raise Failure(f"the server does not listen on port {port}\n{server.describe()}")
            time.sleep(0.01)

    def wait_listening_or_end(self, server, port, seconds=20):
        """As wait_listening(), for a server that may find that there is nothing to do."""
        deadline = time.monotonic() + self.scaled(seconds)
        while not is_listening(port) and not server.wait(0.01):
            if time.monotonic() > deadline:
                raise Failure(f"the server does not listen on port {port}\n{server.describe()}")

    def refuse_device_errors(self, programs):
        """softhca logs "softhca[PID]: error: ..." when something in the device itself went wrong."""
        for program in programs:
            if re.search(r"^softhca\[\d+\]: error:", program.output(), re.MULTILINE):
                raise Failure(f"the device logged an error\n{describe(programs)}")

    def free_port(self):
        """A TCP port that nobody has, below the range the kernel picks from, never given twice."""
        for _ in range(2000):
            port = self._random.randrange(12000, 32000)
            if port in self._ports:
                continue
            with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("::", port))
                except OSError:
                    continue
            self._ports.add(port)
            return port
        raise Failure("no free TCP port found")

    def need(self, *programs):
        """A missing program is a failure: `make test` installs them all."""
        for program in programs:
            if not any(
                os.access(os.path.join(folder, program), os.X_OK)
                for folder in os.environ.get("PATH", os.defpath).split(":")
            ):
                raise Failure(f"{program} is not installed")

    def scratch(self, name):
        folder = self.options.scratch / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    # The fabric

    def stat(self):
        """`softhca stat --json` of this script's fabric, parsed; None when there is no fabric."""
        program = self.run_plain(
            [self.options.softhca, "stat", "--json", "--fabric", self.fabric],
            expect=None,
            seconds=10,
        )
        if program.code != 0:
            return None
        try:
            return json.loads(program.output())
        except ValueError as reason:
            raise Failure(f"stat --json is not JSON: {reason}\n{program.describe()}") from reason

    def remains(self):
        """Names that this script's fabric has left in the directory of fabrics."""
        folder = Path(f"/dev/shm/softhca-{os.getuid()}")
        try:
            names = sorted(os.listdir(folder))
        except FileNotFoundError:
            return []
        ours = [str(folder / name) for name in names if name.startswith(self.fabric + ".")]
        return ours if names else [f"{folder} (empty)"]

    def check_fabric_gone(self, seconds=3):
        """The last process that leaves removes everything: segment, tree, the empty directory.

        One that was killed cannot; after that it is for the next to come, so one comes.
        """
        if self._killed:
            self._killed = False
            self.run(["ibv_devices"])
        deadline = time.monotonic() + self.scaled(seconds)
        while left := self.remains():
            if time.monotonic() > deadline:
                raise Failure("left behind: " + ", ".join(left))
            time.sleep(0.02)


def is_listening(port):
    """Looks the port up in the kernel's tables: a trial connection would be taken for a client."""
    wanted = f"{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == LISTEN_STATE and fields[1].rpartition(":")[2] == wanted:
                return True
    return False
