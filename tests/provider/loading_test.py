# SPDX-License-Identifier: BSD-2-Clause
"""The provider as a file, as fi_info sees it, and its options. Each test runs on a fabric of its own."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.environ["HEDDLE_SOURCE_DIR"], "tests", "cli"))
from harness import (  # noqa: E402
    BUILD_DIR,
    SANITIZER,
    SOFTHCA,
    SOURCE_DIR,
    TEST_DIR,
    Case,
    main,
    preload,
)

PROVIDER = os.path.join(BUILD_DIR, "lib", "libheddle-fi.so")
HEDDLE = os.path.join(BUILD_DIR, "bin", "heddle")
FI_INFO = shutil.which("fi_info")


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@unittest.skipIf(SANITIZER, "a sanitizer's build carries its runtime")
class File(unittest.TestCase):
    def test_exports_one_symbol(self):
        lines = output_of("nm", "-D", "--defined-only", PROVIDER).splitlines()
        exported = {line.split()[-1] for line in lines}
        self.assertEqual(exported, {"fi_prov_ini"})

    def test_needs_the_devices_libraries_alone(self):
        needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", output_of("readelf", "-dW", PROVIDER)))
        allowed = {"libibverbs.so.1", "libmlx5.so.1", "libhwloc.so.15", "libc.so.6"}
        allowed |= {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1", "libm.so.6"}
        # Where threads and dlsym are libraries beside libc (glibc before 2.34).
        allowed |= {"libpthread.so.0", "libdl.so.2"}
        self.assertLessEqual(needed, allowed)

    def test_asks_for_no_symbol_of_libfabric_or_libstdcxx(self):
        for line in output_of("nm", "-DC", "--undefined-only", PROVIDER).splitlines():
            symbol = line.split(maxsplit=1)[1]
            self.assertNotRegex(symbol, r"^fi_|^std::|GLIBCXX|CXXABI")


class Info(Case):
    def fi_info(self, *arguments, device=True, **variables):
        """Output and complaints of fi_info, on the software HCA or without any device."""
        if not FI_INFO:
            self.skipTest("fi_info is not installed (libfabric-bin)")
        environment = {
            **self.environment,
            "FI_PROVIDER_PATH": os.path.dirname(PROVIDER),
            "FI_PROVIDER": "heddle",
            **variables,
        }
        command = [FI_INFO, *arguments]
        if device:
            command = [SOFTHCA, "run", "--", *command]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=60, check=False
        )

    def test_lists_the_device(self):
        result = self.fi_info("-p", "heddle", "-v")
        self.assertEqual(result.returncode, 0, result.stderr)
        for expected in (
            r"prov_name: heddle",
            r"name: mlx5_0",
            r"name: InfiniBand",
            r"type: FI_EP_RDM",
            r"mr_mode: \[.*FI_MR_VIRT_ADDR, FI_MR_ALLOCATED, FI_MR_PROV_KEY.*\]",
            r"max_msg_size: 1099511627776",
        ):
            self.assertRegex(result.stdout, expected)

    def test_lists_the_options(self):
        result = self.fi_info("-e")
        self.assertEqual(result.returncode, 0, result.stderr)
        for option in json.loads(output_of(HEDDLE, "options", "--json")):
            self.assertIn(option["variable"], result.stdout)

    def test_without_a_device_says_why(self):
        result = self.fi_info("-p", "heddle", device=False, FI_LOG_LEVEL="warn")
        if result.returncode == 0:
            self.skipTest("this machine has a device")
        self.assertIn("heddle:", result.stderr)
        self.assertIn("nothing is offered:", result.stderr)

    def test_another_device_is_not_used(self):
        result = self.fi_info("-p", "heddle", FI_HEDDLE_DEVICE="mlx5_9", FI_LOG_LEVEL="warn")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("mlx5_0: FI_HEDDLE_DEVICE does not name it", result.stderr)

    def test_values_that_are_not_possible(self):
        for variable, value, possible in (
            ("FI_HEDDLE_EAGER_SIZE", "12", "256 to 1048576"),
            ("FI_HEDDLE_EAGER_SIZE", "2M", "256 to 1048576"),
            ("FI_HEDDLE_EAGER_SIZE", "8000 bytes", "256 to 1048576"),
            ("FI_HEDDLE_INJECT_SIZE", "-1", "0 to 8192"),
            ("FI_HEDDLE_ENDPOINTS", "3xdynamic", "2xdynamic, dynamic"),
            ("FI_HEDDLE_POST", "fast", "auto, verbs, direct"),
            ("FI_HEDDLE_TRANSPORT", "perhaps", "auto, xrc, rc, dc"),
            ("FI_HEDDLE_RNDV", "get", "rget, rput"),
            ("FI_HEDDLE_STATS", "json", "off, stderr"),
            ("FI_HEDDLE_CONNECT_TIMEOUT", "1", "100 to 600000"),
        ):
            with self.subTest(variable=variable, value=value):
                result = self.fi_info("-p", "heddle", **{variable: value})
                self.assertEqual(result.returncode, 0, "the default is used")
                self.assertRegex(result.stderr, f"heddle: {variable}='{value}' .*{possible}")

    def test_how_much_may_be_injected(self):
        for expected, chosen in (
            (1024, {}),
            (1024, {"FI_HEDDLE_REUSE": "auto"}),
            (128, {"FI_HEDDLE_REUSE": "16"}),  # what is injected is never sent from where it stands
            (64, {"FI_HEDDLE_REUSE": "16", "FI_HEDDLE_INLINE_SIZE": "64"}),
            (2048, {"FI_HEDDLE_REUSE": "16", "FI_HEDDLE_INJECT_SIZE": "2K"}),
            (512, {"FI_HEDDLE_EAGER_SIZE": "512"}),
        ):
            with self.subTest(chosen=chosen):
                result = self.fi_info("-p", "heddle", "-v", **chosen)
                self.assertIn(f"inject_size: {expected}\n", result.stdout)

    def test_values_that_are_possible(self):
        result = self.fi_info(
            "-p",
            "heddle",
            "-v",
            FI_HEDDLE_EAGER_SIZE="16K",
            FI_HEDDLE_INJECT_SIZE="64",
            FI_HEDDLE_ENDPOINTS="MPI+Threads",
            FI_HEDDLE_TRANSPORT="rc",
            FI_HEDDLE_STATS="",
        )
        self.assertEqual(result.stderr, "")
        self.assertIn("inject_size: 64", result.stdout)

    def test_unknown_options(self):
        result = self.fi_info("-p", "heddle", FI_HEDDLE_EAGRE_SIZE="1024")
        self.assertIn("FI_HEDDLE_EAGRE_SIZE is no option", result.stderr)

    def test_complaints_go_to_the_log_where_there_is_one(self):
        result = self.fi_info("-p", "heddle", FI_LOG_LEVEL="warn", FI_HEDDLE_POST="fast")
        self.assertRegex(result.stderr, r"libfabric:.*heddle.*FI_HEDDLE_POST='fast'")


class Statistics(Case):
    PROGRAM = os.path.join(os.environ["HEDDLE_TEST_DIR"], "fi_exchange")

    def test_as_a_table(self):
        result = self.softhca("run", "--", self.PROGRAM, env={"FI_HEDDLE_STATS": "stderr"})
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stderr, r"heddle: process \d+, mlx5_0, endpoints 2xdynamic\n")
        self.assertRegex(result.stderr, r"heddle:   endpoints +2\n")
        self.assertRegex(result.stderr, r"heddle:   messages sent by rendezvous +1\n")
        self.assertNotRegex(result.stderr, r"(?m) 0$", "what is zero is left out")

    def test_as_json_in_a_file(self):
        file = self.path("stats.json")
        for _ in range(2):
            result = self.softhca("run", "--", self.PROGRAM, env={"FI_HEDDLE_STATS": file})
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(result.stderr, "")
        with open(file, encoding="utf-8") as text:
            reports = [json.loads(line) for line in text]
        self.assertEqual(len(reports), 2, "one of each process, appended")
        for report in reports:
            self.assertEqual(report["device"], "mlx5_0")
            self.assertEqual(report["endpoints"], 2)
            self.assertEqual(report["rendezvous"], 1)
            self.assertGreaterEqual(report["received"], 3)  # and what the protocol says
            self.assertGreater(report["qps"], 0)
            self.assertGreater(report["uars"], 0)

    def test_off(self):
        result = self.softhca("run", "--", self.PROGRAM)
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_a_file_that_cannot_be_written(self):
        result = self.softhca("run", "--", self.PROGRAM, env={"FI_HEDDLE_STATS": "/nowhere/x"})
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stderr, "FI_HEDDLE_STATS: /nowhere/x cannot be written")

    def test_a_link_is_not_followed(self):
        victim, link = self.write("victim", "untouched"), self.path("stats.json")
        os.symlink(victim, link)
        result = self.softhca("run", "--", self.PROGRAM, env={"FI_HEDDLE_STATS": link})
        self.assertEqual(result.returncode, 0)
        self.assertIn(f"FI_HEDDLE_STATS: {link} cannot be written: it is a symbolic link", result.stderr)
        with open(victim, encoding="utf-8") as file:
            self.assertEqual(file.read(), "untouched")

    @contextlib.contextmanager
    def signalled(self, **variables):
        """A running program that has got SIGUSR2."""
        with subprocess.Popen(
            [SOFTHCA, "run", "--", self.PROGRAM, "wait"],
            env={**self.environment, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            self.assertEqual(process.stdout.readline(), "ready\n")
            process.send_signal(signal.SIGUSR2)
            yield process

    def test_on_a_signal(self):
        file = self.path("stats.json")
        with self.signalled(FI_HEDDLE_STATS=file) as process:
            end = time.monotonic() + 20
            while not os.path.exists(file) and time.monotonic() < end:
                time.sleep(0.01)
            process.stdin.close()
            shown = process.stderr.read()
            self.assertEqual(process.wait(timeout=20), 0)
        self.assertEqual(shown.count("heddle: process "), 1, "the signal's table")
        with open(file, encoding="utf-8") as text:
            reports = [json.loads(line) for line in text]
        self.assertEqual(len(reports), 2, "on the signal, and at the end")
        self.assertEqual(reports[0]["endpoints"], 2)
        self.assertEqual([report["when"] for report in reports], ["signal", "end"])

    def test_on_a_signal_without_the_option(self):
        """It would end the process if nobody handled it."""
        with self.signalled() as process:
            self.assertIn("heddle: process ", process.stderr.readline())
            process.stdin.close()
            rest = process.stderr.read()
            self.assertEqual(process.wait(timeout=20), 0)
        self.assertNotIn("heddle: process ", rest, "nothing at the end")


class WithoutThreadDomains(Case):
    """A device of another vendor, whose driver has none."""

    PROGRAM = os.path.join(TEST_DIR, "fi_exchange")
    SAID = "mlx5_0 has no thread domains: endpoints are made as static"

    def exchange(self, **variables):
        variables["LD_PRELOAD"] = preload("libwithout_thread_domains.so")
        result = self.softhca("run", "--", self.PROGRAM, env=variables)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stderr

    def test_default_settings_work(self):
        self.assertEqual(self.exchange(), "")
        self.assertEqual(self.exchange(FI_LOG_LEVEL="warn").count(self.SAID), 1)

    def test_another_category_than_was_asked_for_is_said_once(self):
        for category in ("2xdynamic", "dynamic", "shared-dynamic"):
            with self.subTest(category=category):
                said = self.exchange(FI_HEDDLE_ENDPOINTS=category)
                self.assertEqual(said, f"heddle: {self.SAID} (FI_HEDDLE_ENDPOINTS)\n")

    def test_what_needs_none_is_made_as_ever(self):
        for category in ("mpi-everywhere", "static", "mpi+threads"):
            with self.subTest(category=category):
                self.assertEqual(self.exchange(FI_HEDDLE_ENDPOINTS=category), "")

    def test_statistics_have_the_category_that_was_made(self):
        said = self.exchange(FI_HEDDLE_STATS="stderr")
        self.assertRegex(said, r"heddle: process \d+, mlx5_0, endpoints static\n")


class Documentation(unittest.TestCase):
    def test_is_what_the_table_says(self):
        with open(os.path.join(SOURCE_DIR, "docs", "reference", "options.md"), encoding="utf-8") as file:
            self.assertEqual(
                file.read(),
                output_of(HEDDLE, "options", "--markdown"),
                "run `heddle options --markdown > docs/reference/options.md`",
            )

    def test_the_manual_has_the_table(self):
        with open(os.path.join(SOURCE_DIR, "man", "fi_heddle.7"), encoding="utf-8") as file:
            self.assertIn(
                output_of(HEDDLE, "options", "--man"),
                file.read(),
                "put what `heddle options --man` prints into man/fi_heddle.7",
            )


if __name__ == "__main__":
    main()
