"""HTTP requests whose bytes were changed at random, bodies and heads: each answer is well-formed, with a documented status,
and the server is as before. Those of gRPC are in test_mutated.py."""

import collections
import concurrent.futures
import hashlib
import json
import os
import random
import re
import tempfile
import unittest

from gguf_template import with_template
from http_support import RawSocket
from support import TINY, Server
from test_mutated import MODEL_NAME, NUM_REQUESTS, SEED, TENANT, assert_unharmed, mutate

AT_ONCE = 16
KEY = "fuzz-key"
# What docs/api.md says that a caller may see; 500 and 503 are for a server that fails, loads, drains or is full.
DOCUMENTED = {200, 204, 400, 401, 403, 404, 405, 408, 413, 415, 417, 429, 431, 501, 504}
EDGES = [None, True, False, 0, 1, -1, 2, 1.5, -0.0, 1e-320, 1e308, 127, 2**31, -2**31 - 1, 2**53 + 1, 2**63, -2**63, 2**64,
         float("nan"), float("inf"), "", "x", "\0", "\r\nX: y", "\ud83d", "\u6f22" * 2000, "1", [], [[]], {}, {"": None},
         [0] * 600, ["x"] * 70, {str(i): 1 for i in range(1100)}, json.loads("[" * 70 + "]" * 70)]
# Such an answer is the connection's last, and what was refused may not have been known for a HEAD.
NOT_UNDERSTOOD = {400, 408, 431, 501}
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{{ a }}"


def bodies():
    """[(path, JSON)]: valid requests that set every kind of field, on each path."""
    common = {"model": MODEL_NAME, "max_tokens": 4, "temperature": 0.5, "top_k": 5, "top_p": 0.9, "min_p": 0.05, "seed": 7,
              "repetition_penalty": 1.1, "presence_penalty": 0.1, "frequency_penalty": 0.1, "logit_bias": {"3": 1.5, "9": -2},
              "min_tokens": 1, "stop": ["ab", "\u6f22"], "stop_token_ids": [11, 12], "n": 2, "priority": 1, "tenant": TENANT,
              "request_id": "label", "time_limit_ms": 2000, "skip_special_tokens": False, "cache_salt": "salt", "user": "u",
              "stream_options": None, "response_format": {"type": "text"}}
    messages = [{"role": "system", "content": "s"},
                {"role": "user", "content": [{"type": "text", "text": "h\u00e9"}], "name": "x"}]
    stream = {"stream": True, "stream_options": {"include_usage": True}}
    completions, chats = "/v1/completions", "/v1/chat/completions"
    return [(completions, {"prompt": [5, 6, 7], "logprobs": 3, **common}),
            (completions, {"prompt": "The sea", **common, **stream}),
            (completions, {"prompt": "The sea \u00e9\U0001F999", "max_tokens": 3, "prompt_logprobs": 2}),
            (completions, {"prompt": ["one"], "max_tokens": 2, "echo": True, "logprobs": 0, "ignore_eos": True}),
            (completions, {"prompt": list(range(60)), "max_tokens": 2, "cache_pin_ms": 50}),
            (chats, {"messages": messages, "logprobs": True, "top_logprobs": 2,
                     "chat_template_kwargs": {"a": [1, {"b": None}]}, **common}),
            (chats, {"messages": messages, "max_completion_tokens": 3, **stream}),
            ("/tokenize", {"prompt": "a \u6f22 <|im_end|>", "parse_special": True, "return_token_strs": True}),
            ("/tokenize", {"messages": messages, "add_generation_prompt": False}),
            ("/detokenize", {"tokens": [1, 5, 300], "skip_special_tokens": False})]


def head(method, path, *fields):
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: test", f"Authorization: Bearer {KEY}", *fields, "", ""]).encode()


def with_body(path, body, *fields):
    return head("POST", path, "Content-Type: application/json", f"Content-Length: {len(body)}", *fields) + body


def chunked(path, body, rng):
    at = rng.randrange(len(body))
    pieces = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:at], body[at:]) if part)
    return head("POST", path, "Content-Type: application/json", "Transfer-Encoding: chunked") + pieces + b"0\r\n\r\n"


def raw_request(rng):
    """The bytes of one request, or of two behind each other: valid ones, before they are changed."""
    path, body = rng.choice(bodies())
    body = json.dumps(body).encode()
    kind = rng.randrange(6)
    if kind == 0:
        return chunked(path, body, rng)
    if kind == 1:
        return with_body(path, body, "Expect: 100-continue", "X-Request-Id: label", "Connection: keep-alive")
    if kind == 2:
        path = rng.choice(("/v1/models", f"/v1/models/{MODEL_NAME}", "/health", "/ready", "/metrics?x=1"))
        return head(rng.choice(("GET", "HEAD", "OPTIONS")), path, "Accept: */*", "Origin: https://example.org")
    if kind == 3:
        return head("GET", "/health") + with_body(path, body)
    return with_body(path, body)


