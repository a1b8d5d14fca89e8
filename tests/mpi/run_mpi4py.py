#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""mpi4py's own test-suite on PyPI's MPICH over heddle and over libfabric's tcp provider, at 1 to 4
ranks: what fails over heddle must fail over tcp, too.

The tests are those of the version of mpi4py that is installed beside MPICH; its source comes from PyPI.
A test that hangs or kills the job counts as failed; the job is started again without it.
"""

import re
import shutil
import subprocess
import sys
import textwrap
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

import jobs
import mpis

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "third_party"))
from harness import SOURCE_ROOT, Failure, Skip, Suite  # noqa: E402

PROVIDERS = ("heddle", "tcp")
SILENCE = 150  # seconds without a word from any rank: it hangs
MOST_RESTARTS = 25
# Not run, over any provider: what this MPICH does wrong by itself, and then spoils what comes after.
MPICH_FAILS = {
    "test_comm_topo.*.testDistgraphcomm": (
        "MPICH's MPI_Dist_graph_create probes for MPI_ANY_SOURCE and then receives from"
        " MPI_ANY_SOURCE, not from the source that it found. With an edge to itself it takes the"
        " one message with the other's length whenever both are there. 300 such graphs of two"
        " ranks: 83 wrong over tcp, 12 over libfabric's shm, a hang over UCX"
    ),
}
STARTED = re.compile(r"^(\w+) \((test_\w+)\.([\w.]+)\)", re.M)
FAILED = re.compile(r"^(FAIL|ERROR): (\w+) \(((?:test_)?\w[\w.]*)\)", re.M)


@dataclass
class Outcome:
    """What one run of the suite gave: failures by test, and how many tests ran."""

    failed: dict = field(default_factory=dict)  # name: "failed", "hangs", "ends the job"
    ran: int = 0
    seconds: float = 0.0


def main():
    suite = Suite("mpi4py", __doc__.partition("\n\n")[0], add_options=add_options)
    options = suite.options
    options.provider_path = options.provider_path or options.softhca.resolve().parent.parent / "lib"
    providers = options.provider or PROVIDERS
    if "heddle" in providers and not list(options.provider_path.glob("*heddle-fi.so")):
        print(f"mpi4py: no libheddle-fi.so in {options.provider_path}; build it, or --provider-path")
        return 2
    venvs = options.venvs or options.scratch.resolve().parent / "venvs"
    try:
        say = lambda text: print(f"mpi4py: {text}", flush=True)  # noqa: E731
        home = mpis.install("mpich", venvs, for_python=True, say=say)
        suite.mpi = mpis.Mpi("mpich", home, "mpich")
        suite.version, suite.tests = source(suite)
    except (mpis.Unavailable, Skip) as reason:
        print(f"mpi4py: skipped: {reason}")
        return 77
    suite.outcomes = {}
    for ranks in options.ranks or (range(1, 5) if suite.full else (2,)):
        suite.case(f"{ranks} ranks", compare, suite, ranks)
    status = suite.main()
    if options.write:
        options.write.write_text(markdown(suite), encoding="utf-8")
        print(f"mpi4py: {options.write} written")
    return status


def add_options(parser):
    parser.set_defaults(scratch=SOURCE_ROOT / "build" / "mpi")
    parser.add_argument("--provider-path", type=Path, help="folder of libheddle-fi.so")
    parser.add_argument("--venvs", type=Path, help="virtual environments (default: SCRATCH/../venvs)")
    parser.add_argument("--ranks", action="append", type=int, metavar="N", help="repeatable")
    parser.add_argument(
        "--provider",
        action="append",
        help=f"only over this (repeatable; default: {' and '.join(PROVIDERS)})",
    )
    parser.add_argument(
        "--include", metavar="REGEX", default="test_", help="only test files whose name matches"
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="write a list as Markdown")


def source(suite):
    """(version, folder of tests) of the mpi4py that is installed; fetched once."""
    shown = subprocess.run(
        [suite.mpi.python, "-c", "import mpi4py; print(mpi4py.__version__)"],
        capture_output=True, text=True, check=False,
    )
    version = shown.stdout.strip()
    if not version:
        raise Skip(f"{suite.mpi.home} has no mpi4py: {shown.stderr.strip()[-200:]}")
    known = mpis.requirements("mpi4py-source")[1]
    if f"mpi4py=={version}" not in known:
        raise Skip(f"mpi4py {version} is installed, and the hash of {' '.join(known)} is known")
    folder = suite.scratch("mpi4py").resolve()
    tests = folder / f"mpi4py-{version}" / "test"
    if tests.is_dir():
        return version, tests
    log = folder / "fetch.log"
    print(f"mpi4py: fetching the source of mpi4py {version}", flush=True)
    pip = mpis.pip_arguments(suite.mpi.python, "download", "mpi4py-source")
    try:
        mpis.run_quietly(
            [*pip, "--no-deps", "--no-binary", "mpi4py", "-d", folder], log, 900
        )
    except (OSError, subprocess.SubprocessError) as reason:
        raise Skip(f"the source of mpi4py {version} cannot be had, see {log}") from reason
    shutil.unpack_archive(folder / f"mpi4py-{version}.tar.gz", folder)
    return version, tests


def compare(suite, ranks):
    outcomes = {}
    for provider in suite.options.provider or PROVIDERS:
        outcomes[provider] = suite.outcomes[provider, ranks] = run_suite(suite, provider, ranks)
    heddle, tcp = outcomes.get("heddle"), outcomes.get("tcp")
    note = "; ".join(
        f"{name}: {each.ran} tests, {len(each.failed)} fail, {each.seconds:.0f} s"
        for name, each in outcomes.items()
    )
    if not heddle or not tcp:
        listed = [f"{name}: {how}" for each in outcomes.values() for name, how in each.failed.items()]
        return "\n".join([note, *listed])
    ours = {name: how for name, how in heddle.failed.items() if name not in tcp.failed}
    if ours:
        raise Failure(
            f"{note}; over heddle alone:\n"
            + "\n".join(f"    {name}: {how}" for name, how in sorted(ours.items()))
        )
    return note


# Running


def run_suite(suite, provider, ranks):
    """All test files; starts again behind what hangs or ends the job."""
    outcome, begin = Outcome(), time.monotonic()
    left = sorted(
        path.stem for path in suite.tests.glob("test_*.py") if re.search(suite.options.include, path.stem)
    )
    excluded = []
    for _ in range(MOST_RESTARTS):
        if not left:
            break
        texts, ended, code = run_once(suite, provider, ranks, left, excluded)
        for text in texts:
            for how, test, where in FAILED.findall(text):
                outcome.failed.setdefault(full_name(test, where), "failed")
        finished = all(re.search(r"^Ran \d+ tests? in", text, re.M) for text in texts)
        started = STARTED.findall(texts[0])
        outcome.ran += len(started)
        if ended and finished:
            break
        if not started:
            outcome.failed[f"{left[0]} (start)"] = "hangs" if not ended else f"exit code {code}"
            left = left[1:]
            continue
        test, module, where = started[-1]
        name = full_name(test, f"{module}.{where}")
        outcome.failed[name] = "hangs" if not ended else "ends the job"
        outcome.ran -= sum(1 for each in started if each[1] == module)  # they run again
        excluded.append(name)
        left = [each for each in left if each >= module]
    outcome.seconds = time.monotonic() - begin
    return outcome


def full_name(test, where):
    """"module.Class.test", of unittest's "test (module.Class.test)", or of "test (module.Class)"."""
    return where if where.endswith("." + test) else f"{where}.{test}"


