# SPDX-License-Identifier: BSD-2-Clause
"""Clients that Debian packages: how each is run, and how its success shows. See run_clients.py."""

import json
import os
import re
import socket
import time
from pathlib import Path

import run_rdmacm
from harness import DEVICE, Failure, Skip
from program import describe

MPI_CHECK = Path(__file__).resolve().parent / "mpi_check.c"
# The port's IPv4 address, which a program may bind without an interface that has it.
ADDRESS = "10.77.1.2"
INITIATOR, TARGET = "iqn.2026-01.test:initiator", "iqn.2026-01.test:disk"
MIB = 1 << 20

# qperf

QPERF_BY_LID = ("rc_bw", "rc_lat", "uc_bw", "uc_lat", "ud_lat", "rc_rdma_read_bw", "rc_rdma_write_bw",
                "ver_rc_compare_swap", "ver_rc_fetch_add")
QPERF_BY_CM = ("rc_lat", "rc_rdma_read_lat", "ver_rc_compare_swap")
# The server sends the port before it listens on it, so that a client may come too soon. Upstream
# fixed it after 0.4.11 (commit 118a571).
QPERF_TOO_SOON = "Event rejected"


def qperf(suite, mode):
    """Its QPs are connected by LIDs, or with -cm 1 by rdma_cm. The first cannot go by Ethernet."""
    by_lid = QPERF_BY_LID if suite.full else QPERF_BY_LID[1::2]
    if mode.port == "roce":
        by_lid = ()
        refused_without_grh(suite, mode)
    port, server = qperf_server(suite, mode)
    client = ["qperf", "-lp", port, "127.0.0.1", "-t", 1]
    if by_lid:
        require_figures(suite.run([*client, *by_lid], mode=mode, seconds=60), by_lid)
    for test in QPERF_BY_CM:
        for _ in range(10):
            program = suite.start([*client, "-cm", 1, test], mode=mode, title="client")
            suite.finish([program], 30)
            if program.code == 0 or QPERF_TOO_SOON not in program.output():
                break
        suite.refuse_failures([program], 30)
        require_figures(program, [test])
    suite.run([*client, "quit"], mode=mode)
    suite.finish([server], 10)
    suite.refuse_failures([server], 10)
    return f"{len(QPERF_BY_CM) + len(by_lid)} tests"


def qperf_server(suite, mode):
    port = suite.free_port()
    server = suite.start(["qperf", "-lp", port], mode=mode, title="server")
    suite.wait_listening(server, port)
    return port, server


def refused_without_grh(suite, mode):
    """The server has failed as well, and its handler of the client's message calls exit(). If it was about to exit
    already, it hangs by a lock of glibc's exit(), about once in 300 times. So nobody else uses that server.
    """
    port, _ = qperf_server(suite, mode)
    refused = suite.run(["qperf", "-lp", port, "127.0.0.1", "-t", 1, "rc_lat"], mode=mode, expect=1)
    if "failed to modify QP to RTR: Invalid argument" not in refused.output():
        raise Failure(f"no clear refusal of a path without GRH\n{refused.describe()}")
    suite.end_programs()


def require_figures(program, tests):
    """Each test prints its name, then a rate or a latency."""
    for test in tests:
        if not re.search(rf"^{test}:\n +(bw|send_bw|latency|msg_rate) +=  *[\d.]+ ", program.output(), re.M):
            raise Failure(f"no figure of {test}\n{program.describe()}")


# fio

