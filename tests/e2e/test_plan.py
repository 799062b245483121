"""folio-client plan beside the real server: what is planned is what it has, and the forecast follows from its own step
times."""

import json
import os
import pathlib
import re
import subprocess
import threading
import time
import unittest

from support import TINY, Server, ServerCase, control_pb2, generate

CLIENT = os.environ["FOLIO_CLIENT"]
MIB = 1 << 20


def plan(*arguments, json_out=True):
    done = subprocess.run([CLIENT, "plan", *arguments, *(["--json"] if json_out else [])], capture_output=True,
                          text=True, timeout=60, check=False)
    if json_out and done.returncode == 0:
        return json.loads(done.stdout)
    return done


class Measure(ServerCase):
    FLAGS = ("--kv-blocks", "120", "--threads", "2", "--max-num-seqs", "8", "--max-batch-tokens", "64",
             "--prefix-cache", "off")

    @property
    def control(self):
        return f"127.0.0.1:{self.server.control_port}"

    def measure(self, *arguments, **options):
        return plan(TINY, "--measure", self.control, *arguments, **options)

    def teach(self):
        """Prompts and answers of many lengths, several at once."""
        for length in (3, 40, 200, 90, 10):
            calls = [self.stub.Generate.future(generate(ids=[1 + i] * length, max_tokens=20, ignore_eos=True))
                     for i in range(4)]
            for call in calls:
                call.result()
        self.server.wait_idle()

    def test_the_server_is_as_planned(self):
        report = self.measure("--users", "4", "--context", "200")
        info = self.server.control.GetServerInfo(control_pb2.GetServerInfoRequest())
        self.assertEqual(report["server"]["differences"], [])
        self.assertEqual(report["block_bytes"] * (info.num_blocks + 1), info.kv_bytes)
        self.assertEqual(report["server"]["fit"]["users"], 120 // 13)
        self.assertEqual(report["server"]["fit"]["context"], 120 // 4 * 16)
        text = self.measure("--users", "4", "--context", "200", json_out=False).stdout
        self.assertIn("The server is as planned.", text)

    def test_what_runs_now_is_seen(self):
        """Six callers, each with a new request when its last one ended: some of them run at any moment."""
        done = threading.Event()

        def call(number):
            while not done.is_set():
                self.stub.Generate(generate(ids=[5 + number] * 100, max_tokens=400, ignore_eos=True))

        callers = [threading.Thread(target=call, args=(number,)) for number in range(6)]
        for caller in callers:
            caller.start()
        try:
            self.wait_until(lambda: self.server.load().num_running > 2)
            server = self.measure()["server"]
        finally:
            done.set()
            for caller in callers:
                caller.join()
        self.assertGreaterEqual(server["num_running"], 1)
        self.assertGreaterEqual(server["blocks_held"], 7)
        self.assertEqual(server["held_bytes"], server["blocks_held"] * server["block_bytes"])

    def wait_until(self, condition):
        end = time.monotonic() + 20
        while not condition():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)

    def test_differences(self):
        report = self.measure("--users", "9", "--context", "100", "--dtype", "int8", "--block-size", "32")
        self.assertEqual(len(report["server"]["differences"]), 4)
        text = self.measure("--users", "9", "--context", "100", json_out=False).stdout
        self.assertIn("DIFFERS: 9 users are planned, the server runs 8 at once", text)

    def test_forecast_is_by_the_servers_own_step_times(self):
        self.teach()
        report = self.measure("--users", "4", "--context", "256", "--prompt-tokens", "100")
        times, forecast = report["server"]["step_times"], report["server"]["forecast"]
        of_load = self.server.load().step_times
        self.assertEqual(times["num_samples"], of_load.num_samples)
        self.assertEqual(times["base_ms"], of_load.base_ms)
        self.assertGreaterEqual(times["num_samples"], 20)
        self.assertTrue(forecast["is_seen"])
        expected = (times["base_ms"] + 4 * times["row_ms"] + 4 * 256 * (times["pair_ms"] + times["key_ms"])
                    + 4 * times["logit_row_ms"])
        self.assertAlmostEqual(forecast["itl_ms"], expected, delta=1e-6 + 1e-6 * expected)
        self.assertGreater(forecast["ttft_ms"], forecast["itl_ms"])
        self.assertEqual(forecast["steps"], 2)  # steps of 64 tokens, 3 of them answers
        self.assertEqual(forecast["chunk"], 61)

    def test_forecast_beside_what_happens(self):
        """Not exact: other work shares these cores. But of the right size, where nothing of it is made up."""
        self.teach()
        forecast = self.measure("--users", "4", "--context", "256", "--prompt-tokens", "200")["server"]["forecast"]
        calls = [self.stub.Generate.future(generate(ids=[7 + i] * 200, max_tokens=56, ignore_eos=True)) for i in range(4)]
        answers = [call.result() for call in calls]
        itl = sorted(answer.timings.decode_ms / 55 for answer in answers)[1]
        self.assertLess(forecast["itl_ms"], 20 * itl)
        self.assertGreater(forecast["itl_ms"], itl / 20)

    def test_a_server_alone(self):
        report = plan("--measure", self.control, "--users", "2")
        self.assertEqual(report["context"], 512)
        self.assertEqual(report["server"]["fit"]["users"], 120 // 32)
        self.assertNotIn("by_heads", report)

    def test_the_wrong_address(self):
        done = plan("--measure", f"127.0.0.1:{self.server.port}", json_out=False)
        self.assertEqual(done.returncode, 4)
        self.assertIn("does not know this call", done.stderr)
        self.assertIn("--control-listen", done.stderr)
        done = plan("--measure", "127.0.0.1:1", json_out=False)
        self.assertEqual(done.returncode, 4)
        self.assertIn("--measure: no server at 127.0.0.1:1", done.stderr)
        self.assertIn("another address: --measure HOST:PORT", done.stderr)
        done = plan("--measure", "", json_out=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--measure '': must be HOST:PORT", done.stderr)


class Fresh(unittest.TestCase):
    def test_no_forecast_before_steps(self):
        server = Server(TINY, "--kv-blocks", "64", "--threads", "1")
        try:
            report = plan("--measure", f"127.0.0.1:{server.control_port}")
            self.assertIsNone(report["server"]["forecast"])
            text = plan("--measure", f"127.0.0.1:{server.control_port}", json_out=False).stdout
            self.assertIn("No forecast: the server has seen 0 steps", text)
        finally:
            self.assertEqual(server.close(), 0)

    def test_the_memory_given_to_a_server_is_the_plans(self):
        for dtype in ("f16", "int8"):
            server = Server(TINY, "--kv-memory", "3MiB", "--kv-dtype", dtype, "--block-size", "32", "--threads", "1")
            try:
                report = plan(TINY, "--measure", f"127.0.0.1:{server.control_port}", "--weights", "1B", "--memory",
                              str(3 * MIB + 1))
                self.assertEqual(report["kv_dtype"], dtype)
                self.assertEqual(report["server"]["differences"], [])
                self.assertEqual(report["fit"], report["server"]["fit"])
            finally:
                self.assertEqual(server.close(), 0)


class Flags(unittest.TestCase):
    def test_refused_by_name(self):
        numbers = ("--layers", "2", "--heads", "4", "--head-dim", "64")
        for args, name, code in [
                ((), "nothing to plan for", 2),
                (("no/such.gguf",), "no/such.gguf", 1),
                (("README.md",), "not a GGUF file", 1),
                ((TINY, "--layers", "2"), "--layers", 2),
                (("--layers", "2", "--context", "1"), "--heads", 2),
                ((*numbers, "--kv-heads", "3", "--context", "1"), "--kv-heads", 2),
                (numbers, "--context", 2),
                ((*numbers, "--context", "0"), "--context", 2),
                ((*numbers, "--context", "16", "--prefix-tokens", "16"), "--prefix-tokens", 2),
                ((*numbers, "--context", "16", "--prefix-share", "1.5"), "--prefix-share", 2),
                ((*numbers, "--context", "16", "--dtype", "q8"), "--dtype", 2),
                ((*numbers, "--context", "16", "--block-size", "17"), "--block-size", 2),
                ((*numbers, "--context", "16", "--memory", "2GB"), "--memory", 2),
                ((*numbers, "--context", "16", "--weights", "-1"), "--weights", 2),
                ((*numbers, "--context", "16", "--prompt-tokens", "4"), "--prompt-tokens", 2),
                ((TINY, "--context", "513"), "--context", 2),
                (("--layers", "65536", "--heads", "65536", "--head-dim", "65536", "--context", "1000000000", "--users",
                  "1000000000"), "beyond 16 EiB", 1)]:
            done = plan(*args, json_out=False)
            self.assertEqual(done.returncode, code, (args, done.stderr))
            self.assertIn(name, done.stderr + done.stdout, args)

    def test_the_known_example(self):
        text = plan("--layers", "80", "--heads", "64", "--kv-heads", "8", "--head-dim", "128", "--context", "131072",
                    "--users", "32", json_out=False).stdout
        [mha] = [line.split() for line in text.splitlines() if line.split()[:1] == ["MHA"]]
        self.assertEqual(mha, ["MHA", "64", "2.5", "MiB", "320", "GiB", "10", "TiB"])
        [gqa] = [line.split() for line in text.splitlines() if line.split()[:1] == ["GQA"]]
        self.assertEqual(gqa, ["GQA", "8", "320", "KiB", "40", "GiB", "1.25", "TiB"])

    def test_the_examples_of_the_document(self):
        text = pathlib.Path("docs/client.md").read_text().partition("## Planning memory")[2]
        examples = [(command.split(), output) for command, output
                    in re.findall(r"```console\n\$ build/bin/folio-client plan (.*?)\n(.*?)```", text, re.DOTALL)
                    if "--measure" not in command]
        self.assertGreaterEqual(len(examples), 2)
        for command, output in examples:
            if command[0].startswith("models/") and not pathlib.Path(command[0]).exists():
                self.skipTest(f"{command[0]} is not there: scripts/setup fetches it")
            self.assertEqual(plan(*command, json_out=False).stdout, output)

    def test_a_shared_prefix_counts_once(self):
        report = plan("--layers", "2", "--heads", "4", "--head-dim", "64", "--context", "100", "--users", "4",
                      "--prefix-tokens", "40", "--prefix-share", "0.5", "--memory", "16MiB")
        self.assertEqual((report["shared_blocks"], report["users_blocks"]), (2, 2 + 2 * 5 + 2 * 7))
        self.assertEqual(report["users_bytes"], report["users_blocks"] * report["block_bytes"])
        self.assertEqual(report["users_bytes_without_sharing"], 4 * 7 * report["block_bytes"])
        blocks = 16 * MIB // report["block_bytes"] - 1
        users = report["fit"]["users"]
        need = lambda n: 2 * (n >= 2) + n // 2 * 5 + (n - n // 2) * 7
        self.assertTrue(need(users) <= blocks < need(users + 1), (users, blocks))


if __name__ == "__main__":
    unittest.main()
