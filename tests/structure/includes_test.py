# SPDX-License-Identifier: BSD-2-Clause
"""scripts/check-includes finds what it is there to find, in small trees made for it."""
import importlib.machinery
import importlib.util
import os
import subprocess
import tempfile
import unittest

SCRIPT = os.path.join(os.environ["HEDDLE_SOURCE_DIR"], "scripts/check-includes")
loader = importlib.machinery.SourceFileLoader("check_includes", SCRIPT)
spec = importlib.util.spec_from_loader(loader.name, loader)
check_includes = importlib.util.module_from_spec(spec)
loader.exec_module(check_includes)

LAYERS = """
[low]
src/low/base
src/low/top
[high: low]
src/high/base
src/high/top
[other]
src/other
"""


class Tree(unittest.TestCase):
    def check(self, files, exceptions="", layers=LAYERS):
        """(exit status, what was printed) for a tree of these files."""
        files = {"scripts/structure/layers.txt": layers,
                 "scripts/structure/exceptions.txt": exceptions, **files}
        with tempfile.TemporaryDirectory() as root:
            for name, text in files.items():
                path = os.path.join(root, name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
            result = subprocess.run([SCRIPT, "--root", root], capture_output=True, text=True)
            return result.returncode, result.stderr

    def test_downward_includes_pass(self):
        self.assertEqual(self.check({
            "src/low/base/a.h": "#include <vector>\n",
            "src/low/top/b.h": '#include "low/base/a.h"\n',
            "src/high/top/c.cc": '#include "low/top/b.h"\n#include "d.h"\n',
            "src/high/top/d.h": '#include "low/base/a.h"\n',
        }), (0, ""))

    def test_upward_include_fails_with_its_place(self):
        files = {"src/low/base/a.h": '\n#include "low/top/b.h"\n', "src/low/top/b.h": ""}
        status, text = self.check(files)
        self.assertEqual(status, 1)
        self.assertIn("src/low/base/a.h:2: src/low/base may not include src/low/top", text)
        self.assertEqual(self.check(files, "include src/low/base/a.h src/low/top/b.h\n"), (0, ""))

    def test_stacks_include_only_what_they_stand_on(self):
        for source, target in (("low/top", "high/base"), ("high/top", "other"), ("other", "low/base")):
            status, text = self.check({f"src/{source}/a.h": f'#include "{target}/b.h"\n',
                                       f"src/{target}/b.h": ""})
            self.assertEqual(status, 1)
            self.assertIn(f"src/{source} may not include src/{target}", text)

    def test_file_can_be_a_room_of_its_own(self):
        layers = "[all]\nsrc/a/error.h\nsrc/b\nsrc/a\n"
        files = {"src/a/error.h": "", "src/b/b.h": '#include "a/error.h"\n',
                 "src/a/a.h": '#include "b/b.h"\n#include "a/error.h"\n'}
        self.assertEqual(self.check(files, layers=layers), (0, ""))
        files["src/a/error.h"] = '#include "a/a.h"\n'
        self.assertIn("src/a/error.h may not include src/a", self.check(files, layers=layers)[1])

    def test_folder_that_is_no_room_fails(self):
        self.assertIn("src/new/a.h:1: its folder is no room", self.check({"src/new/a.h": ""})[1])

    def test_missing_file_fails(self):
        self.assertIn('src/other/a.h:1: no file "b.h"',
                      self.check({"src/other/a.h": '#include "b.h"\n'})[1])

    def test_circle_of_files_fails(self):
        files = {"src/other/a.h": '#include "b.h"\n', "src/other/b.h": '#include "c.h"\n',
                 "src/other/c.h": '#include "a.h"\n'}
        status, text = self.check(files)
        self.assertEqual(status, 1)
        self.assertIn("circle: src/other/a.h src/other/b.h src/other/c.h", text)
        self.assertEqual(
            self.check(files, "circle src/other/a.h src/other/b.h src/other/c.h\n"), (0, ""))

    def test_circle_of_python_modules_fails(self):
        files = {"report/p/__init__.py": "", "report/p/a.py": "from . import b\n",
                 "report/p/b.py": "def f():\n    from .sub import c\n",
                 "report/p/sub/c.py": "from ..a import x\n", "report/p/d.py": "from p import a\n"}
        self.assertIn("circle: report/p/a.py report/p/b.py report/p/sub/c.py", self.check(files)[1])
        del files["report/p/sub/c.py"]
        self.assertEqual(self.check(files), (0, ""))

    def test_long_file_fails_unless_listed_and_listed_files_may_not_grow(self):
        self.assertEqual(self.check({"src/other/a.cc": "\n" * 450}), (0, ""))
        self.assertIn("451 lines, at most 450", self.check({"tests/a_test.py": "\n" * 451})[1])
        listed = "lines src/other/a.cc 460\n"
        self.assertEqual(self.check({"src/other/a.cc": "\n" * 460}, listed), (0, ""))
        self.assertIn("461 lines, at most 460", self.check({"src/other/a.cc": "\n" * 461}, listed)[1])

    def test_exception_that_is_not_needed_fails(self):
        for line in ("lines src/other/a.cc 460", "members src/other/a.cc A 30",
                     "include src/other/a.cc src/low/base/a.h", "circle src/other/a.cc src/other/b.h"):
            status, text = self.check({"src/other/a.cc": "\n" * 450}, f"# comment\n{line}\n")
            self.assertEqual(status, 1)
            self.assertIn(f"exceptions.txt:2: '{line}' is needed no longer", text)

    def test_wide_class_fails(self):
        members = "".join(f"void f{i}(); " for i in range(25))
        files = {"src/other/a.h": f"class A {{ public: {members} private: int x; }};\n"}
        self.assertEqual(self.check(files), (0, ""))
        files["src/other/a.h"] = f"class A {{ public: int y; {members} private: int x; }};\n"
        self.assertIn("src/other/a.h:1: A has 26 public members", self.check(files)[1])
        self.assertEqual(self.check(files, "members src/other/a.h A 26\n"), (0, ""))


class PublicMembers(unittest.TestCase):
    def count(self, text):
        return {name: (functions, data)
                for name, _, functions, data, _ in check_includes.Classes(text).found}

    def test_functions_and_data(self):
        self.assertEqual(self.count("""
            struct Base {};
            template <class T, int kCount = 3>
            class [[nodiscard]] alignas(64) Widget final : public Base, private Other<int> {
                int hidden;
                void private_function();
            public:
                Widget() : a_{1}, b_(2) { a_ = 3; }
                explicit Widget(int x) noexcept;
                Widget(const Widget&) = delete;
                Widget& operator=(const Widget&) = delete;
                ~Widget() = default;
                enum class Kind { kA, kB };
                struct Nested { int x; int y; };
                using Type = std::map<int, int>;
                friend class Friend;
                friend bool same(const Widget& a, const Widget& b) { return true; }
                static_assert(sizeof(int) == 4);
                [[nodiscard]] bool is_idle() const noexcept { if (a_) { return true; } return false; }
                template <class F> void each(F&& f) { f(a_); }
                bool operator==(const Widget&) const;
                bool operator()(int) const;
                static constexpr int kMost = 4;
                std::map<int, std::vector<int>> map_;
                int one = 1, two{2}, three;  // three: not 4, 5;
                std::array<int, 3> numbers{1, 2, 3};
                /* int old; */
            protected:
                void for_heirs();
            };"""), {"Base": (0, 0), "Widget": (6, 6), "Nested": (0, 2)})

    def test_record_is_no_interface(self):
        fields = "".join(f"int f{i}; " for i in range(30))
        with tempfile.NamedTemporaryFile("w", suffix=".h") as file:
            file.write(f"struct Record {{ {fields} }}; struct Object {{ {fields} void go(); }};")
            file.flush()
            self.assertEqual(list(check_includes.interfaces(file.name)), [("Object", 1, 31)])

    def test_what_is_no_class(self):
        self.assertEqual(self.count("""
            class Forward;
            enum class Kind : int { kA };
            template <class T> void f(class Other& o);
            struct Known known = {1, 2};
            // class Comment { };
            const char* text = "struct Text { };";"""), {})


if __name__ == "__main__":
    unittest.main()
