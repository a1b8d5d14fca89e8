#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""libfabric's own providers on softhca: fi_pingpong over verbs, which connects by rdma_cm, and over
ofi_rxm above it, on an InfiniBand port and on an Ethernet port, with Debian's libfabric. Two processes,
which meet over TCP; -c has them compare what arrives.

At its end each fi_pingpong sends "fin", waits for the other's and closes. rxm looks for completions,
and then, each 10 ms, for the end of connections. One that loses the processor between the two finds its
peer gone. Then vrb_ep_close() (libfabric's prov/verbs) destroys the queue pair before the completions of
"fin" are read, and libmlx5 removes these; the program waits for ever. At load 6 on 2 processors that is
nearly every second run. So one side over rxm may have to be killed, once both have compared all sizes
and the other has ended well.
"""

import re
import sys
import time

from harness import DEVICE, Failure, Mode, Skip, Suite
from program import describe

PORTS = ("infiniband", "roce")
SIZES = ("64", "1k", "64k", "1m")
# Provider, and type of endpoint.
RXM = "verbs;ofi_rxm"
ENDPOINTS = (("verbs", "msg"), (RXM, "rdm"))


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
        raise Failure(f"no connected endpoints, only {', '.join(sorted(kinds))}\n{program.describe()}")
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
    # By lines: what one that is killed has printed is there.
    argv = ["stdbuf", "-oL", *argv]
    server = suite.start([*argv, "-B", port, "-P", connection], mode=mode, title="server")
    suite.wait_listening(server, port)
    client = suite.start([*argv, "-P", port, "-B", connection, address], mode=mode, title="client")
    both = [server, client]
    deadline = time.monotonic() + suite.scaled(90)
    while not (server.wait(0.02) or client.wait(0.02)) and time.monotonic() < deadline:
        pass
    suite.finish(both, 10)
    lost = [side.title for side in both if side.timed_out]
    # -9: killed by the harness.
    if provider != RXM or len(lost) == 2 or {side.code for side in both} - {0, -9}:
        suite.refuse_failures(both, 90)
    suite.refuse_device_errors(both)
    for side in both:
        rows = {line.split()[0] for line in side.output().splitlines() if re.match(r"[\d.]+[kmg]?\s+\d+", line)}
        if not set(SIZES) <= rows:
            raise Failure(f"sizes {sorted(rows)} at the {side.title}\n{describe(both)}")
    return address + (f", the {lost[0]}'s end lost by rxm" if lost else "")


def own_address(suite):
    """A network namespace has a loopback interface alone."""
    suite.need("unshare", "ip")
    if suite.run_plain(["unshare", "-Urn", "true"], expect=None).code != 0:
        raise Skip("no network namespace may be made here")
    script = "ip link set lo up && exec fi_info -p verbs -t FI_EP_MSG -v"
    program = suite.run(["unshare", "-Urn", "sh", "-c", script], seconds=30)
    found = re.search(r"src_addr: fi_sockaddr_in://(10\.[\d.]+):\d+", program.output())
    if not found:
        raise Failure(f"no address of 10.0.0.0/8\n{program.describe()}")
    return found[1]


if __name__ == "__main__":
    sys.exit(main())
