# SPDX-License-Identifier: BSD-2-Clause
"""Cases over rdma-core's example programs, for the installed rdma-core and for a newer one."""

import re

from harness import DEVICE, ENGINES, EVERY_MODE, UAR_BY_MEMORY, Failure, Mode
from program import describe

PINGPONGS = ("rc", "uc", "ud", "srq", "xsrq")
VALIDATES = ("rc", "uc", "ud", "srq")  # ibv_xsrq_pingpong has no option to look at its buffer
UD_LARGEST = 4096  # one packet


def add(suite):
    suite.case("ibv_devices", check_devices, suite)
    for uar in ("dynamic", "static"):
        suite.case(f"ibv_devinfo -v, {uar}", check_devinfo, suite, Mode(uar=uar))
    suite.case("ibv_devinfo -l", check_devinfo_list, suite)
    suite.case("ibv_asyncwatch waits and ends at SIGTERM", check_asyncwatch, suite)

    modes = EVERY_MODE if suite.full else UAR_BY_MEMORY + tuple(Mode(engine=e) for e in ENGINES[1:])
    # Where more processes than processors poll, each message waits for a turn of the scheduler.
    polling = () if suite.full else ("-n", "50")
    for kind in PINGPONGS:
        for mode in modes:
            for options in (polling, ("-e",)):
                add_pingpong(suite, kind, mode, *options)
    add_pingpong(suite, "rc", Mode(), "-N")
    add_pingpong(suite, "rc", Mode(), "-N", "-e")
    for clients in (2, 5) if suite.full else (2,):
        suite.case(f"xsrq_pingpong with {clients} clients", run_xsrq, suite, Mode(), clients)
    if suite.full:
        for mode in UAR_BY_MEMORY:
            for kind in VALIDATES:
                for size in (1, 64, 1000, 4096, 65536, 1048576):
                    if kind != "ud" or size <= UD_LARGEST:
                        add_pingpong(suite, kind, mode, "-s", str(size))
            add_pingpong(suite, "rc", mode, "-n", "100000")
            add_pingpong(suite, "srq", mode, "-q", "1", "-n", "100000")
            add_pingpong(suite, "srq", mode, "-q", "64", "-n", "100")
            add_pingpong(suite, "rc", mode, "-e", "-n", "20000")


def add_pingpong(suite, kind, mode, *options):
    name = f"{kind}_pingpong {' '.join(options) or '(polling)'}, {mode}"
    suite.case(name, run_pingpong, suite, kind, mode, options)


def check_devices(suite):
    suite.need("ibv_devices")
    text = suite.run(["ibv_devices"]).output()
    rows = re.findall(r"^\s+(\S+)\s+([0-9a-f]{16})$", text, re.MULTILINE)
    if [name for name, _ in rows] != [DEVICE] or int(rows[0][1], 16) == 0:
        raise Failure(f"expected one device {DEVICE} with a node GUID, seen\n{text}")
    return f"GUID {rows[0][1]}"


def check_devinfo_list(suite):
    argv = ["ibv_devinfo", "-l"]
    text = suite.run(argv).output()
    if not re.search(rf"^1 HCAs? found:\s+{DEVICE}\s*$", text, re.MULTILINE):
        raise Failure(f"expected one HCA, {DEVICE}, seen\n{text}")


