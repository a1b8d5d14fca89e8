#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""rdma-core's own Python tests on softhca, with Debian's python3-pyverbs.

The tests come with Debian's rdma-core package as documentation; they are unpacked into a scratch
folder and run unmodified. Each that skips must do so for a reason that pyverbs_skips.txt explains by
a capability which the device lacks. None may fail, except where newer tests take such a lack for a
failure, which that file explains, too.
"""

import gzip
import re
import shutil
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from harness import DEVICE, EVERY_MODE, Failure, Mode, Suite

HERE = Path(__file__).resolve().parent
INSTALLED = Path("/usr/share/doc/rdma-core/tests")
SKIPS = HERE / "pyverbs_skips.txt"
BEGIN = "<!-- pyverbs skips: written by tests/third_party/run_pyverbs.py --write-docs -->"
END = "<!-- end of pyverbs skips -->"
SECONDS = 240
ALL_MODES = (*EVERY_MODE, Mode(port="roce"))


@dataclass(frozen=True)
class AllowedSkip:
    tests: re.Pattern
    reason: re.Pattern
    capability: str
    mode: str = ""


@dataclass
class Outcome:
    """What a run of the tests came to; names are module.Class.method."""

    passed: list = field(default_factory=list)
    failed: dict = field(default_factory=dict)  # name -> last line of its traceback
    skipped: dict = field(default_factory=dict)  # name -> reason


def main():
    suite = Suite("pyverbs", __doc__.partition("\n\n")[0], add_options=add_options)
    if suite.rdma_core and not suite.options.tests:
        suite.options.tests = suite.rdma_core.tests
    runs = add(suite, ALL_MODES if suite.full else (Mode(), Mode(uar="static", memory="cma")))
    code = suite.main()
    if suite.options.write_docs and runs:
        write_table(suite.options.write_docs, table(runs[0], read_allowed(SKIPS)))
    return code


def add(suite, modes):
    """A case for each mode. Returns the list that gets their outcomes."""
    allowed = read_allowed(SKIPS)
    runs = []
    for mode in modes:
        suite.case(f"pyverbs tests, {mode}", run_tests, suite, allowed, mode, runs)
    return runs


def add_options(parser, min_passed=160):
    parser.add_argument("--tests", type=Path, help="folder of the tests, instead of Debian's")
    parser.add_argument("--select", action="append", default=[], metavar="TEST",
                        help="only this test, for instance test_cq.CQTest.test_resize_cq")
    parser.add_argument("--min-passed", type=int, default=min_passed, help="fewest tests that must pass")
    parser.add_argument("--write-docs", type=Path, metavar="FILE",
                        help="put the table of skips into FILE, or print it when FILE is -")


def read_allowed(path):
    allowed = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = [part.strip() for part in line.split(" | ")]
        if len(fields) not in (3, 4):
            raise SystemExit(f"{path}:{number}: expected three or four fields separated by ' | '")
        tests, reason, *rest = fields
        allowed.append(AllowedSkip(re.compile(tests), re.compile(reason), *rest))
    return allowed


def find_allowed(allowed, name, reason, mode):
    for line in allowed:
        of_mode = line.mode in str(mode).split("/") if line.mode else True
        if of_mode and line.tests.fullmatch(name) and line.reason.fullmatch(reason):
            return line
    return None


def unpack(suite):
    """Debian compresses the larger files; some images are installed without documentation."""
    source = suite.options.tests or INSTALLED
    target = suite.scratch("pyverbs") / "tests"
    if not source.is_dir():
        if suite.options.tests:
            raise Failure(f"no folder {source}")
        source = download(suite)
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for file in source.iterdir():
        if file.name.endswith(".py.gz"):
            (target / file.name[:-3]).write_bytes(gzip.decompress(file.read_bytes()))
        elif file.suffix == ".py":
            shutil.copyfile(file, target / file.name)
    if not (target / "run_tests.py").exists():
        raise Failure(f"no run_tests.py in {source}")
    return target


def download(suite):
    folder = suite.scratch("pyverbs")
    unpacked = folder / "rdma-core"
    tests = unpacked / INSTALLED.relative_to("/")
    if not tests.is_dir():
        suite.run_plain(["apt-get", "download", "rdma-core"], directory=folder, seconds=120)
        package = max(folder.glob("rdma-core_*.deb"), key=lambda file: file.stat().st_mtime)
        suite.run_plain(["dpkg-deb", "-x", package, unpacked])
    return tests


# The tests draw sizes at random, and not each of these can be used: test_dm_write fails with one in
# some thousands. These are the same in each run.
SEEDED = """
import os, random, runpy, sys
random.seed(5)
del sys.argv[0]
runpy.run_path(os.path.abspath(sys.argv[0]), run_name="__main__")
"""


def run_tests(suite, allowed, mode, runs):
    folder = unpack(suite)
    argv = ["/usr/bin/python3", "-c", SEEDED, "run_tests.py", "--dev", DEVICE, "-v"]
    argv += [name if name.startswith("tests.") else f"tests.{name}" for name in suite.options.select]
    program = suite.start(argv, mode=mode, directory=folder,
                          environment={"PYTHONDONTWRITEBYTECODE": "1"}, title="pyverbs")
    suite.finish([program], SECONDS)
    text = program.output()
    (suite.scratch("pyverbs") / f"{str(mode).replace('/', '-')}.log").write_text(text)
    if program.timed_out or "\nRan " not in text:
        raise Failure(f"the tests did not come to an end\n{program.describe()}")
    outcome = parse(text)
    check_complete(outcome, text)
    summary = f"{len(outcome.passed)} passed, {len(outcome.skipped)} skipped"
    unexpected = [
        f"    {name}: {reason}"
        for name, reason in sorted(outcome.skipped.items())
        if not find_allowed(allowed, name, reason, mode)
    ]
    wrong = [
        name
        for name, reason in outcome.failed.items()
        if not find_allowed(allowed, name, f"error: {reason}", mode)
    ]
    complaints = []
    if unexpected:
        complaints.append(f"    skips that {SKIPS.name} does not allow:\n" + "\n".join(unexpected))
    if outcome.failed:
        summary += f", {len(outcome.failed)} failed ({len(outcome.failed) - len(wrong)} of them expected)"
    if wrong:
        complaints.append(failures(text))
    if complaints:
        raise Failure("\n".join([summary, *complaints]))
    if program.code != 0 and not outcome.failed:
        raise Failure(f"{summary}\n{program.describe()}")
    if not suite.options.select and len(outcome.passed) < suite.options.min_passed:
        raise Failure(f"{summary}; at least {suite.options.min_passed} must pass")
    suite.refuse_device_errors([program])
    runs.append(outcome)
    return summary


def parse(text):
    """Reads unittest's verbose output, in which the tests' own output may be mixed."""
    end = text.rfind("\n" + "-" * 70 + "\nRan ")
    reports = text.find("\n" + "=" * 70 + "\n")
    if 0 <= reports < end:
        end = reports
    outcome = Outcome()
    heads = list(re.finditer(r"^\w+ \(tests\.([\w.]+)\)", text[:end], re.MULTILINE))
    for head, following in zip(heads, [*heads[1:], None]):
        chunk = text[head.end() : following.start() if following else end]
        results = re.findall(r"(?:^|\s)(ok|FAIL|ERROR|skipped (['\"]).*\2)$", chunk, re.MULTILINE)
        name, result = head[1], results[-1][0] if results else "none"
        if result == "ok":
            outcome.passed.append(name)
        elif result.startswith("skipped"):
            reason = result[len("skipped ") + 1 : -1]
            outcome.skipped[name] = reason.replace("\\'", "'").replace('\\"', '"')
        else:
            outcome.failed[name] = last_line(text, name)
    return outcome


def last_line(text, name):
    """The exception of a test that failed."""
    report = re.search(rf"^(?:ERROR|FAIL): \w+ \(tests\.{re.escape(name)}\)$(.*?)^(?:={{70}}|-{{70}}\nRan )",
                       text, re.MULTILINE | re.DOTALL)
    lines = report[1].strip().splitlines() if report else []
    return lines[-1] if lines else ""


def check_complete(outcome, text):
    """unittest's own totals must be ours: a result that we did not understand is not lost."""
    count = int(re.findall(r"^Ran (\d+) tests? in", text, re.MULTILINE)[-1])
    tail = text[text.rfind("\nRan ") :]
    totals = {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", tail)}
    seen = len(outcome.passed) + len(outcome.failed) + len(outcome.skipped)
    failed = totals.get("failures", 0) + totals.get("errors", 0)
    if (seen, len(outcome.failed), len(outcome.skipped)) != (count, failed, totals.get("skipped", 0)):
        raise Failure(
            f"unittest counts {count} tests, {failed} failed, {totals.get('skipped', 0)} skipped; "
            f"the output shows {seen}, {len(outcome.failed)}, {len(outcome.skipped)}\n{tail}"
        )


def failures(text):
    """The tracebacks, which unittest prints together after the last test."""
    begin = text.find("\n" + "=" * 70 + "\n")
    end = text.rfind("\n" + "-" * 70 + "\nRan ")
    return "\n".join("    | " + line for line in text[begin:end].strip().splitlines())


def table(outcome, allowed):
    """The documentation's table: each capability that is lacking and how many tests need it."""
    counts = Counter()
    reasons = {}
    for name, reason in outcome.skipped.items():
        capability = find_allowed(allowed, name, reason, Mode()).capability
        counts[capability] += 1
        reasons.setdefault(capability, set()).add(re.sub(r"/\S+|\S+_0\b", "...", reason))
    lines = [
        f"rdma-core has {len(outcome.passed) + len(outcome.skipped)} pyverbs tests: "
        f"{len(outcome.passed)} pass, none fails, {len(outcome.skipped)} skip.",
        "",
        "| What is lacking | Tests | The reason they give |",
        "|---|---:|---|",
    ]
    for capability, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        text = "; ".join(sorted(reasons[capability])).replace("|", "\\|")
        lines.append(f"| {capability} | {count} | {text} |")
    return "\n".join(lines)


def write_table(path, text):
    block = f"{BEGIN}\n{text}\n{END}\n"
    if str(path) == "-":
        print(block, end="")
        return
    old = path.read_text(encoding="utf-8") if path.exists() else f"{BEGIN}\n{END}\n"
    begin, end = old.find(BEGIN), old.find(END)
    if begin < 0 or end < begin:
        raise SystemExit(f"{path}: no lines\n{BEGIN}\n{END}\nto put the table between")
    path.write_text(old[:begin] + block + old[end + len(END) + 1 :], encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
