#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""UCX's own tests (its gtest) over rc_verbs, rc_mlx5, dc_mlx5, ud_verbs and ud_mlx5 on softhca.

A case is a family of gtest's suites over one transport, on an InfiniBand or on an Ethernet port (RoCE).
UCX skips what a transport cannot do; such tests are counted. ucx_gtest_skips.txt says which tests
are left out here and why. If a test ends gtest or hangs, that test fails and the others of its case
run in another process. ucx_gtest.py builds UCX from --source.
"""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import ucx_gtest
from fabtests import NOTHING_TO_DO
from harness import Failure, Mode, Skip, Suite
from ucx_gtest import Outcome

SKIPS = Path(__file__).resolve().parent / "ucx_gtest_skips.txt"
PORTS = ("infiniband", "roce")
# By the first part of a suite's name: UCT's are transports, UCP's are lists of transports.
TRANSPORTS = {
    "rc_verbs": ("rc_verbs", "rc", "rcv"),
    "rc_mlx5": ("rc_mlx5", "rcx"),
    "dc_mlx5": ("dc_mlx5", "dcx"),
    "ud_verbs": ("ud_verbs", "ud"),
    "ud_mlx5": ("ud_mlx5", "udx"),
    "any": ("ib", "shm_ib", "dc_ud", "dcudx", "rc_no_ud", "rc_ud"),
}
# A case is a family of suites, found by the second part of a suite's name; the first that matches.
FAMILIES = {
    "uct atomics": "uct_amo|uct_atomic",
    "uct active messages": "uct_p2p_am|test_many2one",
    "uct put and get": "uct_p2p_(rma|mix)|test_p2p_rma|test_zcopy",
    "uct tag matching": "test_tag",
    "uct failures": "uct_p2p_err|test_uct_peer_failure|test_uct_ep_check|test_.*keepalive",
    "uct verbs": "test_(uct_ib|rc|dc|ud|devx|cqe|md|ib)|uct_qp|uct_p2p_test_event|test_uct_event_ib",
    "uct others": "uct_|test_uct",
    "ucp active messages": "test_ucp_am",
    "ucp tags": "test_ucp_tag",
    "ucp put, get, atomics": "test_ucp_(rma|atomic|fence|mmap|rkey)",
    "ucp streams": "test_ucp_stream",
    "ucp connections": "test_ucp_(wireup|ep|worker|address)|test_proto_reset",
    "ucp rdma_cm": "test_ucp_sockaddr",
    "ucp failures": "test_ucp_(peer_failure|fault)",
    "ucp performance": "test_ucp_(perf|loopback)",
    "ucp others": "",
}
# The tests of the short set, by their names behind the first "/": a second or less each.
SHORT = re.compile(
    r"uct_p2p_am_test\.am_(bcopy|zcopy|async)/.*|uct_p2p_rma_test\.(put|get)_(short|bcopy)/.*"
    r"|uct_flush_test\..*|test_uct_pending\.(pending_op|pending_purge|send_ooo.*)/.*"
    r"|uct_amo_add_xor_test\..*|test_ucp_tag_match\..*/0|test_ucp_stream\.send_recv_(8|iov)/0"
)
SHORT_SET = "a short set"
WORDS = {"passed": "passed", "failed": "failed", "skipped": "skipped by UCX"}
# UCX's watchdog ends gtest if a test takes longer. Each wait within a test has three quarters of it.
SECONDS_A_TEST = 240
INTERRUPTIONS = 8  # tests that end gtest, in one case
ENVIRONMENT = {"UCX_HANDLE_ERRORS": "bt", "UCX_LOG_LEVEL": "warn", "UCX_WARN_UNUSED_ENV_VARS": "n"}


def main():
    suite = Suite("ucx_gtest", __doc__.partition("\n\n")[0], add_options=ucx_gtest.add_options)
    suite.options.scratch = suite.options.scratch.resolve()
    try:
        suite.folder = ucx_gtest.build(suite.options)
    except (OSError, subprocess.SubprocessError, Skip) as reason:
        print(f"ucx_gtest: skipped: {reason}")
        return NOTHING_TO_DO
    suite.gtest = ucx_gtest.program(suite.folder)
    suite.totals = {}
    try:
        add_cases(suite)
    except Failure as reason:
        print(f"ucx_gtest: gtest does not list its tests: {reason}")
        return 1
    finally:
        suite.end_programs()
    code = suite.main()
    for (transport, port), counts in suite.totals.items():
        text = ", ".join(f"{count} {what}" for what, count in counts.items())
        print(f"ucx_gtest: tests of {transport} on {port}: {text}")
    return code


def add_cases(suite):
    left_out = read_skips(ucx_gtest.version_built(suite.folder))
    for port in PORTS:
        cases = {}
        for name, tests in all_tests(suite, port).items():
            prefix, _, kind = name.partition("/")
            for transport, prefixes in TRANSPORTS.items():
                if prefix not in prefixes:
                    continue
                what, chosen = selection(suite, port, kind, tests)
                if chosen:
                    cases.setdefault((transport, what), []).extend(chosen)
        for (transport, what), tests in sorted(cases.items(), key=order):
            name = f"{port}: {transport}: {what}"
            suite.case(name, run_family, suite, (transport, port), tests, left_out)


def selection(suite, port, kind, tests):
    """The case to which a suite belongs, and the suite's tests that the options choose."""
    what = next(what for what, pattern in FAMILIES.items() if re.match(pattern, kind))
    # UCP sees little of the port's kind: on Ethernet even the full set has only a part of it.
    if suite.full and (port == PORTS[0] or what.startswith("uct")):
        return what, tests
    return SHORT_SET, [test for test in tests if SHORT.fullmatch(test.partition("/")[2])]


