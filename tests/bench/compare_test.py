"""bench/compare.py with programs that only claim to measure: what is asked of whom, in which order, and what the table
makes of the answers. folio-bench itself is asked once, for its flags. No figure of speed is judged here."""

import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import compare  # noqa: E402
from comparison import engines, limits, report  # noqa: E402
from comparison.cases import CASES, LLAMA, OPENVINO, SMOLLM2, Case, Goal  # noqa: E402

TINY = pathlib.Path("tests/reference/tiny_models/llama-mha.gguf").resolve()  # context 512

# Each notes its call in the log, and answers with the next of its figures.
HEAD = """#!/usr/bin/python3
import json, pathlib, sys
here = pathlib.Path(__file__).resolve().parent
def call(name, figures, text):
    log = here / "log"
    before = log.read_text().splitlines() if log.exists() else []
    count = sum(line.startswith(name + " ") for line in before)
    log.write_text("\\n".join([*before, name + " " + text]) + "\\n")
    return figures[count % len(figures)]
args = sys.argv[1:]
"""
FOLIO = """speed = call("folio", [100.0, 300.0, 200.0], " ".join(args))
which = args[args.index("--measure") + 1]
print(json.dumps({which + "_tok_s": speed}))
"""
KERNELS = """print(json.dumps({"benchmarks": [
    {"name": "peak/read/threads:1/real_time", "GB/s": 10.0}, {"name": "peak/read/threads:2/real_time", "GB/s": 20.0},
    {"name": "peak/int8/threads:2/real_time", "Gop/s": 900.0}, {"name": "peak/f32/threads:2/real_time", "Gop/s": 200.0},
    {"name": "peak/bf16/threads:2/real_time", "error_occurred": True}]}))
"""
OPENVINO_PYTHON = """call("openvino", [0], "loads " + " ".join(args[1:]))
if "gemma" in args[1]:
    print("no such model\\nRuntimeError: gguf failed", file=sys.stderr)
    sys.exit(1)
print("a banner")
print(json.dumps({"version": "1.2.3-4", "kv": "uint8_t"}), flush=True)
for line in sys.stdin:
    speed = call("asked", [50.0, 100.0, 80.0], line.strip())
    print(json.dumps({line.strip().split(",")[3] + "_tok_s": speed}), flush=True)
"""
LLAMA_BENCH = """speed = call("llama", [10.0, 20.0, 30.0], " ".join(args))
print(json.dumps({"samples_ts": [speed / 2, speed], "type_k": "f16", "build_number": 7, "build_commit": "abc"}))
"""
BATCHED = """call("batched", [0], " ".join(args))
print("no batch for you", file=sys.stderr)
sys.exit(1)
"""


