#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Programs that users run over verbs and rdma_cm, on an InfiniBand port and on an Ethernet port:
storage, benchmarks, a virtual machine that moves, an MPI, transfer engines.

CLIENTS has one row for each: where it is from, in which version, and what it needs. --table prints
it, and docs/guide/clients.md explains it. A client that is not installed is skipped. Those from
PyPI and crates.io are fetched into --scratch, in the full set only.
"""

import itertools
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass

import built_clients
import debian_clients
from harness import Mode, Skip, Suite

PORTS = ("infiniband", "roce")
FABRICS = itertools.count()


@dataclass(frozen=True)
class Client:
    """How to obtain a program, and what runs."""

    name: str
    source: str  # Debian, PyPI or crates.io
    packages: tuple  # with their versions, where the script fetches them
    tested: str  # the version that was tried
    programs: tuple  # what must be installed
    needs: str
    run: object  # function of suite and mode
    ports: tuple = PORTS
    only_full: bool = False


CLIENTS = (
    Client("qperf", "Debian", ("qperf",), "0.4.11", ("qperf",), "RoCE: -cm 1", debian_clients.qperf),
    Client("fio", "Debian", ("fio",), "3.33", ("fio",), "a server without bindname", debian_clients.fio),
    Client(
        "iSER", "Debian", ("tgt", "libiscsi-bin"), "1.0.85, 1.19.0", ("tgtd", "tgtadm", "iscsi-test-cu"),
        "a rule for the address and one for the initiator's name", debian_clients.iser,
    ),
    Client(
        "uDAPL", "Debian", ("libdapl2", "dapl2-utils"), "2.1.10.1", ("dapltest",),
        "DAT_OVERRIDE; SOFTHCA_ADDRESS", debian_clients.udapl,
    ),
    Client(
        "QEMU's live migration", "Debian", ("qemu-system-x86",), "7.2", ("qemu-system-x86_64",),
        "nothing", debian_clients.migration,
    ),
    Client(
        "Open MPI's openib", "Debian", ("openmpi-bin", "libopenmpi-dev"), "4.1.4", ("mpirun.openmpi", "mpicc.openmpi"),
        "btl_openib_allow_ib 1; an InfiniBand port", debian_clients.openib, ports=("infiniband",),
    ),
    Client(
        "raw_ethernet_bw is refused", "Debian", ("perftest",), "4.5", ("raw_ethernet_bw",),
        "raw packet QPs, which softhca lacks", debian_clients.raw_ethernet, ports=("roce",),
    ),
    Client(
        "testpmd is refused", "Debian", ("dpdk-dev", "librte-net-mlx5-23"), "22.11", ("dpdk-testpmd",),
        "raw packet QPs, which softhca lacks", debian_clients.testpmd, ports=("roce",), only_full=True,
    ),
    Client(
        "Mooncake", "PyPI", ("mooncake-transfer-engine-non-cuda==0.3.13.post1",), "0.3.13", ("python3",),
        "nothing", built_clients.mooncake, only_full=True,
    ),
    Client(
        "sideway", "crates.io", ("sideway@0.4.3",), "0.4.3", ("cargo",), "nothing",
        built_clients.sideway, only_full=True,
    ),
)


def main():
    if "--table" in sys.argv[1:]:
        return print_table()
    suite = Suite("clients", __doc__.partition("\n\n")[0])
    for client in CLIENTS:
        if client.only_full and not suite.full:
            continue
        for port in client.ports:
            suite.case(f"{client.name}, {port}", run, suite, client, Mode(port=port))
    return suite.main()


def run(suite, client, mode):
    """Each on a fabric of its own: a fabric has one kind of port and one address."""
    suite.fabric = f"clients-{os.getpid()}-{next(FABRICS)}"
    missing = [program for program in client.programs if not shutil.which(program, path=suite_path())]
    if missing:
        raise Skip(f"{', '.join(missing)} of {client.source}'s {' '.join(client.packages)} is not installed")
    note = client.run(suite, mode, *([client.packages[0]] if client.source != "Debian" else []))
    suite.end_programs()
    suite.check_fabric_gone()
    return f"{version(client)}{note or ''}"


def suite_path():
    """tgtd and raw_ethernet_bw are where only root looks."""
    return os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"


def version(client):
    """What is installed, for the progress line."""
    if client.source != "Debian":
        return ""
    query = ["dpkg-query", "-W", "-f=${Version} ", client.packages[0]]
    try:
        found = subprocess.run(query, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return found.stdout.strip() + ": " if found.returncode == 0 else ""


def print_table():
    for client in CLIENTS:
        print(f"{client.name} | {client.source}: {' '.join(client.packages)} | {client.tested} | {client.needs}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
