#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""libfabric's own functional tests, fabtests, on heddle and the software HCA.

Which tests there are, and with which arguments, is read from fabtests' own list (scripts/
runfabtests.sh: unit, functional and short; with --full also standard and threaded), and each is run as
a pair on this machine, with addresses exchanged out of band, since heddle's are not socket
addresses. fi_ubertest runs the quick configurations of the shm and sockets providers, with the name
changed. fabtests_excluded.txt names what does not apply and why; a test that says it does not apply,
and is not named there, fails. tests/third_party/fabtests.py builds libfabric and fabtests.
"""

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "third_party"))
import fabtests  # noqa: E402
from fabtests import NEGATIVE, NOTHING_TO_DO, judge  # noqa: E402
from harness import Failure, Skip, Suite  # noqa: E402

HERE = Path(__file__).resolve().parent
HOST = "127.0.0.1"
# Not in fabtests' list, but they apply.
MORE = (
    "fi_rdm_bw -I 50",
    "fi_rma_pingpong -e rdm -o write -I 5",
    "fi_rma_pingpong -e rdm -o writedata -I 5",
    "fi_rdm_multi_domain -c 2 -V",
    "fi_rma_tx_completion",
)
# What those who use memory regions must agree to, as the verbs provider's configurations say it, and
# whose quick configurations fi_ubertest runs: 106 tests, and with --full 458 more.
MR_MODE = ("FI_MR_LOCAL", "FI_MR_VIRT_ADDR", "FI_MR_ALLOCATED", "FI_MR_PROV_KEY")
QUICK_CONFIGURATIONS = ("sockets", "shm")


def main():
    suite = Suite("fabtests", __doc__.partition("\n\n")[0], add_options=add_options)
    options = suite.options
    options.provider_path = options.provider_path or options.softhca.resolve().parent.parent / "lib"
    if options.provider == "heddle" and not list(options.provider_path.glob("*heddle-fi.so")):
        print(f"fabtests: no libheddle-fi.so in {options.provider_path}; build it first")
        return 2
    options.scratch = options.scratch.resolve()
    try:
        suite.prefix = fabtests.build(options)
    except (OSError, subprocess.SubprocessError, Skip) as reason:
        print(f"fabtests: skipped: {reason}")
        return NOTHING_TO_DO
    suite.excluded = exclusions()
    lists = fabtests.test_lists(suite.prefix)
    suite.case("fi_info", fi_info, suite)
    for text in lists["unit_tests"]:
        suite.case(text, unit, suite, text)
    text = f"fi_rdm {NEGATIVE}"
    suite.case(text, unit, suite, text, errno.ENODATA)
    pairs = [*lists["functional_tests"], *lists["short_tests"], *MORE]
    if suite.full:
        pairs += [*lists["standard_tests"], *lists["threaded_tests"]]
    for text in pairs:
        suite.case(text, pair, suite, text)
    suite.case("fi_pingpong", fi_pingpong, suite)
    for name in QUICK_CONFIGURATIONS[: 2 if suite.full else 1]:
        suite.case(f"fi_ubertest quick {name}", ubertest, suite, name)
    return suite.main()


def add_options(parser):
    fabtests.add_options(parser)
    parser.add_argument("--provider", default="heddle", help="or tcp, as a baseline")
    parser.add_argument("--provider-path", type=Path, help="folder of libheddle-fi.so")


# The lists


def exclusions():
    """Lines `PATTERN  # reason`: [(compiled pattern, reason)]."""
    found = []
    for line in (HERE / "fabtests_excluded.txt").read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        pattern, _, reason = line.partition("  # ")
        if not reason.strip():
            raise SystemExit(f"fabtests_excluded.txt: no reason for {pattern}")
        found.append((re.compile(pattern.strip()), reason.strip()))
    return found


def refuse_excluded(suite, text):
    for pattern, reason in suite.excluded:
        if pattern.search(text):
            raise Skip(reason)


# Running


def environment(suite, **extra):
    options = suite.options
    chosen = {
        "FI_PROVIDER": options.provider,
        "LD_LIBRARY_PATH": str(suite.prefix / "lib"),
        **extra,
    }
    if options.provider == "heddle":
        chosen["FI_PROVIDER_PATH"] = str(options.provider_path.resolve())
    return chosen


def unit(suite, text, expected=0):
    refuse_excluded(suite, text)
    argv = fabtests.command(suite.prefix, text, HOST)
    negative = expected != 0
    argv += [] if negative else ["-p", suite.options.provider]
    extra = {"FI_PROVIDER": ""} if negative else {}
    program = suite.start(argv, environment=environment(suite, **extra))
    suite.finish([program], 120)
    judge(suite, [program], expected)
    return fabtests.unit_count(program)


def fewer(text):
    """Threads of both sides that spin, more than there are processors: every message that is
    answered takes a turn of all of them."""
    threads = re.match(r"fi_rdm_bw_mt -n (\d+)", text)
    return ["-I", 20] if threads and 2 * int(threads[1]) > os.cpu_count() else []


def pair(suite, text):
    refuse_excluded(suite, text)
    port = suite.free_port()
    argv = [*fabtests.command(suite.prefix, text, HOST), *fewer(text), "-p", suite.options.provider, f"-E={port}"]
    run_both(suite, argv, [*argv, HOST], port, 300 if suite.full else 120)


def run_both(suite, server_argv, client_argv, port, seconds, **extra):
    server = suite.start(server_argv, environment=environment(suite, **extra), title="server")
    suite.wait_listening_or_end(server, port)
    both = [server]
    if server.code is None:
        both.append(
            suite.start(client_argv, environment=environment(suite, **extra), title="client")
        )
    suite.finish(both, seconds)
    judge(suite, both)
    return both


def fi_pingpong(suite):
    refuse_excluded(suite, "fi_pingpong")
    port = suite.free_port()
    argv = [suite.prefix / "bin" / "fi_pingpong", "-p", suite.options.provider, "-e", "rdm", "-v"]
    run_both(suite, [*argv, "-B", port], [*argv, "-P", port, HOST], port, 120)


def ubertest(suite, name):
    refuse_excluded(suite, f"fi_ubertest quick {name}")
    configuration = suite.scratch("ubertest") / f"{name}.test"
    share = suite.prefix / "share" / "fabtests" / "test_configs"
    configuration.write_text(for_us((share / name / "quick.test").read_text(), name, suite.options))
    shim = suite.scratch("ubertest") / "without_node.so"
    suite.run_plain(["cc", "-shared", "-fPIC", "-O1", "-o", shim, HERE / "without_node.c"])
    preload = {"LD_PRELOAD": str(shim)} if suite.options.provider == "heddle" else {}
    port, control = suite.free_port(), suite.free_port()
    program = suite.prefix / "bin" / "fi_ubertest"
    common = ["-q", control, f"-E={port}"]
    both = run_both(
        suite,
        [program, "-x", *common],
        [program, "-u", configuration, *common, HOST],
        control,
        3600 if suite.full else 600,
        FI_LOG_LEVEL="error",
        **preload,
    )
    return fabtests.ubertest_counts(both)


def for_us(text, name, options):
    """A configuration of another provider for ours. What we do not have is left out: connected and
    datagram endpoints, a wait object, and counters with RMA and atomics, as fi_ubertest then counts
    at the target (FI_RMA_EVENT). Sets that were two for their mr_mode alone are one."""
    text = text.replace(f"prov_name: {name}", f"prov_name: {options.provider}")
    sets = re.findall(r"^\{.*?^\}", text, re.M | re.S)
    kept = []
    for one in sets:
        if "FI_EP_RDM" not in one:
            continue
        one = re.sub(r"\s*FI_EP_(MSG|DGRAM),?", "", one)
        one = re.sub(r"\s*FI_WAIT_MUTEX_COND,?", "", one)
        if options.provider == "heddle":
            one = re.sub(r"\s*mr_mode:\s*\[[^\]]*\],?", "", one)
            one = one.replace("\n", f"\n\tmr_mode: [ {', '.join(MR_MODE)} ],\n", 1)
            if re.search(r"FT_CAP_(RMA|ATOMIC)", one):
                one = re.sub(r"\s*FT_COMP_CNTR,?", "", one)
        if one not in kept:
            kept.append(one)
    return ",\n".join(kept) + "\n"


def fi_info(suite):
    argv = [suite.prefix / "bin" / "fi_info", "-p", suite.options.provider, "-v"]
    program = suite.start(argv, environment=environment(suite))
    suite.finish([program], 60)
    judge(suite, [program])
    if f"prov_name: {suite.options.provider}" not in program.output():
        raise Failure(f"says nothing of {suite.options.provider}\n{program.describe()}")
    return f"{program.output().count('fi_info:')} offers"


if __name__ == "__main__":
    sys.exit(main())
