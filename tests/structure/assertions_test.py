# SPDX-License-Identifier: BSD-2-Clause
"""What the compiler makes of the assertions of heddle and softhca, and scripts/count-assertions."""
import json
import os
import re
import subprocess
import tempfile
import unittest

SOURCE = os.environ["HEDDLE_SOURCE_DIR"]
CXX = os.environ.get("CXX", "c++")
PRODUCTS = {"HEDDLE": "heddle/detail/assert.h", "SOFTHCA": "softhca/base/assert.h"}
CASES = [(product, f'#include "{header}"\n', level)
         for product, header in PRODUCTS.items() for level in ("-O0", "-O2")]


def compile_text(text, *options):
    """The compiler's result for one source given as text: assembly on stdout."""
    return subprocess.run(
        [CXX, "-x", "c++", "-std=gnu++20", "-Wall", "-Wextra", "-Wconversion", "-Werror",
         f"-I{SOURCE}/src", f"-I{SOURCE}/include", "-S", "-o", "-", *options, "-"],
        input=text, capture_output=True, text=True)


def instructions(text, *options):
    result = compile_text(text, *options)
    assert result.returncode == 0, result.stderr
    return [line.strip() for line in result.stdout.splitlines()
            if re.match(r"\s+[a-z]", line)]


class Compiled(unittest.TestCase):
    def test_debug_assertion_has_no_instruction_in_release(self):
        for product, include, level in CASES:
            code = "int f(int n, const int* p) {{ {} return n + *p; }}\n"
            bare = instructions(include + code.format(""), level)
            checked = code.format(f'{product}_DEBUG_ASSERT(*p > 0 && n != 3, "message");')
            off = instructions(include + checked, level)
            on = instructions(include + checked, level, f"-D{product}_DEBUG_ASSERTIONS=1")
            self.assertEqual(off, bare)
            self.assertGreater(len(on), len(bare))

    def test_sanitizers_turn_debug_assertions_on(self):
        for product, include, level in CASES:
            text = include + f"static_assert({product}_DEBUG_ASSERTIONS == 1);\n"
            for sanitizer in ("address", "thread"):
                self.assertEqual(
                    compile_text(text, level, f"-fsanitize={sanitizer}").returncode, 0)
            self.assertNotEqual(compile_text(text, level).returncode, 0)

    def test_condition_must_compile_also_where_it_is_off(self):
        for product, include, level in CASES:
            text = include + "void f() {{ {}_DEBUG_ASSERT({}); }}\n"
            self.assertEqual(compile_text(text.format(product, "true"), level).returncode, 0)
            result = compile_text(text.format(product, "no_such_name > 0"), level)
            self.assertIn("no_such_name", result.stderr)
            self.assertNotEqual(result.returncode, 0)

    def test_message_must_be_a_literal(self):
        for product, include, level in CASES:
            text = include + "extern const char* m; void f(int n) {{ {}({}); }}\n"
            for kind in (f"{product}_ASSERT", f"{product}_DEBUG_ASSERT"):
                self.assertEqual(compile_text(text.format(kind, 'n > 0, "m"'), level).returncode, 0)
                self.assertNotEqual(compile_text(text.format(kind, "n > 0, m"), level).returncode, 0)

    def test_variable_of_a_debug_assertion_alone_is_used(self):
        for product, include, level in CASES:
            text = include + ("int g(int); void f(int n) { const bool known = g(n) > 0; "
                              f"{product}_DEBUG_ASSERT(known); }}\n")
            result = compile_text(text, level)
            self.assertEqual(result.returncode, 0, result.stderr)


class Count(unittest.TestCase):
    def count(self, files, *options):
        with tempfile.TemporaryDirectory() as root:
            for name, text in files.items():
                path = os.path.join(root, name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
            return subprocess.run([f"{SOURCE}/scripts/count-assertions", "--root", root, *options],
                                  capture_output=True, text=True)

    def test_counts_both_kinds_by_folder(self):
        lines = "\n" * 97
        result = self.count({
            "src/a/x.cc": lines + "HEDDLE_ASSERT(x);\n  HEDDLE_DEBUG_ASSERT(y);\nstatic_assert(z);\n",
            "src/a/b/y.h": "// HEDDLE_ASSERT(in a comment)\n/* SOFTHCA_ASSERT(too) */\n",
            "include/heddle/z.h": "#define HEDDLE_ASSERT(x) x\n",
        }, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = json.loads(result.stdout)
        self.assertEqual(rows["src/a"], {"lines": 100, "always": 1, "debug": 1, "static": 1})
        self.assertEqual(rows["src/a/b"], {"lines": 2, "always": 0, "debug": 0, "static": 0})
        self.assertEqual(rows["include/heddle"]["always"], 0)

    def test_fails_below_the_least(self):
        files = {"src/a/x.cc": "HEDDLE_ASSERT(x);\n" + "\n" * 99, "src/b/y.cc": "\n" * 100}
        self.assertEqual(self.count(files, "--least", "5").returncode, 0)
        self.assertEqual(self.count(files, "--least", "15").returncode, 1)

    def test_fails_for_assert_of_the_standard_library(self):
        result = self.count({"src/a/x.cc": "\nassert(x);\n"})
        self.assertEqual(result.returncode, 1)
        self.assertIn("src/a/x.cc:2", result.stderr)


if __name__ == "__main__":
    unittest.main()