def with_an_edge(value, rng):
    """One value, somewhere in the JSON, becomes another."""
    if isinstance(value, dict) and value and rng.random() < 0.95:
        key = rng.choice(sorted(value))
        return {**value, key: with_an_edge(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        return [*value[:at], with_an_edge(value[at], rng), *value[at + 1:]]
    return rng.choice(EDGES)


def changed_request(rng):
    kind = rng.random()
    if kind < 0.6:  # a right head, so that it is the body that is looked at
        path, body = rng.choice(bodies())
        body = json.dumps(with_an_edge(body, rng) if kind < 0.35 else body).encode()
        return with_body(path, body if kind < 0.3 else mutate(body, rng))
    return mutate(raw_request(rng), rng)


def answers(stream, method):
    """[(status, media type, body)] of all that comes, which must be HTTP by the letter and end where an answer ends."""
    out = []
    while line := stream.readline():
        if not (found := re.fullmatch(rb"HTTP/1\.1 (\d{3}) [A-Za-z ]+\r\n", line)):
            raise ValueError(f"no status line: {line[:100]}")
        fields = {}
        while (line := stream.readline()) != b"\r\n":
            name, colon, value = line.partition(b": ")
            if not colon or not value.endswith(b"\r\n"):
                raise ValueError(f"no header field: {line[:100]}")
            fields[name.lower()] = value[:-2]
        status = int(found[1])
        if status == 100:
            continue
        if method == "HEAD" and status in NOT_UNDERSTOOD:
            body = stream.read()
        else:
            body = read_body(stream, fields, status == 204 or method == "HEAD")
        out.append((status, fields.get(b"content-type", b"").decode(), body))
        method = "POST"  # no HEAD comes second
    return out


def read_body(stream, fields, is_empty):
    if is_empty:
        return b""
    if b"content-length" in fields:
        return exactly(stream, int(fields[b"content-length"]))
    if fields.get(b"transfer-encoding") != b"chunked":
        return stream.read()
    body = b""
    while size := int(stream.readline(), 16):
        body += exactly(stream, size)
        exactly(stream, 2)
    exactly(stream, 2)
    return body


def exactly(stream, size):
    data = stream.read(size)
    if len(data) != size:
        raise ValueError("an answer that was cut off")
    return data


class MutatedHttp(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        model = with_template(TINY, os.path.join(folder.name, "chatty.gguf"), TEMPLATE)
        keys = os.path.join(folder.name, "keys.toml")
        with open(keys, "w", encoding="utf-8") as file:
            file.write(f'[keys.fuzz]\ntenant = "{TENANT}"\nsha256 = "{hashlib.sha256(KEY.encode()).hexdigest()}"\n'
                       f'highest_priority = 1\nadmin = true\n')
        self.server = Server(model, "--kv-blocks", "400", "--threads", "2", "--check-invariants", "--api-key-file", keys,
                             "--max-num-seqs", "16", "--model-name", MODEL_NAME, key=KEY)
        self.addCleanup(self.server.close)

    def ask(self, number):
        """-> the statuses"""
        rng = random.Random(f"{SEED}/{number}")
        data = changed_request(rng)
        where = f"request {number}, seed {SEED}: {data[:300]}"
        with RawSocket(self.server.http_port, timeout=20) as raw:
            try:
                raw.send(data)
                raw.socket.shutdown(1)  # no more comes: a request that is not whole ends
            except OSError:
                pass  # refused and closed while it was sent
            try:
                if b"HEAD " in data[1:]:  # which of the answers has a body cannot be told
                    whole = raw.socket.makefile("rb").read()
                    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", whole)]
                found = answers(raw.socket.makefile("rb"), data.partition(b" ")[0].decode("latin-1"))
            except ConnectionResetError:
                return []  # closed with more of it on the way
            except ValueError as failure:
                raise AssertionError(f"{where}: {failure}") from failure
        for status, kind, body in found:
            self.assertIn(status, DOCUMENTED, f"{where}: {body[:300]}")
            if status >= 400 and body:
                error = json.loads(body)["error"]
                self.assertEqual(set(error), {"message", "type", "param", "code"}, where)
                self.assertLess(len(body), 2000, where)
            elif kind == "application/json" and body:
                json.loads(body)
            elif kind.startswith("text/event-stream"):
                self.assertTrue(body.endswith(b"data: [DONE]\n\n"), where)
        return [status for status, _, _ in found]

    def test_2000_of_them(self):
        counts = collections.Counter()
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            for statuses in pool.map(self.ask, range(NUM_REQUESTS), chunksize=1):
                counts.update(statuses or ["none"])
        # Neither all well nor all refused: the changes reach beyond the parser.
        for status, least in {200: 100, 400: 100, 401: 10, 403: 1, 404: 10, 405: 1, 415: 10, 501: 1}.items():
            self.assertGreaterEqual(counts[status], least, counts)
        self.assertGreater(sum(counts.values()) - counts["none"], 0.9 * NUM_REQUESTS, counts)
        assert_unharmed(self)


if __name__ == "__main__":
    unittest.main()