def check_devinfo(suite, mode):
    argv = ["ibv_devinfo", "-v"]
    text = suite.run(argv, mode=mode).output()
    fields = dict(re.findall(r"^\s*([a-z][\w ]*?):\s+(\S.*?)\s*$", text, re.MULTILINE))

    def expect(name, pattern):
        if not re.fullmatch(pattern, fields.get(name, "")):
            raise Failure(f"{name}: expected {pattern}, seen {fields.get(name)!r}\n{text}")

    expect("hca_id", DEVICE)
    expect("transport", r"InfiniBand \(0\)")
    expect("fw_ver", r"\d+\.\d+\.\d+")
    expect("vendor_id", "0x02c9")
    expect("phys_port_cnt", "1")
    expect("atomic_cap", r"ATOMIC_(HCA|GLOB) \(\d\)")
    expect("state", r"PORT_ACTIVE \(4\)")
    expect("phys_state", r"LINK_UP \(5\)")
    expect("max_mtu", r"4096 \(5\)")
    expect("link_layer", "InfiniBand|Ethernet")
    for name in ("max_qp", "max_qp_wr", "max_sge", "max_cq", "max_cqe", "max_mr", "max_pd"):
        expect(name, r"[1-9]\d*")
    for name in ("max_srq", "max_srq_wr", "max_srq_sge", "max_qp_rd_atom", "max_qp_init_rd_atom"):
        expect(name, r"[1-9]\d*")
    if not re.search(r"^\s+XRC$", text, re.MULTILINE):
        raise Failure(f"device_cap_flags does not name XRC\n{text}")
    if re.search(r"^\s*Unknown flags|Failed to query", text, re.MULTILINE | re.IGNORECASE):
        raise Failure(f"ibv_devinfo cannot tell what the device reports\n{text}")
    if not re.search(r"^\s*GID\[\s*0\]:\s+\S*[1-9a-f]", text, re.MULTILINE):
        raise Failure(f"no GID in entry 0 of port 1's table\n{text}")
    return f"firmware {fields['fw_ver']}, part {fields.get('vendor_part_id')}"


def check_asyncwatch(suite):
    """Opens the device and sleeps in ibv_get_async_event: nothing may wake or end it."""
    watch = suite.start(["ibv_asyncwatch"])
    if watch.wait(0.5):
        raise Failure(f"ended by itself\n{watch.describe()}")
    watch.signal_leader(15)
    if not watch.wait(suite.scaled(5)):
        raise Failure("SIGTERM does not end it")
    if watch.code != -15 or "async event" in watch.output().lower().replace("async event fd", ""):
        raise Failure(f"expected silence and an end by SIGTERM\n{watch.describe()}")
    # Nobody runs the exit handlers of a program that a signal ends; the next to come cleans up.
    suite.run(["ibv_devices"])


def run_pingpong(suite, kind, mode, options):
    program = f"ibv_{kind}_pingpong"
    suite.need(program)
    port = suite.free_port()
    argv = [program, "-d", DEVICE, "-p", port, *options]
    if kind in VALIDATES:
        argv.append("-c")
    both = suite.pair(argv, [*argv, "127.0.0.1"], port=port, mode=mode, seconds=40)
    return check_pingpong(kind, options, both)


def run_xsrq(suite, mode, clients):
    """One server with a shared receive queue for several clients, each a process of its own."""
    program = "ibv_xsrq_pingpong"
    suite.need(program)
    port = suite.free_port()
    argv = [program, "-d", DEVICE, "-p", port]
    keywords = {"mode": mode}
    server = suite.start([*argv, "-c", clients], title="server", **keywords)
    suite.wait_listening(server, port)
    programs = [server]
    for number in range(clients):
        title = f"client {number + 1}"
        programs.append(suite.start([*argv, "127.0.0.1"], title=title, **keywords))
    suite.finish(programs, 40)
    suite.refuse_failures(programs, 40)
    for program in programs:
        if "success" not in program.output().splitlines():
            raise Failure(f"{program.title}: expected success\n{describe(programs)}")


def check_pingpong(kind, options, both):
    for program in both:
        text = program.output()
        if re.search(r"invalid data|couldn't|failed|error", text, re.IGNORECASE):
            raise Failure(f"the {program.title} reports an error\n{program.describe()}")
        if not re.search(r"^\s+local\b.*QPN", text, re.M) or not re.search(r"^\s+remote\b", text, re.M):
            raise Failure(f"no addresses in the output\n{program.describe()}")
        if kind == "xsrq" and "success" not in text.splitlines():  # prints no figures
            raise Failure(f"no line of success\n{program.describe()}")
    if kind == "xsrq":
        return None
    wanted = int(options[options.index("-n") + 1]) if "-n" in options else 1000
    for program in both:
        found = re.search(r"^(\d+) iters in \S+ seconds = (\S+) usec/iter", program.output(), re.M)
        # ibv_srq_pingpong counts over all its queue pairs and may stop a few exchanges later.
        if not found or int(found[1]) < wanted:
            raise Failure(f"expected a line of {wanted} iterations\n{program.describe()}")
    return f"{found[2]} us/iter"
