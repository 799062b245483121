"""folio-bench, each command in a form that takes a second: its JSON has its fields and says what must hold whatever the
machine does, and flags that make no sense are refused by name. No figure of speed is judged here."""

import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

BENCH = os.environ["FOLIO_BENCH"]
TINY = "tests/reference/tiny_models/llama-mha.gguf"  # context 512
PHASES = ("schedule build plan embed qkv rope_write_kv attention attention_out gate_up down logits sample commit "
          "other").split()
TRACE = pathlib.Path("bench/traces/chat_1000.csv")


def run(*args):
    return subprocess.run([BENCH, *args], capture_output=True, text=True, timeout=240, check=False)


def rows(*args):
    done = run(*args, "--json")
    if done.returncode != 0:
        raise AssertionError(f"folio-bench {' '.join(args)}: {done.returncode}\n{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


class Load(unittest.TestCase):
    def test_closed_loop(self):
        [row] = rows("load", "--model", TINY, "--threads", "1", "--concurrency", "3", "--num-requests", "7",
                     "--prompt-tokens", "16", "--output-tokens", "8")
        self.assertEqual(list(row), ["duration_s", "cpu_s", "steps", "prompt_tok_s", "output_tok_s"])
        self.assertAlmostEqual(row["prompt_tok_s"], 2 * row["output_tok_s"], delta=0.01 * row["prompt_tok_s"])
        # Seven answers of eight tokens, at most three to a step: no fewer steps, and no more than one after the other.
        self.assertIn(row["steps"], range(math.ceil(7 * 8 / 3), 7 * 8 + 1))

    def test_more_at_once_than_a_server_lets_wait(self):
        [row] = rows("load", "--model", TINY, "--threads", "1", "--concurrency", "1200", "--num-requests", "1200",
                     "--prompt-tokens", "1", "--output-tokens", "1")
        self.assertGreater(row["output_tok_s"], 0)

    def test_context(self):
        done = run("load", "--model", TINY, "--prompt-tokens", "500", "--output-tokens", "64")
        self.assertEqual(done.returncode, 1)
        self.assertIn("--prompt-tokens and --output-tokens: 564 tokens are over", done.stderr)


class Throughput(unittest.TestCase):
    def test_rows(self):
        first, second = rows("throughput", "--model", TINY, "--cases", "2,16,8;1,32,1", "--threads", "1")
        self.assertEqual((first["B"], first["PP"], first["TG"]), (2, 16, 8))
        self.assertGreater(first["prefill_tok_s"], 0)
        self.assertGreater(first["decode_tok_s"], 0)
        self.assertIsNone(second["decode_tok_s"])

    def test_prefill_is_computed_each_time(self):
        """A prefix cache would make the repeats of a long prompt nearly free, far faster than the first of a short one."""
        short, long = rows("throughput", "--model", TINY, "--cases", "1,32,1;1,480,1", "--threads", "1", "--repeat", "5")
        self.assertLess(long["prefill_tok_s"], 5 * short["prefill_tok_s"])

    def test_measure(self):
        [prefill] = rows("throughput", "--model", TINY, "--cases", "1,32,8", "--threads", "1", "--measure", "prefill")
        [decode] = rows("throughput", "--model", TINY, "--cases", "1,32,8", "--threads", "1", "--measure", "decode")
        self.assertGreater(prefill["prefill_tok_s"], 0)
        self.assertIsNone(prefill["decode_tok_s"])
        self.assertIsNone(decode["prefill_tok_s"])
        self.assertGreater(decode["decode_tok_s"], 0)

    def test_phases(self):
        [row] = rows("throughput", "--model", TINY, "--cases", "2,32,9", "--threads", "1", "--repeat", "2", "--phases")
        prefill, decode = row["phases"]["prefill"], row["phases"]["decode"]
        self.assertIn(prefill["steps"], range(2 + 2, 2 * (2 + 2) + 1))  # the two come in one step, or one after the other
        self.assertGreaterEqual(decode["steps"], 2 * 7)
        for kind in (prefill, decode):
            self.assertEqual(list(kind["us"]), PHASES)
            self.assertAlmostEqual(sum(kind["us"].values()), kind["step_us"], delta=0.2)
            for phase in ("qkv", "rope_write_kv", "attention", "attention_out", "gate_up", "down", "logits", "sample"):
                self.assertGreater(kind["us"][phase], 0, phase)

    def test_phases_as_columns(self):
        done = run("throughput", "--model", TINY, "--cases", "1,32,9", "--threads", "1", "--repeat", "1", "--phases")
        lines = [line.split() for line in done.stdout.splitlines()[3:]]
        self.assertEqual({line[3] for line in lines}, {"prefill", "decode"})
        for kind in ("prefill", "decode"):
            self.assertAlmostEqual(sum(float(line[6]) for line in lines if line[3] == kind), 100, delta=1)

    def test_shared_prefix(self):
        args = ("throughput", "--model", TINY, "--cases", "4,256,9", "--threads", "1", "--repeat", "2", "--phases")
        [apart] = rows(*args, "--measure", "decode")
        [shared] = rows(*args, "--shared-prefix", "240")
        self.assertIsNone(shared["prefill_tok_s"])
        self.assertGreater(shared["decode_tok_s"], 0)
        # The prompts are there when it is measured, all but their last token; the others' are 1024 tokens a run.
        self.assertLess(shared["phases"]["prefill"]["us"]["qkv"] * shared["phases"]["prefill"]["steps"],
                        apart["phases"]["prefill"]["us"]["qkv"] * apart["phases"]["prefill"]["steps"])


class Prefix(unittest.TestCase):
    def test_rows(self):
        off, cold, warm = rows("prefix", "--model", TINY, "--users", "6", "--prefix", "128", "--tail", "32",
                               "--repeat", "1", "--threads", "1")
        self.assertEqual([row["cache"] for row in (off, cold, warm)], ["off", "cold", "warm"])
        for row in (off, cold, warm):
            self.assertGreater(row["ttft_p50_ms"], 0)
            self.assertLessEqual(row["ttft_p50_ms"], row["ttft_p99_ms"])
            self.assertLessEqual(row["ttft_p99_ms"], row["ttft_max_ms"])
            self.assertGreaterEqual(row["of_ideal"], 1)
        self.assertEqual(off["hit_rate"], 0)
        self.assertGreaterEqual(off["held_blocks"], 6 * 128 / 16)
        self.assertGreater(cold["hit_rate"], 0)
        # The system prompt once, tails and half a dozen blocks that are begun.
        self.assertLess(warm["held_blocks"], warm["ideal_blocks"] + 6 + 1)
        prompts = warm["prefix"] * 6 / warm["hit_rate"]  # tokens of all prompts
        self.assertTrue(6 * (128 + 16) <= prompts <= 6 * (128 + 48), prompts)


class Memory(unittest.TestCase):
    def test_whole_trace(self):
        paged, exact, asked, context = rows("memory")
        self.assertEqual(paged["allocation"], "paged, blocks of 16")
        # The books are the same on every machine but for who came first in which step; these are far from the edge.
        self.assertLess(paged["unused_percent"], 4)
        self.assertGreater(paged["mean_sequences"], exact["mean_sequences"])
        self.assertGreater(exact["mean_sequences"], asked["mean_sequences"])
        self.assertEqual(context["mean_sequences"], 4096 * 16 / 8192)
        self.assertGreater(context["unused_percent"], asked["unused_percent"])
        for row in (paged, exact, asked, context):
            self.assertGreater(row["held_percent"], 90)
            self.assertLessEqual(row["held_percent"], 100)
            self.assertGreaterEqual(row["peak_unused_percent"], row["unused_percent"])

    def test_on_a_model(self):
        with tempfile.NamedTemporaryFile("w", suffix=".csv") as trace:
            trace.write("prompt_tokens,output_tokens,max_tokens\n" + "100,40,64\n" * 12)
            trace.flush()
            paged, exact, asked, context = rows("memory", "--model", TINY, "--trace", trace.name, "--kv-blocks", "32",
                                                "--max-context", "512", "--threads", "1")
        self.assertGreater(paged["loaded_steps"], 0)
        self.assertEqual(exact["mean_sequences"], 3)  # 512 // 140
        self.assertEqual(asked["mean_sequences"], 3)
        self.assertEqual(context["mean_sequences"], 1)

    def test_trace_is_what_it_says(self):
        made = subprocess.run([sys.executable, str(TRACE.parent / "make_trace.py")], capture_output=True, text=True,
                              check=True)
        self.assertEqual(TRACE.read_text(), made.stdout)
        lengths = [tuple(map(int, line.split(","))) for line in made.stdout.splitlines()[1:]]
        self.assertEqual(len(lengths), 1000)
        for column, (median, p95) in enumerate([(120, 900), (180, 700)]):
            values = sorted(row[column] for row in lengths)
            self.assertAlmostEqual(statistics.median(values), median, delta=1)
            self.assertTrue(values[949] <= p95 * 1.01 and values[950] >= p95 * 0.99, values[949:951])

    def test_bad_trace(self):
        for text, reason in [("1,2\n", "line 2"), ("1,0,3\n", "line 2"), ("5,5,4\n", "line 2"), ("9000,1,1\n", "line 2"),
                             ("", "no requests")]:
            with tempfile.NamedTemporaryFile("w", suffix=".csv") as trace:
                trace.write("prompt_tokens,output_tokens,max_tokens\n" + text)
                trace.flush()
                done = run("memory", "--trace", trace.name)
            self.assertEqual(done.returncode, 1, text)
            self.assertIn("--trace", done.stderr)
            self.assertIn(reason, done.stderr)


class Stall(unittest.TestCase):
    def test_rows(self):
        target, none = rows("stall", "--model", TINY, "--streams", "3", "--stream-prompt", "16", "--tokens-before", "32",
                            "--prompt", "400", "--max-batch-tokens", "64", "--repeat", "1", "--threads", "1")
        self.assertEqual((target["target_itl_ms"], none["target_itl_ms"]), (50, 0))
        for row in (target, none):
            self.assertGreaterEqual(row["during_p50_ms"], 0.01)
            self.assertLessEqual(row["during_p50_ms"], row["during_p99_ms"])
            self.assertLessEqual(row["during_p99_ms"], row["during_max_ms"])
            self.assertLess(row["during_max_ms"], row["newcomer_ttft_ms"] + row["before_p99_ms"] + 1000)
        self.assertIsNone(none["p99_of_target"])
        self.assertEqual(none["chunks"], math.ceil(400 / (64 - 3)))


class Schedule(unittest.TestCase):
    def test_rows(self):
        result = rows("schedule", "--num-seqs", "32", "--context", "512", "--steps", "64", "--cached-blocks", "128,2048")
        self.assertEqual([(row["depth"], row["evicts"]) for row in result],
                         [(1, False), (1, False), (2, False), (2, False), (1, True)])
        self.assertEqual([row["cached_blocks"] for row in result[:4]], [128, 2048] * 2)
        for row in result:
            self.assertGreater(row["step_us"], 0)
            self.assertLessEqual(row["step_us"], row["step_p99_us"])
            self.assertEqual(row["allocations_a_step"], 0)
            self.assertGreater(row["newcomer_allocations"], 0)  # its tokens, at least: allocations are seen


class KvCache(unittest.TestCase):
    """That both ways give the same bits is checked by the command itself, which fails otherwise."""

    def check(self, model, figures, heads, kv_heads):
        self.assertEqual((model["heads"], model["kv_heads"]), (heads, kv_heads))
        self.assertEqual([(row["length"], row["cache"]) for row in figures],
                         [(length, way) for length in (16, 40) for way in ("on", "off")])
        for with_cache, without in zip(figures[::2], figures[1::2]):
            for row in (with_cache, without):
                self.assertGreater(row["token_ms"], 0)
                self.assertAlmostEqual(row["tok_s"] * row["token_ms"], 1000, delta=100)
            length = with_cache["length"]
            self.assertAlmostEqual(with_cache["kept_mib"], model["kv_bytes_per_token"] * math.ceil(length / 16) * 16 / 2**20,
                                   delta=0.001)
            self.assertEqual(without["kept_mib"], 0)
            # All that is multiplied is multiplied once a token, but for the logits.
            self.assertGreater(without["token_gop"], 0.5 * (length + 1) * with_cache["token_gop"])
            self.assertGreater(without["until_gop"], with_cache["until_gop"])
            self.assertGreater(without["op_per_byte"], with_cache["op_per_byte"])

    def test_three_models(self):
        with tempfile.TemporaryDirectory() as folder:
            plot = pathlib.Path(folder, "plots.svg")
            machine, *others = rows("kv-cache", "--lengths", "16,40", "--steps", "2", "--threads", "1", "--plot", str(plot))
            words = [text.text for text in xml.etree.ElementTree.parse(plot).iter("{http://www.w3.org/2000/svg}text")]
        self.assertEqual(list(machine), ["threads", "read_gb_s", "int8_gop_s", "f32_gop_s", "bf16_gop_s"])
        models, figures = others[::5], [others[i:i + 4] for i in (1, 6, 11)]
        self.assertEqual([model["model"] for model in models], ["MHA", "GQA", "MQA"])
        for model, of_it, kv_heads in zip(models, figures, (8, 2, 1)):
            self.check(model, of_it, 8, kv_heads)
            self.assertEqual(model["kv_bytes_per_token"], 2 * 8 * kv_heads * 64 * 2)
        if machine["f32_gop_s"]:
            self.assertTrue(all(row["bound"] in ("memory", "compute") for of_it in figures for row in of_it))
        for text in ("tokens per second", "MHA, with the cache", "MQA, without", "operations for each byte of memory"):
            self.assertIn(text, words)

    def test_on_a_model(self):
        _, model, *figures = rows("kv-cache", "--model", TINY, "--lengths", "16,40", "--steps", "2", "--threads", "1",
                                  "--kv-dtype", "int8")
        self.check(model, figures, model["heads"], model["heads"])

    def test_the_shortest(self):
        """Fewer blocks than what is warmed up with would take."""
        _, _, with_cache, without = rows("kv-cache", "--model", TINY, "--lengths", "1", "--steps", "1", "--threads", "1")
        self.assertEqual((with_cache["length"], without["length"]), (1, 1))

    def test_columns_are_as_wide_as_a_model_name(self):
        with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
            whole = pathlib.Path(TINY).read_bytes()
            old = whole.index(b"general.name") + 12 + 4
            size = int.from_bytes(whole[old:old + 8], "little")
            tail = whole[old + 8 + size:]
            # Tensors begin at a multiple of 32 bytes: the name grows by one.
            name = whole[old + 8:old + 8 + size].decode() + "x" * 32
            file.write(whole[:old] + len(name).to_bytes(8, "little") + name.encode() + tail)
            file.flush()
            done = run("kv-cache", "--model", file.name, "--lengths", "1", "--steps", "1", "--threads", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        at = next(i for i, line in enumerate(lines) if name in line)
        self.assertEqual(len(lines[at - 1]), len(lines[at]))

    def test_refused(self):
        for args, words in ((("--model", TINY, "--lengths", "600"), "--lengths and --steps: 609 tokens are over"),
                            (("--lengths", "9000"), "--lengths and --steps: 9009 tokens are over"),
                            (("--lengths", "16", "--plot", "no/such/folder.svg"), "--plot: cannot write")):
            done = run("kv-cache", *args)
            self.assertEqual(done.returncode, 1, args)
            self.assertIn(words, done.stderr)


class Flags(unittest.TestCase):
    def test_refused_by_name(self):
        tiny = ("--model", TINY)
        for args, name, code in [
                ((), "subcommand", 2),
                (("prefix",), "--model", 2),
                (("prefix", "--model", "no/such.gguf"), "--model", 2),
                (("prefix", *tiny, "--users", "0"), "--users", 2),
                (("prefix", *tiny, "--prefix", "600"), "--prefix", 1),
                (("prefix", *tiny, "--prefix", "64", "--tail", "8", "--isa", "mmx"), "--isa", 2),
                (("kv-cache", "--isa", "foo"), "--isa", 2),
                (("kv-cache", "--kv-dtype", "foo"), "--kv-dtype", 2),
                (("kvcache",), "'kvcache' is no command; there are throughput, ", 2),
                (("kv-cache", "--lengths", "0"), "--lengths", 2),
                (("kv-cache", "--steps", "0"), "--steps", 2),
                (("memory", "--block-size", "15"), "--block-size", 2),
                (("memory", "--trace", "no/such.csv"), "--trace", 1),
                (("memory", "--kv-blocks", "100"), "--kv-blocks", 1),
                (("memory", "--trace", str(TRACE), *tiny), "--max-context", 1),
                (("stall", *tiny, "--target-itl-ms", "50,-1"), "--target-itl-ms", 2),
                (("stall", *tiny), "--prompt", 1),
                (("stall", *tiny, "--prompt", "64", "--stream-prompt", "500"), "--stream-prompt", 1),
                (("schedule", "--num-seqs", "0"), "--num-seqs", 2),
                (("schedule", "--cached-blocks", "x"), "--cached-blocks", 2),
                (("schedule", "--no-such-flag"), "--no-such-flag", 2),
                (("throughput", *tiny, "--cases", "1,2"), "--cases", 1),
                # Refused before memory is taken: the whole pool, and the prompts.
                (("throughput", *tiny, "--cases", "1,8,2;1,1000000,1"), "--cases: 1000001 tokens are over", 1),
                (("throughput", *tiny, "--cases", "1,500,20"), "--cases: 520 tokens are over", 1),
                (("throughput", *tiny, "--cases", "1,2147483647,1"), "--cases", 1),
                (("throughput", *tiny, "--cases", "4294967297,16,1"), "--cases", 1),
                (("throughput", *tiny, "--cases", "1,99999999999999999999,1"), "--cases", 1),
                (("throughput", *tiny, "--cases", "1,64,2", "--shared-prefix", "32", "--measure", "prefill"),
                 "--shared-prefix", 1),
                (("throughput", *tiny, "--measure", "all"), "--measure", 2),
                (("throughput", *tiny, "--cases", "1,64,2", "--shared-prefix", "64"), "--shared-prefix", 1)]:
            done = run(*args)
            self.assertEqual(done.returncode, code, args)
            self.assertIn(name, done.stderr, args)

    def test_columns(self):
        done = run("schedule", "--num-seqs", "4", "--context", "64", "--steps", "8", "--cached-blocks", "16")
        header, *lines = [line.split() for line in done.stdout.splitlines()]
        self.assertEqual(header[:2], ["depth", "cached_blocks"])
        self.assertEqual([len(line) for line in lines], [len(header)] * 3)


if __name__ == "__main__":
    unittest.main()