class Compare(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        (self.folder / "venv" / "bin").mkdir(parents=True)
        for name, text in (("folio-bench", FOLIO), ("kernel_bench", KERNELS), ("llama-bench", LLAMA_BENCH),
                           ("llama-batched-bench", BATCHED), ("python", OPENVINO_PYTHON)):
            program = self.folder / name
            program.write_text(HEAD + text)
            program.chmod(0o755)
        (self.folder / "venv" / "bin" / "python").symlink_to(self.folder / "python")
        for model in {case.model for case in CASES}:
            (self.folder / model).symlink_to(TINY)

    def run_compare(self, *args):
        """(exit status, what it said)"""
        f = str(self.folder)
        with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.redirect_stdout(said):
            status = compare.main(["--folio-bench", f + "/folio-bench", "--kernel-bench", f + "/kernel_bench", "--venv",
                                   f + "/venv", "--llama-bin", f, "--models", f, "--out", f + "/out", "--threads", "2",
                                   *args])
        return status, said.getvalue()

    def result(self):
        return json.loads((self.folder / "out" / "compare.json").read_text())

    def log(self):
        return (self.folder / "log").read_text().splitlines()

    def test_ratio_is_the_median_of_rounds(self):
        self.assertEqual(self.run_compare("--only", "Q4_1: prefill, PP 512")[0], 0)
        row, bf16 = self.result()["rows"]
        self.assertEqual(row["folio_tok_s"], [100, 200, 300])
        self.assertEqual(bf16["folio_tok_s"], [300, 100, 200])
        self.assertEqual(row["peers_tok_s"], {OPENVINO: [50, 100, 80], LLAMA: [10]})  # no goal names it
        self.assertEqual((row["ratio_to"], row["ratios"], row["ratio"]), (OPENVINO, [2, 2, 3.75], 2))
        self.assertEqual((bf16["ratios"], bf16["ratio"]), ([6, 1, 2.5], 2.5))
        self.assertEqual((row["must"], row["aim"], row["reached"]), (1.1, 1.35, "aim"))
        about = self.result()["about"]
        self.assertEqual(about["peers"], {OPENVINO: {"version": "1.2.3", "kv": "u8"},
                                          LLAMA: {"version": "build 7, commit abc", "kv": "f16"}})
        self.assertEqual(about["peaks"], {"read_bytes": 20e9, "int8": 900e9, "f32": 200e9, "bf16": 0})

    def test_in_turn_and_the_model_loaded_once(self):
        self.run_compare("--only", "Q4_1: decode, PP 2048, B 1", "--rounds", "2")
        self.assertEqual([line.split()[0] for line in self.log()],
                         ["folio", "openvino", "asked", "folio", "llama"] + ["folio", "asked", "folio", "llama"])
        self.assertIn("--cases 1,2048,32 --kv-dtype f16", self.log()[0])
        self.assertIn("--kv-dtype int8", self.log()[3])
        self.assertIn("-n 32 -d 2048", self.log()[4])
        self.assertEqual(self.log()[2], "asked 1,2048,32,decode")
        self.assertEqual([row["folio_kv"] for row in self.result()["rows"]], ["f16", "int8"])

    def test_shared_prefix(self):
        self.run_compare("--only", "sharing", "--rounds", "1")
        by_name = {line.split()[0]: line for line in self.log()}
        self.assertIn("--shared-prefix 1024", by_name["folio"])
        self.assertIn("--shared-prefix 1024", by_name["openvino"])
        self.assertIn("-pps -kvu", by_name["batched"])

    def test_a_peer_that_fails_is_a_dash_with_its_reason(self):
        status, said = self.run_compare("--only", "Gemma", "--rounds", "2")
        self.assertEqual(status, 0)
        self.assertIn("RuntimeError: gguf failed", said)
        prefill, _, many = self.result()["rows"]
        self.assertEqual(prefill["no_figure"], {OPENVINO: "RuntimeError: gguf failed"})
        self.assertEqual(prefill["ratio_to"], LLAMA)
        self.assertEqual(many["no_figure"][LLAMA], "llama-batched-bench: no batch for you")
        self.assertEqual((many["ratio"], many["reached"]), (None, "none"))
        self.assertEqual(sum(line.startswith("batched") for line in self.log()), 1)  # once is enough
        table = (self.folder / "out" / "compare.md").read_text()
        self.assertIn("- Gemma 3 270M Q4_K_M: prefill, PP 512, B 1: OpenVINO: RuntimeError: gguf failed", table)
        widths = {line.count("|") for line in table.splitlines() if line.startswith("|")}
        self.assertEqual(len(widths), 1)

    def replace(self, name, text):
        (self.folder / name).write_text(HEAD + text)

    def test_a_peer_that_breaks_off(self):
        """In the middle of its answer, or with one that is no answer: a dash, and the others go on."""
        answer = '    print(json.dumps({line.strip().split(",")[3] + "_tok_s": speed}), flush=True)\n'
        self.assertIn(answer, OPENVINO_PYTHON)
        cut = '    print("{\\"prefill_tok_s\\": 5", end="", flush=True)\n    import os\n'
        for bad, reason in ((cut + "    os._exit(3)\n", "ended with 3, no message"),
                            (cut + "    os.kill(os.getpid(), 9)\n", "ended by signal 9"),
                            ('    print("{fast}", flush=True)\n', "its answer is no JSON"),
                            ('    print(json.dumps({"prefill_tok_s": "fast"}), flush=True)\n', "no prefill_tok_s")):
            self.replace("python", OPENVINO_PYTHON.replace(answer, bad))
            status, said = self.run_compare("--only", "Q4_0: prefill", "--rounds", "2")
            self.assertEqual(status, 0, said)
            for row in self.result()["rows"]:
                self.assertIn(reason, row["no_figure"][OPENVINO])
                self.assertEqual((len(row["folio_tok_s"]), len(row["peers_tok_s"][LLAMA])), (2, 2))

    def test_a_peer_of_another_version(self):
        self.replace("python", 'print("{}", flush=True)\nfor line in sys.stdin: pass\n')
        self.replace("llama-bench", 'print(json.dumps({"samples_ts": [1.0]}))\n')
        self.assertEqual(self.run_compare("--only", "Q4_0: prefill", "--rounds", "1")[0], 0)
        self.assertEqual(self.result()["rows"][0]["no_figure"],
                         {OPENVINO: "no kv in the answer", LLAMA: "no type_k in the answer"})

    def test_a_peer_that_is_gone_before_it_is_asked(self):
        """What it was asked last can be written no more, neither then nor when it is closed."""
        hello = json.dumps({"version": "1", "kv": "f16"})
        (self.folder / "python").write_text(f"#!/bin/sh\nexec <&-\necho '{hello}'\nsleep 0.2\necho bad luck >&2\n")
        peer = engines.OpenVino(self.folder / "python")
        self.addCleanup(peer.close)
        with self.assertRaisesRegex(engines.Unable, "bad luck"):
            peer.measure(TINY, CASES[0])
        peer.close()

    def test_programs_and_models_that_are_none(self):
        for name, text, reason in (("folio-bench", "#!/bin/sh\nkill -11 $$\n", "folio-bench: ended by signal 11"),
                                   ("kernel_bench", "#!/bin/sh\necho fine\n", "no JSON with benchmarks"),
                                   ("kernel_bench", "", "kernel_bench"),
                                   ("smollm2-135m-q4_0.gguf", "GGUF" + "\1" * 44, "q4_0.gguf: no GGUF file")):
            (self.folder / name).unlink()
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o755)
            status, said = self.run_compare("--only", "Q4_0: prefill", "--no-openvino", "--rounds", "1")
            self.assertEqual(status, 1)
            self.assertIn(reason, said)

    def test_flags_that_make_no_sense(self):
        for args in (("--rounds", "0"), ("--threads", "0"), ("--threads", "-2"), ("--only", "(")):
            with self.assertRaises(SystemExit) as refused, contextlib.redirect_stderr(io.StringIO()) as said:
                compare.parse([*args])
            self.assertEqual(refused.exception.code, 2)
            self.assertIn(args[0], said.getvalue())

    def test_quick(self):
        self.assertEqual(self.run_compare("--quick", "--no-openvino", "--only", "Q4_1")[0], 0)
        rows = self.result()["rows"]
        self.assertTrue(all(len(row["folio_tok_s"]) == 1 for row in rows))
        self.assertEqual({(row["B"], row["PP"]) for row in rows},
                         {(1, 512), (1, 4096), (1, 128), (8, 128), (32, 128), (1, 2048), (32, 1056)})

    def test_refusals(self):
        for args, reason in ((("--only", "no such case"), "--only"), (("--models", "/nowhere"), "/nowhere"),
                             (("--kernel-bench", "no/kernel_bench"), "no/kernel_bench")):
            status, said = self.run_compare(*args)
            self.assertEqual(status, 1, args)
            self.assertIn(reason, said)
        self.assertFalse((self.folder / "log").exists())

    def test_list(self):
        status, said = self.run_compare("--list")
        self.assertEqual((status, said.splitlines()), (0, [case.name for case in CASES]))
        self.assertEqual(len({case.name for case in CASES}), len(CASES))


