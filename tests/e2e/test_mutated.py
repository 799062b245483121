"""Requests whose bytes were changed at random: each gets a documented status, and the server is as before."""

import collections
import hashlib
import os
import random
import tempfile
import time
import unittest

import grpc

from folio.v1 import control_pb2, generation_pb2
from support import SERVING, TINY, Code, Server, check_health, generate, pb

# More of them, and others: by hand.
SEED = int(os.environ.get("FOLIO_MUTATED_SEED", 20261130))
NUM_REQUESTS = int(os.environ.get("FOLIO_MUTATED", 2000))
AT_ONCE = 24
TIMEOUT_S = 3
# Long, so that changes hit them.
TENANT = "a tenant with a name that is long"
MODEL_NAME = "a-model-with-a-name-that-is-long"
# What docs/api.md says that a caller may see.
DOCUMENTED = {Code.OK, Code.INVALID_ARGUMENT, Code.NOT_FOUND, Code.FAILED_PRECONDITION, Code.RESOURCE_EXHAUSTED,
              Code.DEADLINE_EXCEEDED, Code.PERMISSION_DENIED, Code.CANCELLED}


def seeds():
    """Valid requests that set every kind of field, by method."""
    whole = generate(ids=[5, 6, 7], max_tokens=5, temperature=0.5, top_k=5, top_p=0.9, min_p=0.05, seed=7,
                     repetition_penalty=1.1, presence_penalty=0.1, frequency_penalty=0.1, logit_bias={3: 1.5, 9: -2},
                     min_tokens=1, stop=["ab", "\u6f22"], stop_token_ids=[11, 12], n=2, logprobs=3, priority=1,
                     tenant=TENANT, request_id="label", time_limit_ms=2000, skip_special=False, model=MODEL_NAME)
    whole.cache.salt = "salt"
    text = generate("The sea \u00e9\U0001F999 and more of it", max_tokens=4, include_stop=True, stop=["x"])
    pinned = generate(ids=list(range(60)), max_tokens=2)
    pinned.cache.pin_ms = 50
    chat = pb.ChatRequest(messages=[pb.ChatMessage(role="system", content="s"), pb.ChatMessage(role="user", content="hi")],
                          template_args='{"a": [1, {"b": null}]}', tools="[]")
    chat.stopping.max_tokens = 3
    apply = pb.ApplyChatTemplateRequest(messages=list(chat.messages), template_args=chat.template_args)
    return [(f"/folio.v1.Generation/{method}", request.SerializeToString()) for method, request in [
        ("Generate", whole), ("GenerateStream", whole), ("Generate", whole), ("GenerateStream", whole), ("Generate", text), ("GenerateStream", text),
        ("Generate", pinned), ("Chat", chat), ("ChatStream", chat), ("ApplyChatTemplate", apply),
        ("Tokenize", pb.TokenizeRequest(text="a \u6f22 <|im_end|>", parse_special=True, add_special=True)),
        ("Detokenize", pb.DetokenizeRequest(tokens=[1, 5, 300], skip_special=False)),
        ("ListModels", generation_pb2.ListModelsRequest()),
    ]], [(f"/folio.v1.Control/{method}", request.SerializeToString()) for method, request in [
        ("Abort", control_pb2.AbortRequest(id=3)), ("Unpin", control_pb2.UnpinRequest(id=5)),
        ("GetLoad", control_pb2.GetLoadRequest()), ("GetServerInfo", control_pb2.GetServerInfoRequest()),
        ("FlushPrefixCache", control_pb2.FlushPrefixCacheRequest()),
        ("DumpBlocks", control_pb2.DumpBlocksRequest()),
    ]]


