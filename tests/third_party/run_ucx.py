#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""UCX on softhca: ucx_info names the transports, and ucx_perftest moves tagged messages, streams,
active messages, puts, gets and atomics over rc_verbs, ud_verbs, rc_mlx5, dc_mlx5 and ud_mlx5, as a whole
(UCP) and each transport alone (UCT). Two processes, which meet over TCP on 127.0.0.1.

ucx_perftest looks at no contents; run_mpich.py does, over the same transports.
"""

import functools
import math
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from harness import (
    DEVICE,
    ENGINES,
    MEMORY_MODES,
    UAR_BY_MEMORY,
    UAR_KERNELS,
    Failure,
    Mode,
    Skip,
    Suite,
)

TRANSPORTS = ("rc_verbs", "ud_verbs", "rc_mlx5", "dc_mlx5", "ud_mlx5")
CONNECTED = ("rc_verbs", "rc_mlx5", "dc_mlx5")
# UCP makes its connections over an unreliable transport; these are the lists that make sense.
LISTS = ("rc_verbs,ud_verbs", "ud_verbs", "rc_mlx5,ud_mlx5", "dc_mlx5,ud_mlx5", "ud_mlx5")

UCP_LATENCY = ("tag_lat", "tag_sync_lat", "ucp_put_lat", "ucp_get", "stream_lat", "ucp_am_lat")
UCP_BANDWIDTH = ("tag_bw", "tag_sync_bw", "ucp_put_bw", "stream_bw", "ucp_am_bw")
UCP_ATOMIC = ("ucp_add", "ucp_fadd", "ucp_swap", "ucp_cswap")
UCT_ATOMIC = {"add_lat": "atomic_add", "add_mr": "atomic_add", "fadd": "atomic_fadd",
              "swap": "atomic_swap", "cswap": "atomic_cswap"}
# What a transport must offer, whatever else it does.
CAPABILITIES = {
    "rc_verbs": {"put_short", "put_bcopy", "put_zcopy", "get_bcopy", "get_zcopy", "am_short",
                 "am_bcopy", "am_zcopy", "atomic_add", "atomic_fadd", "atomic_cswap"},
    "ud_verbs": {"am_short", "am_bcopy"},
}
CAPABILITIES["rc_mlx5"] = CAPABILITIES["dc_mlx5"] = CAPABILITIES["rc_verbs"]
CAPABILITIES["ud_mlx5"] = CAPABILITIES["ud_verbs"]

TROUBLE = re.compile(r"\b(ERROR|WARN|FATAL)\b|assert|failed|not supported|unable", re.IGNORECASE)
# A heading of ucx_info. UCX 1.18 has a domain that needs DEVX (gga_mlx5), and makes the key of its
# remote flush by DEVX alone (uct_ib_mlx5_devx_init_flush_mr), so that flushes after puts end with
# "Unsupported operation" on every device without DEVX.
HARMLESS = re.compile(
    rf"error handling:|< failed to open memory domain {DEVICE} >|: flush\(remote\) is not supported"
    r"|flush\.c:.*: error during flush: Unsupported operation"
)


@dataclass(frozen=True)
class Test:
    """One run of ucx_perftest: UCP over a list of transports, or UCT over one."""

    name: str
    transports: str
    size: int = 8
    iterations: int = 1000
    layout: str | None = None  # UCT alone: short, bcopy, zcopy

    def __str__(self):
        layout = f" {self.layout}" if self.layout else ""
        return f"{self.name}{layout} {self.size} B, {self.transports}"


def main():
    suite = Suite("ucx", __doc__.partition("\n\n")[0])
    offered = {}
    for uar in UAR_KERNELS:
        suite.case(f"ucx_info -d, {uar}", check_transports, suite, Mode(uar=uar), offered)
    for memory in MEMORY_MODES:
        suite.case(f"memory hooks, {memory}", run_memory_hooks, suite, Mode(memory=memory))
    for test, mode in full_matrix() if suite.full else short_set():
        suite.case(f"{test}, {mode}", run_pair, suite, test, mode, offered)
    return suite.main()


def short_set():
    # Few iterations where each waits for the one before: where more processes than processors poll,
    # each costs a turn of the scheduler.
    few = {"iterations": 150}
    tests = []
    for transports in LISTS:
        tests += [Test("tag_lat", transports, **few), Test("tag_bw", transports, 65536, 200)]
        tests += [Test("ucp_put_lat", transports, **few), Test("ucp_put_bw", transports, 4096, 500)]
        tests += [Test("ucp_get", transports, **few), Test("ucp_am_bw", transports, 1024, 500)]
        tests += [Test(name, transports, **few) for name in UCP_ATOMIC]
    tests += [Test("tag_bw", transports, 1 << 20, 50) for transports in LISTS if "rc" in transports or "dc" in transports]
    for transport in TRANSPORTS:
        tests += [Test("am_lat", transport, layout="short", **few),
                  Test("am_bw", transport, 2048, layout="bcopy")]
    for transport in CONNECTED:
        tests += [Test("put_lat", transport, layout="short", **few),
                  Test("put_bw", transport, 65536, 200, layout="zcopy"),
                  Test("get", transport, 65536, 200, layout="zcopy"),
                  Test("fadd", transport, **few)]
    return [(test, UAR_BY_MEMORY[(n + n // 4) % 4]) for n, test in enumerate(tests)]


def full_matrix():
    tests = []
    for transports in LISTS:
        for size, iterations in ((1, 2000), (8, 2000), (1000, 2000), (8192, 1000), (65536, 300)):
            tests += [Test(name, transports, size, iterations) for name in UCP_LATENCY]
        for size, iterations in ((8, 20000), (2048, 5000), (65536, 1000), (1 << 20, 100)):
            tests += [Test(name, transports, size, iterations) for name in UCP_BANDWIDTH]
        for size in (4, 8):
            tests += [Test(name, transports, size, 2000) for name in UCP_ATOMIC]
    for transport in TRANSPORTS:
        tests += [Test("am_lat", transport, 16, 2000, "short"),
                  Test("am_lat", transport, 1024, 2000, "bcopy"),
                  Test("am_bw", transport, 64, 20000, "short"),
                  Test("am_bw", transport, 2048, 5000, "bcopy"),
                  Test("am_bw", transport, 2048, 5000, "zcopy")]
    for transport in CONNECTED:
        for name in ("put_lat", "put_bw"):
            tests += [Test(name, transport, 64, 5000, "short"),
                      Test(name, transport, 4096, 2000, "bcopy"),
                      Test(name, transport, 1 << 20, 100, "zcopy")]
        tests += [Test("get", transport, 4096, 2000, "bcopy"),
                  Test("get", transport, 1 << 20, 100, "zcopy")]
        tests += [Test(name, transport, 8, 2000) for name in UCT_ATOMIC]
    for mode in UAR_BY_MEMORY:
        for test in tests:
            yield test, mode
    for engine in ENGINES[1:]:
        for memory in MEMORY_MODES:
            for test in tests:
                if test.size in (8, 16, 65536):
                    yield test, Mode(engine=engine, memory=memory)


def check_transports(suite, mode, offered):
    """Reads what each transport says it can do; run_pair wants only what is offered."""
    suite.need("ucx_info")
    program = suite.run(["ucx_info", "-d"], mode=mode)
    check_silence(program)
    sections = re.split(r"^#\s+Transport: ", program.output(), flags=re.MULTILINE)[1:]
    found = {}
    for section in sections:
        if re.search(rf"^#\s+Device: {DEVICE}:1\s*$", section, re.MULTILINE):
            fields = dict(re.findall(r"^#\s+(\w+):\s*(.*)$", section, re.MULTILINE))
            found[section.split()[0]] = fields
    for transport in TRANSPORTS:
        if transport not in found:
            raise Failure(f"no {transport} on {DEVICE}:1, only {', '.join(found) or 'nothing'}\n"
                          f"{program.describe()}")
        missing = CAPABILITIES[transport] - found[transport].keys()
        if missing:
            raise Failure(f"{transport} lacks {', '.join(sorted(missing))}\n{program.describe(80)}")
    offered.update(found)
    return ", ".join(sorted(found))


def run_memory_hooks(suite, mode):
    """UCX's registration cache hears of what a program does to its memory."""
    source = Path(__file__).resolve().parent / "memory_hooks.c"
    program = suite.scratch("ucx") / "memory_hooks"
    compiler = ["cc", "-std=gnu11", "-O2", "-Wall", "-o", program, source, "-libverbs", "-ldl"]
    suite.run_plain(compiler, seconds=120)
    return suite.run([program], mode=mode).output().splitlines()[-1]


