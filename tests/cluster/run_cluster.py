#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""heddle at its default settings between hosts: QEMU guests with the kernel's Soft-RoCE (rdma_rxe),
with libfabric's fi_pingpong, MPICH and Open MPI, on several kinds of network, and with processes,
links and hosts that fail.

Exits with 77 if QEMU, the kernel or busybox cannot be had. Guests compute 10 to 50 times slower than
this machine, so the programs move little data.
"""

import os
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "third_party"))
sys.path.insert(1, str(HERE.parent / "mpi"))

import failures  # noqa: E402
import images  # noqa: E402
import mpis  # noqa: E402
import suites  # noqa: E402
from harness import SOURCE_ROOT, Failure, Suite  # noqa: E402
from lab import Lab, check, command, guarded, launcher_variables, wait_listening  # noqa: E402
from network import Network  # noqa: E402
from run_mpi import Runner  # noqa: E402

SKIPPED = 77
PINGPONG_PORT = 47592  # fi_pingpong's own
OTHER_NAMES = ("roce_a", "mlx_like1", "third0")

NETWORKS = (
    Network(ipv6=False),
    Network(ipv4=False),
    Network(mtu=4200),
    Network(devices=OTHER_NAMES),
    Network(first_dead="down"),
    Network(first_dead="no address"),
)
# Program, ranks, arguments: short ones, since a message takes ten milliseconds on a busy machine.
SHORT = (
    ("hello", 2, ()),
    ("pingpong", 2, (1 << 16, "blocking", "both_ways")),
)
FULL = (
    ("hello", 4, ()),
    ("hello", 3, ()),
    ("matching", 2, ("wildcards", "probe", "cancel", "truncation", "to_oneself")),
    ("requests", 2, ("wait_any", "persistent", "send_receive")),
    ("datatypes", 2, ("indexed", "structures")),
    ("collectives", 2, ()),
    ("collectives", 4, ("barrier", "scatter")),
    ("reductions", 2, ("reduce",)),
    ("one_sided", 2, ("lock", "pscw", "derived")),
    ("atomics", 2, ("counter", "compare_and_swap")),
)
MPIS = ("mpich", "openmpi-debian")
MPI_SECONDS = 400
MEMORY = 768  # MiB of a guest


def main():
    suite = Suite("cluster", __doc__.partition("\n\n")[0], add_options=add_options)
    options = suite.options
    options.provider_path = options.provider_path or options.softhca.resolve().parent.parent / "lib"
    bench = Bench(suite)
    add_cases(suite, bench)
    if not options.list:
        try:
            images.qemu()
            kernel = images.find_kernel(options.scratch, options.kernel)
            busybox = images.find_busybox(options.scratch)
        except images.Unavailable as reason:
            print(f"cluster: skipped: {reason}")
            return SKIPPED
        if not list(options.provider_path.glob("*heddle-fi.so")):
            print(f"cluster: no libheddle-fi.so in {options.provider_path}; build it")
            return 2
        memory = suites.MEMORY if options.suites else MEMORY
        bench.lab = Lab(suite, kernel, busybox, memory)
    try:
        return suite.main()
    finally:
        if bench.lab:
            bench.lab.end()


def add_options(parser):
    parser.set_defaults(scratch=SOURCE_ROOT / "build" / "cluster")
    parser.add_argument(
        "--provider-path", type=Path, help="folder of libheddle-fi.so (default: beside softhca)"
    )
    parser.add_argument(
        "--venvs", type=Path, help="virtual environments of MPI (default: SCRATCH/../venvs)"
    )
    parser.add_argument(
        "--kernel", type=Path, metavar="FOLDER", help="where a kernel package was unpacked"
    )
    suites.add_options(parser)


def add_cases(suite, bench):
    def case(name, run, *arguments):
        suite.case(name, guarded(run), *arguments)

    case("two guests boot", bench.boot, 2)
    if suite.options.suites:
        return suites.add_cases(case, bench, MPIS)
    case("heddle info", bench.info)
    case("fi_pingpong", bench.pingpong, Network())
    for key in MPIS:
        for program, ranks, arguments in (*SHORT, *(FULL if suite.full else ())):
            words = " ".join(map(str, arguments))
            case(f"{key} {program} {words} {ranks} ranks", bench.mpi, key, program, ranks, arguments)
    for network in NETWORKS if suite.full else NETWORKS[1:2]:
        case(f"fi_pingpong, {network}", bench.pingpong, network)
        if suite.full:
            for key in MPIS:
                # Open MPI 4.1 spreads processes over ports by their IDs: of four each port has some.
                case(f"{key} hello, {network}", bench.mpi, key, "hello", 4, (), network)
    for name, run in failures.cases(suite.full):
        case(name, run, bench)
    if suite.full:
        case("three guests: mpich hello 3 ranks", bench.mpi, "mpich", "hello", 3, (), Network(), 3)
        case("three guests: a host ends", failures.host_of_three_ends, bench)


class Bench:
    """The cases that must succeed, and what the others are made of."""

    def __init__(self, suite):
        self.suite = suite
        self.lab = None
        self.programs = Runner(suite)

    def environment(self):
        return {"FI_PROVIDER": "heddle", "FI_PROVIDER_PATH": self.suite.options.provider_path.resolve()}

    def scaled(self, seconds):
        return self.suite.scaled(seconds)

    # Cases

    def boot(self, count):
        guests = self.lab.hosts(count)
        return f"Linux {guests[0].release}"

    def info(self):
        """heddle describes Soft-RoCE as it is: without XRC, thread domains and UARs."""
        guest = self.lab.hosts(2)[0]
        heddle = self.suite.options.softhca.resolve().parent / "heddle"
        found = guest.run(command({}, heddle, "info"), self.scaled(60))
        check(found)
        for wanted in (r"^rxe0$", "not mlx5", r"port 1 +RoCE, active", "RC, UD, no XRC, no DC", "no thread domains"):
            if not re.search(wanted, found.text, re.M):
                raise Failure(f"no {wanted!r} in it\n{found.describe()}")

    def pingpong(self, network):
        first, second = self.lab.hosts(2, network)
        argv = ["fi_pingpong", "-p", "heddle", "-e", "rdm", "-c", "-I", "20"]
        sizes = []
        for size in (64, 100_000):
            server = first.start(command(self.environment(), *argv, "-S", size), title="server")
            wait_listening(first, PINGPONG_PORT, self.scaled(60))
            client = second.run(
                command(self.environment(), *argv, "-S", size, "node1"), self.scaled(120), title="client"
            )
            check(client, server.finish(self.scaled(30)))
            found = re.search(r"^\S+ +20 +=20 .*s +\S+ +(\S+) +\S+$", client.text, re.M)
            if not found:
                raise Failure(f"no line of 20 iterations\n{client.describe()}")
            sizes.append(f"{float(found[1]) / 1000:.1f} ms for {size} B")
        return ", ".join(sizes)

    def mpi(
        self,
        key,
        program,
        ranks,
        arguments,
        network=Network(),
        hosts=2,
        *,
        extra=None,
        seconds=MPI_SECONDS,
    ):
        job = self.start_mpi(key, program, ranks, arguments, network, hosts, extra=extra)
        result = job.finish(self.scaled(seconds))
        check(result)
        found = re.search(
            rf"^{program}: ([1-9]\d*) checks passed by {ranks} ranks$", result.text, re.M
        )
        if not found:
            raise Failure(f"no line of passed checks\n{result.describe()}")
        return f"{found[1]} checks"

    # Parts

    def start_mpi(
        self, key, program, ranks, arguments, network=Network(), hosts=2, *, extra=None, launcher=()
    ):
        """Starts a program of tests/mpi from the first guest, its ranks on each guest in turn.

        `extra`: more variables; `launcher`: more options of mpiexec.
        """
        mpi = self.programs.mpi(key)
        binary = self.programs.program(program, mpi)
        guests = self.lab.hosts(hosts, network)
        environment = mpi.environment("heddle", provider_path=self.environment()["FI_PROVIDER_PATH"])
        environment |= {**launcher_variables(), **(extra or {})}
        os.environ["HEDDLE_HOSTS"] = ",".join(guest.name for guest in guests)
        mpiexec, *options = mpi.mpiexec(ranks, environment)
        argv = [mpiexec, *launcher, *options, binary.resolve(), *arguments]
        return guests[0].start(command(environment, *argv), title=f"{key} {program}")


if __name__ == "__main__":
    sys.exit(main())
