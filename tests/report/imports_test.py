# SPDX-License-Identifier: BSD-2-Clause
"""The modules of the report import each other without a circle, also inside of functions."""

import ast
import graphlib
import unittest
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "report" / "heddle_report"


def module_names():
    return {".".join(path.relative_to(PACKAGE).with_suffix("").parts): path
            for path in PACKAGE.rglob("*.py") if path.name != "__init__.py"}


def imported_by(name, source, known):
    """The modules of the package that a module imports, by relative imports."""
    package = name.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ImportFrom) or node.level == 0:
            continue
        base = package[:len(package) - (node.level - 1)] + (node.module or "").split(".")
        base = [part for part in base if part]
        for candidate in [base, *([*base, alias.name] for alias in node.names)]:
            if (module := ".".join(candidate)) in known:
                yield module


class Imports(unittest.TestCase):
    def test_modules_import_each_other_without_a_circle(self):
        modules = module_names()
        graph = {name: set(imported_by(name, path.read_text(encoding="utf-8"), modules))
                 for name, path in modules.items()}
        self.assertIn("experiments.tupleq", graph["catalogue"], "imports are found")
        self.assertIn("model", graph["experiments.tupleq"], "imports are found")
        graphlib.TopologicalSorter(graph).prepare()  # throws CycleError

    def test_a_circle_is_found(self):
        modules = {"catalogue": None, "experiments.tupleq": None}
        sources = {"catalogue": "def f():\n    from .experiments import tupleq\n",
                   "experiments.tupleq": "from ..catalogue import Experiment\n"}
        graph = {name: set(imported_by(name, sources[name], modules)) for name in modules}
        with self.assertRaises(graphlib.CycleError):
            graphlib.TopologicalSorter(graph).prepare()


if __name__ == "__main__":
    unittest.main()
