"""--config: pins that are there before the first request, tenants, and files that are refused."""

import os
import subprocess
import tempfile
import time
import unittest

from folio.v1 import control_pb2
from support import SERVER, SMOLLM2, TINY, Server, chat, generate

SYSTEM = ("You are the helper of a lighthouse keeper. You answer in one short sentence, you know the tides, the ships and "
          "the weather of the coast, and you say so when you do not know.")
STORY = "Once upon a time there was a lighthouse on a rock, far from the land, and nobody knew who kept it. " * 2


class ConfigCase(unittest.TestCase):
    def write(self, text):
        file = tempfile.NamedTemporaryFile("w", suffix=".toml", encoding="utf-8")
        self.addCleanup(file.close)
        file.write(text)
        file.flush()
        return file.name

    def start(self, text, *flags, model):
        if not os.path.exists(model):
            self.skipTest(f"{model} is not there: scripts/setup fetches it")
        server = Server(model, "--check-invariants", "--config", self.write(text), *flags)
        self.addCleanup(server.close)
        return server


class Pins(ConfigCase):
    CONFIG = f"""
kv-blocks = 200
[[pin]]
system = "{SYSTEM}"
[[pin]]
text = "<|im_start|>user\\n{STORY}"
salt = "stories"
"""

    def pins(self, server, count):
        """Load once the engine has heard of the last command."""
        end = time.monotonic() + 5
        while server.load().num_pins != count and time.monotonic() < end:
            time.sleep(0.01)
        self.assertEqual(server.load().num_pins, count)
        return server.load()

    def cached(self, server, request):
        answer = (server.stub.Chat if hasattr(request, "messages") else server.stub.Generate)(request, timeout=60)
        self.assertEqual(answer.usage.cached_tokens, answer.prompt_info.cached_tokens)
        return answer.usage.cached_tokens

    def test_pins_are_there_before_the_first_request(self):
        server = self.start(self.CONFIG, model=SMOLLM2)
        load = server.load()
        self.assertEqual((load.num_running, load.num_pins), (0, 2))
        self.assertGreater(load.blocks_pinned, 2)
        self.assertEqual(load.blocks_held, load.blocks_pinned)
        self.assertTrue([line for line in server.lines if "tokens pinned" in line], server.lines)
        question = chat(("system", SYSTEM), ("user", "When is high tide?"), max_tokens=1)
        found = self.cached(server, question)
        self.assertGreaterEqual(found, 32)
        tale = generate(f"<|im_start|>user\n{STORY}Then", max_tokens=1, parse_special=True)
        self.assertLess(self.cached(server, tale), 16)  # of another prompt's beginning
        tale.cache.salt = "stories"
        self.assertGreaterEqual(self.cached(server, tale), 32)

        # Another caller's question finds the pinned part, also after a flush; without the pins it finds nothing.
        server.control.FlushPrefixCache(control_pb2.FlushPrefixCacheRequest(), timeout=5)
        other = chat(("system", SYSTEM), ("user", "Who are you?"), max_tokens=1)
        self.assertGreaterEqual(self.cached(server, other), found // 16 * 16)
        self.assertEqual(self.pins(server, 2).blocks_pinned, load.blocks_pinned)
        server.control.Unpin(control_pb2.UnpinRequest(), timeout=5)
        self.assertEqual(self.pins(server, 0).blocks_pinned, 0)
        server.control.FlushPrefixCache(control_pb2.FlushPrefixCacheRequest(), timeout=5)
        self.assertEqual(self.cached(server, question), 0)
        server.wait_idle()

    def test_a_requests_pin_ends_by_its_id(self):
        server = self.start("kv-blocks = 200\n", model=TINY)
        request = generate(ids=list(range(40)), max_tokens=1)
        request.cache.pin_ms = 600_000
        first = server.stub.Generate(request, timeout=10)
        self.assertEqual(first.usage.pinned_tokens, 32)
        load = self.pins(server, 1)
        self.assertEqual((load.blocks_pinned, load.blocks_held), (2, 2))
        server.control.Unpin(control_pb2.UnpinRequest(id=first.prompt_info.id + 100), timeout=5)
        server.control.Unpin(control_pb2.UnpinRequest(id=first.prompt_info.id), timeout=5)
        self.assertEqual(self.pins(server, 0).blocks_held, 0)
        server.wait_idle()

    def test_pins_give_way_to_a_request_that_could_not_run_otherwise(self):
        server = self.start("kv-blocks = 30\npin-quota = 50\n[[pin]]\ntext = \"" + "a" * 240 + "\"\n", model=TINY)
        load = server.load()
        self.assertGreater(load.blocks_pinned, 0)
        answer = server.stub.Generate(generate(ids=[7] * 400, max_tokens=60, ignore_eos=True), timeout=20)
        self.assertEqual(answer.usage.output_tokens, 60)
        load = self.pins(server, 0)
        self.assertEqual((load.num_pins_released, load.blocks_pinned), (1, 0))


class Tenants(ConfigCase):
    def test_weights_share_the_server(self):
        server = self.start("kv-blocks = 2000\nmax-num-seqs = 4\n[tenants.gold]\nweight = 3\n", model=SMOLLM2)
        # Holds every place while the others come, all of them before the first is served.
        blocker = server.stub.GenerateStream(generate(ids=[1], n=4, ignore_eos=True, priority=1), timeout=60)
        next(blocker)
        ended, calls = [], []
        for i in range(80):
            tenant = ("plain", "gold")[i % 2]
            request = generate(ids=[2 + i, 5, 9], max_tokens=8, ignore_eos=True, tenant=tenant)
            call = server.stub.Generate.future(request, timeout=60)
            call.add_done_callback(lambda _, tenant=tenant: ended.append(tenant))
            calls.append(call)
        end = time.monotonic() + 30
        while server.load().num_waiting < 80 and time.monotonic() < end:
            time.sleep(0.01)
        self.assertEqual(server.load().num_waiting, 80)
        blocker.cancel()
        for call in calls:
            self.assertEqual(call.result().usage.output_tokens, 8)
        # Three of four, while both still wait: 40 ends are at most 30 of gold's 40.
        share = ended[:40].count("gold") / 40
        self.assertGreater(share, 0.6)
        self.assertLess(share, 0.9)
        server.wait_idle()


class Files(ConfigCase):
    def refused(self, text, *flags):
        path = self.write(text)
        command = [SERVER, "--config", path, "--grpc-port", "0", "--http-port", "off", "--control-listen", "off",
                   *flags]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60)
        self.assertNotIn("ready: ", result.stderr)
        return result.returncode, result.stderr.replace(path, "FILE")

    def test_a_wrong_file_is_refused_before_the_model_is_opened(self):
        nowhere = ("--model", "/nowhere.gguf")
        self.assertEqual(self.refused("max-queue = 5\nmax-quue = 5\n", *nowhere),
                         (2, 'FILE:2: unknown key "max-quue": the keys are the flags\' names, tenants and pin\n'))
        self.assertEqual(self.refused("[tenants.a]\nweight = 0\n", *nowhere),
                         (2, 'FILE:2: tenants."a".weight: 0 is not in [1e-06, 1e+06]\n'))
        code, text = self.refused("kv-blocks = 200\n", *nowhere)
        self.assertEqual(code, 1)
        self.assertIn("--model /nowhere.gguf: no such file; scripts/setup fetches the default model", text)

    def test_a_pin_that_does_not_fit_ends_the_start(self):
        for text, words in (("x" * 5, "do not fill a block of 16"), ("word " * 100, "over what --pin-quota leaves"),
                            ("word " * 600, "over the context of 512 tokens")):
            code, log = self.refused(f'kv-blocks = 40\n\n[[pin]]\ntext = "{text}"\n', "--model", TINY)
            self.assertEqual(code, 1, log)
            self.assertIn("FILE:3: pin: ", log)
            self.assertIn(words, log)

    def test_the_command_line_wins(self):
        server = self.start("kv-blocks = 77\nmax-queue = 5\ntarget-itl-ms = 20\n", "--max-queue", "9", model=TINY)
        info = server.control.GetServerInfo(control_pb2.GetServerInfoRequest(), timeout=5)
        self.assertEqual((info.num_blocks, info.max_queue), (77, 9))
        self.assertEqual((info.options["target-itl-ms"], info.options["prefix-cache"]), ("20", "on"))
        self.assertTrue(info.options["config"].endswith(".toml"))


if __name__ == "__main__":
    unittest.main()
