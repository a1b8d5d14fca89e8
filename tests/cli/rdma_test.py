# SPDX-License-Identifier: BSD-2-Clause
"""iproute2's `rdma`, unmodified, on the software HCA: devices, links and everybody's objects."""

import json
import os
import shutil
import subprocess
import time
import unittest

from harness import SOFTHCA, TEST_DIR, Case, main

RDMA = shutil.which("rdma", path=os.environ["PATH"] + ":/usr/sbin:/sbin")


@unittest.skipUnless(RDMA, "there is no rdma command (package iproute2)")
class RdmaTool(Case):
    def rdma(self, *arguments):
        return self.softhca("run", "--", RDMA, *arguments)

    def objects(self, *arguments):
        """What `rdma -j ARGUMENT...` lists."""
        result = self.rdma("-j", *arguments)
        self.assert_run(result, 0)
        return [entry for entry in json.loads(result.stdout or "[]") if entry]

    def hold(self):
        """A running cli_holder; the numbers of its QPs."""
        process = subprocess.Popen(
            [SOFTHCA, "run", os.path.join(TEST_DIR, "cli_holder")],
            env=self.environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

        def end():
            process.stdin.close()
            process.wait()
            process.stdout.close()

        self.addCleanup(end)
        words = process.stdout.readline().split()
        self.assertEqual(words[:1], ["ready"])
        return process, [int(word) for word in words[1:]]

    def test_devices(self):
        (device,) = self.objects("dev")
        self.assertEqual((device["ifname"], device["node_type"]), ("mlx5_0", "ca"))
        seen = self.softhca("run", "cat", "/sys/class/infiniband/mlx5_0/node_guid")
        self.assertEqual(device["node_guid"], seen.stdout.strip())
        self.assert_run(self.rdma("dev"), 0, "0: mlx5_0: node_type ca")
        self.assert_run(self.rdma("dev", "show", "mlx5_0"), 0, "mlx5_0")
        self.assertNotEqual(self.rdma("dev", "show", "mlx5_7").returncode, 0)

    def test_links(self):
        (link,) = self.objects("link")
        self.assertEqual((link["ifname"], link["port"], link["lid"]), ("mlx5_0", 1, 1))
        self.assertEqual((link["state"], link["physical_state"]), ("ACTIVE", "LINK_UP"))
        self.assert_run(self.rdma("link"), 0, "link mlx5_0/1")
        self.assert_run(self.rdma("-d", "link", "show", "mlx5_0/1"), 0, "caps: <")

    def test_system(self):
        self.assert_run(self.rdma("system"), 0, "netns shared")

    def test_objects_of_two_processes(self):
        holders = [self.hold(), self.hold()]
        pids = {process.pid for process, _ in holders}
        qps = self.objects("resource", "show", "qp")
        self.assertEqual(
            {qp["lqpn"] for qp in qps}, {number for _, numbers in holders for number in numbers}
        )
        for process, (first, second) in holders:
            (qp,) = [qp for qp in qps if qp["lqpn"] == first]
            self.assertEqual((qp["rqpn"], qp["type"], qp["state"]), (second, "RC", "RTS"))
            self.assertEqual((qp["pid"], qp["comm"]), (process.pid, "cli_holder"))
        for kind, count in {"cq": 4, "mr": 2, "pd": 2, "ctx": 2, "srq": 2, "cm_id": 0}.items():
            listed = self.objects("resource", "show", kind)
            self.assertEqual(len(listed), count, kind)
            self.assertLessEqual({entry["pid"] for entry in listed}, pids)
            self.assert_run(self.rdma("resource", "show", kind), 0)
        (summary,) = self.objects("resource", "show")
        self.assertEqual((summary["qp"], summary["cq"], summary["ctx"]), (4, 4, 2))
        number = qps[0]["lqpn"]
        filtered = self.objects("resource", "show", "qp", "link", "mlx5_0/1", "lqpn", str(number))
        self.assertEqual([qp["lqpn"] for qp in filtered], [number])

    @unittest.skipUnless(shutil.which("rping"), "there is no rping (package rdmacm-utils)")
    def test_ids_of_rdma_cm(self):
        server = subprocess.Popen(
            [SOFTHCA, "run", "--", "rping", "-s", "-a", "127.0.0.1", "-p", "7471"],
            env=self.environment,
        )

        def end():
            server.kill()
            server.wait()

        self.addCleanup(end)
        listed = []
        deadline = time.monotonic() + 30
        while not listed and time.monotonic() < deadline:
            listed = [each for each in self.objects("resource", "show", "cm_id") if each["state"] == "LISTEN"]
        (listener,) = listed
        self.assertEqual((listener["ps"], listener["src-addr"]), ("TCP", "127.0.0.1:7471"))
        self.assertEqual((listener["pid"], listener["comm"]), (server.pid, "rping"))
        self.assertNotIn("dst-addr", listener)

    def test_what_is_not_offered(self):
        self.assert_run(self.rdma("statistic"), 1, err="not supported")


if __name__ == "__main__":
    main()