def mutate(data, rng):
    """Some changes: values a little off (so that most of it still parses), bits, bytes, runs taken out, doubled or put
    in, the end cut off, or nothing but noise."""
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(7)
        if rng.random() < 0.7:
            if at < len(data):
                data[at] = (data[at] + rng.choice((-2, -1, 1, 2))) % 128
            continue
        if kind == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and at < len(data):
            data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif kind == 2:
            del data[at:at + rng.randint(1, 8)]
        elif kind == 3:
            data[at:at] = data[at:at + rng.randint(1, 16)]
        elif kind == 4:
            data[at:at] = rng.randbytes(rng.randint(1, 10))
        elif kind == 5:
            del data[at:]
        else:
            data[at:at] = rng.choice((b"\xff" * 9 + b"\x01", b"\x80" * 10, b"\x0a\xff\xff\xff\xff\x0f", b"\xc0\x80",
                                      b"\xed\xa0\x80", b"\x00" * 5, data[:]))
    return bytes(data) if rng.random() > 0.02 else rng.randbytes(rng.randint(0, 200))


def assert_unharmed(case):
    """After all that: the server is alive, idle and whole, and answers."""
    case.assertIsNone(case.server.process.poll())
    case.assertEqual(check_health(case.server.channel), SERVING)
    case.server.control.Unpin(control_pb2.UnpinRequest(), timeout=5)
    end = time.monotonic() + 5
    while case.server.load().num_pins > 0 and time.monotonic() < end:
        time.sleep(0.02)
    load = case.server.wait_idle()
    case.assertEqual((load.blocks_held, load.num_pins), (0, 0))
    case.assertEqual(case.server.stub.Generate(generate(ids=[1], max_tokens=2)).usage.output_tokens, 2)
    for line in case.server.lines:
        case.assertRegex(line, r"^\d{4}-\d\d-\d\d ")


class Mutated(unittest.TestCase):
    def setUp(self):
        keys = tempfile.NamedTemporaryFile("w", suffix=".toml")
        self.addCleanup(keys.close)
        keys.write(f'[keys.fuzz]\ntenant = "{TENANT}"\nsha256 = "{hashlib.sha256(b"fuzz-key").hexdigest()}"\nhighest_priority = 1\n'
                   f'admin = true\n')
        keys.flush()
        self.server = Server(TINY, "--kv-blocks", "400", "--threads", "2", "--check-invariants", "--api-key-file",
                             keys.name, "--max-num-seqs", "16", "--model-name", MODEL_NAME, key="fuzz-key")
        self.addCleanup(self.server.close)

    def send(self, method, data):
        """A future and the way to its code."""
        is_control = "Control" in method
        channel = self.server.control_channel if is_control else self.server.channel
        if method.endswith("Stream") or method.endswith("DumpBlocks"):
            call = channel.unary_stream(method)(data, timeout=TIMEOUT_S)
            return lambda: self.code_of(lambda: collections.deque(call, maxlen=0))
        call = channel.unary_unary(method).future(data, timeout=TIMEOUT_S)
        return lambda: self.code_of(call.result)

    def code_of(self, wait):
        try:
            wait()
        except grpc.RpcError as error:
            details = error.details()
            self.assertLess(len(details.encode()), 1100)
            self.assertTrue(details, error)
            return error.code()
        return Code.OK

    def test_2000_of_them(self):
        rng = random.Random(SEED)
        user, control = seeds()
        codes = collections.Counter()
        under_way = collections.deque()
        for number in range(NUM_REQUESTS):
            method, data = rng.choice(control if number % 10 == 9 else user)
            under_way.append((method, number, self.send(method, mutate(data, rng))))
            while len(under_way) > (AT_ONCE if number < NUM_REQUESTS - 1 else 0):
                method, number_then, code_of = under_way.popleft()
                code = code_of()
                self.assertIn(code, DOCUMENTED, f"request {number_then}, {method}, seed {SEED}")
                codes[code] += 1
        self.assertEqual(sum(codes.values()), NUM_REQUESTS)
        # Neither all well nor all refused: the changes reach beyond the parser.
        for code in (Code.OK, Code.INVALID_ARGUMENT, Code.PERMISSION_DENIED, Code.NOT_FOUND):
            self.assertGreater(codes[code], 5, codes)
        assert_unharmed(self)


if __name__ == "__main__":
    unittest.main()
