#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""MPI programs that look at every byte, on unmodified MPICH, Open MPI and Intel MPI over heddle, on
the software HCA: point to point, collectives, one-sided, MPI_THREAD_MULTIPLE.

All ranks of a case run under one `softhca run`. The libraries come from PyPI, into virtual
environments below --scratch, once. `--provider tcp` runs the same over libfabric's own tcp provider:
what fails there, too, is not heddle's fault.
"""

import json
import os
import re
import resource
import shutil
import sys
import uuid
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import jobs
import mpis

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "third_party"))
from harness import SOURCE_ROOT, Failure, Skip, Suite  # noqa: E402

HERE = Path(__file__).resolve().parent
ENDPOINTS = ("mpi-everywhere", "2xdynamic", "dynamic", "shared-dynamic", "static", "mpi+threads")
FLAGS = ["-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-pthread"]
HEADERS = ("support.h", "typed.h", "windows.h", "collective.h", "raw_memory.h", "reuse.c")

# What each program is built from besides its own file and support.c.
PROGRAMS = {
    "hello": [],
    "pingpong": [],
    "matching": [],
    "requests": [],
    "reuse": [],
    "reuse_raw": [],
    "datatypes": [],
    "collectives": ["collective"],
    "neighbors": ["collective"],
    "reductions": ["collective", "typed"],
    "one_sided": ["windows"],
    "atomics": ["windows", "typed"],
    "threads": [],
    "tuples": [],
}
# How large messages travel (FI_HEDDLE_RNDV).
WAYS = ("tupleq", "auto", "rget", "rput")
# KiB that a rank may lock in the cases with little memory to lock: somewhat more than its endpoints
# need. Open MPI has two, as it makes one for windows.
MEMLOCK = {"mpich": 4096, "impi": 4096, "openmpi": 8192, "openmpi-debian": 8192}
# Seconds until a case is ended; on a loaded machine a case takes a fifth of that over tcp.
SECONDS = {"hello": 60, "one_sided": 400, "atomics": 400, "threads": 300, "tuples": 400}
# What a library says although the job ends well.
COMPLAINTS = re.compile(r"^.*(?:failed an OFI Libfabric|Assertion.*failed|Fatal error).*", re.M)
# How each MPI says which provider it took.
SHOWS = {
    "mpich": ({"MPIR_CVAR_DEBUG_SUMMARY": "1"}, r"^libfabric provider: (\S+)"),
    "impi": ({"I_MPI_DEBUG": "4"}, r"libfabric provider: (\S+)"),
    "openmpi": ({"OMPI_MCA_opal_common_ofi_verbose": "1"}, r"mtl:ofi:provider: (\S+)"),
    # It names the device, not the provider.
    "openmpi-debian": ({"FI_HEDDLE_STATS": "stderr"}, r"^(heddle): process"),
}


@dataclass(frozen=True)
class Case:
    mpi: str
    program: str
    ranks: int
    arguments: tuple = ()
    threads: int = 1
    endpoints: str | None = None
    memlock: int | None = None  # KiB that a rank may lock
    way: str | None = None
    shm: bool = False  # messages through shared memory

    def __str__(self):
        words = [self.mpi, self.program, *map(str, self.arguments), f"{self.ranks} ranks"]
        if self.endpoints:
            words.append(self.endpoints)
        if self.way:
            words.append(self.way)
        if self.shm:
            words.append("shm")
        if self.memlock:
            words.append(f"{self.memlock} KiB to lock")
        return " ".join(words)


def main():
    suite = Suite("mpi", __doc__.partition("\n\n")[0], add_options=add_options)
    options = suite.options
    options.provider_path = options.provider_path or options.softhca.resolve().parent.parent / "lib"
    if options.provider == "heddle" and not list(options.provider_path.glob("*heddle-fi.so")):
        print(f"mpi: no libheddle-fi.so in {options.provider_path}; build it, or --provider-path")
        return 2
    keys = options.mpi or list(mpis.KEYS)
    for case in full_matrix(keys, options) if suite.full else short_set(keys):
        if options.ranks and case.ranks not in options.ranks:
            continue
        suite.case(str(case), run_case, suite, case)
    if options.provider == "heddle" and (not options.ranks or 2 in options.ranks):
        for key in keys:
            suite.case(f"{key} hello on two fabrics", run_on_two_fabrics, suite, key)
            suite.case(f"{key} hello on two adapters", run_on_two_adapters, suite, key)
            if key == "mpich":  # endpoints for each thread; the others have one for all
                suite.case(f"{key} stencil of threads, recorded", run_recorded, suite, key)
    runner = Runner(suite)
    suite.runner = runner
    return suite.main()


def add_options(parser):
    parser.set_defaults(scratch=SOURCE_ROOT / "build" / "mpi")
    parser.add_argument("--provider", default="heddle", help="or one of libfabric's own, say tcp")
    parser.add_argument(
        "--provider-path", type=Path, help="folder of libheddle-fi.so (default: beside softhca)"
    )
    parser.add_argument(
        "--venvs", type=Path, help="virtual environments (default: SCRATCH/../venvs)"
    )
    parser.add_argument(
        "--mpi", action="append", choices=mpis.KEYS, help="only this (repeatable)"
    )
    parser.add_argument(
        "--ranks", action="append", type=int, metavar="N", help="only so many ranks (repeatable)"
    )


def short_set(keys):
    """Everything with two ranks; with four what is different there."""
    for key in keys:
        yield Case(key, "hello", 4)
        for program in PROGRAMS:
            if program in ("hello", "threads", "tuples"):
                continue
            arguments = (1 << 20,) if program == "pingpong" else ()
            yield Case(key, program, 2, arguments)
        yield Case(key, "pingpong", 2, (16 << 20, "blocking", "both_ways"))
        yield Case(key, "threads", 2, (4,), threads=4)
        yield Case(key, "reuse", 2, ("unmapped", "many", "one_sided"), memlock=MEMLOCK[key])
        # Longer than that: they are copied.
        yield Case(key, "pingpong", 2, (16 << 20, "blocking", "both_ways"), memlock=MEMLOCK[key])
        yield Case(key, "matching", 4)
        yield Case(key, "requests", 4)
        yield Case(key, "collectives", 4)
        yield Case(key, "atomics", 4, ("counter", "fetched_values", "exclusive_lock"))
        for way in ("tupleq", "auto"):
            yield Case(key, "tuples", 2, way=way)
            yield Case(key, "matching", 2, way=way)
        yield Case(key, "tuples", 4, (), 4, way="tupleq")
        for program in ("pingpong", "matching", "requests", "one_sided", "collectives"):
            arguments = (1 << 20,) if program == "pingpong" else ()
            yield Case(key, program, 2, arguments, shm=True)
        yield Case(key, "matching", 4, shm=True)


def full_matrix(keys, options):
    heddle = options.provider == "heddle"
    for key in keys:
        for ranks in range(1, 9):
            for program in PROGRAMS:
                if program == "threads":
                    for threads in (1, 2, 4, 16):
                        yield Case(key, program, ranks, (threads,), threads)
                elif program != "tuples":
                    yield Case(key, program, ranks)
        for way in WAYS if heddle else ():
            for ranks in (2, 3, 4, 6):
                yield Case(key, "tuples", ranks, (10_000,), 1 if ranks % 2 else 4, way=way)
            for ranks in (2, 4) if way == "tupleq" else ():
                for program in PROGRAMS:
                    if program not in ("hello", "threads", "tuples"):
                        arguments = (1 << 20,) if program == "pingpong" else ()
                        yield Case(key, program, ranks, arguments, way=way)
        for ranks in (2, 3, 4) if heddle else ():
            for program in PROGRAMS:
                if program != "tuples":
                    arguments = {"pingpong": (1 << 20,), "threads": (4,)}.get(program, ())
                    threads = 4 if program == "threads" else 1
                    yield Case(key, program, ranks, arguments, threads, shm=True)
        for endpoints in ENDPOINTS if heddle else ():
            for ranks in (2, 4):
                for program in PROGRAMS:
                    if program == "threads":
                        for threads in (2, 4, 16):
                            yield Case(key, program, ranks, (threads,), threads, endpoints)
                    elif program != "tuples":
                        arguments = (1 << 20,) if program == "pingpong" else ()
                        yield Case(key, program, ranks, arguments, 1, endpoints)


class Runner:
    """Installs what is needed when it is first needed, and remembers what cannot be had."""

    def __init__(self, suite):
        self.suite = suite
        options = suite.options
        self.venvs = options.venvs or options.scratch.resolve().parent / "venvs"
        self.found, self.missing, self.built = {}, {}, {}

    def mpi(self, key):
        if key not in self.found and key not in self.missing:
            say = lambda text: print(f"mpi: {text}", flush=True)  # noqa: E731
            found, missing = mpis.find([key], self.venvs, say=say)
            self.found.update(found)
            self.missing.update(missing)
        if key in self.missing:
            raise Skip(self.missing[key])
        return self.found[key]

    def program(self, name, mpi):
        """The program, built with the MPI whose interface this one has (Intel's wheel has no
        headers, and takes MPICH's binaries)."""
        return self.built_from(
            mpi, name, [HERE / f"{part}.c" for part in (name, "support", *PROGRAMS[name])]
        )

    def built_from(self, mpi, name, sources):
        builder = self.mpi(mpi.compiled_with)
        binary = self.suite.scratch(builder.key) / name
        newest = max((HERE / f).stat().st_mtime for f in (*sources, *HEADERS))
        if binary not in self.built and not (
            binary.exists() and binary.stat().st_mtime > newest
        ):
            argv = [builder.mpicc, *FLAGS, "-o", binary, *sources]
            self.suite.run_plain(argv, seconds=300)
        self.built[binary] = True
        return binary


def run_case(suite, case):
    mpi = suite.runner.mpi(case.mpi)
    binary = suite.runner.program(case.program, mpi)
    options = suite.options
    path = options.provider_path if options.provider == "heddle" else None
    environment = mpi.environment(options.provider, threads=case.threads, provider_path=path)
    if case.endpoints:
        environment["FI_HEDDLE_ENDPOINTS"] = case.endpoints
    if case.way:
        environment["FI_HEDDLE_RNDV"] = case.way
        environment["FI_HEDDLE_TUPLE_AFTER"] = "4"  # queues come and go, by auto
    if case.shm:
        environment |= {"FI_HEDDLE_SHM": "on", "FI_HEDDLE_STATS": "stderr"}
    if case.program == "hello":
        environment.update(SHOWS[case.mpi][0])
    argv = [*mpi.mpiexec(case.ranks, environment), binary, *case.arguments]
    if case.memlock:
        environment["SOFTHCA_MEMLOCK"] = "enforce"
        argv = [*with_memlock(case.memlock), *argv]
    seconds = SECONDS.get(case.program, 200)
    text = run_job(suite, argv, environment, seconds)
    found = re.search(
        rf"^{case.program}: ([1-9]\d*) checks passed by {case.ranks} ranks$", text, re.M
    )
    if not found:
        raise Failure("no line of passed checks\n" + tail(text))
    if case.shm and not re.search(r"sent by shared memory +[1-9]", text):
        raise Failure("no message went through shared memory\n" + tail(text))
    if case.program == "hello":
        seen = re.search(SHOWS[case.mpi][1], text, re.M)
        if not seen or not seen[1].startswith(options.provider):
            raise Failure(
                f"runs on {seen[1] if seen else 'no provider'}, not on {options.provider}\n"
                + tail(text, 60)
            )
    return f"{found[1]} checks"


def run_on_two_fabrics(suite, key):
    """Ranks that cannot reach each other: the job ends with an error, which names the peer."""
    mpi = suite.runner.mpi(key)
    binary = suite.runner.program("hello", mpi)
    options = suite.options
    marker = uuid.uuid4().hex
    environment = mpi.environment("heddle", provider_path=options.provider_path)
    environment |= {"FI_HEDDLE_CONNECT_TIMEOUT": "1000", jobs.MARKER: marker}
    fabrics = [f"{suite.fabric}-{letter}" for letter in "ab"]
    first, second = (
        [str(options.softhca), "run", "--fabric", fabric, "--", str(binary)] for fabric in fabrics
    )
    job = suite.start_plain(
        [*mpi.mpiexec(1), *first, ":", "-n", "1", *second], environment=environment
    )
    try:
        ended = job.wait(suite.scaled(SECONDS["hello"]))
        stacks = "" if ended else jobs.where(marker)
    finally:
        jobs.end(job, marker)
        for fabric in fabrics:  # of ranks that were ended by their launcher
            suite.run_plain([options.softhca, "clean", "--fabric", fabric], expect=None)
    if not ended:
        raise Failure(f"the job hangs\n{job.describe()}\n{stacks}")
    if job.code == 0:
        raise Failure(f"the job ends as if its ranks had met\n{job.describe()}")
    named = re.search(
        r"the peer at LID 1, GID (\S+), UD QP \d+ .*asked by mlx5_0, LID 1, "
        r"GID (\S+): .* on another fabric",
        job.output(),
    )
    if not named or named[1] == named[2]:
        raise Failure(f"no line names the peer\n{job.describe()}")
    return f"exit code {job.code}"


def run_on_two_adapters(suite, key):
    """The processes of a host spread over its adapters. Open MPI 4.1 does that by process IDs, so it
    may leave one out.
    """
    ranks = 4
    mpi = suite.runner.mpi(key)
    binary = suite.runner.program("hello", mpi)
    options = suite.options
    file = suite.scratch("adapters") / f"{key}.json"
    file.unlink(missing_ok=True)
    environment = mpi.environment("heddle", provider_path=options.provider_path)
    environment["FI_HEDDLE_STATS"] = str(file)
    fabric = f"{suite.fabric}-adapters"
    softhca = [options.softhca, "run", "--devices", 2, "--fabric", fabric, "--"]
    try:
        suite.run_plain(
            [*softhca, *mpi.mpiexec(ranks, environment), binary],
            environment=environment,
            seconds=SECONDS["hello"],
        )
    finally:
        suite.run_plain([options.softhca, "clean", "--fabric", fabric], expect=None)
    used = Counter(json.loads(line)["device"] for line in file.read_text().splitlines())
    text = ", ".join(f"{used[device]} on {device}" for device in sorted(used))
    spread = sorted(used.values()) == [ranks // 2] * 2
    if used.total() != ranks or not (spread or mpi.distributed):
        raise Failure(f"{ranks} ranks: {text}")
    return text


def run_recorded(suite, key):
    """`heddle predict` replays an MPI program with the endpoints of each category."""
    mpi = suite.runner.mpi(key)
    source = SOURCE_ROOT / "bench" / "mpi" / "thread_stencil.c"
    binary = suite.runner.built_from(mpi, "thread_stencil", [source])
    folder = suite.scratch(f"recorded-{key}")
    for old in folder.glob("run.*"):
        old.unlink()
    threads = 4
    environment = mpi.environment("heddle", threads=threads, provider_path=suite.options.provider_path)
    environment["SOFTHCA_RECORD"] = str(folder / "run.%p")
    argv = [*mpi.mpiexec(2, environment), binary, threads, 64, 64, 100]
    run_job(suite, argv, environment, SECONDS["threads"])
    records = sorted(folder.glob("run.*"))
    heddle = suite.options.softhca.resolve().parent / "heddle"
    said = suite.run_plain([heddle, "predict", "--json", "--record", *records])
    rows = {row["endpoints"]: row for row in map(json.loads, said.output().splitlines())}
    if list(rows) != ["as recorded", *ENDPOINTS]:
        raise Failure(f"not every category is predicted, but {', '.join(rows)}")
    recorded = rows["as recorded"]
    for name, row in rows.items():
        if not 0.95 * recorded["wqes"] <= row["wqes"] <= recorded["wqes"]:
            raise Failure(f"{name}: {row['wqes']} requests of {recorded['wqes']}")
    if rows["mpi+threads"]["predicted_mmsgs_per_s"] > rows["dynamic"]["predicted_mmsgs_per_s"]:
        raise Failure("one queue pair for all threads is no slower than one for each")
    return f"{recorded['wqes']} requests"


def with_memlock(kib):
    """Starts a command that may lock so much, and has not the capability to lock more."""
    for tool in ("prlimit", "setpriv"):
        if not shutil.which(tool):
            raise Skip(f"no {tool} (util-linux)")
    hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    if hard != resource.RLIM_INFINITY and hard < kib * 1024:
        raise Skip(f"no more than {hard // 1024} KiB may be locked here")
    prefix = ["prlimit", f"--memlock={kib * 1024}:{kib * 1024}"]
    if os.geteuid() == 0:
        prefix += ["setpriv", "--bounding-set", "-ipc_lock", "--inh-caps", "-ipc_lock"]
    return prefix


def run_job(suite, argv, environment, seconds, directory=None):
    """Runs mpiexec under softhca; fails with the tail of its output unless it ends with 0."""
    marker = uuid.uuid4().hex
    environment = {**environment, jobs.MARKER: marker}
    job = suite.start(argv, environment=environment, directory=directory, title="mpiexec")
    try:
        ended = job.wait(suite.scaled(seconds))
        stacks = "" if ended else jobs.where(marker)
        if not ended:
            job.timed_out = True
    finally:
        jobs.end(job, marker)
    text = job.output()
    if not ended:
        raise Failure(f"not done after {suite.scaled(seconds):g} s\n{job.describe()}\n{stacks}")
    if job.code != 0:
        raise Failure(f"{job.state()}\n{job.describe()}")
    suite.refuse_device_errors([job])
    if complaint := COMPLAINTS.search(text):
        raise Failure(f"the library complains: {complaint[0].strip()}\n{job.describe()}")
    return text


def tail(text, lines=30):
    return "\n".join("    | " + line for line in text.rstrip().splitlines()[-lines:])


if __name__ == "__main__":
    sys.exit(main())
