#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Two devices with two ports each: programs that name a device and a port, and that find one by an
address; and links that go down and come back while programs run (`softhca port`).
"""

import re
import sys
import time

from harness import Failure, Mode, Suite
from program import describe
from run_perftest import has_clock
from run_rdmacm import lost_its_channel, run_pair, run_perftest_by_cm

BOTH = (Mode(devices="2", ports="2"), Mode(devices="2", ports="2", port="roce"))
# Device and port of the server and of the client.
SIDES = ((0, 1, 1, 1), (1, 2, 0, 1), (0, 1, 0, 2))


def main():
    suite = Suite("ports", __doc__.partition("\n\n")[0])
    for mode in BOTH:
        suite.case(f"ibv_devinfo, {mode}", check_devinfo, suite, mode)
        for kind in ("rc", "uc", "ud", "srq"):
            for sides in SIDES if suite.full else SIDES[:2]:
                suite.case(f"{kind}_pingpong {sides}, {mode}", run_pingpong, suite, kind, sides, mode)
        for program in ("ib_write_bw", "ib_send_lat", "ib_read_bw"):
            suite.case(f"{program}, {mode}", run_perftest, suite, program, SIDES[1], mode)
        suite.case(f"ucx_perftest, {mode}", run_ucx, suite, SIDES[1], mode)
    by_address = Mode(devices="2", ports="2", port="roce", address="10.77.0.1")
    suite.case("ib_send_bw -R to the address of mlx5_1/1", run_by_address, suite, by_address)
    suite.case("rping from one address to another", run_rping, suite, by_address)
    for mode in BOTH:
        suite.case(f"ibv_asyncwatch sees a link, {mode}", watch_link, suite, mode)
        suite.case(f"a link goes down under ib_send_bw, {mode}", lose_link, suite, mode)
        suite.case(f"a link comes back under ib_send_bw, {mode}", lose_link_for_a_moment, suite, mode)
    suite.case("GIDs come and go", change_gids, suite, BOTH[1])
    return suite.main()


def device(number):
    return f"mlx5_{number}"


def change_port(suite, *words, expect=0):
    argv = [suite.options.softhca, "port", *words, "--fabric", suite.fabric]
    return suite.run_plain(argv, seconds=20, expect=expect).output()


def check_devinfo(suite, mode):
    text = suite.run(["ibv_devinfo"], mode=mode).output()
    if re.findall(r"^hca_id:\s+(\S+)", text, re.MULTILINE) != ["mlx5_0", "mlx5_1"]:
        raise Failure(f"expected two devices, seen\n{text}")
    if len(set(re.findall(r"node_guid:\s+(\S+)", text))) != 2:
        raise Failure(f"expected two GUIDs, seen\n{text}")
    if text.count("PORT_ACTIVE") != 4:
        raise Failure(f"expected four active ports, seen\n{text}")
    lids = re.findall(r"port_lid:\s+(\d+)", text)
    expected = ["0"] * 4 if mode.port else ["1", "2", "3", "4"]
    if lids != expected:
        raise Failure(f"expected LIDs {expected}, seen {lids}")


def run_pingpong(suite, kind, sides, mode):
    program = f"ibv_{kind}_pingpong"
    suite.need(program)
    port = suite.free_port()
    gid = ["-g", "3"] if mode.port else []
    argv = [program, "-p", port, "-n", "50", "-c", *gid]
    server = [*argv, "-d", device(sides[0]), "-i", sides[1]]
    client = [*argv, "-d", device(sides[2]), "-i", sides[3], "127.0.0.1"]
    both = suite.pair(server, client, port=port, mode=mode)
    for side in both:
        if not re.search(r"^50 iters in", side.output(), re.MULTILINE):
            raise Failure(f"not 50 iterations\n{describe(both)}")


def run_perftest(suite, program, sides, mode, *options):
    suite.need(program)
    port = suite.free_port()
    argv = [program, "-p", port, "-n", "200", *options]
    server = [*argv, "-d", device(sides[0]), "-i", sides[1]]
    client = [*argv, "-d", device(sides[2]), "-i", sides[3], "127.0.0.1"]
    return suite.pair(server, client, port=port, mode=mode)


def run_ucx(suite, sides, mode):
    suite.need("ucx_perftest")
    port = suite.free_port()
    server = suite.start(
        ["ucx_perftest", "-p", port], mode=mode, title="server",
        environment={"UCX_NET_DEVICES": f"{device(sides[0])}:{sides[1]}", "UCX_TLS": "rc_verbs,ud_verbs"},
    )
    suite.wait_listening(server, port)
    client = suite.start(
        ["ucx_perftest", "127.0.0.1", "-p", port, "-t", "tag_lat", "-n", "100", "-w", "10"],
        mode=mode, title="client",
        environment={"UCX_NET_DEVICES": f"{device(sides[2])}:{sides[3]}", "UCX_TLS": "rc_verbs,ud_verbs"},
    )
    both = [server, client]
    suite.finish(both, 60)
    suite.refuse_failures(both, 60)


def run_by_address(suite, mode):
    """The client names an address; the server is on the device that has it."""
    suite.need("ib_send_bw")
    options = ["-R", "-n", "200"]
    both = run_perftest_by_cm(suite, mode, ["ib_send_bw", *options, "-d", "mlx5_1", "-i", "1"],
                               ["ib_send_bw", *options, "10.77.0.3"])
    if not re.search(r"Device\s*: mlx5_1", both[0].output()):
        raise Failure(f"the server is not on mlx5_1\n{describe(both)}")


def run_rping(suite, mode):
    suite.need("rping")
    port = suite.free_port()
    argv = ["rping", "-C", "5", "-V", "-p", port]
    server, client = run_pair(suite, mode, [*argv, "-s", "-a", "10.77.0.3"],
                              [*argv, "-c", "-I", "10.77.0.2", "-a", "10.77.0.3"], port, 30)
    if client.code != 0 and not lost_its_channel(client):
        raise Failure(describe([server, client]))


def watch_link(suite, mode):
    suite.need("ibv_asyncwatch")
    # Standard output would be written only at the end.
    watch = suite.start(["stdbuf", "-oL", "ibv_asyncwatch", "-d", "mlx5_1"], mode=mode)
    wait_for(suite, lambda: has_context(suite), "the program opens no device")
    change_port(suite, "down", "--device", "mlx5_1", "--port", "2")
    state = suite.run(
        ["cat", f"/sys/class/infiniband/mlx5_1/ports/2/{'state'}"], mode=mode
    ).output()
    if state != "1: DOWN\n":
        raise Failure(f"sysfs shows {state!r}")
    change_port(suite, "up", "--device", "mlx5_1", "--port", "2")
    change_port(suite, "down", "--device", "mlx5_0")
    change_port(suite, "up", "--device", "mlx5_0")
    wait_for(suite, lambda: watch.output().count("event_type") >= 2, "no two events\n" + watch.output())
    seen = re.findall(r"event_type (.*?)(?: \(.*?\))?, (?:port|element) (\d+)", watch.output())
    if len(seen) != 2 or [port for _, port in seen] != ["2", "2"]:
        raise Failure(f"expected two events of port 2, seen {seen}\n{watch.describe()}")
    watch.signal_leader(15)
    watch.wait(suite.scaled(5))
    suite.run(["ibv_devices"])  # which cleans up


def has_context(suite):
    held = suite.stat()
    return held is not None and bool(held["contexts"])


def wait_for(suite, holds, otherwise, seconds=20):
    deadline = time.monotonic() + suite.scaled(seconds)
    while not holds():
        if time.monotonic() > deadline:
            raise Failure(otherwise)
        time.sleep(0.02)


def start_traffic(suite, mode, qp_timeout):
    """ib_send_bw between the devices for longer than the test, in the middle of its messages."""
    suite.need("ib_send_bw")
    port = suite.free_port()
    argv = ["ib_send_bw", "-p", port, "-D", "6", "-s", "4096", "-u", qp_timeout]
    server = suite.start([*argv, "-d", "mlx5_1", "-i", "1"], mode=mode, title="server")
    suite.wait_listening(server, port)
    client = suite.start([*argv, "-d", "mlx5_0", "-i", "2", "127.0.0.1"], mode=mode, title="client")
    wait_for(suite, lambda: messages(suite) > 1000, "no messages")
    return server, client


def messages(suite):
    held = suite.stat()
    return sum(qp["counters"]["wqes"] for qp in held["qps"]) if held else 0


def lose_link(suite, mode):
    """4.096 us << 14 for each of 8 attempts are 0.54 s: then the client's requests fail."""
    server, client = start_traffic(suite, mode, 14)
    change_port(suite, "down", "--device", "mlx5_1")
    begin = time.monotonic()
    if not client.wait(suite.scaled(10)):
        raise Failure(f"the client does not end\n{client.describe()}")
    spent = time.monotonic() - begin
    if client.code == 0 or not re.search(r"retry exceeded|retry counter exceeded|vendor syndrome 0x81|status 12|status: 12", client.output(), re.I):
        raise Failure(f"expected the end of retries\n{client.describe()}")
    if spent < 0.3:
        raise Failure(f"its retries took only {spent:.2f} s\n{client.describe()}")
    change_port(suite, "up", "--device", "mlx5_1")
    server.reap()
    return f"after {spent:.2f} s"


