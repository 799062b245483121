#!/usr/bin/env python3
"""folio beside its peers on this machine, in turn, case by case: bench/compare.py [--llama-bin DIR] [--only REGEX]

Needs a build (build/bin/folio-bench and kernel_bench), the models of scripts/setup --model gemma3 --model smollm2-q4_0
--model smollm2-q8_0, and for OpenVINO GenAI a virtual environment, which it makes itself (--venv). Writes compare.md
and compare.json to --out. docs/performance.md says how each figure is taken.
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
from statistics import median

from comparison import report
from comparison.cases import CASES, Case
from comparison.engines import Folio, LlamaCpp, OpenVino, Unable, output_of
from comparison.limits import Peaks, limit, read_facts

ROOT = pathlib.Path(__file__).resolve().parent.parent
OPENVINO_PACKAGE = "openvino-genai==2026.4.1.0"
QUICK_TOKENS = 4096  # of the prompts of a case that --quick does not leave out


def say(text: str) -> None:
    print(f"compare: {text}", file=sys.stderr, flush=True)


def python_with_openvino(folder: pathlib.Path) -> pathlib.Path:
    """Of the virtual environment, made if it is not there. Raises Unable."""
    python = folder / "bin" / "python"
    if not python.exists():
        say(f"making {folder} with {OPENVINO_PACKAGE}")
        for command in ([sys.executable, "-m", "venv", folder],
                        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", OPENVINO_PACKAGE]):
            if subprocess.run(command, check=False).returncode:
                raise Unable(f"{folder}: the virtual environment could not be made; the reason stands above. "
                             "On Debian it needs python3-venv; a half-made folder has to be removed")
    return python


def measure_peaks(program: pathlib.Path, threads: int) -> Peaks:
    output = output_of([program, "--benchmark_filter=^peak/", "--benchmark_format=json"])
    try:
        benchmarks = json.loads(output)["benchmarks"]
    except (ValueError, KeyError) as error:
        raise Unable(f"{program}: its answer is no JSON with benchmarks") from error
    found = {}
    for entry in benchmarks:
        what, of_threads = re.match(r"peak/(\w+)/threads:(\d+)", entry["name"]).groups()
        if int(of_threads) == threads and not entry.get("error_occurred"):
            found[what] = entry.get("GB/s", entry.get("Gop/s")) * 1e9
    if not found:
        say(f"no peaks for {threads} threads: shares of the limit are left out")
    return Peaks(found.get("read", 0.0), found.get("int8", 0.0), found.get("f32", 0.0), found.get("bf16", 0.0))


class Comparison:
    def __init__(self, options, peers: list):
        self.options, self.peers = options, peers
        self.folio = Folio(options.folio_bench, options.threads, 1 if options.quick else 2)
        self.peaks = []
        self.folio_speeds = {}  # (name of a case, kv) -> figures
        self.peer_speeds = {}   # (name of a case, peer) -> figures
        self.reasons = {}       # (name of a case, peer) -> why there are no more
        self.facts = {}

    def run(self, cases: list) -> None:
        """Models one after the other, a shared prefix apart: so a peer that holds a model loads it once."""
        groups = {}
        for case in cases:
            groups.setdefault((case.model, case.prefix), []).append(case)
        for (model, _), group in groups.items():
            try:
                self.facts[model] = read_facts(self.options.models / model)
            except ValueError as reason:
                raise Unable(str(reason)) from reason
            for number in range(self.options.rounds):
                self.peaks.append(measure_peaks(self.options.kernel_bench, self.options.threads))
                for case in group:
                    self.run_case(case, number)
                    report.write(self.rows(cases), self.about(), self.options.out)
            for peer in self.peers:
                peer.close()

    def run_case(self, case: Case, number: int) -> None:
        """folio's KV types and the peers in turn, so that drift of the machine meets all alike. A peer that the case's
        goal does not name is asked in the first round only: some take minutes."""
        said = []
        ours, theirs = list(case.goals), [p for p in self.peers if number == 0 or p.name in case.against]
        while ours or theirs:
            if ours:
                kv = ours.pop(0)
                speed = self.folio.measure(self.options.models / case.model, case, kv)
                self.folio_speeds.setdefault((case.name, kv), []).append(speed)
                said.append(f"folio {kv} {speed:.0f}")
            if theirs:
                peer = theirs.pop(0)
                said.append(f"{peer.name} {self.ask_peer(peer, case)}")
        say(f"round {number + 1}: {case.name}: {', '.join(said)}")

    def ask_peer(self, peer, case: Case) -> str:
        """One that could not do a case once is not asked again."""
        if (case.name, peer.name) in self.reasons:
            return "-"
        try:
            speed = peer.measure(self.options.models / case.model, case)
        except Unable as reason:
            self.reasons[case.name, peer.name] = str(reason)
            return f"- ({reason})"
        self.peer_speeds.setdefault((case.name, peer.name), []).append(speed)
        return f"{speed:.0f}"

    def rows(self, cases: list) -> list:
        rows = []
        for case in cases:
            for kv, goal in case.goals.items():
                if (case.name, kv) not in self.folio_speeds:
                    continue
                peers = {p.name: self.peer_speeds.get((case.name, p.name), []) for p in self.peers}
                reasons = {p.name: self.reasons[case.name, p.name] for p in self.peers
                           if (case.name, p.name) in self.reasons}
                rows.append(report.Row(case, kv, goal, self.folio_speeds[case.name, kv], peers, reasons,
                                       limit(case, self.facts[case.model], kv, self.median_peaks())))
        return rows

    def median_peaks(self) -> Peaks:
        return Peaks(*(median(values) for values in zip(*self.peaks)))

    def about(self) -> dict:
        cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
        return {"cpu": cpu.group(1) if cpu else "unknown CPU", "threads": self.options.threads,
                "date": datetime.date.today().isoformat(), "rounds": self.options.rounds,
                "peaks": self.median_peaks()._asdict(),
                "peers": {peer.name: {"version": peer.version, "kv": peer.kv} for peer in self.peers}}


def pattern(text: str) -> re.Pattern:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from error


def parse(arguments: list):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=pattern, default="", help="cases whose name it matches; see --list")
    parser.add_argument("--list", action="store_true", help="the cases' names, and nothing more")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true",
                        help=f"one round, folio and llama.cpp once a case, no case of over {QUICK_TOKENS} prompt tokens")
    parser.add_argument("--venv", type=pathlib.Path, default=ROOT / "build" / "peers-venv",
                        help=f"with {OPENVINO_PACKAGE}; made if it is not there")
    parser.add_argument("--no-openvino", action="store_true")
    parser.add_argument("--llama-bin", type=pathlib.Path, help="llama-bench and llama-batched-bench are here")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)),
                        help="of folio and llama.cpp; OpenVINO takes all cores that it may use")
    parser.add_argument("--models", type=pathlib.Path, default=ROOT / "models")
    parser.add_argument("--folio-bench", type=pathlib.Path, default=ROOT / "build" / "bin" / "folio-bench")
    parser.add_argument("--kernel-bench", type=pathlib.Path, default=ROOT / "build" / "bin" / "kernel_bench")
    parser.add_argument("--out", type=pathlib.Path,
                        help="folder of the results (default: bench/results, and of a part build/bench-results)")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds = 1
    if options.out is None:  # what is kept is whole
        options.out = ROOT / ("build/bench-results" if options.quick or options.only.pattern else "bench/results")
    if options.rounds < 1:
        parser.error("--rounds: at least 1")
    if options.threads < 1:
        parser.error("--threads: at least 1")
    return options


def missing_file(options, cases: list):
    """The first file that this run needs and that is not there."""
    needed = [options.folio_bench, options.kernel_bench] + [options.models / case.model for case in cases]
    if options.llama_bin:
        needed += [options.llama_bin / "llama-bench", options.llama_bin / "llama-batched-bench"]
    return next((path for path in needed if not path.is_file()), None)


def main(arguments: list) -> int:
    options = parse(arguments)
    cases = [case for case in CASES if re.search(options.only, case.name)]
    if options.quick:
        cases = [case for case in cases if case.prompt_tokens <= QUICK_TOKENS]
    if options.list:
        print("\n".join(case.name for case in cases))
        return 0
    missing = missing_file(options, cases)
    if missing or not cases:
        say(f"{missing}: not there; see --help" if missing else "--only: no case has such a name; see --list")
        return 1
    try:
        peers = [] if options.no_openvino else [OpenVino(python_with_openvino(options.venv))]
        if options.llama_bin:
            peers.append(LlamaCpp(options.llama_bin, options.threads, 1 if options.quick else 2))
        comparison = Comparison(options, peers)
        try:
            comparison.run(cases)
        finally:
            for peer in peers:
                peer.close()
    except (Unable, OSError) as reason:
        say(str(reason))
        return 1
    say(f"written: {options.out}/compare.md and compare.json")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