def fio(suite, mode):
    """The client writes, by one verb, to a server that reads."""
    size = 256 if suite.full else 16
    for verb in ("write", "read", "send"):
        port = suite.free_port()
        # fio's QPs do not retry when a receive is missing (rnr_retry_count is 0), so a SEND must have
        # a receive: as many messages as the server is deep.
        depth = 1 if verb == "send" else 8
        moved = 1 if verb == "send" else size
        # A job would be a process with a session of its own, which a script that fails leaves behind.
        common = ["--thread", "--ioengine=rdma", f"--port={port}", "--bs=64k", f"--size={moved}m"]
        server, client = run_rdmacm_pair(
            suite, mode, port,
            ["fio", "--name=server", *common, "--rw=read", "--iodepth=16",
             f"--verb={'recv' if verb == 'send' else verb}"],
            ["fio", "--name=client", *common, "--rw=write", f"--iodepth={depth}", f"--verb={verb}",
             "--hostname=127.0.0.1"])
        for side, word in ((client, "WRITE"), (server, "READ")):
            if (side is client or verb == "send") and \
                    not re.search(rf"{word}: .*io={moved}(\.0)?MiB|{word}: .*io=1024KiB", side.output()):
                raise Failure(f"the {side.title} did not move {moved} MiB by {verb}\n{describe([server, client])}")
    return f"{size} MiB by write and read, 1 MiB by send"


def run_rdmacm_pair(suite, mode, port, server, client, seconds=60):
    both = run_rdmacm.run_pair(suite, mode, server, client, port, seconds)
    suite.refuse_failures(both, seconds)
    return both


# iSER

def iser(suite, mode):
    """tgt's target, and libiscsi's own tests, which compare what they read with what they wrote."""
    folder = suite.scratch("iser")
    disk, control = folder / f"disk-{os.getpid()}", folder / f"control-{os.getpid()}"
    disk.write_bytes(os.urandom(16 * MIB))
    try:
        return iser_tests(suite, mode, disk, control)
    finally:
        for path in (disk, *folder.glob(control.name + "*")):
            path.unlink(missing_ok=True)


def iser_tests(suite, mode, disk, control):
    environment = {"TGT_IPC_SOCKET": str(control), "PATH": os.environ["PATH"] + ":/usr/sbin"}
    # 3260 of rdma_cm, which is this fabric's own. The portal of TCP is the host's.
    portal = f"portal=127.0.0.1:{suite.free_port()}"
    server = run_rdmacm.start_server(suite, mode, ["tgtd", "-f", "--iscsi", portal], 3260, environment)

    def admin(*argv):
        suite.run_plain(["tgtadm", "--lld", "iser", *argv], environment=environment, seconds=20)

    admin("--op", "new", "--mode", "target", "--tid", "1", "-T", TARGET)
    admin("--op", "new", "--mode", "logicalunit", "--tid", "1", "--lun", "1", "-b", disk)
    admin("--op", "bind", "--mode", "target", "--tid", "1", "-I", "ALL")
    admin("--op", "bind", "--mode", "target", "--tid", "1", "--initiator-name", INITIATOR)
    url = f"iser://127.0.0.1/{TARGET}/1"
    told = suite.run(["iscsi-readcapacity16", "-i", INITIATOR, url], mode=mode).output()
    if f"Total size:{16 * MIB}" not in told:
        raise Failure(f"not the size of the disk\n{told}")
    # A login is over in an instant, or after a second in vain.
    for _ in range(20 if suite.full else 5):
        suite.run(["iscsi-inq", "-i", INITIATOR, url], mode=mode)
    # Not the tests called Async: they have more commands under way than libiscsi 1.19 bears over iSER.
    groups = ["ALL.Read10.Simple", "ALL.OrWrite"]
    if suite.full:
        groups += ["ALL.Read16", "ALL.Verify10", "ALL.WriteVerify10"]
    count = 0
    for group in groups:
        program = suite.run(["iscsi-test-cu", "-i", INITIATOR, "-d", "-t", group, url], mode=mode, seconds=60)
        found = re.search(r"asserts +(\d+) +(\d+) +\2 +0 ", program.output())
        if not found or int(found[2]) < 500:
            raise Failure(f"{group} did not pass\n{program.describe()}")
        count += int(found[2])
    if not server.running():
        raise Failure(f"the target has ended\n{server.describe()}")
    # The server is killed: tgt 1.0.85 calls a null pointer when a target of iSER is deleted (conn_close).
    return f"{count} checks"


# uDAPL