def lose_link_for_a_moment(suite, mode):
    """With 4.096 us << 17 for each attempt the requests survive half a second."""
    server, client = start_traffic(suite, mode, 17)
    change_port(suite, "down", "--device", "mlx5_0", "--port", "2")
    time.sleep(0.5)
    stopped = messages(suite)
    time.sleep(0.2)
    if messages(suite) != stopped:
        raise Failure("messages go over a link that is down")
    change_port(suite, "up", "--device", "mlx5_0", "--port", "2")
    both = [server, client]
    suite.finish(both, 60)
    # For a time of running, perftest ends with an error if it has no clock to report by.
    suite.refuse_failures([program for program in both if has_clock(program)], 60)


def change_gids(suite, mode):
    server = suite.start(["ibv_rc_pingpong", "-p", suite.free_port(), "-d", "mlx5_1", "-g", "3"], mode=mode)
    wait_for(suite, lambda: has_context(suite), "the program opens no device")
    change_port(suite, "gid", "add", "10.99.1.2", "--device", "mlx5_1")
    table = "/sys/class/infiniband/mlx5_1/ports/1/gids/"
    if "ffff:0a63:0102" not in suite.run(["cat", table + "5"], mode=mode).output():
        raise Failure("the GID is not in sysfs")
    change_port(suite, "gid", "remove", "10.99.1.2", "--device", "mlx5_1")
    if "ffff" in suite.run(["cat", table + "5"], mode=mode).output():
        raise Failure("the GID is in sysfs yet")
    change_port(suite, "gid", "remove", "10.99.1.2", "--device", "mlx5_1", expect=1)
    server.reap()
    suite.run(["ibv_devices"])


if __name__ == "__main__":
    sys.exit(main())
