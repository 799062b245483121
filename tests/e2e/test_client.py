"""folio-client as a user runs it, against the real server."""

import json
import os
import re
import signal
import subprocess
import tempfile
import time
import unittest

from support import SMOLLM2, ServerCase, chat, generate

CLIENT = os.environ["FOLIO_CLIENT"]


class Client(ServerCase):
    MODEL = SMOLLM2
    FLAGS = ("--kv-blocks", "600", "--check-invariants")

    def run_client(self, *arguments, text=None):
        return subprocess.run([CLIENT, arguments[0], "--address", f"127.0.0.1:{self.server.port}", *arguments[1:]],
                              input=text, capture_output=True, text=True, timeout=60)

    def open_client(self, *arguments):
        return subprocess.Popen([CLIENT, arguments[0], "--address", f"127.0.0.1:{self.server.port}", *arguments[1:]],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def test_generate_prints_the_answer(self):
        expected = self.stub.Generate(generate("The capital of France is", max_tokens=8)).outputs[0].text
        flags = ("The capital of France is", "--max-tokens", "8", "--temperature", "0")
        plain = self.run_client("generate", *flags, "--stats")
        self.assertEqual((plain.returncode, plain.stdout), (0, expected + "\n"))
        self.assertIn("output 8 tokens", plain.stderr)
        whole = json.loads(self.run_client("generate", *flags, "--json").stdout)
        self.assertEqual(whole["outputs"][0]["text"], expected)
        piped = self.run_client("generate", "-", *flags[1:], text=flags[0])
        self.assertEqual(piped.stdout, plain.stdout)

    def test_the_cache_as_a_flag(self):
        words = "The quick brown fox jumps over the lazy dog. " * 4
        flags = ("generate", words, "--max-tokens", "1", "--temperature", "0", "--stats", "--tenant", "t")
        count = lambda *more: int(re.search(r"tokens \((\d+) cached", self.run_client(*flags, *more).stderr).group(1))
        self.assertEqual([count("--no-cache"), count("--salt", "s")], [0, 0])
        self.assertGreaterEqual(count("--salt", "s"), 32)
        self.assertEqual([count("--salt", "t"), count("--salt", "s", "--no-cache")], [0, 0])
        result = self.run_client(*flags, "--no-cache", "--pin-ms", "5")
        self.assertIn("INVALID_ARGUMENT: cache.pin_ms: not together with cache.bypass", result.stderr)
        pinned = self.run_client(*flags, "--pin-ms", "100")
        self.assertIn(" pinned) ", pinned.stderr)
        self.assertNotIn(" 0 pinned", pinned.stderr)

    def test_generate_says_what_was_refused(self):
        result = self.run_client("generate", "x", "--top-p", "2")
        self.assertEqual(result.returncode, 5)
        self.assertIn("INVALID_ARGUMENT: sampling.top_p: 2 is not in (0, 1]", result.stderr)

    def test_who_is_not_there(self):
        for address, words in (("127.0.0.1:1", "no server at 127.0.0.1:1\nstart one with: folio-server"),
                               (f"127.0.0.1:{self.server.http_port}", "speaks HTTP, not gRPC"),
                               (f"127.0.0.1:{self.server.control_port}", "may be the server's --control-listen")):
            for command in (("generate", "x"), ("chat", "x")):
                gone = subprocess.run([CLIENT, *command, "--address", address], capture_output=True, text=True,
                                      timeout=60)
                self.assertEqual((gone.returncode, gone.stdout), (4, ""), gone.stderr)
                self.assertIn(words, gone.stderr)

    def test_where_a_prompt_comes_from(self):
        flags = ("--max-tokens", "4", "--temperature", "0")
        expected = self.run_client("generate", "The sea", *flags).stdout
        self.assertEqual(self.run_client("generate", *flags, text="The sea").stdout, expected)
        with tempfile.NamedTemporaryFile(suffix=".txt") as file:
            file.write(b"The sea")
            file.flush()
            self.assertEqual(self.run_client("generate", "--file", file.name, *flags).stdout, expected)
            both = self.run_client("generate", "x", "--file", file.name)
            self.assertEqual(both.returncode, 2)
            self.assertIn("prompt excludes --file", both.stderr)
            file.write(b"\xff")
            file.flush()
            bad = self.run_client("generate", "--file", file.name)
            self.assertEqual((bad.returncode, bad.stderr),
                             (2, f"folio-client: generate: --file {file.name}: not UTF-8 at byte 7\n"))
        none = self.run_client("generate", "--file", "/no/such/file")
        self.assertEqual((none.returncode, none.stderr),
                         (2, "folio-client: generate: --file /no/such/file: cannot be read\n"))

        folder = self.run_client("generate", "--file", "/tmp")
        self.assertEqual((folder.returncode, folder.stderr),
                         (2, "folio-client: generate: --file /tmp: is a directory\n"))
        endless = self.run_client("generate", "--file", "/dev/zero")
        self.assertEqual((endless.returncode, endless.stderr),
                         (2, "folio-client: generate: --file /dev/zero: is larger than 64 MiB\n"))

    def test_a_key_that_no_request_can_carry(self):
        """As from a file with CRLF: told before anything is sent, and never shown."""
        for command in (("generate", "x"), ("chat", "x"), ("load",), ("bench",), ("bench", "--api", "openai"),
                        ("plan", "--measure", "127.0.0.1:1")):
            done = subprocess.run([CLIENT, *command], env={**os.environ, "FOLIO_API_KEY": "secret\r"},
                                  capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stdout), (2, ""), command)
            self.assertRegex(done.stderr, r"^folio-client: --api-key .*has a control character in it.*\n$")
            self.assertNotIn("secret", done.stderr)

    def test_text_that_is_not_utf8_is_refused_by_its_flag(self):
        for flag in ("--tenant", "--salt", "--model", "--stop"):
            done = subprocess.run([CLIENT, "generate", "x", flag, b"a\xff"], capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stderr.splitlines()[0]), (2, f"{flag}: not UTF-8 at byte 1"))

    def test_wrong_command_lines(self):
        for line, words in ((("genrate", "x"), "'genrate' is no command; there are generate, chat, "),
                            (("generate", "x", "--seed", "-1"), "--seed: Value -1 is below 0"),
                            (("generate", "x", "--logprobs", "2"), "--logprobs requires --json"),
                            (("generate", "x", "--address", "localhost"), "--address 'localhost': must be HOST:PORT"),
                            (("chat", ""), "the message is empty")):
            done = subprocess.run([CLIENT, *line], capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stdout), (2, ""), line)
            self.assertIn(words, done.stderr)

    def test_an_answer_that_its_time_limit_cut_is_told(self):
        done = self.run_client("generate", "Once upon a time", "--ignore-eos", "--time-limit-ms", "400")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("the time limit (--time-limit-ms) ended the answer before its own end", done.stderr)
        whole = self.run_client("generate", "Once", "--max-tokens", "2", "--time-limit-ms", "60000")
        self.assertEqual((whole.returncode, whole.stderr), (0, ""))

    def test_a_conversation_over_the_context_may_be_forgotten(self):
        long = "sea " * 8500
        done = self.run_client("chat", "--max-tokens", "2", text=f"Hi\n{long}\n/reset\n{long}\n")
        self.assertEqual(done.returncode, 5)
        self.assertEqual(done.stderr.count("over the context"), 2)
        self.assertEqual(done.stderr.count("/reset forgets the conversation"), 1)  # where there is one to forget

    def test_grpcs_own_lines_are_not_shown(self):
        with tempfile.TemporaryDirectory() as folder:
            authority = folder + "/ca.pem"
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                            "-subj", "/CN=x", "-keyout", folder + "/ca.key", "-out", authority], check=True,
                           capture_output=True)
            for command in (("generate", "x"), ("bench", "--num-requests", "1")):
                done = self.run_client(*command, "--tls-ca", authority)
                self.assertEqual(done.returncode, 4)
                self.assertTrue(done.stderr.startswith("folio-client: no connection to 127.0.0.1:"), done.stderr)
                self.assertNotRegex(done.stderr, r"(?m)^E\d+ ")

    def test_ctrl_c_ends_generate(self):
        client = self.open_client("generate", "Once", "--ignore-eos")
        self.assertTrue(client.stdout.read(1))
        client.send_signal(signal.SIGINT)
        client.communicate(timeout=10)
        self.assertEqual(client.returncode, 130)

    def test_chat_keeps_the_history(self):
        first = self.stub.Chat(chat(("user", "Hi")))
        second = self.stub.Chat(chat(("user", "Hi"), ("assistant", first.outputs[0].text), ("user", "Bye"), max_tokens=5))
        result = self.run_client("chat", "--temperature", "0", "--max-tokens", "20", "--stats", text="Hi\nBye\n")
        self.assertEqual(result.returncode, 0)
        self.assertTrue(result.stdout.startswith(first.outputs[0].text + "\n" + second.outputs[0].text))
        self.assertIn(f"prompt {second.usage.prompt_tokens} tokens", result.stderr)

    def test_lines_that_are_not_utf8_are_not_sent(self):
        client = subprocess.run([CLIENT, "chat", "--address", f"127.0.0.1:{self.server.port}", "--max-tokens", "2"],
                                input=b"a\xff\n/system \xff\n", capture_output=True, timeout=60)
        self.assertEqual((client.returncode, client.stdout), (2, b""))
        self.assertEqual(client.stderr.decode().splitlines(),
                         [f"folio-client: chat: the line: not UTF-8 at byte {byte}" for byte in (1, 8)])

    def test_commands_in_a_pipe(self):
        result = self.run_client("chat", "--temperature", "0", "--max-tokens", "2",
                                 text="/system Be brief.\nHi\n/stats\n/exit\nBye\n")
        self.assertEqual(result.returncode, 0, result.stderr)
        expected = self.stub.Chat(chat(("system", "Be brief."), ("user", "Hi"), max_tokens=2))
        self.assertEqual(result.stdout, expected.outputs[0].text + "\n")
        self.assertIn(f"prompt {expected.usage.prompt_tokens} tokens", result.stderr)

    def test_ctrl_c_stops_the_answer_and_not_the_chat(self):
        client = self.open_client("chat", "--ignore-eos", "--seed", "1")
        client.stdin.write("Tell me a long story.\n")
        client.stdin.flush()
        self.assertTrue(client.stdout.read(1))
        client.send_signal(signal.SIGINT)
        self.server.wait_idle()
        time.sleep(0.15)  # at once it would be the same press
        client.send_signal(signal.SIGINT)  # at the prompt: a hint, no end
        time.sleep(0.1)
        self.assertIsNone(client.poll())
        _, errors = client.communicate("/exit\n", timeout=10)
        self.assertEqual(client.returncode, 0, errors)
        self.assertIn("/exit or Ctrl-D leaves", errors)

    def test_ctrl_c_twice_ends_a_chat_through_a_pipe(self):
        client = self.open_client("chat")
        time.sleep(0.3)
        for _ in range(2):
            self.assertIsNone(client.poll())
            client.send_signal(signal.SIGINT)
            time.sleep(0.2)
        client.communicate(timeout=10)
        self.assertEqual(client.returncode, 130)

    def test_bench(self):
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            result = self.run_client("bench", "--num-requests", "12", "--concurrency", "4", "--prompt-tokens", "16",
                                     "--output-tokens", "8", "--json", file.name)
            summary = json.load(file)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual((summary["num_ok"], summary["output_tokens"], summary["prompt_tokens"]), (12, 96, 192))
        self.assertEqual((summary["ttft_ms"]["count"], summary["itl_ms"]["count"]), (12, 84))
        refused = self.run_client("bench", "--num-requests", "3", "--prompt-tokens", "10000")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("INVALID_ARGUMENT: 3", refused.stdout)


if __name__ == "__main__":
    unittest.main()