def order(case):
    (transport, what), _ = case
    return [*TRANSPORTS].index(transport), [*FAMILIES, SHORT_SET].index(what)


def all_tests(suite, port):
    argv = [suite.gtest, "--gtest_list_tests"]
    program = suite.run(argv, seconds=60, mode=Mode(port=port), environment=ENVIRONMENT)
    return ucx_gtest.listed(program.output())


def read_skips(version):
    """Lines `VERSION | TEST | REASON` that count for `version` of UCX: [(compiled TEST, reason)]."""
    found = []
    for line in SKIPS.read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        fields = [part.strip() for part in line.split(" | ")]
        if len(fields) != 3 or not all(fields):
            raise SystemExit(f"{SKIPS.name}: not VERSION | TEST | REASON: {line}")
        if version >= tuple(map(int, fields[0].split("."))):
            found.append((re.compile(fields[1]), fields[2]))
    return found


def reason_to_leave_out(test, left_out):
    for pattern, reason in left_out:
        if pattern.fullmatch(test):
            return reason
    return None


def run_family(suite, where, tests, left_out):
    """Runs those tests of a family that are not left out; fails if one of them does."""
    counts = suite.totals.setdefault(where, Counter())
    reasons = {test: reason for test in tests if (reason := reason_to_leave_out(test, left_out))}
    counts["left out"] += len(reasons)
    chosen = [test for test in tests if test not in reasons]
    if not chosen:
        raise Skip("; ".join(sorted(set(reasons.values()))))
    outcome = run_tests(suite, where[1], chosen)
    for word in WORDS:
        counts[WORDS[word]] += len(getattr(outcome, word))
    text = outcome.counts() + (f", {len(reasons)} left out" if reasons else "")
    if outcome.failed:
        details = [f"  {name}\n" + indented(said) for name, said in outcome.failed.items()]
        raise Failure("\n".join([text, *details]))
    return text


def run_tests(suite, port, tests):
    """Runs the tests, in another process after each that ends gtest."""
    outcome = Outcome()
    waiting = list(tests)
    interruptions = 0
    while waiting:
        argv = [suite.gtest, "--gtest_filter=" + ":".join(waiting), "-t", str(SECONDS_A_TEST)]
        program = suite.start(argv, mode=Mode(port=port), environment=ENVIRONMENT, title="gtest")
        suite.finish([program], 60 + SECONDS_A_TEST * len(waiting))
        one = ucx_gtest.parse(program.output())
        outcome.add(one)
        if one.interrupted:
            outcome.failed[one.interrupted] = program.describe(30)
            interruptions += 1
        elif not one.failed:
            if program.code != 0:
                raise Failure(f"{outcome.counts()}; {program.state()}\n{program.describe()}")
            suite.refuse_device_errors([program])
        left = [test for test in waiting if test not in outcome.seen()]
        if left == waiting or interruptions > INTERRUPTIONS:
            raise Failure(f"{outcome.counts()}; {len(left)} did not run\n{program.describe()}")
        waiting = left
    return outcome


def indented(text, lines=20):
    shown = text.splitlines()
    if len(shown) > lines:
        shown = [*shown[: lines // 2], "...", *shown[-lines // 2 :]]
    return "\n".join(f"    | {line}" for line in shown)


if __name__ == "__main__":
    sys.exit(main())
