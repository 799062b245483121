"""folio and its peers, each answering cases with tokens a second. A peer that cannot do a case raises Unable."""
import contextlib
import json
import pathlib
import subprocess
import threading

from .cases import LLAMA, OPENVINO, Case

PEER_SCRIPT = pathlib.Path(__file__).resolve().parent.parent / "peers" / "openvino_bench.py"
TIMEOUT = 900  # seconds for one case
OPENVINO_KV = {"uint8_t": "u8", "float16": "f16", "bfloat16": "bf16", "float": "f32"}


class Unable(Exception):
    """The reason, in one line."""


def last_words(text: str, status: int) -> str:
    """Why a program ended: its last line but a hint at its help, or how it ended if it said nothing."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("Run with --help")]
    if lines:
        return lines[-1][:200]
    return f"ended by signal {-status}" if status < 0 else f"ended with {status}, no message"


def objects(lines: list) -> list:
    """The lines that are JSON objects. Raises Unable: one that begins as such and breaks off."""
    try:
        return [json.loads(line) for line in lines if line.startswith("{")]
    except ValueError as error:
        raise Unable("its answer is no JSON") from error


def output_of(command: list) -> str:
    """Its standard output. Raises Unable."""
    try:
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=TIMEOUT,
                              check=False)
    except subprocess.TimeoutExpired as error:
        raise Unable(f"{command[0]}: no end after {TIMEOUT} s") from error
    except OSError as error:
        raise Unable(str(error)) from error
    if done.returncode:
        raise Unable(f"{pathlib.Path(command[0]).name}: {last_words(done.stderr, done.returncode)}")
    return done.stdout


def run_program(command: list) -> list:
    """The JSON objects of its standard output. Raises Unable."""
    return objects(output_of(command).splitlines())


def wanted(rows: list, name: str, kind=(int, float)):
    """The field of the last row: a number, or a `kind`."""
    value = rows[-1].get(name) if rows else None
    if not value or not isinstance(value, kind):
        raise Unable(f"no {name} in the answer")
    return value


class Folio:
    def __init__(self, bench: pathlib.Path, threads: int, repeat: int):
        self.bench, self.threads, self.repeat = bench, threads, repeat

    def measure(self, model: pathlib.Path, case: Case, kv: str) -> float:
        command = [self.bench, "throughput", "--model", model, "--cases", case.key, "--kv-dtype", kv, "--threads",
                   self.threads, "--measure", case.measure, "--repeat", self.repeat, "--json"]
        if case.prefix:
            command += ["--shared-prefix", case.prefix]
        return wanted(run_program(command), f"{case.measure}_tok_s")


class LlamaCpp:
    """Its own programs; f16 KV, as they come."""
    name = LLAMA
    kv = "f16"
    version = "?"

    def __init__(self, folder: pathlib.Path, threads: int, repeat: int):
        self.folder, self.threads, self.repeat = folder, threads, repeat

    def measure(self, model: pathlib.Path, case: Case) -> float:
        if case.batch == 1 and not case.prefix:
            command = [self.folder / "llama-bench", "-m", model, "-t", self.threads, "-r", self.repeat, "-o", "jsonl"]
            if case.measure == "prefill":
                command += ["-p", case.prompt, "-n", 0]
            else:
                command += ["-p", 0, "-n", case.output, "-d", case.prompt]
            rows = run_program(command)
            speeds = wanted(rows, "samples_ts", list)
            self.kv = wanted(rows, "type_k", str)
            self.version = f"build {rows[-1].get('build_number')}, commit {rows[-1].get('build_commit')}"
            return max(speeds)
        # A sequence's share of the context is rounded up to 256 cells. A shared prompt is shared whole.
        context = (case.prompt + case.output + 255) // 256 * 256 * case.batch
        command = [self.folder / "llama-batched-bench", "-m", model, "-t", self.threads, "-c", context, "-npp",
                   case.prompt, "-ntg", case.output, "-npl", case.batch, "--output-format", "jsonl"]
        if case.prefix:
            command += ["-pps", "-kvu"]
        return wanted(run_program(command), "speed_pp" if case.measure == "prefill" else "speed_tg")

    def close(self) -> None:
        pass


class OpenVino:
    """One process for a model, since it takes seconds to load; between its cases it sleeps."""
    name = OPENVINO
    kv = "u8"
    version = "?"

    def __init__(self, python: pathlib.Path):
        self.python = python
        self.loaded = None  # (model, prefix)
        self.process = None
        self.errors = []    # what it wrote to its standard error, gathered by the reader
        self.reader = None
        self.failure = None

    def measure(self, model: pathlib.Path, case: Case) -> float:
        if self.loaded != (model, case.prefix):
            self.close()
            self.loaded, self.failure = (model, case.prefix), None
            self.start(model, case.prefix)
        if self.failure:
            raise Unable(self.failure)
        row = self.ask(f"{case.key},{case.measure}\n")
        return wanted([row], f"{case.measure}_tok_s")

    def start(self, model: pathlib.Path, prefix: int) -> None:
        self.process = subprocess.Popen([self.python, PEER_SCRIPT, model, "--shared-prefix", str(prefix), "-"], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.errors = []
        self.reader = threading.Thread(target=self.errors.extend, args=(self.process.stderr,), daemon=True)
        self.reader.start()
        try:
            hello = [self.ask("")]
            kv, version = wanted(hello, "kv", str), wanted(hello, "version", str)
        except Unable as reason:
            self.failure = str(reason)  # said at each case
            return
        self.kv, self.version = OPENVINO_KV.get(kv, kv), version.split("-")[0]

    def ask(self, text: str) -> dict:
        """Raises Unable when it is gone, and from then on."""
        watchdog = threading.Timer(TIMEOUT, self.process.kill)
        watchdog.start()
        line = ""
        try:
            self.process.stdin.write(text)
            self.process.stdin.flush()
            while not line.startswith("{"):
                line = self.process.stdout.readline()
                if not line:
                    break
        except BrokenPipeError:
            line = ""
        finally:
            watchdog.cancel()
        if line.endswith("\n"):
            return objects([line])[0]
        status = self.process.wait()
        self.reader.join()
        self.failure = last_words("".join(self.errors), status)
        raise Unable(self.failure)

    def close(self) -> None:
        """Ends the process: its memory is for the next."""
        if self.process:
            for pipe in (self.process.stdin, self.process.stdout):
                with contextlib.suppress(BrokenPipeError):  # what it was asked last is not written yet, and it is gone
                    pipe.close()
            self.process.terminate()
            self.process.wait()
            self.process = None
        self.loaded = None
