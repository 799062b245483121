"""python3 level_files_test.py OBJECTS LEVEL ENTRY

OBJECTS: a file that names the object files of the product, one a line. LEVEL: a regular expression for the paths of
the level files among them. ENTRY: one for the names that those may show. Wrong examples are compiled first, so that a
check that sees nothing is found out.
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import level_files

OBJECTS, LEVEL, ENTRY = pathlib.Path(sys.argv[1]), re.compile(sys.argv[2]), re.compile(sys.argv[3])
GOOD = """namespace { int twice(int x) { return 2 * x; } }
namespace folio { int example_table(int x) { return twice(x); } }
"""


class Examples(unittest.TestCase):
    def compile(self, text, *flags):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        source = pathlib.Path(folder.name, "example.cc")
        source.write_text(text)
        target = source.with_suffix(".o")
        subprocess.run(["g++", "-std=c++20", "-O1", *flags, "-c", source, "-o", target], check=True)
        return str(target)

    def check_level(self, text):
        return level_files.check_level_object(self.compile(text, "-mavx2"), re.compile("^folio::example_table"))

    def test_right_level_file(self):
        self.assertEqual(self.check_level(GOOD), [])

    def test_another_function_shown(self):
        [complaint] = self.check_level(GOOD + "int helper() { return 1; }\n")
        self.assertIn("helper() is not local", complaint)

    def test_inline_function(self):
        [complaint] = self.check_level(GOOD + "inline int shared(int x) { return x; }\n"
                                              "namespace { [[gnu::used]] auto keep = &shared; }\n")
        self.assertIn("shared(int) may replace", complaint)

    def test_template_of_std(self):
        complaints = self.check_level("#include <algorithm>\n" + GOOD + "namespace { [[gnu::used]] void order("
                                      "int* x, int n) { std::sort(x, x + n); } }\n")
        self.assertTrue(any("std::__introsort_loop" in complaint and "may replace" in complaint for complaint in complaints))

    def test_code_before_main(self):
        [complaint] = self.check_level(GOOD + "extern int f();\nnamespace { [[gnu::used]] int early = f(); }\n")
        self.assertIn("before main", complaint)

    def test_no_entry(self):
        [complaint] = self.check_level("namespace { [[gnu::used]] int twice(int x) { return 2 * x; } }\n")
        self.assertIn("no entry point", complaint)

    def test_plain_file(self):
        loop = "void scale(float* x, float y) { for (int i = 0; i < 64; ++i) x[i] *= y; }\n"
        self.assertEqual(level_files.check_plain_object(self.compile(loop, "-O3", "-march=x86-64-v2")), [])
        for flags in (["-mavx"], ["-mavx512f"]):
            [complaint] = level_files.check_plain_object(self.compile(loop, "-O3", *flags))
            self.assertIn("scale(float*, float) has v", complaint)
        shift = "unsigned long shift(unsigned long x, int n) { return x << n; }\n"
        [complaint] = level_files.check_plain_object(self.compile(shift, "-mbmi2"))
        self.assertIn("shlx", complaint)


class Product(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.objects = OBJECTS.read_text().split()

    def check(self, complaints):
        self.assertEqual(complaints, [], "\n" + "\n".join(complaints))

    def test_level_files(self):
        levels = [path for path in self.objects if LEVEL.search(path)]
        for name in ("avx2", "avx512", "avx512bf16"):
            self.assertTrue(any(f"kernels_{name}.cc" in path for path in levels),
                            f"no object of a level {name} in {OBJECTS}")
        self.check([complaint for path in levels for complaint in level_files.check_level_object(path, ENTRY)])

    def test_other_files(self):
        plain = [path for path in self.objects if not LEVEL.search(path)]
        self.assertTrue(plain)
        self.check([complaint for path in plain for complaint in level_files.check_plain_object(path)])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
