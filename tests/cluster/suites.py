# SPDX-License-Identifier: BSD-2-Clause
"""Whole suites between two hosts: every program of tests/mpi with all its steps but one (PINGPONG), on 2
and 4 ranks, and libfabric's functional tests. They take an hour. Standard library only.
"""

import subprocess
import sys
from argparse import Namespace
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "provider"))
import fabtests  # noqa: E402
import run_fabtests  # noqa: E402
from harness import Skip  # noqa: E402
from lab import check, command, wait_listening  # noqa: E402
from run_mpi import PROGRAMS, SECONDS  # noqa: E402

# Guests compute so much slower than their host, with one processor each.
SLOWER = 2
# What is read in one go loses packets here when it is long, and rxe repeats it after a second. So
# ping-pong is without its step of 600 messages of 1 MiB.
PINGPONG = ("blocking", "nonblocking", "synchronous", "from_any", "both_ways", "unexpected")
ARGUMENTS = {"pingpong": (1 << 16, *PINGPONG), "threads": (2,), "tuples": (100,)}
FABTESTS_PORT = 47593
MEMORY = 4096  # MiB of a guest: fabtests register a gigabyte, which rxe pins


def add_options(parser):
    parser.add_argument("--suites", action="store_true", help="whole suites, in the place of the cases")
    parser.add_argument("--fabtests-source", type=Path, help=f"libfabric {fabtests.VERSION} (default: GitHub's)")


def add_cases(case, bench, mpis):
    for key in mpis:
        for program in PROGRAMS:
            for ranks in (2, 4):
                case(f"{key} {program} whole {ranks} ranks", mpi, bench, key, program, ranks)
    bench.suite.excluded = run_fabtests.exclusions()
    try:
        prefix = build(bench.suite.options)
    except (OSError, subprocess.SubprocessError, Skip) as reason:
        return case("fabtests", skip, str(reason))
    for text in fabtests.test_lists(prefix)["functional_tests"]:
        case(text, fabtest, bench, prefix, text)


def build(options):
    """Where libfabric and fabtests are; the folder of provider.fabtests.full."""
    folder = options.scratch.resolve().parent / "fabtests"
    return fabtests.build(Namespace(source=options.fabtests_source, prefix=None, scratch=folder))


def skip(reason):
    raise Skip(reason)


def mpi(bench, key, program, ranks):
    extra = {"FI_HEDDLE_RNDV": "tupleq"} if program == "tuples" else {}
    seconds = SECONDS.get(program, 200) * SLOWER
    return bench.mpi(key, program, ranks, ARGUMENTS.get(program, ()), extra=extra, seconds=seconds)


def fabtest(bench, prefix, text):
    """The server on the first host, the client on the second."""
    run_fabtests.refuse_excluded(bench.suite, text)
    first, second = bench.lab.hosts(2)
    argv = [*fabtests.command(prefix, text, first.name), "-p", "heddle", f"-E={FABTESTS_PORT}"]
    environment = {**bench.environment(), "LD_LIBRARY_PATH": prefix / "lib"}
    server = first.start(command(environment, *argv), title="server")
    wait_listening(first, FABTESTS_PORT, bench.scaled(60))
    client = second.run(command(environment, *argv, first.name), bench.scaled(300), title="client")
    check(client, server.finish(bench.scaled(30)))
