# SPDX-License-Identifier: BSD-2-Clause
"""What the commands are made of: `heddle` must run where softhca is not, so it has no code of the
software device, only the library that looks at fabrics from outside."""

import os
import re
import subprocess
import unittest
from pathlib import Path

from harness import BUILD_DIR, SOFTHCA, SOURCE_DIR, main

HEDDLE = os.path.join(BUILD_DIR, "bin", "heddle")
CORE = os.path.join(BUILD_DIR, "lib", "libsofthca_core.a")
VIEW = os.path.join(BUILD_DIR, "lib", "libsofthca_view.a")


def defined(path, kinds):
    """The mangled names of the symbols of these kinds that a file defines (nm(1))."""
    output = subprocess.run(["nm", "--defined-only", path], capture_output=True, text=True,
                            check=True).stdout
    fields = (line.split() for line in output.splitlines())
    return {parts[2] for parts in fields if len(parts) == 3 and parts[1] in kinds}


def included_by(folder):
    """The files of the project that the sources of src/FOLDER include."""
    files = [path for path in (Path(SOURCE_DIR) / "src" / folder).rglob("*")
             if path.suffix in (".cc", ".h")]
    return {name for path in files
            for name in re.findall(r'^#include "([^"]+)"', path.read_text(encoding="utf-8"), re.M)}


class Includes(unittest.TestCase):
    def only(self, folder, *allowed):
        included = included_by(folder)
        self.assertNotEqual(included, set(), folder)
        self.assertEqual({name for name in included if not name.startswith(allowed)}, set(), folder)

    def test_commands_share_only_common_and_view(self):
        self.only("cli/common", "cli/common/", "heddle/detail/assert.h")  # it needs no library
        self.only("cli/softhca", "cli/common/", "cli/softhca/", "softhca/")
        self.only("cli/heddle", "cli/common/", "cli/heddle/", "softhca/view/", "experiments/", "predict/",
                  "heddle/", "memory/", "protocol/", "provider/", "verbs/")

    def test_experiments_know_no_command_and_no_software_device(self):
        self.only("experiments", "experiments/", "endpoint/", "heddle/", "memory/", "protocol/",
                  "verbs/")


class Links(unittest.TestCase):
    def test_heddle_has_no_code_of_the_software_device(self):
        core = defined(CORE, "TDBR")  # not inline functions of headers, which are weak
        self.assertGreater(len(core), 100)
        self.assertIn("_ZN7softhca6device6Fabric6attachEv", core)
        self.assertNotEqual(core & defined(SOFTHCA, "TtDdBbRr"), set(), "names can be found")
        self.assertEqual(core & defined(HEDDLE, "TtDdBbRr"), set())

    def test_both_commands_look_at_fabrics_by_the_same_library(self):
        view = defined(VIEW, "T")
        for command in (HEDDLE, SOFTHCA):
            self.assertNotEqual(view & defined(command, "Tt"), set(), command)


if __name__ == "__main__":
    main()
