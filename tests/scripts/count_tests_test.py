"""scripts/count_tests.py on what ctest, GoogleTest and unittest write."""
import contextlib
import io
import pathlib
import sys
import tempfile
import unittest
from xml.sax.saxutils import escape

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import count_tests  # noqa: E402

MIXED = """[ RUN      ] A.b
[  PASSED  ] 99 tests.
a_test.cc:3: Skipped
no models
[  SKIPPED ] A.c (0 ms)
[  PASSED  ] 4 tests.
[  SKIPPED ] 1 test, listed below:
[  SKIPPED ] A.c
[  FAILED  ] 2 tests, listed below:
[  FAILED  ] A.b
"""
PYTHON = """test_b (__main__.T.test_b) ... skipped 'no grpc'
----------------------------------------------------------------------
Ran 5 tests in 0.000s

FAILED (failures=1, errors=1, skipped=1)
"""


def entry(status, output, extra=""):
    return (f'<testcase name="x_test" status="{status}">{extra}<system-out>{escape(output)}</system-out></testcase>')


class CountTests(unittest.TestCase):
    def count(self, *entries, broken=""):
        """(exit status, lines printed)"""
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as output:
            pathlib.Path(folder, "release.xml").write_text(f"<testsuite>{''.join(entries)}</testsuite>")
            if broken:
                pathlib.Path(folder, "broken").write_text(broken)
            status = count_tests.main(pathlib.Path(folder))
        return status, output.getvalue().splitlines()

    def test_googletest(self):
        self.assertEqual(self.count(entry("fail", MIXED)),
                         (1, ["skipped: x_test: no models", "failed: release: x_test", "4 passed, 2 failed, 1 skipped"]))

    def test_unittest(self):
        self.assertEqual(self.count(entry("fail", PYTHON)),
                         (1, ["skipped: x_test: no grpc", "failed: release: x_test", "2 passed, 2 failed, 1 skipped"]))
        self.assertEqual(self.count(entry("run", "Ran 5 tests in 1.5s\n\nOK\n")), (0, ["5 passed, 0 failed, 0 skipped"]))

    def test_other_programs_count_once(self):
        self.assertEqual(self.count(entry("run", "fine"), entry("run", "")), (0, ["2 passed, 0 failed, 0 skipped"]))

    def test_crash_and_late_failure(self):
        for output in ("[ RUN      ] A.b\n", ""):
            self.assertEqual(self.count(entry("fail", output))[1][-1], "0 passed, 1 failed, 0 skipped")
        self.assertEqual(self.count(entry("fail", "[  PASSED  ] 3 tests.\nleak!"))[1][-1],
                         "3 passed, 1 failed, 0 skipped")

    def test_not_run(self):
        skipped = entry("notrun", "no such tool", '<skipped message="SKIP_RETURN_CODE=77"/>')
        missing = entry("notrun", "", '<skipped message="Unable to find executable"/>')
        self.assertEqual(self.count(entry("run", ""), skipped),
                         (0, ["skipped: x_test: no such tool", "1 passed, 0 failed, 1 skipped"]))
        self.assertEqual(self.count(entry("run", ""), missing)[1][-1], "1 passed, 1 failed, 0 skipped")

    def test_broken_build(self):
        self.assertEqual(self.count(entry("run", ""), broken="tsan\n"),
                         (1, ["failed: tsan: the build", "1 passed, 1 failed, 0 skipped"]))

    def test_nothing_ran(self):
        self.assertEqual(self.count(), (1, ["0 passed, 0 failed, 0 skipped"]))


if __name__ == "__main__":
    unittest.main()
