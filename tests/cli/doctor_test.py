# SPDX-License-Identifier: BSD-2-Clause
"""`heddle doctor` on broken set-ups: each names the cause and the remedy."""

import ctypes
import json
import os
import resource
import shutil
import subprocess
import sys
import unittest

from fabric_case import FabricCase
from harness import BUILD_DIR, SOFTHCA, main, preload

HEDDLE = os.path.join(BUILD_DIR, "bin", "heddle")
PROVIDER = os.path.join(BUILD_DIR, "lib", "libheddle-fi.so")
LAUNCHERS = ("SLURM", "PBS_NODEFILE", "FI_", "HYDRA_", "HEDDLE_SSH")


# A process that opens the first device, so that the fabric stays.
MEMBER = """
import ctypes
verbs = ctypes.CDLL("libibverbs.so.1")
verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
verbs.ibv_open_device.argtypes = [ctypes.c_void_p]
verbs.ibv_open_device.restype = ctypes.c_void_p
assert verbs.ibv_open_device(verbs.ibv_get_device_list(None)[0])
print("ready", flush=True)
input()
"""


def limited_memory(kilobytes):
    """For a child process: `ulimit -l`, without the privilege to exceed it."""

    def limit():
        cap_ipc_lock, pr_capbset_drop = 14, 24
        ctypes.CDLL(None).prctl(pr_capbset_drop, cap_ipc_lock, 0, 0, 0)
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (kilobytes << 10, kilobytes << 10))

    return limit


