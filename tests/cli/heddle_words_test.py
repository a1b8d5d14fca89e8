# SPDX-License-Identifier: BSD-2-Clause
"""What the command `heddle` says of itself (--help), of words it does not know, and where there is no
device."""

import json
import os
import re
import shutil
import unittest

from harness import BUILD_DIR, Case, main, preload

HEDDLE = os.path.join(BUILD_DIR, "bin", "heddle")
HAS_RDMA = os.path.exists("/sys/class/infiniband_verbs")


class Words(Case):
    def heddle(self, *arguments, status, **options):
        return self.assert_run(self.softhca(*arguments, command=HEDDLE, **options), status)

    def test_a_misspelled_command(self):
        said = self.heddle("runn", status=2).stderr
        self.assertIn("heddle: there is no command 'runn', but run, compare, top, info", said)
        self.assertIn("did you mean 'run'?", said)
        self.assertIn("Try 'heddle --help'", said)
        said = self.heddle("bench", "overlpa", "--json", status=2).stderr
        self.assertIn("heddle bench: there is no command 'overlpa'", said)
        self.assertIn("did you mean 'overlap'?", said)

    def test_a_word_like_no_other(self):
        said = self.heddle("bench", "foo", status=2).stderr
        self.assertIn("heddle bench: there is no command 'foo', but global-array, stencil", said)
        self.assertNotIn("did you mean", said)

    def test_a_misspelled_option(self):
        for words, wrong, right in (
            (("--halp",), "--halp", "--help"),
            (("plan", "--thread=3"), "--thread=3", "--threads"),
            (("bench", "stencil", "--threads", "1", "--depht", "4"), "--depht", "--depth"),
            (("run", "--endpoint", "static", "true"), "--endpoint", "--endpoints"),
        ):
            said = self.heddle(*words, status=2).stderr
            self.assertIn(f"there is no option {wrong}; did you mean '{right}'?", said)

    def test_a_missing_command(self):
        said = self.heddle("bench", status=2).stderr
        self.assertIn("heddle bench: a command is missing: global-array, stencil", said)
        self.assertIn("Usage: heddle COMMAND", self.heddle(status=2).stderr)

    def test_a_misspelled_word_of_softhca(self):
        said = self.assert_run(self.softhca("lits"), 2).stderr
        self.assertIn("there is no command 'lits', but run, stat, top", said)
        self.assertIn("did you mean 'list'? To start a program: softhca run lits\n", said)
        said = self.assert_run(self.softhca("stat", "--josn"), 2).stderr
        self.assertIn("softhca stat: there is no option --josn; did you mean '--json'?", said)
        self.assert_run(self.softhca("run", "--enigne", "inline", "true"), 125, err="'--engine'?")

    def test_the_options_of_the_provider(self):
        environment = {"FI_HEDDLE_POST": "direct", "FI_HEDDLE_RINGS": "many"}
        known = json.loads(self.heddle("options", "--json", status=0, env=environment).stdout)
        self.assertGreater(len(known), 20)
        shown = self.heddle("options", status=0, env=environment).stdout
        for option in known:
            self.assertRegex(shown, f"(?m)^{option['variable']}$")
        self.assertIn("    default: auto\n    set to: direct\n", shown)
        self.assertIn("    set to: many, which is not possible\n", shown)

    def commands(self, *before):
        yield before
        text = self.heddle(*before, "--help", status=0).stdout
        if "Subcommands:" in text:
            listed = text.split("Subcommands:")[1]
            for name in re.findall(r"^  ([a-z-]+)(?:  |$)", listed, re.MULTILINE):
                yield from self.commands(*before, name)

    def test_help_fits_a_terminal(self):
        commands = list(self.commands())
        self.assertGreater(len(commands), 20)
        for command in commands:
            if command in (("reproduce",), ("report",)):
                continue  # Python's argparse
            text = self.heddle(*command, "--help", status=0).stdout
            self.assertEqual([line for line in text.splitlines() if len(line) > 80], [], command)
            self.assertIn(" ".join(("Usage: heddle", *command)), text)

    def test_help_has_ranges_and_defaults(self):
        text = re.sub(r"\s+", " ", self.heddle("bench", "stencil", "--help", status=0).stdout)
        self.assertIn("--iterations N of a repetition [1 to 1073741824; default 50]", text)
        self.assertIn("[default 256x64]", text)
        text = re.sub(r"\s+", " ", self.heddle("run", "--help", status=0).stdout)
        self.assertIn("always, never [default auto]", text)
        self.assertNotIn("default 0", text)
        text = self.heddle("plan", "--help", status=0).stdout
        self.assertIn("Usage: heddle plan --threads N [OPTION...]", text)

    @unittest.skipIf(HAS_RDMA, "the kernel has RDMA")
    def test_no_device(self):
        for command in (("info",), ("plan", "--threads", "2"), ("calibrate",),
                        ("bench", "message-rate")):
            said = self.heddle(*command, status=1).stderr
            self.assertIn("the kernel module ib_uverbs is not loaded", said)
            self.assertIn("modprobe -a ib_uverbs mlx5_ib", said)
            self.assertIn(f"softhca run -- heddle {' '.join(command)}\n", said)
            self.assertNotIn("Function not implemented", said)
        shown = self.heddle("info", "--json", status=1).stdout
        self.assertEqual(json.loads(shown), {"devices": []})

    @unittest.skipUnless(shutil.which("fi_info"), "fi_info is not installed")
    def test_other_transports_are_refused_by_name(self):
        """The kernel's siw, and adapters of iWARP: no message would leave them."""
        environment = {"LD_PRELOAD": preload("libport_state.so"), "FI_LOG_LEVEL": "warn",
                       "FI_PROVIDER_PATH": os.path.join(BUILD_DIR, "lib")}
        for transport, offers in (("0", True), ("1", False)):  # IBV_TRANSPORT_IB, IBV_TRANSPORT_IWARP
            environment["DEVICE_TRANSPORT"] = transport
            result = self.softhca("run", "--", "fi_info", "-p", "heddle", env=environment)
            self.assertEqual("provider: heddle" in result.stdout, offers, result.stdout + result.stderr)
            refused = "mlx5_0: its transport is neither InfiniBand nor RoCE" in result.stderr
            self.assertEqual(refused, not offers, result.stderr)
        shown = self.softhca("run", "--", HEDDLE, "info", env=environment)
        self.assert_run(shown, 0, out="iWARP")

    def test_a_device_of_another_name_is_no_missing_device(self):
        result = self.softhca("run", "--", HEDDLE, "info")
        self.assert_run(result, 0)
        result = self.softhca("run", "--", HEDDLE, "calibrate", "--device", "mlx5_9")
        self.assert_run(result, 1, err="the devices are: mlx5_0")
        self.assertNotIn("softhca run", result.stderr)


if __name__ == "__main__":
    main()