class Verdict(unittest.TestCase):
    def row(self, ours, theirs, goal, limit=None, against=(OPENVINO, LLAMA)):
        case = Case(SMOLLM2, "decode", 1, 128, 64, {"f16": goal}, against)
        return report.Row(case, "f16", goal, ours, theirs, {}, limit)

    def test_the_better_of_those_named(self):
        both = {OPENVINO: [10.0], LLAMA: [40.0]}
        self.assertEqual(self.row([80.0], both, Goal(1, 3)).ratios(), [2])
        self.assertEqual(self.row([80.0], both, Goal(1, 3), against=(OPENVINO,)).ratios(), [8])

    def test_steps(self):
        for ours, verdict in ((10.0, "below"), (12.0, "must"), (20.0, "aim")):
            self.assertEqual(self.row([ours], {LLAMA: [10.0]}, Goal(1.2, 2)).verdict(), verdict)
        for limit, verdict in ((25.0, "must"), (20.0, "aim")):
            self.assertEqual(self.row([16.0], {LLAMA: [10.0]}, Goal(1.2, of_limit=0.75), limit).verdict(), verdict)


class Limits(unittest.TestCase):
    FACTS = limits.ModelFacts(weight_bytes=1000, layer_weights=900, output_weights=100, layers=2, heads=4, kv_heads=2,
                              head_dim=16)

    def limit(self, case, kv="f16", read=1e6, int8=1e6, f32=1e6):
        return limits.limit(case, self.FACTS, kv, limits.Peaks(read, int8, f32, f32 / 2))

    def test_bytes(self):
        case = Case(SMOLLM2, "decode", 2, 90, 20, {}, ())  # context 100; a token's K and V: 4 * 16 * 2 * 2 = 256 bytes
        self.assertAlmostEqual(self.limit(case, int8=1e12, f32=1e12), 2 * 1e6 / (1000 + 2 * 100 * 256))
        self.assertAlmostEqual(self.limit(case, "int8", int8=1e12, f32=1e12), 2 * 1e6 / (1000 + 2 * 100 * 8 * 20))
        shared = case._replace(prefix=80)
        self.assertAlmostEqual(self.limit(shared, int8=1e12, f32=1e12), 2 * 1e6 / (1000 + (80 + 2 * 20) * 256))

    def test_operations(self):
        decode = Case(SMOLLM2, "decode", 2, 90, 20, {}, ())
        self.assertAlmostEqual(self.limit(decode, read=1e12), 2 / (2 * 2 * 1000 / 1e6 + 2 * 4 * 2 * 4 * 16 * 100 / 1e6))
        prefill = Case(SMOLLM2, "prefill", 1, 50, 1, {}, ())
        self.assertAlmostEqual(self.limit(prefill, read=1e12),
                               50 / (2 * (50 * 900 + 100) / 1e6 + 50 * 4 * 2 * 4 * 16 * 25 / 1e6))

    def test_unknown(self):
        self.assertIsNone(self.limit(Case(SMOLLM2, "decode", 2, 90, 20, {}, ()), int8=0.0))

    def test_facts_of_a_file(self):
        facts = limits.read_facts(TINY)
        self.assertEqual((facts.layers, facts.heads, facts.kv_heads), (2, 4, 4))
        self.assertLess(facts.weight_bytes, TINY.stat().st_size)
        with self.assertRaisesRegex(ValueError, "no GGUF"):
            limits.read_facts(pathlib.Path(__file__))


class RealProgram(unittest.TestCase):
    def test_folio_bench_takes_these_flags(self):
        folio = engines.Folio(pathlib.Path(os.environ["FOLIO_BENCH"]), 1, 1)
        for case in (Case(SMOLLM2, "prefill", 1, 64, 1, {}, ()), Case(SMOLLM2, "decode", 2, 64, 8, {}, ()),
                     Case(SMOLLM2, "decode", 2, 64, 8, {}, (), prefix=32)):
            self.assertGreater(folio.measure(TINY, case, "int8"), 0)
        with self.assertRaisesRegex(engines.Unable, "--kv-dtype|kv"):
            folio.measure(TINY, Case(SMOLLM2, "decode", 2, 64, 8, {}, ()), "int3")


if __name__ == "__main__":
    unittest.main()