@unittest.skipUnless(os.path.exists(PROVIDER), "the provider is not built")
class Doctor(FabricCase):
    def setUp(self):
        super().setUp()
        self.forget(LAUNCHERS)

    def examine(self, *options, softhca=(), command=HEDDLE, **rest):
        """The report of a process on the software HCA (softhca None: without), and its exit status."""
        words = [command, "doctor", "--json", *options]
        if softhca is None:
            result = self.softhca(*words[1:], command=command, **rest)
        else:
            result = self.softhca("run", *softhca, "--", *words, **rest)
        self.assertIn(result.returncode, (0, 1), result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual(result.returncode, int(report["problems"] > 0))
        for check in report["checks"]:
            self.assertTrue(check["verdict"] != "PROBLEM" or check["remedy"], check)
        return report

    def found(self, report, verdict):
        return {check["name"]: check for check in report["checks"] if check["verdict"] == verdict}

    def assert_only_problem(self, report, name, cause, remedy):
        """That it is the only one shows that a cause is not reported by its consequences, too."""
        problems = self.found(report, "PROBLEM")
        self.assertEqual(list(problems), [name], problems)
        self.assertIn(cause, problems[name]["seen"])
        self.assertIn(remedy, problems[name]["remedy"])

    def join(self, *softhca):
        """Keeps the fabric, whose first process decides on its ports."""
        words = [SOFTHCA, "run", *softhca, "--", sys.executable, "-c", MEMBER]
        member = subprocess.Popen(
            words, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.addCleanup(member.communicate, "\n", timeout=60)
        self.assertEqual(member.stdout.readline(), "ready\n")

    def port(self, *words):
        return self.assert_run(self.softhca("port", *words, command=SOFTHCA), 0)

    def test_nothing_is_wrong(self):
        for link, words in (("infiniband", "LID"), ("roce", "RoCE v2, IPv4")):
            self.environment["SOFTHCA_FABRIC"] = self.fabric[:50] + link
            report = self.examine(softhca=("--port", link))
            self.assertEqual(report["problems"], 0, report)
            fine = self.found(report, "ok")
            self.assertIn(words, fine["gid"]["seen"])
            self.assertEqual(report["state"], "ACTIVE")
            if report.get("libfabric"):
                self.assertIn("8 bytes in", fine["loop"]["seen"])

    def test_people_read_what_to_do(self):
        result = self.softhca("doctor", "--device", "mlx5_9", command=HEDDLE)
        self.assert_run(result, 1, out="PROBLEM")
        self.assertIn("-> ", result.stdout)
        self.assertIn("1 problem would stop a job here.", result.stdout)
        result = self.assert_run(self.softhca("run", "--", HEDDLE, "doctor"), 0)
        self.assertIn("Nothing here stops a job.", result.stdout)

    # -- set-ups that are broken: the cause, and what to do about it -------------------------------

    def test_no_device(self):
        if os.path.exists("/sys/class/infiniband") and os.listdir("/sys/class/infiniband"):
            self.skipTest("this machine has an adapter")
        self.assert_only_problem(self.examine(softhca=None), "device", "lists no device", "modprobe")

    def test_port_is_down(self):
        self.join()
        self.port("down")
        self.assert_only_problem(self.examine(), "port", "port 1 of mlx5_0 is DOWN", "softhca port up")
        self.port("up")
        self.assertEqual(self.examine()["problems"], 0)

    def test_states_of_a_port(self):
        """The state tells the subnet manager's part from the cable's."""
        down, init, armed, polling, link_up = "1", "2", "3", "2", "5"
        for state, physical, cause, remedy in (
            (init, link_up, "INIT", "no subnet manager"),
            (armed, link_up, "ARMED", "wait some seconds"),
            (down, polling, "DOWN", "softhca port up"),
        ):
            self.environment["LD_PRELOAD"] = preload("libport_state.so")
            report = self.examine(env={"PORT_STATE": state, "PORT_PHYSICAL_STATE": physical})
            self.assert_only_problem(report, "port", f"port 1 of mlx5_0 is {cause}", remedy)

    def test_no_such_device(self):
        report = self.examine(env={"FI_HEDDLE_DEVICE": "mlx5_7"})
        self.assert_only_problem(report, "device", "no device is named mlx5_7", "the devices are: mlx5_0")

    def test_ports_of_another_network(self):
        self.join("--port", "roce", "--devices", "2")
        table = json.loads(self.softhca("port", "--json", command=SOFTHCA).stdout)
        ipv4 = next(address for address in table[0]["addresses"] if ":" not in address)
        self.port("gid", "remove", ipv4)
        report = self.examine(softhca=("--port", "roce", "--devices", "2"))
        self.assertEqual(report["device"], "mlx5_1")
        note = self.found(report, "note")["networks"]
        self.assertIn("no other network: mlx5_0 (RoCE-fe80::/64)", note["seen"])
        self.assertIn("FI_HEDDLE_DEVICE", note["remedy"])
        report = self.examine(softhca=("--port", "roce", "--devices", "2"), env={"FI_HEDDLE_DEVICE": "mlx5_0"})
        self.assertEqual(report["device"], "mlx5_0")
        self.assertNotIn("networks", self.found(report, "note"))

    def test_no_such_partition(self):
        report = self.examine(env={"FI_HEDDLE_PKEY": "0x8123"})
        self.assert_only_problem(report, "partition", "0x8123", "unset FI_HEDDLE_PKEY")

    def test_empty_gid_table(self):
        self.join("--port", "roce")
        table = self.softhca("port", "--json", command=SOFTHCA).stdout
        (port,) = json.loads(table)
        link_local, ipv4 = sorted(port["addresses"], key=lambda address: ":" not in address)
        self.port("gid", "remove", ipv4)
        notes = self.found(self.examine(), "note")
        self.assertIn("link-local", notes["gid"]["seen"])
        self.assertIn("IPv4 address", notes["gid"]["remedy"])
        self.port("gid", "remove", link_local)
        self.assert_only_problem(self.examine(), "gid", "its table is empty", "ip addr add")

    def test_a_gid_that_is_not_there(self):
        report = self.examine(softhca=("--port", "roce"), env={"FI_HEDDLE_GID_INDEX": "200"})
        self.assert_only_problem(report, "gid", "entry 200", "unset FI_HEDDLE_GID_INDEX")

    def test_gid_of_roce_v1(self):
        report = self.examine(softhca=("--port", "roce"), env={"FI_HEDDLE_GID_INDEX": "0"})
        notes = self.found(report, "note")
        self.assertIn("RoCE v1", notes["gid"]["seen"])
        self.assertIn("unset FI_HEDDLE_GID_INDEX", notes["gid"]["remedy"])

    def test_memory_may_not_be_locked(self):
        if not self.is_limited():
            self.skipTest("CAP_IPC_LOCK cannot be dropped")
        report = self.examine(softhca=("--memlock", "enforce"), preexec_fn=limited_memory(512))
        problems = self.found(report, "PROBLEM")
        self.assertIn("ulimit -l is 512 KiB", problems["memlock"]["seen"])
        self.assertIn("ulimit -l unlimited", problems["memlock"]["remedy"])
        # More than a rank needs.
        report = self.examine(softhca=("--memlock", "enforce"), preexec_fn=limited_memory(7 << 10))
        self.assertEqual(report["problems"], 0, report)
        self.assertIn("memlock", self.found(report, "note"))

    def is_limited(self):
        result = self.softhca("-c", "grep CapBnd /proc/self/status", command="sh", preexec_fn=limited_memory(64))
        return not int(result.stdout.split()[1], 16) & 1 << 14

    def test_misspelt_option(self):
        report = self.examine(env={"FI_HEDDLE_RNVD": "auto"})
        self.assert_only_problem(report, "options", "FI_HEDDLE_RNVD", "did you mean FI_HEDDLE_RNDV?")

    def test_impossible_value(self):
        report = self.examine(env={"FI_HEDDLE_EAGER_SIZE": "1"})
        self.assert_only_problem(report, "options", "it must be 256 to 1048576", "correct FI_HEDDLE_EAGER_SIZE")

    def test_provider_is_not_there(self):
        os.makedirs(self.path("bin"))
        moved = shutil.copy(HEDDLE, self.path("bin", "heddle"))
        report = self.examine(command=moved)
        self.assert_only_problem(report, "provider", "looked in " + self.path("lib"), "bin/ and lib/")

    def test_provider_path_of_another(self):
        report = self.examine(env={"FI_PROVIDER_PATH": "/nowhere"})
        self.assert_only_problem(report, "provider", "FI_PROVIDER_PATH is /nowhere", os.path.dirname(PROVIDER))
        report = self.examine(env={"FI_PROVIDER": "tcp"})
        self.assert_only_problem(report, "provider", "FI_PROVIDER is tcp", "FI_PROVIDER=heddle")
        for names in ("heddle", "verbs,heddle", "^tcp,udp"):
            self.assertEqual(self.examine(env={"FI_PROVIDER": names})["problems"], 0, names)

    def test_libfabric_is_not_there(self):
        report = self.examine("--libfabric", "/nowhere/libfabric.so")
        self.assert_only_problem(report, "libfabric", "/nowhere/libfabric.so", "--libfabric")

    def test_transport_that_is_not_there(self):
        for transport in ("xrc", "dc"):
            self.environment["SOFTHCA_FABRIC"] = self.fabric[:50] + transport
            wanted = {"FI_HEDDLE_TRANSPORT": transport}
            report = self.examine(softhca=("--device", f"no-{transport}"), env=wanted)
            self.assert_only_problem(report, "transport", f"has no {transport.upper()}", "=auto uses")
            self.environment["SOFTHCA_FABRIC"] += "-all"
            report = self.examine(env=wanted)
            self.assertEqual(self.found(report, "ok")["transport"]["seen"], transport.upper())
            self.assertEqual(report["problems"], 0, report)
        report = self.examine(env={"FI_HEDDLE_TRANSPORT": "dc", "FI_HEDDLE_POST": "direct"})
        self.assert_only_problem(report, "transport", "does not post by DC", "FI_HEDDLE_POST=auto")

    def test_job_is_too_large_for_the_device(self):
        report = self.examine("-n", "4096", "--threads", "64")
        self.assert_only_problem(report, "limits", "262144 CQs of", "fewer ranks a host")
        # Queue pairs are made when ranks talk with each other.
        report = self.examine("-n", "400", "--threads", "4", softhca=("--device", "no-xrc"))
        notes = self.found(report, "note")
        self.assertIn("at most 2560000 QPs of", notes["limits"]["seen"])
        self.assertIn("a device with XRC", notes["limits"]["remedy"])
        self.assertEqual(list(self.found(self.examine("-n", "40", "--threads", "4"), "note")), [])


if __name__ == "__main__":
    main()
