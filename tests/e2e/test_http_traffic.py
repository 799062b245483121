"""The HTTP front of the real server on the default model: kind 5 of the field's reports, clients that leave and sleep,
and the server's end. Crowds are in test_crowds.py."""

import os
import socket
import subprocess
import sys
import time
import unittest

from http_support import HttpCase, RawSocket
from support import SMOLLM2, Server

LONG = {"max_tokens": 4000, "ignore_eos": True, "temperature": 0}


class Traffic(HttpCase):
    FLAGS = ("--kv-blocks", "600", "--max-num-seqs", "2", "--max-queue", "16", "--check-invariants")

    def wait_for(self, condition, seconds=10):
        end = time.monotonic() + seconds
        while not condition(self.server.load()):
            self.assertLess(time.monotonic(), end, self.server.load())
            time.sleep(0.01)

    def test_a01_clients_that_leave(self):
        for _ in range(3):
            with RawSocket(self.server.http_port) as streaming:
                streaming.post("/v1/completions", {"prompt": "x", "stream": True, **LONG})
                for _ in range(3):
                    streaming.read_until(b"data: ")
            self.server.wait_idle(1)
            with RawSocket(self.server.http_port) as whole:
                whole.post("/v1/completions", {"prompt": "x", **LONG})
                self.wait_for(lambda load: load.num_running == 1)
            self.server.wait_idle(1)
            broken = RawSocket(self.server.http_port)
            broken.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], **LONG})
            self.wait_for(lambda load: load.num_running == 1)
            broken.reset()
            self.server.wait_idle(1)

    def test_a01_clients_that_leave_the_queue(self):
        sockets = [RawSocket(self.server.http_port) for _ in range(7)]
        for raw in sockets:
            raw.post("/v1/completions", {"prompt": "x", **LONG})
        self.wait_for(lambda load: load.num_running == 2 and load.num_waiting == 5)
        for raw in sockets[::-1]:
            raw.socket.close()
        self.server.wait_idle(1)

    def test_a01_a_half_close_is_no_cancel(self):
        with RawSocket(self.server.http_port) as raw:
            raw.post("/v1/completions", {"prompt": "x", "max_tokens": 100, "ignore_eos": True, "temperature": 0}, "Connection: close")
            raw.socket.shutdown(socket.SHUT_WR)
            answer = raw.read_until(b"no such bytes")
        self.assertIn(b'"completion_tokens":100', answer)

    def test_a01_a_killed_client(self):
        program = ("import http.client, json, sys\n"
                   f"c = http.client.HTTPConnection('127.0.0.1', {self.server.http_port})\n"
                   f"c.request('POST', '/v1/completions', json.dumps({{'prompt': 'x', **{LONG!r}, 'stream': True}}),\n"
                   "          {'Content-Type': 'application/json'})\n"
                   "c.getresponse().read(1)\nprint('reading', flush=True)\ninput()\n")
        client = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.assertEqual(client.stdout.readline(), b"reading\n")
        client.kill()
        client.wait()
        client.stdin.close()
        client.stdout.close()
        self.server.wait_idle(1)

    def test_a02_readers_that_sleep(self):
        sleepers = [RawSocket(self.server.http_port, receive_buffer=4096) for _ in range(2)]
        for raw in sleepers:
            raw.post("/v1/completions", {"prompt": "x", "stream": True, "logprobs": 20, **LONG, "max_tokens": 400})
        self.server.wait_idle(30)  # the engine waits for no reader
        self.assertEqual(self.complete("x", max_tokens=4)["usage"]["completion_tokens"], 4)
        for raw in sleepers:
            answer = raw.read_until(b"0\r\n\r\n")
            self.assertIn(b"data: [DONE]", answer)
            raw.socket.close()

    def test_time_limits(self):
        self.refused(504, None, "/v1/completions", {"prompt": "x " * 3000, "time_limit_ms": 1})
        answer = self.complete("x", time_limit_ms=300, max_tokens=4000, ignore_eos=True)
        self.assertEqual(answer["choices"][0]["finish_reason"], "length")
        self.assertLess(answer["usage"]["completion_tokens"], 4000)


