"""bench/client_capacity.py in small: that it measures, and what it refuses. Its figures are no test's business."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "bench" / "client_capacity.py"


class Capacity(unittest.TestCase):
    def run_script(self, *arguments):
        return subprocess.run([sys.executable, "-B", SCRIPT, *arguments], capture_output=True, text=True, timeout=120)

    def test_a_hundred_streams(self):
        for flags in ((), ("--burst",)):
            done = self.run_script("--bin", os.environ["FOLIO_BIN"], "--streams", "100", "--rate", "2000", "--tokens", "10",
                                   "--seconds", "2", *flags)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertRegex(done.stdout, r"(?m)^requests: \d{2,} ok, 0 empty, 0 failed, 0 aborted in ")
            self.assertRegex(done.stdout, r"100 streams, \d+ tokens/s in the best second.* us a token; read late p99 [\d.]+ ms")

    def test_refused_by_name(self):
        with tempfile.TemporaryDirectory() as folder:
            for flags, name in ((("--streams", "0"), "--streams"), (("--rate", "-1"), "--rate"),
                                (("--bin", folder), "folio-client: not there")):
                done = self.run_script(*flags)
                self.assertEqual(done.returncode, 2, flags)
                self.assertIn(name, done.stderr)


if __name__ == "__main__":
    unittest.main()
