# SPDX-License-Identifier: BSD-2-Clause
"""Completion and manual page know every command, option and variable, and nothing else."""

import json
import os
import re
import shutil
import subprocess

from harness import BUILD_DIR, SOFTHCA, SOURCE_DIR, Case, main

HEDDLE = os.path.join(BUILD_DIR, "bin", "heddle")
COMMANDS = ["run", "stat", "top", "list", "clean", "port", "env", "traits"]


class CompletionCase(Case):
    def bash(self, *words):
        """What bash would offer for the last word."""
        script = (
            'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); "_$1"; '
            'printf "%s\\n" "${COMPREPLY[@]}"'
        )
        environment = dict(self.environment)
        environment["PATH"] = os.path.dirname(SOFTHCA) + ":" + environment["PATH"]
        environment.pop("LD_PRELOAD", None)
        result = subprocess.run(
            [
                "bash",
                "-c",
                script,
                "bash",
                os.path.join(SOURCE_DIR, "completions", words[0] + ".bash"),
                *words,
            ],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        self.assertEqual(result.stderr, "")
        return result.stdout.split()


class Agreement(CompletionCase):
    def options_of(self, command):
        text = self.assert_run(self.softhca(command, "--help"), 0).stdout
        return set(re.findall(r"^ +(?:-\w, ?)?(--[a-z-]+)", text, re.MULTILINE))

    def test_commands(self):
        text = self.assert_run(self.softhca("--help"), 0).stdout
        listed = re.findall(r"^  ([a-z]+)  ", text.split("Subcommands:")[1], re.MULTILINE)
        self.assertEqual(sorted(listed), sorted(COMMANDS))

    def test_manual_has_every_option_and_variable(self):
        with open(os.path.join(SOURCE_DIR, "man", "softhca.1"), encoding="utf-8") as file:
            manual = file.read().replace("\\-", "-")
        for command in COMMANDS:
            for option in self.options_of(command) - {"--help"}:
                self.assertRegex(manual, rf"(?m)^\.(TP\n\.)?(BI?|BR|RB)\b.*{option}\b", command)
        for variable in json.loads(self.softhca("env", "--json").stdout):
            self.assertRegex(manual, rf'(?m)^\.B {variable["variable"]}$')
            entry = manual.split(f'\n.B {variable["variable"]}\n')[1].split("\n.TP\n")[0]
            for value in variable["values"]:
                self.assertIn(value, entry, variable["variable"])

    def test_manual_does_not_deny_what_the_device_has(self):
        with open(os.path.join(SOURCE_DIR, "man", "softhca.1"), encoding="utf-8") as file:
            missing = re.search(r"\.SH BUGS(.*?)\.SH", file.read(), re.DOTALL)[1]
        device = self.assert_run(self.softhca("run", "ibv_devinfo", "-v"), 0).stdout
        has = re.search(r"general_odp_caps:\n\s+ODP_SUPPORT", device) is not None
        self.assertEqual("on-demand paging" in missing, not has, device)

    def test_bash_offers_exactly_the_options(self):
        for command in COMMANDS:
            self.assertEqual(
                set(self.bash("softhca", command, "--")), self.options_of(command), command
            )

    def test_bash_offers_exactly_the_values(self):
        for variable in json.loads(self.softhca("env", "--json").stdout):
            if variable["values"]:
                self.assertEqual(
                    set(self.bash("softhca", "run", variable["flag"], "")), set(variable["values"])
                )

    def test_zsh_has_every_option(self):
        with open(os.path.join(SOURCE_DIR, "completions", "_softhca"), encoding="utf-8") as file:
            text = file.read()
        for command in COMMANDS:
            for option in self.options_of(command):
                self.assertIn(option, text)

    def test_zsh_accepts_it(self):
        if not shutil.which("zsh"):
            self.skipTest("zsh is not installed")
        for name in ("_softhca", "_heddle"):
            subprocess.run(["zsh", "-n", os.path.join(SOURCE_DIR, "completions", name)], check=True)


class Bash(CompletionCase):
    def test_commands_are_completed(self):
        self.assertEqual(self.bash("softhca", "st"), ["stat"])
        self.assertEqual(set(self.bash("softhca", "")), {*COMMANDS, "--help", "--version"})

    def test_value_after_equals_sign(self):
        self.assertEqual(self.bash("softhca", "run", "--uar", "=", "st"), ["static"])
        self.assertEqual(set(self.bash("softhca", "run", "--uar", "=")), {"dynamic", "static"})

    def test_programs_after_the_options(self):
        for before in ([], ["--"], ["--uar", "static"], ["--uar", "=", "static", "--"]):
            self.assertIn("bash", self.bash("softhca", "run", *before, "bas"), before)

    def test_options_of_the_program_are_not_ours(self):
        self.assertNotIn("--uar", self.bash("softhca", "run", "true", "--"))
        self.assertNotIn(
            "--uar", self.bash("softhca", "run", "--uar", "static", "--", "true", "--u")
        )


class Heddle(CompletionCase):
    COMMANDS = [("run",), ("compare",), ("top",), ("info",), ("doctor",), ("plan",), ("predict",), ("bench",), ("options",), ("calibrate",),
                ("check-hardware",),
                ("reproduce",), ("report",)]
    REUSE = ("pingpong", "rotation", "spectrum", "spectrum-put", "spectrum-get", "put", "get", "bcast", "scatter", "never")
    TUPLES = ("latency", "late", "many", "wildcards")
    EXPERIMENTS = [("bench", name) for name in (
        "message-rate", "global-array", "stencil", "overlap", *(f"reuse-{what}" for what in REUSE),
        *(f"tuple-{what}" for what in TUPLES))]

    def heddle(self, *arguments):
        return self.assert_run(self.softhca("run", "--", HEDDLE, *arguments), 0).stdout

    def subcommands(self, *command):
        text = self.heddle(*command, "--help").split("Subcommands:")[1]
        return {(*command, name) for name in re.findall(r"^  ([a-z-]+)(?:  |$)", text, re.MULTILINE)}

    def test_commands(self):
        self.assertEqual(self.subcommands(), set(self.COMMANDS))
        self.assertEqual(self.subcommands("bench"), set(self.EXPERIMENTS))
        offered = {command[-1] for command in self.COMMANDS} | {"--help", "--version"}
        self.assertEqual(set(self.bash("heddle", "")), offered)
        offered = {command[-1] for command in self.EXPERIMENTS} | {"--help"}
        self.assertEqual(set(self.bash("heddle", "bench", "")), offered)

    def test_bash_offers_exactly_the_options_and_values(self):
        for command in [*self.COMMANDS[:7], ("calibrate",), ("check-hardware",), ("reproduce",), ("report",),
                        *self.EXPERIMENTS]:
            text = self.heddle(*command, "--help")
            options = set(re.findall(r"^ +(?:-\w, ?)?(--[a-z-]+)", text, re.MULTILINE))
            self.assertEqual(set(self.bash("heddle", *command, "--")), options, command)
            if command[0] in ("reproduce", "report"):
                continue  # Python's, and their values are no lists
            for option in re.findall(r"^ +(?:-\w, ?)?(--[a-z-]+)[\w,-]* [A-Z]", text, re.MULTILINE):
                refused = self.softhca(*command, option, "?", command=HEDDLE)
                if values := re.search(r"\? not in \{(.*?)\}", refused.stderr):
                    offered = set(self.bash("heddle", *command, option, ""))
                    self.assertEqual(offered, set(values[1].split(",")), (command, option))

    def test_zsh_has_every_command_and_option(self):
        with open(os.path.join(SOURCE_DIR, "completions", "_heddle"), encoding="utf-8") as file:
            text = file.read()
        for command in [*self.COMMANDS, *self.EXPERIMENTS]:
            self.assertRegex(text, rf"['\"]{command[-1]}:", command)
            for option in self.bash("heddle", *command, "--"):
                self.assertRegex(text, rf"{option}\b", (command, option))

    def test_programs_after_the_options_of_run(self):
        for before in ([], ["--"], ["--post", "verbs"], ["--stats", "--mpi", "=", "intel", "--"]):
            self.assertIn("bash", self.bash("heddle", "run", *before, "bas"), before)
        for before in ([], ["--"], ["--explain"], ["--reuse-report", "--"]):
            self.assertIn("bash", self.bash("heddle", "run", *before, "bas"), before)
        for before in ([], ["--"], ["--null"], ["--rounds", "9"], ["--json", "-n", "2", "--"]):
            self.assertIn("bash", self.bash("heddle", "compare", *before, "bas"), before)
        self.assertNotIn("--post", self.bash("heddle", "run", "true", "--"))

    def test_categories(self):
        devices = json.loads(self.heddle("info", "--json"))["devices"]
        names = {category["category"] for category in devices[0]["categories"]}
        before = ("heddle", "bench", "stencil", "--category")
        self.assertEqual(set(self.bash(*before, "")), names | {"all"})
        self.assertEqual(self.bash(*before, "=", "sh"), ["shared-dynamic"])

    def test_no_options_where_a_number_stands(self):
        self.assertEqual(self.bash("heddle", "plan", "--threads", ""), [])
        self.assertEqual(self.bash("heddle", "bench", "message-rate", "--share", "cq", "="), [])


if __name__ == "__main__":
    main()
