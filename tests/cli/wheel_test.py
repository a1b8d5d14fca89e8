# SPDX-License-Identifier: BSD-2-Clause
"""The wheel of softhca in a fresh virtual environment: its command, its module, pytest's fixture, and the recipes of
docs/guide/ci.md as far as they can be run here."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest
import zipfile
from pathlib import Path

from harness import BUILD_DIR, SANITIZER, SOURCE_DIR, Case, main

PYTHON = "/usr/bin/python3"  # the system's, which has ensurepip and pytest as Debian packages


@unittest.skipIf(SANITIZER, "a sanitizer's build is not for installing")
class Wheel(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = tempfile.mkdtemp(prefix="softhca-wheel-")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        made = subprocess.run([Path(SOURCE_DIR) / "packaging/make-wheel", BUILD_DIR, cls.folder],
                              stdout=subprocess.PIPE, text=True, check=True).stdout
        cls.wheel = Path(made.strip().splitlines()[-1])
        cls.venv = Path(cls.folder) / "venv"
        subprocess.run([PYTHON, "-m", "venv", "--system-site-packages", cls.venv], check=True)
        subprocess.run([cls.venv / "bin/pip", "install", "-q", "--no-index", "--no-deps", cls.wheel], check=True)

    def output(self, argv, **keywords):
        environment = {**self.environment, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        done = subprocess.run(list(map(str, argv)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env=environment, check=False, **keywords)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_its_contents(self):
        with zipfile.ZipFile(self.wheel) as wheel:
            names = wheel.namelist()
            self.assertTrue(any(name.endswith(".dist-info/LICENSE") for name in names), names)
            record = wheel.read(next(name for name in names if name.endswith("RECORD"))).decode()
            self.assertEqual(len(record.splitlines()), len(names))
            for name in names:
                if name.endswith("scripts/softhca"):
                    self.assertEqual(wheel.getinfo(name).external_attr >> 16 & 0o777, 0o755)
        self.assertRegex(self.wheel.name, r"^softhca-[\d.]+-py3-none-manylinux_2_\d+_\w+\.whl$")
        needed = self.output(["readelf", "-d", self.venv / "bin/softhca"])
        self.assertNotIn("libstdc++", needed, "a machine without a compiler may lack it")

    def test_uninstalling_removes_everything(self):  # the last of them
        self.output([self.venv / "bin/pip", "uninstall", "-y", "softhca"])
        self.assertFalse((self.venv / "bin/softhca").exists())
        self.assertFalse((self.venv / "lib/libsofthca.so").exists())

    def test_the_command(self):
        self.assertIn("softhca ", self.output([self.venv / "bin/softhca", "--version"]))
        self.assertIn("mlx5_0", self.output([self.venv / "bin/softhca", "run", "--", "ibv_devices"]))

    def test_the_module(self):
        script = ("import softhca; fabric = softhca.Fabric(options=('--port', 'roce'));"
                  "print(fabric.run(['ibv_devinfo'], check=True, capture_output=True, text=True).stdout);"
                  "assert fabric.stat() is None; fabric.clean()")
        self.assertIn("Ethernet", self.output([self.venv / "bin/python", "-c", script]))

    def test_a_test_with_the_fixture(self):
        if subprocess.run([PYTHON, "-c", "import pytest"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
            self.skipTest("pytest is not installed (python3-pytest)")
        recipe = recipe_of("python", "def test_message")
        Path(self.path("test_rdma.py")).write_text(recipe, encoding="utf-8")
        shown = self.output([self.venv / "bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_rdma.py"],
                            cwd=self.scratch)
        self.assertRegex(shown, r"\b1 passed\b")

    def test_the_job_of_a_pipeline(self):
        """The commands of the two pipelines after the installation, which is from a package index there."""
        for language, begin in (("yaml", "jobs:"), ("yaml", "rdma:")):
            lines = commands_of(recipe_of(language, begin))
            installing = [line for line in lines if re.search(r"apt-get|pip install", line)]
            rest = [line for line in lines if line not in installing]
            self.assertTrue(any("softhca" in line for line in installing), installing)
            self.assertTrue(rest)
            path = f"{self.venv / 'bin'}{os.pathsep}{os.environ['PATH']}"
            done = subprocess.run(["bash", "-euc", "\n".join(rest)], env={**self.environment, "PATH": path},
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertIn("mlx5_0", done.stdout)


def recipe_of(language, begin):
    """The block of docs/guide/ci.md of that language with that text in it."""
    text = (Path(SOURCE_DIR) / "docs/guide/ci.md").read_text(encoding="utf-8")
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)
    return next(block for block in blocks if begin in block)


def commands_of(recipe):
    """The shell lines of a GitHub or GitLab job: `- run: LINE`, or `- LINE` below `script:`."""
    return [match[1] for match in re.finditer(r"^\s+- (?:run: )?((?!uses|checkout)\S.*)$", recipe, re.M)]


if __name__ == "__main__":
    if shutil.which("readelf") is None:
        raise SystemExit("readelf is not installed")
    main()