def run_once(suite, provider, ranks, modules, excluded):
    """(the ranks' texts, whether the job ended by itself, its exit code)."""
    folder = suite.scratch("mpi4py") / "output"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    path = suite.options.provider_path if provider == "heddle" else None
    environment = suite.mpi.environment(provider, provider_path=path)
    environment[jobs.MARKER] = marker = uuid.uuid4().hex
    launcher = suite.mpi.mpiexec(ranks)
    patterns = ["-errfile-pattern", folder / "rank.%r"]
    argv = [*launcher[:1], *patterns, *launcher[1:], suite.mpi.python, suite.tests / "main.py", "-v"]
    argv += ["--no-builddir", "-i", "^(" + "|".join(modules) + r")\.py$"]
    for name in (*MPICH_FAILS, *excluded):
        argv += ["-x", name]
    job = suite.start(argv, environment=environment, directory=suite.tests.parent, title="mpiexec")
    files = [folder / f"rank.{rank}" for rank in range(ranks)]
    size, since = 0, time.monotonic()
    try:
        while not job.wait(1):
            now = sum(file.stat().st_size for file in files if file.exists())
            if now != size:
                size, since = now, time.monotonic()
            if time.monotonic() - since > suite.scaled(SILENCE):
                break
        ended = job.code is not None
    finally:
        jobs.end(job, marker)
    texts = [file.read_text(errors="replace") if file.exists() else "" for file in files]
    return texts, ended, job.code


# The list


def markdown(suite):
    names = [each for each in PROVIDERS if any(key[0] == each for key in suite.outcomes)]
    lines = [
        "# mpi4py's tests over heddle",
        "",
        f"mpi4py {suite.version} on PyPI's MPICH ({mpis.REQUIREMENTS['mpich'][0].partition('==')[2]}), over"
        " heddle on the software HCA and over libfabric's",
        "tcp provider; MPICH's own shared memory off. Written by `tests/mpi/run_mpi4py.py --full",
        "--write docs/reference/mpi4py.md`.",
        "",
        "| ranks | " + " | ".join(f"{name}: tests | fail" for name in names) + " | over heddle alone |",
        "|---" * (2 * len(names) + 2) + "|",
    ]
    tests = {}
    for ranks in sorted({key[1] for key in suite.outcomes}):
        cells, alone = [], None
        for name in names:
            outcome = suite.outcomes.get((name, ranks))
            cells += [str(outcome.ran), str(len(outcome.failed))] if outcome else ["-", "-"]
            for test, how in (outcome.failed if outcome else {}).items():
                tests.setdefault(test, {}).setdefault(name, {})[ranks] = how
        if (pair := [suite.outcomes.get((name, ranks)) for name in PROVIDERS]) and all(pair):
            alone = len(set(pair[0].failed) - set(pair[1].failed))
        lines.append(f"| {ranks} | " + " | ".join(cells) + f" | {'-' if alone is None else alone} |")
    lines += ["", "Not run:", ""]
    for pattern, why in MPICH_FAILS.items():
        lines += textwrap.wrap(f"- `{pattern}`: {why}.", 100, subsequent_indent="  ")
    lines += ["", "What fails, and at how many ranks:", ""]
    lines += ["| test | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for test in sorted(tests):
        cells = []
        for name in names:
            by_how = {}
            for ranks, how in sorted(tests[test].get(name, {}).items()):
                by_how.setdefault(how, []).append(str(ranks))
            cells.append("; ".join(f"{how} at {', '.join(r)}" for how, r in by_how.items()) or "passes")
        lines.append(f"| {test} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