class Ends(unittest.TestCase):
    def setUp(self):
        if not os.path.exists(SMOLLM2):
            self.skipTest(f"{SMOLLM2} is not there: scripts/setup fetches it")

    def test_a03_the_server_stops_with_everything_open(self):
        server = Server(SMOLLM2, "--kv-blocks", "600", "--drain-timeout", "1", "--max-num-seqs", "4")
        port = server.http_port
        request = {"prompt": "x", "stream": True, **LONG}
        streams = [RawSocket(port) for _ in range(3)]
        for raw in streams:
            raw.post("/v1/completions", request)
            raw.read_until(b"data: ")
        unread = RawSocket(port, receive_buffer=4096)
        unread.post("/v1/completions", request)
        queued = RawSocket(port)
        queued.post("/v1/completions", {"prompt": "y", **LONG})
        idle, half = RawSocket(port), RawSocket(port)
        half.send("GET /health HTTP/1.1\r\nHo")
        start = time.monotonic()
        server.terminate()
        server.wait_line("draining")
        with RawSocket(port) as probe:
            probe.send("GET /ready HTTP/1.1\r\nHost: h\r\n\r\n")
            self.assertTrue(probe.read_until(b"\r\n").startswith(b"HTTP/1.1 503 "))
            probe.post("/v1/completions", {"prompt": "late"})
            self.assertIn(b"HTTP/1.1 503 ", probe.read_until(b"shutting down"))
        for raw in streams:
            rest = raw.read_until(b"data: [DONE]")
            self.assertIn(b'data: {"error":', rest)
        self.assertIn(b"HTTP/1.1 503 ", queued.read_until(b"\r\n"))
        self.assertEqual(server.wait_exit(5), 0)
        self.assertLess(time.monotonic() - start, 4)
        for raw in (*streams, unread, queued, idle, half):
            raw.socket.close()
        with socket.socket() as again:
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            again.bind(("127.0.0.1", port))
        server.close()

    def test_a03_a_long_prefill_and_a_queue(self):
        server = Server(SMOLLM2, "--kv-blocks", "1100", "--drain-timeout", "1", "--max-num-seqs", "1")
        sockets = [RawSocket(server.http_port) for _ in range(6)]
        for number, raw in enumerate(sockets):  # a prompt of some seconds, and five behind it
            raw.post("/v1/completions", {"prompt": [number + 5] * 8000, "max_tokens": 1, "stream": number % 2 == 0})
        end = time.monotonic() + 10
        while (server.load().num_running, server.load().num_waiting) != (1, 5):
            self.assertLess(time.monotonic(), end, server.load())
            time.sleep(0.01)
        server.terminate()
        start = time.monotonic()
        for number, raw in enumerate(sockets):
            answer = raw.read_until(b"service_unavailable")
            self.assertIn(b"the server is shutting down", answer)
            self.assertTrue(number % 2 == 0 or answer.startswith(b"HTTP/1.1 503 "), answer)
            raw.socket.close()
        self.assertEqual(server.wait_exit(5), 0)
        self.assertLess(time.monotonic() - start, 3)
        server.close()

    def test_while_the_model_loads(self):
        server = Server(SMOLLM2, "--kv-blocks", "64", wait=False)
        try:
            with RawSocket(server.http_port) as raw:
                raw.send("GET /health HTTP/1.1\r\nHost: h\r\n\r\n")
                self.assertTrue(raw.read_until(b"\r\n\r\n").startswith(b"HTTP/1.1 200 "))
            server.wait_line("ready: ")
        finally:
            self.assertEqual(server.close(), 0)

    def test_off(self):
        server = Server(SMOLLM2, "--kv-blocks", "64", "--http-port", "off")
        self.assertFalse([line for line in server.lines if "HTTP on" in line])
        self.assertEqual(server.close(), 0)


if __name__ == "__main__":
    unittest.main()
