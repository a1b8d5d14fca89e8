#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""libfabric's own providers on softhca: fi_pingpong over verbs, which connects by rdma_cm, and over
ofi_rxm above it, on an InfiniBand port and on an Ethernet port, with Debian's libfabric. Two processes,
which meet over TCP; -c has them compare what arrives.
"""

import re
import sys

from harness import DEVICE, Failure, Mode, Skip, Suite
from program import describe

PORTS = ("infiniband", "roce")
SIZES = ("64", "1k", "64k", "1m")
# Provider, and type of endpoint.
ENDPOINTS = (("verbs", "msg"), ("verbs;ofi_rxm", "rdm"))


def main():
    suite = Suite("libfabric", __doc__.partition("\n\n")[0])
    for port in PORTS:
        suite.case(f"fi_info, {port}", offered, suite, Mode(port=port))
        for provider, kind in ENDPOINTS:
            modes = [Mode(port=port)]
            if suite.full:
                modes += [Mode(port=port, memory="cma"), Mode(port=port, engine="thread")]
            for mode in modes:
                suite.case(f"fi_pingpong, {provider}, {mode}", pingpong, suite, mode, provider, kind)
    # The address that programs find where there is no other interface than the loopback one.
    suite.case("the port's own address", own_address, suite)
    return suite.main()


def offered(suite, mode):
    suite.need("fi_info")
    program = suite.run(["fi_info", "-p", "verbs"], mode=mode)
    kinds = set(re.findall(r"type: (\w+)", program.output()))
    if "FI_EP_MSG" not in kinds:
        raise Failure(f"no connected endpoints, only {', '.join(sorted(kinds))}\n{program.describe(40)}")
    return ", ".join(sorted(kinds))


def address_of(suite, mode, fi_info="fi_info", environment=None):
    """One that the provider takes: its first source address."""
    argv = [fi_info, "-p", "verbs", "-t", "FI_EP_MSG", "-v"]
    text = suite.run(argv, mode=mode, environment=environment).output()
    found = re.search(r"src_addr: fi_sockaddr_in://([\d.]+):\d+", text)
    if not found:
        raise Failure(f"no address of IPv4 in\n{text[:4000]}")
    return found[1]


def pingpong(suite, mode, provider, kind):
    suite.need("fi_pingpong")
    address = address_of(suite, mode)
    port, connection = suite.free_port(), suite.free_port()
    argv = ["fi_pingpong", "-p", provider, "-e", kind, "-d", DEVICE, "-c"]
    argv += ["-I", 100, "-S", "all"] if suite.full else ["-I", 10]
    server, client = suite.pair([*argv, "-B", port, "-P", connection], [*argv, "-P", port, "-B", connection, address],
                                port=port, mode=mode, seconds=90)
    for side in (server, client):
        rows = {line.split()[0] for line in side.output().splitlines() if re.match(r"[\d.]+[kmg]?\s+\d+", line)}
        if not set(SIZES) <= rows:
            raise Failure(f"sizes {sorted(rows)} at the {side.title}\n{describe([server, client])}")
    return address


def own_address(suite):
    """A network namespace has a loopback interface alone."""
    suite.need("unshare", "ip")
    if suite.run_plain(["unshare", "-Urn", "true"], expect=None).code != 0:
        raise Skip("no network namespace may be made here")
    script = "ip link set lo up && exec fi_info -p verbs -t FI_EP_MSG -v"
    program = suite.run(["unshare", "-Urn", "sh", "-c", script], seconds=30)
    found = re.search(r"src_addr: fi_sockaddr_in://(10\.[\d.]+):\d+", program.output())
    if not found:
        raise Failure(f"no address of 10.0.0.0/8\n{program.describe(60)}")
    return found[1]


if __name__ == "__main__":
    sys.exit(main())
