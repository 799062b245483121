"""scripts/gpu_check without a GPU: what it says of that, and how it goes through its parts, with a compiler, a CMake and
a program that only claim to be them."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
NVCC = shutil.which("nvcc", path=os.environ["PATH"] + ":/usr/local/cuda/bin")

FIND_DEVICE = "echo name A GPU; echo architecture 90; echo sms 132; echo memory 1; echo driver_cuda 13.0; echo toolkit 13.0"
# Writes "#!/bin/sh, then what is said of the device" where -o wants the program.
FAKE_NVCC = "#!/bin/sh\nprintf '#!/bin/sh\\n%s\\n' \"$FIND_DEVICE\" > $2; chmod +x $2\n"
FAKE_CMAKE = "#!/bin/sh\n[ -z \"$BROKEN\" ] || { echo error: broken; exit 1; }\n"
# One part dies, one fails, one hangs.
FAKE_PROGRAM = """#!/bin/sh
echo "{\\"part\\": \\"$1\\", \\"figures\\": []}" > $2
case $1 in
  attention) kill -TERM $$ ;;
  rows) exit 1 ;;
  sampling) exec sleep 60 ;;
esac
"""


def executable(path: pathlib.Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


class GpuCheck(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name, "folio")
        (self.folder / "scripts").mkdir(parents=True)
        (self.folder / "tests").mkdir()
        for name in ("scripts/gpu_check", "scripts/lib.sh"):
            shutil.copy(ROOT / name, self.folder / name)
        shutil.copytree(ROOT / "tests/gpu", self.folder / "tests/gpu")
        self.out = self.folder / "out"

    def fake(self):
        executable(self.folder / "fake/nvcc", FAKE_NVCC)
        executable(self.folder / "fake/cmake", FAKE_CMAKE)
        executable(self.folder / "build-gpu/bin/gpu_check", FAKE_PROGRAM)
        (self.folder / "models").mkdir()
        (self.folder / "models/smollm2-cut.gguf").write_text("a model")

    def run_check(self, *arguments, **environment):
        path = f"{self.folder}/fake:{os.environ['PATH']}"
        return subprocess.run([self.folder / "scripts/gpu_check", *arguments], capture_output=True, text=True,
                              env=os.environ | {"PATH": path, "OUT": str(self.out)} | environment)

    @unittest.skipIf(NVCC is None, "no nvcc: the program that looks for a device cannot be compiled")
    def test_without_a_gpu_it_says_so_in_one_line(self):
        if pathlib.Path("/dev/nvidiactl").exists():
            self.skipTest("there is a GPU")
        ran = self.run_check()
        self.assertEqual(ran.returncode, 1)
        self.assertRegex(ran.stderr, r"\Agpu_check: no CUDA device: [^\n]+\n\Z")
        self.assertEqual(ran.stdout, "")
        self.assertFalse((self.out / "gpu_check.json").exists())

    def test_every_part_has_its_turn_whatever_the_others_do(self):
        self.fake()
        ran = self.run_check("--time", "6", FIND_DEVICE=FIND_DEVICE)
        self.assertEqual(ran.returncode, 1, ran.stderr)
        result = json.loads((self.out / "gpu_check.json").read_text())
        self.assertEqual(result["device"], "A GPU")
        self.assertEqual([part["report"]["part"] for part in result["parts"]], ["attention", "rows", "sampling"])
        said = result["failed"]
        self.assertEqual(said[:2], ["attention: ended with status 143", "rows: a check does not hold, see above"])
        self.assertRegex(said[2], r"^sampling: not done after \d+ s$")
        self.assertIn("products: not run, no time was left", said)
        self.assertIn("sampling", ran.stdout)

    def test_all_is_well(self):
        self.fake()
        executable(self.folder / "build-gpu/bin/gpu_check", "#!/bin/sh\necho '{\"part\": \"x\"}' > $2\n")
        ran = self.run_check(FIND_DEVICE=FIND_DEVICE)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        result = json.loads((self.out / "gpu_check.json").read_text())
        self.assertEqual(result["failed"], [])
        listed = self.run_check("--list").stdout.splitlines()
        self.assertEqual(len(listed), len(result["parts"]) + len(result["left_out"]))

    def test_without_the_model_its_parts_fail(self):
        self.fake()
        (self.folder / "models/smollm2-cut.gguf").unlink()
        executable(self.folder / "build-gpu/bin/gpu_check", "#!/bin/sh\nexit 0\n")
        ran = self.run_check(FIND_DEVICE=FIND_DEVICE)
        self.assertEqual(ran.returncode, 1)
        failed = json.loads((self.out / "gpu_check.json").read_text())["failed"]
        self.assertEqual([line.partition(":")[0] for line in failed], ["cut-model", "time-cut"])

    def test_a_build_that_fails(self):
        self.fake()
        ran = self.run_check(FIND_DEVICE=FIND_DEVICE, BROKEN="1")
        self.assertEqual(ran.returncode, 1)
        self.assertIn("error: broken", ran.stderr)
        self.assertIn("the build failed", ran.stderr)

    def test_arguments(self):
        for arguments in (["--time"], ["--time", "soon"], ["--fast"]):
            ran = self.run_check(*arguments)
            self.assertEqual(ran.returncode, 1, arguments)
            self.assertIn(arguments[0], ran.stderr)


if __name__ == "__main__":
    unittest.main()
