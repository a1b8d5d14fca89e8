#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""libfabric's functional tests, fabtests, over its verbs provider on softhca's Ethernet port (RoCE).

The providers are `verbs` (connected endpoints), `verbs;ofi_rxm` and `verbs;ofi_rxd` (reliable
datagrams over connections, and over UD). The tests and their arguments are those of fabtests' own
list (scripts/runfabtests.sh): the sets unit, functional and short. With --full the sets regression,
standard, multinode and threaded follow, and fi_ubertest with libfabric's configurations.

Left out is what libfabric's exclude list of the provider names, and what fabtests_skips.txt names
with a reason. A test that says it does not apply, and is in neither list, fails. fabtests.py builds
libfabric and fabtests.
"""

import errno
import os
import re
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import fabtests
from fabtests import NEGATIVE, NOTHING_TO_DO
from harness import Failure, Mode, Skip, Suite, is_listening
from run_libfabric import address_of

SKIPS = Path(__file__).resolve().parent / "fabtests_skips.txt"
MODE = Mode(port="roce")
OUT_OF_BAND_PORT = 3000  # default_oob_port of fabtests: tests that meet over TCP first have no option
# With -s, fabtests' client first asks for its source address (common/shared.c, getaddr()). That
# request has cq_data_size of -o writedata, and not yet the mode FI_RX_CQ_DATA, without which verbs
# has no endpoint for data with a completion (verbs_info.c, vrb_check_rx_attr()).
CLIENT_WITHOUT_SOURCE = re.compile("^fi_rma_bw -e msg -o writedata")
# In microseconds; 10000 is the default. rxm looks at its completion queue, then, once in this time, for
# events of connections. A process that loses its processor in between may find the peer's last message
# and its end together. It handles the end first and loses the message: vrb_ep_close() destroys the
# queue pair, whose completions libmlx5 then discards, before it looks at the completion queue.
CONNECTION_INTERVAL = {"FI_OFI_RXM_CM_PROGRESS_INTERVAL": "500000"}
# PM_DEFAULT_OOB_PORT of fabtests, in the order of bytes in which its harness.c uses it.
MULTINODE_PORT = socket.htons(8228)
NODES = 3  # processes of a multinode test, as in runfabtests.sh


@dataclass(frozen=True)
class Provider:
    name: str
    excluded: str  # libfabric's exclude list, below test_configs
    configurations: tuple  # of fi_ubertest

    def connects(self):
        return not self.name.endswith("rxd")


PROVIDERS = (
    Provider("verbs", "verbs/verbs.exclude", ("verbs/quick.test", "verbs/all.test")),
    Provider("verbs;ofi_rxm", "ofi_rxm/ofi_rxm.exclude", ("ofi_rxm/verbs.test",)),
    Provider("verbs;ofi_rxd", "ofi_rxd/ofi_rxd.exclude", ("ofi_rxd/verbs.test",)),
)


def main():
    suite = Suite("fabtests", __doc__.partition("\n\n")[0], add_options=fabtests.add_options)
    options = suite.options
    options.scratch = options.scratch.resolve()
    try:
        suite.prefix = fabtests.build(options)
    except (OSError, subprocess.SubprocessError, Skip) as reason:
        print(f"fabtests: skipped: {reason}")
        return NOTHING_TO_DO
    suite.configurations = suite.prefix / "share" / "fabtests" / "test_configs"
    lists = fabtests.test_lists(suite.prefix)
    suite.case("address", find_address, suite)
    for provider in PROVIDERS:
        add_cases(suite, provider, lists)
    return suite.main()


def add_cases(suite, provider, lists):
    excluded = [*libfabrics_list(suite, provider), *our_list(provider)]

    def add(function, text, *arguments):
        def run():
            for pattern, reason in excluded:
                if pattern.search(text):
                    raise Skip(reason)
            return function(suite, provider, text, *arguments)

        suite.case(f"{provider.name}: {text}", run)

    for text in lists["unit_tests"]:
        add(unit, text)
    for kind in ("dgram", "rdm", "msg"):
        add(unit, f"fi_{kind} {NEGATIVE}", errno.ENODATA)
    pairs = [*lists["functional_tests"], *lists["short_tests"]]
    if suite.full:
        for text in lists["regression_tests"]:
            add(unit, text)
        pairs += [*lists["standard_tests"], *lists["threaded_tests"]]
    for text in pairs:
        add(pair, text)
    if suite.full:
        for text in lists["multinode_tests"]:
            add(multinode, text)
        for name in provider.configurations:
            add(ubertest, f"fi_ubertest {name}", name)


# The lists


def libfabrics_list(suite, provider):
    """libfabric's exclude list of the provider: [(compiled pattern, reason)]."""
    found = []
    for line in (suite.configurations / provider.excluded).read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            found.append((re.compile(line.strip()), f"{provider.excluded}: {line.strip()}"))
    return found