def udapl(suite, mode):
    """dapltest over the provider that connects by rdma_cm; -V compares what has arrived."""
    settings = suite.scratch("udapl") / f"dat-{os.getpid()}.conf"
    settings.write_text(
        f'cma u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 "{ADDRESS} 0" ""\n', encoding="ascii")
    try:
        environment = {"DAT_OVERRIDE": str(settings), "SOFTHCA_ADDRESS": ADDRESS}
        return udapl_tests(suite, mode, environment)
    finally:
        settings.unlink()


def udapl_tests(suite, mode, environment):
    server = suite.start(["dapltest", "-T", "S", "-D", "cma"], mode=mode, title="server", environment=environment)
    deadline = time.monotonic() + suite.scaled(20)
    while "Service Point Ready" not in server.output():
        if time.monotonic() > deadline or not server.running():
            raise Failure(f"the server is not ready\n{server.describe()}")
        time.sleep(0.02)
    rounds = 1000 if suite.full else 100
    client = suite.run(
        ["dapltest", "-T", "T", "-D", "cma", "-s", ADDRESS, "-i", rounds, "-V", "-t", 2, "-w", 2, "client", "SR", 4096, 1,
         "server", "SR", 4096, 1, "client", "RR", 65536, 1, "client", "RW", 65536, 2, "server", "RW", 8192, 1],
        mode=mode, environment=environment, seconds=90)
    for line in client.output().splitlines():
        if run_rdmacm.ERROR.search(line) or "bad" in line.lower():
            raise Failure(f"the client reports: {line}\n{client.describe()}")
    if not re.search(r"Total RDMA Write +: +[\d.]+ MB", client.output()):
        raise Failure(f"the client did not come to its end\n{client.describe()}")
    suite.run(["dapltest", "-T", "Q", "-D", "cma", "-s", ADDRESS], mode=mode, environment=environment)
    suite.finish([server], 15)
    suite.refuse_failures([server], 15)
    return f"4 endpoints, {rounds} rounds"


# QEMU

def migration(suite, mode):
    """A virtual machine moves; then both sides have the same memory."""
    folder = suite.scratch("migration")
    paths = {side: folder / f"{side}-{os.getpid()}" for side in ("source", "target")}
    environment = {"SOFTHCA_ADDRESS": ADDRESS}
    megabytes = 256 if suite.full else 64
    where = f"rdma:{ADDRESS}:{suite.free_port()}"
    machine = ["qemu-system-x86_64", "-display", "none", "-nodefaults", "-machine", "pc,accel=tcg",
               "-m", megabytes]
    try:
        programs = {
            side: suite.start(
                [*machine, "-qmp", f"unix:{path}.qmp,server=on,wait=off", *extra],
                mode=mode, title=side, environment=environment)
            for (side, path), extra in zip(paths.items(), ([], ["-incoming", "defer"]))}
        monitors = {side: Monitor(suite, path, programs[side]) for side, path in paths.items()}
        both = list(programs.values())
        if suite.full:
            for monitor in monitors.values():
                monitor.ask("migrate-set-capabilities",
                            capabilities=[{"capability": "rdma-pin-all", "state": True}])
        monitors["target"].ask("migrate-incoming", uri=where)
        time.sleep(1)  # the BIOS writes into the memory meanwhile
        monitors["source"].ask("stop")
        monitors["source"].ask("migrate", uri=where)
        deadline = time.monotonic() + suite.scaled(60)
        while (state := monitors["source"].ask("query-migrate"))["status"] != "completed":
            if state["status"] == "failed" or time.monotonic() > deadline:
                raise Failure(f"migration: {state}\n{describe(both)}")
            time.sleep(0.05)
        while monitors["target"].ask("query-status")["status"] == "inmigrate":
            time.sleep(0.05)
        memory = {}
        for side, path in paths.items():
            monitors[side].ask("pmemsave", val=0, size=megabytes * MIB, filename=f"{path}.memory")
            memory[side] = Path(f"{path}.memory").read_bytes()
        if memory["source"] != memory["target"]:
            raise Failure(f"the memory differs\n{describe(both)}")
        if not any(memory["source"][: 640 * 1024]):
            raise Failure("nothing but zeros was moved")
        for monitor in monitors.values():
            monitor.ask("quit")
        suite.finish(both, 20)
        suite.refuse_failures(both, 20)
        return f"{megabytes} MiB, {state['ram']['transferred'] >> 10} KiB sent"
    finally:
        for path in paths.values():
            for left in folder.glob(path.name + ".*"):
                left.unlink(missing_ok=True)


