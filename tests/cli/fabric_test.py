# SPDX-License-Identifier: BSD-2-Clause
"""`softhca stat`, `top`, `list` and `clean` on fabrics with live and with killed processes."""

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import time

from harness import SOFTHCA, SOURCE_DIR, TEST_DIR, Case, main
from terminal import Terminal

TOP = [SOFTHCA, "top", "--interval", "0.2"]


class Holder:
    """A running cli_holder (holder.c)."""

    def __init__(self, case, fabric=None):
        environment = dict(case.environment)
        if fabric:
            environment["SOFTHCA_FABRIC"] = fabric
        self.process = subprocess.Popen(
            [SOFTHCA, "run", os.path.join(TEST_DIR, "cli_holder")],
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        case.addCleanup(self.end)
        words = self.process.stdout.readline().split()
        case.assertEqual(words[:1], ["ready"])
        self.qps = [int(word) for word in words[1:]]

    @property
    def pid(self):
        return self.process.pid

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    @contextlib.contextmanager
    def stopped(self):
        """While it is stopped it reclaims nothing."""
        self.process.send_signal(signal.SIGSTOP)
        # The signal is sent; this returns when all of its threads have stopped.
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        """Lets it end by itself; its exit status."""
        if self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()
        self.process.stdin.close()
        self.process.stdout.close()
        return self.process.returncode


class FabricCase(Case):
    def setUp(self):
        super().setUp()
        # In a directory of its own: each `softhca run` removes the fabrics of killed processes,
        # which other tests start meanwhile.
        base = tempfile.mkdtemp(prefix="softhca-test-", dir="/dev/shm")
        self.addCleanup(shutil.rmtree, base)
        self.environment["SOFTHCA_DIRECTORY"] = base
        self.folder = os.path.join(base, f"softhca-{os.getuid()}")
        # After all holders have ended (cleanups run backwards), nothing may be left.
        self.addCleanup(self.check_nothing_left)

    def check_nothing_left(self):
        self.softhca("clean")
        self.assertEqual(self.files(), [])

    def files(self, fabric=None):
        """What there is of a fabric, of this test's without an argument."""
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return []
        return sorted(name for name in names if name.rsplit(".", 1)[0] == (fabric or self.fabric))

    def stat(self):
        return json.loads(self.assert_run(self.softhca("stat", "--json"), 0).stdout)


class Identity(FabricCase):
    def guid(self, fabric):
        path = "/sys/class/infiniband/mlx5_0/node_guid"
        shown = self.softhca("run", "--fabric", fabric, "--", "/usr/bin/cat", path)
        return self.assert_run(shown, 0).stdout.strip()

    def test_each_fabric_has_a_guid(self):
        other = self.fabric[:60] + "-2"
        first, second = self.guid(self.fabric), self.guid(other)
        self.assertRegex(first, r"^0250:4f[0-9a-f]{2}:[0-9a-f]{4}:[0-9a-f]{4}$")
        self.assertNotEqual(first, second)
        self.assertEqual(self.guid(self.fabric), first)


class Stat(FabricCase):
    def test_objects(self):
        holder = Holder(self)
        stat = self.stat()
        self.assertEqual(stat["fabric"], self.fabric)
        (process,) = stat["processes"]
        expected = {
            "pid": holder.pid,
            "command": "cli_holder",
            "alive": True,
            "contexts": 1,
            "pds": 1,
            "mrs": 1,
            "qps": 2,
            "cqs": 2,
            "srqs": 1,
            "xrcds": 0,
            "mr_bytes": 128,
        }
        self.assertEqual({key: process[key] for key in expected}, expected)
        self.assertEqual(sorted(qp["qp"] for qp in stat["qps"]), sorted(holder.qps))
        by_number = {qp["qp"]: qp for qp in stat["qps"]}
        first, second = (by_number[number] for number in holder.qps)
        self.assertEqual(
            (first["type"], first["state"], first["remote_qp"]), ("RC", "RTS", second["qp"])
        )
        self.assertEqual(len(stat["contexts"]), 1)
        self.assertEqual(len(stat["cqs"]), 2)
        self.assertEqual(len(stat["srqs"]), 1)
        self.assertGreater(process["queue_bytes"], 16 * 64)
        # A page at least of the region, of each queue, and one of doorbell records.
        self.assertGreaterEqual(process["pinned_bytes"], 7 * 4096)
        self.assertEqual(process["pinned_bytes"] % 4096, 0)

    def test_uars_of_both_kernels(self):
        # If libmlx5 chose the page itself, the device knows the page but not which half is used.
        for kernel, pages, uuars in (("static", [8], [2]), ("dynamic", [2, 3], [1, 2])):
            self.environment["SOFTHCA_UAR"] = kernel
            holder = Holder(self)
            stat = self.stat()
            self.assertEqual(stat["contexts"][0]["uar"], kernel)
            self.assertIn(stat["processes"][0]["uar_pages"], pages)
            self.assertIn(stat["processes"][0]["uuars"], uuars)
            self.assertEqual(holder.end(), 0)

    def test_counters_are_exact(self):
        holder = Holder(self)
        self.assertEqual(holder.tell("write 37"), "done")
        self.assertEqual(holder.tell("send 5"), "done")
        stat = self.stat()
        by_number = {qp["qp"]: qp["counters"] for qp in stat["qps"]}
        sender, receiver = (by_number[number] for number in holder.qps)
        self.assertEqual(sender["wqes"], 42)
        self.assertEqual(sender["doorbells"] + sender["blueflame"], 42)
        self.assertEqual(sender["dma_read_payload"], 42)
        self.assertEqual(sender["bytes_sent"], 42 * 64)
        self.assertEqual(sender["rnr_naks"] + sender["retries"], 0)
        self.assertEqual(receiver["wqes"], 0)
        self.assertEqual(receiver["dma_write_payload"], 42)
        self.assertEqual(sum(cq["counters"]["dma_write_cqe"] for cq in stat["cqs"]), 42 + 5)
        self.assertEqual(stat["srqs"][0]["counters"]["dma_read_wqe"], 5)
        # Sums agree at every level.
        total = stat["contexts"][0]["counters"]
        self.assertEqual(stat["processes"][0]["counters"], total)
        for key in total:
            parts = [*stat["qps"], *stat["cqs"], *stat["srqs"]]
            self.assertEqual(total[key], sum(part["counters"][key] for part in parts), key)

    def test_manual_has_every_field(self):
        Holder(self)
        with open(os.path.join(SOURCE_DIR, "man", "softhca.1"), encoding="utf-8") as file:
            words = set(re.findall(r"[a-z_]+", file.read()))
        stat = self.stat()
        fields = set(stat)
        for part in ("processes", "contexts", "qps", "cqs", "srqs"):
            fields |= set(stat[part][0])
        fields |= set(stat["qps"][0]["counters"])
        self.assertLessEqual(fields, words)

    def test_text(self):
        holders = [Holder(self), Holder(self)]
        text = self.assert_run(self.softhca("stat"), 0).stdout
        self.assertIn(f"fabric {self.fabric}: 2 processes", text)
        for holder in holders:
            self.assertRegex(text, rf"(?m)^ *{holder.pid}  cli_holder +1 +1 +1 +2 +2 +1 ")
            for number in holder.qps:
                self.assertRegex(text, rf"(?m)^ *{number:#x} +{holder.pid}  RC +RTS ")
        first_table = text.split("\n\n")[1]
        self.assertLessEqual(max(map(len, first_table.splitlines())), 90)

    def test_fabric_by_option_and_by_variable(self):
        Holder(self)
        for result in (
            self.softhca("stat", "--fabric", self.fabric, env={"SOFTHCA_FABRIC": "other"}),
            self.softhca("stat", env={"SOFTHCA_FABRIC": self.fabric}),
        ):
            self.assert_run(result, 0, out=f"fabric {self.fabric}: 1 process,")

    def test_no_such_fabric(self):
        other = self.fabric[:50] + "-other"
        self.assert_run(self.softhca("stat", "--fabric", other), 1, err=f"no fabric '{other}'")
        self.assert_run(self.softhca("stat", "--fabric", "a/b"), 2, err="not possible")
        self.assert_run(self.softhca("stat", env={"SOFTHCA_FABRIC": ".x"}), 2, err="SOFTHCA_FABRIC")

    def test_a_dead_process_is_called_dead(self):
        holder = Holder(self)
        holder.kill()
        self.assertFalse(self.stat()["processes"][0]["alive"])
        self.assert_run(self.softhca("stat"), 0, out="cli_holder (dead)")


class List(FabricCase):
    def entry(self):
        entries = json.loads(self.assert_run(self.softhca("list", "--json"), 0).stdout)
        return next((entry for entry in entries if entry["fabric"] == self.fabric), None)

    def test_live_and_dead(self):
        self.assertIsNone(self.entry())
        first, second = Holder(self), Holder(self)
        self.assertEqual(self.entry(), {"fabric": self.fabric, "live": 2, "dead": 0})
        with second.stopped():
            first.kill()
            self.assertEqual(self.entry(), {"fabric": self.fabric, "live": 1, "dead": 1})
        self.assert_run(self.softhca("list"), 0, out=self.fabric)
        self.assertIn(self.fabric, self.softhca("list", "--names").stdout.splitlines())
        self.assertEqual(second.end(), 0)
        self.assertIsNone(self.entry())


class Clean(FabricCase):
    def test_nothing_to_clean(self):
        self.assert_run(self.softhca("clean"), 0, out="nothing to clean")
        self.assertEqual(self.files(), [])

    def test_killed_process(self):
        Holder(self).kill()
        self.assertEqual(self.files(), [self.fabric + ".fabric", self.fabric + ".tree"])
        self.assert_run(self.softhca("clean", "--dry-run"), 0, out="would remove")
        self.assertEqual(self.files(), [self.fabric + ".fabric", self.fabric + ".tree"])
        self.assert_run(self.softhca("clean"), 0, out=f"removed fabric {self.fabric}")
        self.assertEqual(self.files(), [])

    def test_live_process_is_in_the_way(self):
        holder = Holder(self)
        self.assert_run(self.softhca("clean"), 1, err="1 live process uses it")
        self.assertEqual(holder.tell("write 3"), "done")
        self.assertEqual(holder.end(), 0)
        self.assertEqual(self.files(), [])

    def test_dead_among_the_living(self):
        dead, alive = Holder(self), Holder(self)
        with alive.stopped():
            dead.kill()
            self.assertEqual(len(self.stat()["processes"]), 2)
            self.assert_run(
                self.softhca("clean", "--fabric", self.fabric, env={"SOFTHCA_FABRIC": "elsewhere"}),
                1,
                out="removed what 1 dead process left",
            )
        stat = self.stat()
        self.assertEqual([process["pid"] for process in stat["processes"]], [alive.pid])
        self.assertEqual(sorted(qp["qp"] for qp in stat["qps"]), sorted(alive.qps))
        self.assertEqual(alive.tell("send 3"), "done")
        self.assertEqual(alive.end(), 0)

    def test_force(self):
        holder = Holder(self)
        self.assert_run(self.softhca("clean", "--force"), 0, out="1 live process")
        self.assertEqual(self.files(), [])
        self.assertEqual(holder.tell("write 3"), "done")
        self.assertEqual(holder.end(), 0)

    def test_half_a_fabric(self):
        Holder(self).kill()
        os.unlink(os.path.join(self.folder, self.fabric + ".fabric"))
        self.assert_run(self.softhca("clean"), 0, out="removed")
        self.assertEqual(self.files(), [])

    def test_damaged_segment(self):
        Holder(self).kill()
        with open(os.path.join(self.folder, self.fabric + ".fabric"), "r+b") as file:
            file.write(b"\xff" * 4096)
        self.assert_run(self.softhca("stat"), 1, err="another version")
        self.assert_run(self.softhca("list"), 0, out=self.fabric)
        self.assert_run(self.softhca("clean"), 0, out="removed")
        self.assertEqual(self.files(), [])

    def test_random_segments_do_not_hurt(self):
        holder = Holder(self)
        holder.kill()
        path = os.path.join(self.folder, self.fabric + ".fabric")
        # Behind the heading everything may be anything.
        for seed in (b"\xff", b"\x01", b"\x02\x00\x00\x00"):
            with open(path, "r+b") as file:
                for offset in range(64, 1 << 20, 4096 * 3):
                    file.seek(offset)
                    file.write(seed * (2000 // len(seed)))
            self.assertIn(self.softhca("stat").returncode, (0, 1))
            self.assertIn(self.softhca("stat", "--json").returncode, (0, 1))

    def test_all_dry_run_names_it(self):
        Holder(self).kill()
        self.assert_run(
            self.softhca("clean", "--all", "--dry-run", env={"SOFTHCA_FABRIC": None}),
            0,
            out=f"would remove fabric {self.fabric}\n",
        )

    def test_all_excludes_a_name(self):
        self.assert_run(self.softhca("clean", "--all", "--fabric", "x"), 2)


class DeadFabrics(FabricCase):
    """Whatever `softhca run` starts, it first removes the fabrics that killed jobs have left."""

    OTHER = "cli-dead-fabrics-other"

    def run_something(self):
        self.assert_run(self.softhca("run", "--fabric", "cli-dead-fabrics-new", "--", "true"), 0)

    def test_they_go(self):
        Holder(self).kill()
        Holder(self, self.OTHER).kill()
        # The second `softhca run` has removed what the first job left.
        self.assertEqual(self.files(), [])
        self.assertNotEqual(self.files(self.OTHER), [])
        self.run_something()
        self.assertFalse(os.path.exists(self.folder))

    def test_those_in_use_stay(self):
        holder = Holder(self)
        killed = Holder(self, self.OTHER)
        survivor = Holder(self, self.OTHER)
        killed.kill()
        self.run_something()
        for process in (holder, survivor):
            self.assertEqual(process.tell("write 3"), "done")
        with holder.stopped():
            survivor.kill()
            self.run_something()
            self.assertEqual(self.files(self.OTHER), [])
            self.assertNotEqual(self.files(), [])
        self.assertEqual(holder.tell("write 3"), "done")
        self.assertEqual(len(self.stat()["processes"]), 1)

    def test_those_of_another_version_go(self):
        Holder(self).kill()
        os.truncate(os.path.join(self.folder, self.fabric + ".fabric"), 4096)
        self.run_something()
        self.assertEqual(self.files(), [])

    def test_nobody_waits_for_the_lock(self):
        Holder(self).kill()
        directory = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        self.addCleanup(os.close, directory)
        fcntl.flock(directory, fcntl.LOCK_EX)
        self.run_something()
        self.assertNotEqual(self.files(), [])
        fcntl.flock(directory, fcntl.LOCK_UN)


class Directory(Case):
    """The directory of a user is used only if nobody else can have made it."""

    USER = 65534

    def test_foreign_directories(self):
        directory = f"/dev/shm/softhca-{self.USER}"
        if os.getuid() != 0 or os.path.lexists(directory):
            self.skipTest("only root can make another user's directory")
        for make in (
            lambda: os.mkdir(directory, 0o700),
            lambda: os.symlink("/tmp", directory),
            lambda: self.own_directory(directory, 0o755),
            lambda: open(directory, "w", encoding="utf-8").close(),
        ):
            make()
            try:
                result = self.softhca("list", user=self.USER, group=self.USER)
                self.assert_run(result, 1, err=directory)
            except PermissionError:
                self.skipTest("another user cannot reach the build directory")
            finally:
                (
                    os.rmdir(directory)
                    if os.path.isdir(directory) and not os.path.islink(directory)
                    else os.unlink(directory)
                )

    def own_directory(self, directory, mode):
        os.mkdir(directory)
        os.chown(directory, self.USER, self.USER)
        os.chmod(directory, mode)


class Namespaces(FabricCase):
    """The numbers of processes in a fabric mean something within one PID namespace."""

    def in_another(self, *command, **variables):
        return subprocess.run(
            ["unshare", "--pid", "--fork", "--kill-child", *command],
            env={**self.environment, **variables},
            capture_output=True,
            text=True,
            timeout=60,
        )

    def setUp(self):
        super().setUp()
        if self.in_another("true").returncode != 0:
            self.skipTest("no other PID namespace can be made")

    def test_refuses_processes_of_another(self):
        Holder(self)
        result = self.in_another(SOFTHCA, "run", "ibv_devinfo")
        self.assertNotEqual(result.returncode, 0, result.stdout)
        self.assertIn("PID namespace", result.stderr)
        self.assertIn("SOFTHCA_FABRIC", result.stderr)
        self.assertEqual(len(self.stat()["processes"]), 1)

    def test_each_may_have_a_fabric_of_its_own(self):
        Holder(self)
        other = self.fabric[:56] + "-other"
        result = self.in_another(SOFTHCA, "run", "ibv_devinfo", SOFTHCA_FABRIC=other)
        self.assertEqual(result.returncode, 0, result.stderr)


class Top(FabricCase, Terminal):
    def test_rates_add_up(self):
        holder = Holder(self)
        with subprocess.Popen(
            [SOFTHCA, "top", "--json", "--interval", "0.2"],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as top:
            lines = [json.loads(top.stdout.readline())]
            holder.tell("write 500")
            lines += [json.loads(top.stdout.readline()) for _ in range(3)]
            self.assertEqual(holder.end(), 0)
            _, errors = top.communicate(timeout=60)
        counted = sum(line["total"]["wqes"] * line["seconds"] for line in lines)
        self.assertAlmostEqual(counted, 500, delta=0.01)
        self.assertEqual(lines[0]["processes"][0]["pid"], holder.pid)
        self.assertIn("has ended", errors)
        self.assertEqual(top.returncode, 0)

    def test_once(self):
        Holder(self)
        for once in (["--once"], []):  # without a terminal it is the same
            result = self.softhca("top", "--interval", "0.1", *once)
            self.assert_run(result, 0, out="cli_holder")
            self.assertRegex(result.stdout, r"BYTES +RESENT\n.*cli_holder( +\S+){11}\n")

    def test_usage(self):
        for interval in ("0", "-1", "4000", "x"):
            self.assert_run(self.softhca("top", "--interval=" + interval), 2, err="--interval")
        self.assert_run(self.softhca("top"), 1, err="no fabric")

    def test_q_quits(self):
        Holder(self)
        text, status = self.screen(
            TOP, 80, [(b"cli_holder", lambda terminal, _: os.write(terminal, b"q"))]
        )
        self.assertEqual(status, 0)
        self.check_screen(text, 80)

    def test_interrupt_restores_the_terminal(self):
        Holder(self)
        text, status = self.screen(
            TOP, 80, [(b"cli_holder", lambda _, top: top.send_signal(signal.SIGINT))]
        )
        self.assertEqual(status, 0)
        self.check_screen(text, 80)

    def test_resize(self):
        Holder(self)

        def shrink(terminal, process):
            fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 10, 30, 0, 0))
            process.send_signal(signal.SIGWINCH)

        text, status = self.screen(
            TOP,
            80,
            [
                (b"cli_holder", shrink),
                (b"cli_holder", lambda *_: None),
                (b"cli_holder", lambda terminal, _: os.write(terminal, b"q")),
            ],
        )
        self.assertEqual(status, 0)
        last = text.split("\x1b[H")[-1]
        self.check_screen("\x1b[?1049h" + last, 30)

    def test_fabric_ends_meanwhile(self):
        holder = Holder(self)
        text, status = self.screen(
            TOP,
            80,
            [
                (b"cli_holder", lambda *_: self.assertEqual(holder.end(), 0)),
                (b"has ended", lambda *_: Holder(self)),
                (b"cli_holder", lambda terminal, _: os.write(terminal, b"q")),
            ],
        )
        self.assertEqual(status, 0)
        self.check_screen(text, 80)


if __name__ == "__main__":
    main()