def our_list(provider):
    """Lines `PROVIDER | TEST | REASON` that name the provider: [(compiled pattern, reason)]."""
    found = []
    for line in SKIPS.read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        fields = [field.strip() for field in line.split(" | ")]
        if len(fields) != 3 or not all(fields):
            raise SystemExit(f"{SKIPS.name}: not PROVIDER | TEST | REASON: {line}")
        if re.fullmatch(fields[0], provider.name):
            found.append((re.compile(fields[1]), fields[2]))
    return found


# Running


def find_address(suite):
    """One that rdma_cm and TCP both have: fi_ubertest and multinode tests use TCP, too."""
    program = suite.prefix / "bin" / "fi_info"
    suite.address = address_of(suite, MODE, program, libraries(suite))
    return suite.address


def libraries(suite):
    return {"LD_LIBRARY_PATH": str(suite.prefix / "lib")}


def start(suite, provider, argv, title, **extra):
    environment = {**libraries(suite), **CONNECTION_INTERVAL, **extra}
    return suite.start(argv, mode=MODE, environment=environment, title=title)


def the_address(suite):
    """Also if --only leaves out the case that finds it."""
    return getattr(suite, "address", None) or find_address(suite)


def unit(suite, provider, text, expected=0):
    argv = [*fabtests.command(suite.prefix, text, the_address(suite)), "-p", provider.name]
    program = start(suite, provider, argv, "program")
    suite.finish([program], 120)
    fabtests.judge(suite, [program], expected, SKIPS.name)
    return fabtests.unit_count(program)


def pair(suite, provider, text):
    address = the_address(suite)
    argv = [*fabtests.command(suite.prefix, text, address), *fewer(provider, text), "-p", provider.name]
    seconds = 600 if text.startswith("fi_rdm_bw_mt") else 300 if suite.full else 120
    source = [] if CLIENT_WITHOUT_SOURCE.match(text) else ["-s", address]
    run_group(suite, provider, [*argv, "-s", address], [[*argv, *source, address]], seconds)


def multinode(suite, provider, text):
    address = the_address(suite)
    argv = fabtests.command(suite.prefix, text, address)
    argv += ["-n", NODES, "-p", provider.name, "-s", address]
    run_group(suite, provider, argv, [argv] * (NODES - 1), 300, tcp=MULTINODE_PORT)


def ubertest(suite, provider, text, name):
    address, control = the_address(suite), suite.free_port()
    program = suite.prefix / "bin" / "fi_ubertest"
    argv = [program, "-q", control]
    client = [*argv, "-u", suite.configurations / name, address]
    both = run_group(suite, provider, [*argv, "-x"], [client], 7200, tcp=control)
    return fabtests.ubertest_counts(both)


def fewer(provider, text):
    """Each message of many threads that spin takes a turn of all of them on few processors."""
    found = re.match(r"fi_rdm_bw_mt -n (\d+)", text)
    threads, processors = 2 * int(found[1]) if found else 0, os.cpu_count()
    if not provider.connects() and threads > 8 * processors:
        # Its timers expire meanwhile, so it sends again and again.
        raise Skip(f"{threads} threads that spin and retransmit, on {processors} processors")
    return ["-I", 20] if threads > processors else []


def run_group(suite, provider, server_argv, client_argvs, seconds, tcp=None):
    """Runs a server, then its clients when it is ready, to the end of all."""
    if is_listening(OUT_OF_BAND_PORT):
        raise Failure(f"TCP port {OUT_OF_BAND_PORT} is taken: fabtests' processes meet there")
    extra = {}
    if not provider.connects():  # its name server, a TCP server
        extra["FI_VERBS_DGRAM_NAME_SERVER_PORT"] = str(suite.free_port())
    programs = [start(suite, provider, server_argv, "server", **extra)]
    if tcp:
        suite.wait_listening_or_end(programs[0], tcp)
    else:
        wait_ready(suite, provider, programs[0])
    if programs[0].code is None:
        for argv in client_argvs:
            programs.append(start(suite, provider, argv, "client", **extra))
    suite.finish(programs, seconds)
    fabtests.judge(suite, programs, excluded=SKIPS.name)
    return programs


def wait_ready(suite, provider, server, seconds=20):
    """Until a client may come: over TCP, to an id of rdma_cm that listens, or to a UD QP."""
    deadline = time.monotonic() + suite.scaled(seconds)
    while not server.wait(0.05) and not is_listening(OUT_OF_BAND_PORT):
        state = suite.stat() or {}
        if provider.connects():
            ready = any(one["state"] == "listening" for one in state.get("connections", ()))
        else:
            ready = any(one["state"] == "RTS" for one in state.get("qps", ()))
        if ready:
            time.sleep(0.05)  # its name is entered after its queue pair is made
            return
        if time.monotonic() > deadline:
            raise Failure(f"the server has no endpoint after {seconds} s\n{server.describe()}")


if __name__ == "__main__":
    sys.exit(main())