def run_pair(suite, test, mode, offered):
    suite.need("ucx_perftest")
    port = suite.free_port()
    server = ["ucx_perftest", "-p", port]
    client = ["ucx_perftest", "127.0.0.1", "-p", port, "-f", "-t", test.name]
    client += ["-s", test.size, "-n", test.iterations, "-w", max(10, test.iterations // 10)]
    environment = {"UCX_NET_DEVICES": f"{DEVICE}:1", "UCX_WARN_UNUSED_ENV_VARS": "n"}
    if test.transports in TRANSPORTS and not test.name.startswith(("tag", "ucp", "stream")):
        uct = ["-x", test.transports, "-d", f"{DEVICE}:1"]
        server += uct  # UCX 1.18 wants it on both sides
        client += uct
        if test.layout:
            client += ["-D", test.layout]
        needed = UCT_ATOMIC.get(test.name) or (test.layout and capability(test))
        if needed and not offered:
            check_transports(suite, mode, offered)
        if needed and needed not in offered[test.transports]:
            raise Skip(f"{test.transports} has no {needed}")
        # Its mlx5 transports add 8 * (pid & 255) to the address, which is right for the key that they
        # make by DEVX, and send it with the region's own key (uct_ib_verbs_mkey_pack).
        if test.name in UCT_ATOMIC and test.transports in ("rc_mlx5", "dc_mlx5") and version() >= (1, 18):
            raise Skip("without DEVX, atomics of UCX 1.18 reach another address")
    else:
        environment["UCX_TLS"] = test.transports
    both = suite.pair(server, client, port=port, mode=mode, seconds=60,
                      environment=environment, stdin=terminal())
    for program in both:
        check_silence(program)
    return check_result(both[1], test)


@functools.cache
def version():
    said = subprocess.run(["ucx_info", "-v"], capture_output=True, text=True, check=True).stdout
    return tuple(map(int, re.search(r"ersion[:= ]*(\d+)\.(\d+)", said).groups()))


@functools.cache
def terminal():
    """Without one, a ucx_perftest that was built with MPI (Debian 13) wants two ranks of MPI."""
    return os.openpty()[1]


def capability(test):
    return f"{test.name.partition('_')[0]}_{test.layout}"


def check_silence(program):
    for line in program.output().splitlines():
        if TROUBLE.search(line) and not HARMLESS.search(line):
            raise Failure(f"the {program.title} reports: {line.strip()}\n{program.describe()}")


def check_result(program, test):
    """The line of totals: count, latencies (percentile, average, overall), bandwidths, rates."""
    for line in reversed(program.output().splitlines()):
        fields = line.replace("Final:", "").split()
        if len(fields) == 8 and all(re.fullmatch(r"[\d.]+|inf|-?nan", field) for field in fields):
            values = [float(field) for field in fields]
            break
    else:
        raise Failure(f"no line of totals\n{program.describe()}")
    if values[0] < test.iterations:
        raise Failure(f"{values[0]:g} operations of {test.iterations}\n{program.describe()}")
    # The columns "average" are of the time since the last line, in which there may be no message.
    overall = values[1], values[3], values[5], values[7]
    if not all(math.isfinite(value) for value in overall) or values[3] <= 0 or values[7] <= 0:
        raise Failure(f"results that cannot be\n{program.describe()}")
    if test.name.endswith("bw") or test.name == "add_mr":
        return f"{values[5]:g} MB/s, {values[7]:g} messages/s"
    return f"{values[3]:g} us"


if __name__ == "__main__":
    sys.exit(main())
