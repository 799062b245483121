"""folio-client bench --api openai against a server that fails in every way that is known from the field."""

import http.server
import json
import os
import pathlib
import resource
import socket
import struct
import subprocess
import tempfile
import threading
import unittest

CLIENT = os.environ["FOLIO_CLIENT"]
TOKENS = 5


def event(**fields):
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def text(words, finish=None):
    return event(choices=[{"index": 0, "text": words, "finish_reason": finish}])


USAGE = event(choices=[], usage={"prompt_tokens": 3, "completion_tokens": TOKENS})
ERROR = event(error={"message": "out of blocks", "code": 500})
DONE = b"data: [DONE]\n\n"
GOOD = text("two words") + text(" and") + text(" two more", "length") + USAGE + DONE


class Mock(http.server.ThreadingHTTPServer):
    """Answers its requests for completions with `answers`, one after the other and from the start again."""

    daemon_threads = True

    def __init__(self, answers):
        self.answers, self.count, self.lock = answers, 0, threading.Lock()
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def next_answer(self):
        with self.lock:
            self.count += 1
            return self.answers[(self.count - 1) % len(self.answers)]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, body, content_type="application/json"):
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.reply(200, json.dumps({"data": [{"id": "mock", "meta": {"n_vocab": 1000}}]}).encode())

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.next_answer()(self)


def stream(body):
    return lambda handler: handler.reply(200, body, "text/event-stream")


def status(code):
    return lambda handler: handler.reply(code, json.dumps({"error": {"message": f"no: {code}"}}).encode())


def cut(handler):
    handler.close_connection = True
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream")
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    handler.wfile.write(text("two words"))


def reset(handler):
    cut(handler)
    handler.wfile.flush()
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class LoadOpenAi(unittest.TestCase):
    def bench(self, answers, num_requests, *flags):
        server = Mock(answers)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "out.json"
            done = subprocess.run([CLIENT, "bench", "--api", "openai", "--address", f"127.0.0.1:{server.server_port}",
                                   "--num-requests", str(num_requests), "--concurrency", "3", "--prompt-tokens", "3",
                                   "--output-tokens", str(TOKENS), "--json", str(out), *flags],
                                  capture_output=True, text=True, timeout=60)
            self.assertEqual(server.count, num_requests, "each is sent once")
            return done.returncode, json.loads(out.read_text())

    def test_every_failure_by_its_name(self):
        failures = {"HTTP 429": status(429), "HTTP 503": status(503), "error body": status(200),
                    "error event": stream(text("two") + ERROR + DONE), "no end": stream(text("two", "length")),
                    "finish error": stream(text("two", "error") + DONE), "no finish": stream(text("two") + DONE)}
        answers = [stream(GOOD), stream(GOOD), *failures.values(), stream(ERROR), cut, reset]
        code, summary = self.bench(answers, 3 * len(answers))
        self.assertEqual(code, 3)
        self.assertEqual(summary["num_ok"], 6)
        expected = {name: 3 for name in failures} | {"error event": 6, "connection": 6}
        self.assertEqual({name: error["count"] for name, error in summary["errors"].items()}, expected)
        self.assertEqual(summary["errors"]["HTTP 503"]["first_message"], "no: 503")
        self.assertEqual(summary["ttft_ms"]["count"], 6)
        self.assertEqual((summary["output_tokens"], summary["prompt_tokens"]), (6 * TOKENS, 18))

    def test_answers_without_a_token_are_counted_apart(self):
        # C02: three of ten end at once, one closes the socket, half a one gives usage alone.
        empty, usage_only = stream(DONE), stream(event(choices=[], usage={"completion_tokens": 0}) + DONE)
        answers = [*[empty] * 6, *[cut] * 2, usage_only, *[stream(GOOD)] * 11]
        code, summary = self.bench(answers, 40, "--max-failed", "60")
        self.assertEqual(code, 0)
        self.assertEqual((summary["num_ok"], summary["num_empty"], summary["num_failed"]), (22, 14, 4))
        self.assertEqual(summary["ttft_ms"]["count"], 22)
        self.assertGreater(summary["ttft_ms"]["p50"], 0)
        self.assertEqual(summary["output_tokens"], 22 * TOKENS)

    def test_too_many_open_files_is_told(self):
        server = Mock([stream(GOOD)])
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        done = subprocess.run([CLIENT, "bench", "--api", "openai", "--address", f"127.0.0.1:{server.server_port}",
                               "--num-requests", "200", "--concurrency", "200", "--prompt-tokens", "2"],
                              capture_output=True, text=True, timeout=60, check=False,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40)))
        self.assertRegex(done.stdout, r"connection: \d+, first: too many open files: .* ulimit -n allows 40")

    def test_tls_where_there_is_none(self):
        server = Mock([stream(GOOD)])
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        done = subprocess.run([CLIENT, "bench", "--api", "openai", "--address", f"https://127.0.0.1:{server.server_port}"],
                              capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 4)
        self.assertIn("it may speak no TLS (then: http://, without --tls-ca)", done.stderr)

    def test_nothing_good_is_no_data(self):
        code, summary = self.bench([stream(DONE), cut], 8)
        self.assertEqual(code, 1)
        self.assertEqual(summary["ttft_ms"], {"count": 0})


if __name__ == "__main__":
    unittest.main()