class Monitor:
    """QEMU's machine protocol (QMP): a request and its reply are lines of JSON."""

    def __init__(self, suite, path, program):
        self.program = program
        deadline = time.monotonic() + suite.scaled(20)
        while True:
            self.socket = socket.socket(socket.AF_UNIX)
            try:
                self.socket.connect(f"{path}.qmp")
                break
            except OSError as reason:
                self.socket.close()
                if time.monotonic() > deadline or not program.running():
                    raise Failure(f"no monitor: {reason}\n{program.describe()}") from reason
                time.sleep(0.05)
        self.socket.settimeout(suite.scaled(30))
        self.lines = self.socket.makefile("r", encoding="utf-8")
        self.lines.readline()  # the greeting
        self.ask("qmp_capabilities")

    def ask(self, command, **arguments):
        self.socket.sendall((json.dumps({"execute": command, "arguments": arguments}) + "\n").encode())
        try:
            while line := self.lines.readline():
                reply = json.loads(line)
                if "return" in reply:
                    return reply["return"]
                if "error" in reply:
                    raise Failure(f"{command}: {reply['error']['desc']}\n{self.program.describe()}")
        except OSError as reason:
            raise Failure(f"{command}: {reason}\n{self.program.describe()}") from reason
        if command != "quit":
            raise Failure(f"{command}: the monitor is gone\n{self.program.describe()}")
        return None


# Open MPI

def openib(suite, mode):
    """Open MPI's own use of verbs, without UCX and libfabric. Debian builds it without rdma_cm."""
    if "mca:btl:openib" not in suite.run_plain(["ompi_info", "--parsable"], seconds=60).output():
        raise Skip("this Open MPI has no openib (it ended with version 4)")
    program = suite.scratch("openib") / f"mpi_check-{os.getpid()}"
    ranks = 4 if suite.full else 2
    suite.run_plain(["mpicc.openmpi", "-std=gnu11", "-O1", "-o", program, MPI_CHECK], seconds=60)
    try:
        run = suite.run(
            ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", ranks, "--mca", "pml", "ob1",
             "--mca", "btl", "openib,self", "--mca", "btl_openib_allow_ib", 1, program],
            mode=mode, seconds=120)
    finally:
        program.unlink()
    found = re.search(rf"mpi_check: (\d+) checks passed by {ranks} ranks", run.output())
    if not found:
        raise Failure(f"it did not come to its end\n{run.describe()}")
    return found[0]


# What is refused

def raw_ethernet(suite, mode):
    program = suite.start(
        ["raw_ethernet_bw", "--server", "-d", DEVICE, "-B", "00:11:22:33:44:55", "-E", "00:11:22:33:44:56"],
        mode=mode)
    return require_refusal(suite, program, "Unable to create QP")


def testpmd(suite, mode):
    """DPDK looks for the network device of the port first."""
    script = (f"slot=$(sed -n s/PCI_SLOT_NAME=//p /sys/class/infiniband/{DEVICE}/device/uevent);"
              " exec dpdk-testpmd --no-huge -m 256 -l 0 --no-telemetry -a $slot -- --total-num-mbufs=2048")
    if os.getuid() != 0:
        raise Skip("dpdk-testpmd wants to be root")
    program = suite.start(["sh", "-c", script], mode=mode)
    return require_refusal(suite, program, "cannot be used")


def require_refusal(suite, program, text):
    suite.finish([program], 30)
    if program.timed_out or program.code == 0 or program.code < 0 or text not in program.output():
        raise Failure(f"no clear refusal ({text})\n{program.describe()}")
    return text
