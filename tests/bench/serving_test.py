"""bench/serving.py: what it refuses before it starts anything. Its figures are no test's business."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "bench" / "serving.py"


class Flags(unittest.TestCase):
    def test_refused_by_name(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("folio-server", "folio-client", "model"):
                pathlib.Path(folder, name).write_text("")
            given = ("--bin", folder, "--model", folder + "/model", "--out", folder + "/out")
            for args, name in ((("--rounds", "0"), "--rounds"), (("--rounds", "-1"), "--rounds"),
                               (("--idle-seconds", "0"), "--idle-seconds"), (("--only", "all"), "--only"),
                               (("--model", "no/such.gguf"), "no/such.gguf"), ((), "folio-bench: not there")):
                done = subprocess.run([sys.executable, "-B", SCRIPT, *given, *args], capture_output=True, text=True,
                                      timeout=60, check=False)
                self.assertEqual(done.returncode, 2, args)
                self.assertIn(name, done.stderr)
            self.assertFalse(pathlib.Path(folder, "out").exists())


if __name__ == "__main__":
    unittest.main()
