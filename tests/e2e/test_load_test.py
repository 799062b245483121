"""folio-client bench and bench sweep as a user runs them, against the real server."""

import fcntl
import json
import os
import pathlib
import pty
import signal
import struct
import subprocess
import tempfile
import termios
import time
import unittest
import xml.etree.ElementTree

from support import SMOLLM2, TINY, Server, ServerCase

CLIENT = os.environ["FOLIO_CLIENT"]


class LoadTest(ServerCase):
    MODEL = SMOLLM2
    FLAGS = ("--kv-blocks", "600", "--check-invariants")

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def command(self, *arguments, address=None):
        return [CLIENT, "bench", *map(str, arguments), "--address", address or f"127.0.0.1:{self.server.port}"]

    def bench(self, *arguments, **options):
        """(summary, records) of a run that ended well."""
        out, records = self.folder / "out.json", self.folder / "records.jsonl"
        done = subprocess.run(self.command(*arguments, "--json", out, "--records", records, **options),
                              capture_output=True, text=True, timeout=90)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return json.loads(out.read_text()), [json.loads(line) for line in records.read_text().splitlines()]

    def start(self, *arguments, **options):
        return subprocess.Popen(self.command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                **options)

    def wait_running(self, count=1):
        end = time.monotonic() + 20
        while self.server.load().num_running < count:
            self.assertLess(time.monotonic(), end, "nothing runs")
            time.sleep(0.01)

    def test_counts_are_the_servers_own(self):
        before = self.server.load()
        summary, records = self.bench("--rate", 20, "--num-requests", 40, "--prompts", "words", "--prompt-tokens",
                                      "uniform:4,20", "--output-tokens", "uniform:2,12", "--shared-prefix", 64,
                                      "--n", 2, "--temperature", 0.8, "--top-k", 50, "--connections", 3)
        after = self.server.wait_idle()
        self.assertEqual(summary["num_ok"], 40)
        self.assertEqual(summary["num_counts_differ"], 0)
        self.assertEqual(summary["output_tokens"], after.output_tokens - before.output_tokens)
        self.assertEqual(summary["output_tokens"], sum(record["output_tokens"] for record in records))
        self.assertEqual(summary["cached_tokens"], after.cached_tokens - before.cached_tokens)
        self.assertGreater(summary["cached_tokens"], 20 * 64)  # the prefix that they have in common
        self.assertEqual(len({record["prompt_tokens"] for record in records} - set(range(68, 85))), 0)
        self.assertEqual(summary["itl_ms"]["count"], summary["output_tokens"] - 2 * 40)

    def test_prompts_as_text_are_as_long_as_asked(self):
        for kind in ("words", "text"):
            summary, _ = self.bench("--num-requests", 5, "--prompts", kind, "--prompt-tokens", 50, "--output-tokens", 2)
            self.assertEqual((summary["num_ok"], summary["prompt_tokens"]), (5, 250), kind)

    def test_the_same_load_over_both_wires(self):
        flags = ("--num-requests", 12, "--prompts", "words", "--prompt-tokens", "uniform:5,40", "--output-tokens", 9,
                 "--temperature", 0, "--seed", 7)
        over_grpc, _ = self.bench(*flags)
        before = self.server.load()
        over_http, _ = self.bench(*flags, "--api", "openai", address=f"127.0.0.1:{self.server.http_port}")
        for key in ("num_ok", "prompt_tokens", "output_tokens", "num_estimated", "num_uncounted"):
            self.assertEqual(over_http[key], over_grpc[key], key)
        self.assertEqual(over_http["itl_ms"]["count"], 12 * 8)
        self.assertEqual(self.server.load().output_tokens - before.output_tokens, over_http["output_tokens"])
        self.assertEqual(over_http["options"]["api"], "openai")
        self.assertGreater(over_http["client"]["read_lag_ms"]["count"], 0)

    def test_answers_that_stop_strings_end_are_counted_as_the_server_does(self):
        flags = ("--num-requests", 16, "--prompts", "words", "--prompt-tokens", 12, "--output-tokens", 40,
                 "--stop", "e", "--stop", ", ")
        for more, port in (((), self.server.port), (("--api", "openai"), self.server.http_port)):
            before = self.server.load()
            summary, records = self.bench(*flags, *more, "--n", 2, address=f"127.0.0.1:{port}")
            after = self.server.wait_idle()
            self.assertEqual(summary["num_ok"], 16, more)
            self.assertEqual(summary["options"]["stop"], ["e", ", "])
            self.assertEqual(summary["output_tokens"], after.output_tokens - before.output_tokens, more)
            self.assertEqual(summary["output_tokens"], sum(record["output_tokens"] for record in records), more)
            self.assertLess(summary["output_tokens"], 16 * 2 * 40, "no answer was stopped")
            self.assertEqual(summary["num_counts_differ"], 0, more)

    def test_a_seed_that_ran_before_is_told(self):
        flags = ("--num-requests", 4, "--prompt-tokens", 64, "--output-tokens", 2, "--seed", 4711)
        self.bench(*flags)
        done = subprocess.run(self.command(*flags), capture_output=True, text=True, timeout=60)
        self.assertRegex(done.stdout, r"prompt tokens/s \(256, \d+ of them cached\)")
        self.assertIn("warning: more than half of the prompt tokens were in the server's cache", done.stdout)

    def test_cancels_leave_the_server_idle(self):
        summary, records = self.bench("--concurrency", 8, "--num-requests", 40, "--prompt-tokens", 8,
                                      "--output-tokens", 40, "--cancel-fraction", 0.5)
        self.server.wait_idle(2)
        self.assertGreater(summary["num_cancelled"], 5)
        self.assertEqual(summary["num_ok"] + summary["num_cancelled"], 40)
        self.assertEqual(summary["num_cancelled"], sum(record["outcome"] == "cancelled" for record in records))

    def test_a_trace_and_every_file(self):
        trace = self.folder / "trace.jsonl"
        trace.write_text('{"at": 0, "prompt": "Once upon a time", "output_tokens": 5}\n'
                         '{"at": 0.3, "prompt_tokens": 40, "prefix": "p", "prefix_tokens": 32, "output_tokens": 6}\n')
        summary, records = self.bench("--trace", trace, "--csv", self.folder / "out.csv", "--plot",
                                      self.folder / "out.svg", "--goodput", "ttft:60000")
        self.assertEqual((summary["num_ok"], summary["output_tokens"]), (2, 11))
        self.assertAlmostEqual(records[1]["due_s"], 0.3, places=6)
        header, row = (self.folder / "out.csv").read_text().splitlines()
        self.assertEqual(len(header.split(",")), len(row.split(",")))
        xml.etree.ElementTree.parse(self.folder / "out.svg")
        trace.write_text('{"at": 0, "prompt": "x", "output_tokens": 5}\n{"at": 1, "prompt": "x"}\n')
        refused = subprocess.run(self.command("--trace", trace), capture_output=True, text=True, timeout=30)
        self.assertEqual(refused.returncode, 1)
        self.assertIn(f"{trace}:2: output_tokens: is missing", refused.stderr)

    def test_ctrl_c_reports_what_there_is(self):
        out, records = self.folder / "out.json", self.folder / "records.jsonl"
        client = self.start("--concurrency", 4, "--duration", 60, "--prompt-tokens", 8, "--output-tokens", 200,
                            "--json", out, "--records", records)
        while not (records.exists() and records.read_text().count("\n") >= 5):
            time.sleep(0.05)
        client.send_signal(signal.SIGINT)
        text, errors = client.communicate(timeout=5)
        self.assertEqual(client.returncode, 130, errors)
        self.server.wait_idle(2)
        self.assertTrue(text.startswith("PARTIAL"), text)
        summary = json.loads(out.read_text())
        self.assertTrue(summary["partial"])
        lines = [json.loads(line) for line in records.read_text().splitlines()]
        self.assertEqual(len(lines), summary["num_ok"] + summary["num_aborted"])
        self.assertGreaterEqual(summary["num_ok"], 5)
        self.assertEqual(summary["num_aborted"], 4)
        self.assertEqual(summary["ttft_ms"]["count"], summary["num_ok"])

    def test_a_signal_that_comes_twice_at_once_is_one(self):
        """coreutils' timeout signals the program and then its group."""
        for _ in range(5):
            client = self.start("--rate", 5, "--duration", 60, "--prompt-tokens", 8, "--output-tokens", 500)
            self.wait_running(1)
            client.send_signal(signal.SIGINT)
            time.sleep(0.002)
            client.send_signal(signal.SIGINT)
            text, _ = client.communicate(timeout=5)
            self.assertEqual(client.returncode, 130)
            self.assertTrue(text.startswith("PARTIAL"), text)
            self.server.wait_idle()

    def test_answers_that_the_context_ends_are_told(self):
        server = Server(TINY, "--kv-blocks", "64", "--threads", "1", "--max-context", "128")
        try:
            for api, port in (("grpc", server.port), ("openai", server.http_port)):
                summary, _ = self.bench("--num-requests", 4, "--prompt-tokens", 16, "--output-tokens", 500, "--api", api,
                                        address=f"127.0.0.1:{port}")
                self.assertEqual((summary["num_ok"], summary["num_short"]), (4, 4), api)
                self.assertEqual(summary["output_tokens"] + summary["num_missing_tokens"], 4 * 500, api)
        finally:
            self.assertEqual(server.close(), 0)

    def test_signals_while_the_server_hangs(self):
        for signals, code in (((signal.SIGINT,), 130), ((signal.SIGTERM,), 143), ((signal.SIGINT, signal.SIGINT), 130)):
            records = self.folder / "hang.jsonl"
            client = self.start("--concurrency", 4, "--duration", 60, "--prompt-tokens", 8, "--output-tokens", 500,
                                "--records", records)
            self.wait_running(4)
            self.server.process.send_signal(signal.SIGSTOP)
            try:
                for number in signals:
                    client.send_signal(number)
                client.communicate(timeout=1)
            finally:
                self.server.process.send_signal(signal.SIGCONT)
            self.assertEqual(client.returncode, code, signals)
            for line in records.read_text().splitlines():
                json.loads(line)
            self.server.wait_idle()

    def test_a_killed_run_keeps_what_had_ended(self):
        records = self.folder / "killed.jsonl"
        client = self.start("--concurrency", 2, "--duration", 60, "--prompt-tokens", 8, "--output-tokens", 20,
                            "--records", records)
        while not (records.exists() and records.read_text().count("\n") >= 6):
            time.sleep(0.02)
        client.kill()
        client.communicate(timeout=5)
        lines = records.read_text().split("\n")
        for line in lines[:-1]:
            self.assertEqual(json.loads(line)["outcome"], "ok")
        self.assertGreaterEqual(len(lines) - 1, 6)

    def test_progress_on_a_terminal(self):
        ours, theirs = pty.openpty()
        client = subprocess.Popen(self.command("--concurrency", 2, "--duration", 2, "--prompt-tokens", 8,
                                               "--output-tokens", 10), stdout=subprocess.PIPE, stderr=theirs)
        os.close(theirs)
        client.communicate(timeout=30)
        shown = os.read(ours, 1 << 16).decode()
        os.close(ours)
        self.assertRegex(shown, r"\r\d+\.\d s  \d+ requests  \d+\.\d/s  in flight [0-2]  0 failed  TTFT p50 \d+ ms")
        self.assertTrue(shown.endswith("\r\x1b[K"))

    def test_progress_fits_the_terminal(self):
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 30, 0, 0))
        client = subprocess.Popen(self.command("--concurrency", 2, "--duration", 2, "--prompt-tokens", 8,
                                               "--output-tokens", 10), stdout=subprocess.PIPE, stderr=theirs)
        os.close(theirs)
        client.communicate(timeout=30)
        lines = os.read(ours, 1 << 16).decode().replace("\x1b[K", "").split("\r")
        os.close(ours)
        self.assertRegex(lines[1], r"^\d+\.\d s  \d+ requests")
        self.assertEqual(max(map(len, lines)), 29)

    def test_sweep(self):
        out = self.folder / "sweep.json"
        done = subprocess.run(self.command("sweep", "--points", "1,4", "--num-requests", "8", "--prompt-tokens", "8",
                                           "--output-tokens", "8", "--json", out, "--plot", self.folder / "sweep.svg"),
                              capture_output=True, text=True, timeout=90)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^1 +8 ")
        self.assertRegex(done.stdout, r"(?m)^4 +8 ")
        self.assertRegex(done.stdout, r"(?m)^(knee: concurrency 1|the knee was not reached: concurrency 4)")
        self.assertEqual([point["num_ok"] for point in json.loads(out.read_text())["points"]], [8, 8])
        xml.etree.ElementTree.parse(self.folder / "sweep.svg")

    def test_sweep_over_rate(self):
        out = self.folder / "sweep.json"
        done = subprocess.run(self.command("sweep", "--over", "rate", "--points", "2,4", "--num-requests", 4,
                                           "--arrivals", "constant", "--prompt-tokens", 8, "--output-tokens", 4,
                                           "--seed", 31, "--json", out),
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^rate .*\n2 +4 .*\n4 +4 .*\n")
        result = json.loads(out.read_text())
        self.assertEqual((result["over"], result["options"]["arrivals"]), ("rate", "constant"))
        for point, rate in zip(result["points"], (2, 4), strict=True):
            self.assertEqual((point["rate"], point["num_ok"]), (rate, 4))
            self.assertAlmostEqual(point["open_loop"]["due_per_second"], rate, places=6)

    def test_a_sweep_tells_why_requests_failed(self):
        done = subprocess.run(self.command("sweep", "--points", "1,2", "--num-requests", 2, "--prompt-tokens", 9000),
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"(?m)^2 .* 100\.0 %\n  INVALID_ARGUMENT: 2, first: .*9,?00")
        self.assertIn("no knee: no request ended well", done.stdout)

    def test_wrong_command_lines(self):
        for flags, complaint in ((("--rate", "5", "--concurrency", "2"), "--rate excludes --concurrency"),
                                 (("--prompt-tokens", "normal:5"), "--prompt-tokens: 'normal' is not one of"),
                                 (("--goodput", "x:1"), "--goodput: 'x' is not one of"),
                                 (("--json", "-"), "--json: '-' is no file; /dev/stdin and /dev/stdout"),
                                 (("sweep", "--from", "8", "--most", "4"), "--from: 8 is above --most, 4"),
                                 (("sweep", "--points", "1.5"), "--points: a concurrency is a whole number")):
            done = subprocess.run(self.command(*flags), capture_output=True, text=True, timeout=30)
            self.assertEqual(done.returncode, 2, flags)
            self.assertIn(complaint, done.stderr)
        done = subprocess.run([CLIENT, "bench", "--address", "x:1", "sweep", "--points", "1,2"], capture_output=True,
                              text=True, timeout=30)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--address: options go behind sweep", done.stderr)
        gone = subprocess.run([CLIENT, "bench", "--address", "127.0.0.1:1"], capture_output=True, text=True, timeout=30)
        self.assertEqual(gone.returncode, 4)
        self.assertIn("no server at 127.0.0.1:1", gone.stderr)
        gone = subprocess.run([CLIENT, "bench", "--api", "openai", "--address", "127.0.0.1:1"], capture_output=True,
                              text=True, timeout=30)
        self.assertEqual(gone.returncode, 4)
        self.assertIn("GET /v1/models: ", gone.stderr)


if __name__ == "__main__":
    unittest.main()
