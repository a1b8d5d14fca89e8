# SPDX-License-Identifier: BSD-2-Clause
"""`softhca port`, and the options that make several devices and ports."""

import json
import subprocess

from fabric_case import FabricCase, Holder
from harness import SOFTHCA, main


class Ports(FabricCase):
    def setUp(self):
        super().setUp()
        self.environment.update(SOFTHCA_DEVICES="2", SOFTHCA_PORTS="2", SOFTHCA_NUMA="0,7,-1")

    def port(self, *words, status=0):
        return self.assert_run(self.softhca("port", *words), status)

    def ports(self):
        return json.loads(self.port("--json").stdout)

    def shown(self, path):
        """What a program reads in sysfs."""
        result = self.softhca("run", "cat", "/sys/class/infiniband/" + path)
        return self.assert_run(result, 0).stdout

    def join(self):
        """A process that is in the fabric until the test's end: it has read sysfs."""
        script = "read guid < /sys/class/infiniband/mlx5_0/node_guid; echo ready; read line"
        process = subprocess.Popen(
            [SOFTHCA, "run", "sh", "-c", script],
            env=self.environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )

        def end():
            process.stdin.close()
            process.wait(60)
            process.stdout.close()

        self.addCleanup(end)
        self.assertEqual(process.stdout.readline(), "ready\n")

    def test_status(self):
        Holder(self)
        ports = self.ports()
        self.assertEqual([(p["device"], p["port"]) for p in ports],
                         [("mlx5_0", 1), ("mlx5_0", 2), ("mlx5_1", 1), ("mlx5_1", 2)])
        self.assertEqual([p["lid"] for p in ports], [1, 2, 3, 4])
        self.assertEqual({p["state"] for p in ports}, {"ACTIVE"})
        self.assertEqual(len({tuple(p["addresses"]) for p in ports}), 4)
        self.assertIn("mlx5_1/2", self.port("status").stdout)
        self.assertEqual(self.port().stdout, self.port("status").stdout)

    def test_a_link_goes_down_and_comes_up(self):
        Holder(self)
        where = ("--device", "mlx5_1", "--port", "2")
        self.assertEqual(self.port("down", *where).stdout, "")
        self.assertEqual([p["state"] for p in self.ports()], ["ACTIVE"] * 3 + ["DOWN"])
        self.assertEqual(self.shown("mlx5_1/ports/2/state"), "1: DOWN\n")
        self.assertEqual(self.shown("mlx5_1/ports/2/phys_state"), "2: Polling\n")
        self.assertEqual(self.shown("mlx5_1/ports/1/state"), "4: ACTIVE\n")
        self.assertIn("down already", self.port("down", *where).stdout)
        self.port("up", *where)
        self.assertEqual(self.shown("mlx5_1/ports/2/state"), "4: ACTIVE\n")
        self.assertEqual(self.shown("mlx5_1/ports/2/phys_state"), "5: LinkUp\n")

    def test_gids_of_an_ethernet_port(self):
        self.environment["SOFTHCA_PORT"] = "roce"
        self.join()
        self.port("gid", "add", "10.1.2.3")
        self.assertEqual(self.ports()[0]["addresses"][2], "10.1.2.3")
        self.assertEqual(self.shown("mlx5_0/ports/1/gid_attrs/types/5"), "RoCE v2\n")
        self.port("gid", "add", "fd00::1")
        self.assertTrue(self.shown("mlx5_0/ports/1/gids/6").startswith("fd00:"))
        self.assertIn("8 entries", self.port("gid", "add", "fd00::2", status=1).stderr)
        self.assertIn("another port", self.port("gid", "add", "fd00::1", "--port", "2", status=1).stderr)
        self.assertIn("already", self.port("gid", "add", "fd00::1").stdout)
        self.port("gid", "remove", "10.1.2.3")
        self.assertEqual(self.shown("mlx5_0/ports/1/gids/5").count("0000"), 8)
        self.assertIn("no address", self.port("gid", "remove", "10.1.2.3", status=1).stderr)

    def test_what_is_wrong(self):
        Holder(self)
        for words in (("sideways",), ("gid",), ("gid", "add"), ("down", "now"), ("gid", "put", "1.2.3.4")):
            self.assertIn("it must be status, down, up", self.port(*words, status=2).stderr, words)
        for address in ("300.1.2.3", "mlx5_0", "0.0.0.0", "::", "ff02::1"):
            self.assertIn("address", self.port("gid", "add", address, status=2).stderr, address)
        self.assertIn("mlx5_0/1 to mlx5_1/2", self.port("down", "--device", "mlx5_2", status=2).stderr)
        self.assertIn("mlx5_0/1 to mlx5_1/2", self.port("down", "--port", "3", status=2).stderr)
        self.assertIn("InfiniBand", self.port("gid", "add", "1.2.3.4", status=1).stderr)
        self.assertIn("--json", self.port("down", "--json", status=2).stderr)

    def test_a_fabric_without_programs(self):
        self.assertIn("there is no fabric", self.port("down", status=1).stderr)
        holder = Holder(self)
        holder.kill()
        self.assertIn("no program uses", self.port("down", status=1).stderr)

    def test_numa_nodes(self):
        self.environment["SOFTHCA_DEVICES"] = "4"
        Holder(self)
        nodes = [self.shown(f"mlx5_{i}/device/numa_node").strip() for i in range(4)]
        self.assertEqual(nodes, ["0", "7", "-1", "0"])

    def test_values(self):
        for flag, value in (("--devices", "0"), ("--devices", "9"), ("--ports", "3"), ("--ports", "x"),
                            ("--numa", "0,"), ("--numa", "-2"), ("--numa", "0,1,2,3,4,5,6,7,8")):
            self.assertIn("it must be", self.softhca("run", flag, value, "true").stderr, (flag, value))

    def test_one_device_is_as_ever(self):
        for name in ("SOFTHCA_DEVICES", "SOFTHCA_PORTS", "SOFTHCA_NUMA"):
            del self.environment[name]
        Holder(self)
        (port,) = self.ports()
        self.assertEqual((port["device"], port["port"], port["lid"]), ("mlx5_0", 1, 1))
        self.port("down")
        self.assertEqual(self.ports()[0]["state"], "DOWN")


if __name__ == "__main__":
    main()
