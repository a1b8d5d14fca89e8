# SPDX-License-Identifier: BSD-2-Clause
"""A guest's addresses and its RDMA devices, set anew for each group of cases: eth0 has the RDMA device
that the guests share, eth1 reaches nobody, and eth2 is for launchers, as in a real cluster. Standard
library only.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Network:
    """How the guests of a cluster are joined.

    `devices`: the name of each guest's RDMA device on the common Ethernet; one name serves all. With
    `first_dead` each guest has another device, listed before it, whose adapter reaches nobody: it is
    "down", or up with "no address".
    """

    mtu: int = 1500
    ipv4: bool = True
    ipv6: bool = True
    devices: tuple = ("rxe0",)
    first_dead: str | None = None

    def device(self, number):
        return self.devices[min(number, len(self.devices)) - 1]

    def __str__(self):
        words = [f"MTU {self.mtu}"]
        if not self.ipv6:
            words.append("IPv4 only")
        if not self.ipv4:
            words.append("IPv6 only")
        if self.first_dead:
            words.append(f"first adapter {self.first_dead}")
        if len(self.devices) > 1:
            words.append("other device names")
        return ", ".join(words)


def ipv4(number):
    return f"10.7.0.{number}"


def ipv6(number):
    return f"fd00:7::{number:x}"


def management(number):
    return f"10.8.0.{number}"


def script(network, number, hosts):
    """The script that gives a guest of so many its name, addresses and devices."""
    lines = [
        "set -e",
        "for device in $(ls /sys/class/infiniband); do rdma link delete $device; done",
        f"echo node{number} > /proc/sys/kernel/hostname",
        "echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad",
        "echo 2000000 > /proc/sys/net/core/rmem_max",
        "ip link set lo up",
        "echo 1 > /proc/sys/net/ipv6/conf/eth2/disable_ipv6",
        "ip link set eth2 up",
        f"ip address replace {management(number)}/24 dev eth2",
    ]
    for adapter in ("eth0", "eth1"):
        lines += [
            f"ip link set {adapter} down",
            f"ip address flush dev {adapter}",
            f"echo 0 > /proc/sys/net/ipv6/conf/{adapter}/accept_dad",
            f"echo {0 if network.ipv6 else 1} > /proc/sys/net/ipv6/conf/{adapter}/disable_ipv6",
            f"ip link set {adapter} mtu {network.mtu}",
        ]
    if network.first_dead == "no address":
        lines += ["echo 1 > /proc/sys/net/ipv6/conf/eth1/disable_ipv6", "ip link set eth1 up"]
    lines.append("ip link set eth0 up")
    if network.ipv4:
        lines.append(f"ip address add {ipv4(number)}/24 dev eth0")
    if network.ipv6:
        lines.append(f"ip address add {ipv6(number)}/64 dev eth0 nodad")
    if network.first_dead:
        lines.append("rdma link add dead0 type rxe netdev eth1")
    lines.append(f"rdma link add {network.device(number)} type rxe netdev eth0")
    lines.append("{ echo 127.0.0.1 localhost")
    for other in range(1, hosts + 1):
        lines.append(f"echo {management(other)} node{other}")
    lines.append("} > /etc/hosts")
    lines.append("rdma link")
    return "\n".join(lines)
