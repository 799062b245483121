"""Kind 5 of the field's reports over HTTP, in numbers: crowds, idle connections, sleepers, and the limit of open files."""

import resource
import subprocess
import sys
import time
import unittest

from folio.v1 import control_pb2, control_pb2_grpc
from http_support import HttpCase, RawSocket
from support import SERVING, TINY, Server, check_health, generate

SHORT = {"prompt": [5, 6, 7], "max_tokens": 30, "ignore_eos": True, "temperature": 0}
# Asks /health again and again from a process of its own and prints how long each answer took.
PROBE = """
import http.client, sys, time
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=10)
while True:
    start = time.monotonic()
    connection.request("GET", "/health")
    assert connection.getresponse().read()
    print(time.monotonic() - start, flush=True)
    time.sleep(0.005)
"""


def may_open(number):
    """Files of this process, which is the crowd."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < number <= hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))
    return number <= hard


class Crowd(HttpCase):
    MODEL = TINY
    FLAGS = ("--kv-blocks", "400", "--max-num-seqs", "4", "--max-queue", "64", "--check-invariants")

    def health_times(self):
        command = [sys.executable, "-c", PROBE, str(self.server.http_port)]
        probe = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        probe.stdout.readline()
        return probe

    def check_health_times(self, probe):
        probe.terminate()
        times = sorted(float(line) for line in probe.communicate()[0].splitlines())
        self.assertGreater(len(times), 2)
        self.assertLess(times[len(times) * 9 // 10], 0.2, times)
        self.assertLess(times[-1], 2, times)

    def test_a14_five_hundred_at_once(self):
        self.assertTrue(may_open(2000))
        threads, memory = self.server.of_status("Threads"), self.server.of_status("VmRSS")
        probe = self.health_times()
        sockets = [RawSocket(self.server.http_port, timeout=60) for _ in range(500)]
        for number, raw in enumerate(sockets):
            raw.post("/v1/completions", {**SHORT, "stream": number % 2 == 0}, "Connection: close")
        self.assertLessEqual(self.server.of_status("Threads"), threads + 16)
        statuses = []
        for number, raw in enumerate(sockets):
            with raw:
                answer = raw.read_until(b"\0")  # to its end
            status = int(answer.split(b" ", 2)[1])
            statuses.append(status)
            if status == 429:
                self.assertIn(b"\r\nRetry-After: ", answer)
            elif number % 2 == 0:
                self.assertEqual(answer.count(b"data: [DONE]"), 1)
            else:
                self.assertIn(b'"completion_tokens":30', answer)
        self.check_health_times(probe)
        self.assertEqual(statuses.count(200) + statuses.count(429), 500, statuses)
        self.assertGreaterEqual(statuses.count(200), 64)
        self.assertGreater(statuses.count(429), 0)
        self.assertLess(self.server.of_status("VmRSS") - memory, 64 << 10)

    def test_a14_two_thousand_that_do_nothing(self):
        if not may_open(4000):
            self.skipTest("the limit of open files does not allow 2,200 connections")
        memory = self.server.of_status("VmRSS")
        idle = [RawSocket(self.server.http_port) for _ in range(2000)]
        for raw in idle:
            raw.send("GET /health HTTP/1.1\r\nHost: h\r\n\r\n")
        for raw in idle:
            self.assertTrue(raw.read_until(b"}").startswith(b"HTTP/1.1 200 "))
        half = [RawSocket(self.server.http_port) for _ in range(200)]
        for raw in half:
            raw.send("GET /health HTTP/1.1\r\nHo")
        probe = self.health_times()
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            self.assertEqual(self.complete(**SHORT)["usage"]["completion_tokens"], 30)
        self.check_health_times(probe)
        # None of them was sent away, and each cost little.
        self.assertLess(self.server.of_status("VmRSS") - memory, 2200 * 64)
        for raw in (idle[0], idle[-1]):
            raw.send("GET /health HTTP/1.1\r\nHost: h\r\n\r\n")
            self.assertTrue(raw.read_until(b"}").startswith(b"HTTP/1.1 200 "))
        for raw in (*idle, *half):
            raw.socket.close()

    def test_a02_readers_that_sleep(self):
        def seconds():
            start = time.monotonic()
            for _ in range(10):
                self.complete(**SHORT)
            return time.monotonic() - start

        long = {"prompt": [3, 7, 9], "max_tokens": 480, "logprobs": 20, "ignore_eos": True, "temperature": 0}
        expected = self.stream("/v1/completions", **long)
        before, alone = self.server.of_status("VmRSS"), seconds()
        sleepers = [RawSocket(self.server.http_port, receive_buffer=4096) for _ in range(32)]
        for raw in sleepers:
            raw.post("/v1/completions", {**long, "stream": True})
        self.server.wait_idle(30)  # the engine waits for no reader
        self.assertLess(self.server.of_status("VmRSS") - before, 50 << 10)
        self.assertLess(seconds(), 1.5 * alone + 0.2)
        for number, raw in enumerate(sleepers):
            if number % 4 == 0:  # these wake up
                answer = raw.read_until(b"data: [DONE]")
                self.assertIn(b"data: [DONE]", answer)
                self.assertEqual(answer.count(b'"finish_reason":"length"'), len(expected.finish))
            raw.socket.close()
        self.server.wait_idle(2)
        self.assertLess(self.server.of_status("VmRSS") - before, 50 << 10)

    def test_a01_fifty_rounds(self):
        long = {"prompt": [5, 6, 7], "max_tokens": 500, "ignore_eos": True, "temperature": 0}
        for number in range(50):
            raws = [RawSocket(self.server.http_port) for _ in range(9)]  # four run, five wait
            for index, raw in enumerate(raws):
                raw.post("/v1/completions", {**long, "stream": index % 2 == 0})
            if number % 2 == 0:
                raws[0].read_until(b"data: ")
            for index, raw in enumerate(raws):
                if (index + number) % 3 == 0:
                    raw.reset()
                else:
                    raw.socket.close()
        self.server.wait_idle(2)
        made = self.server.load().output_tokens
        time.sleep(0.1)
        self.assertEqual(self.server.load().output_tokens, made)
        # All places are there again: four run at once, and 64 may wait.
        raws = [RawSocket(self.server.http_port) for _ in range(60)]
        for raw in raws:
            raw.post("/v1/completions", SHORT, "Connection: close")
        for raw in raws:
            with raw:
                self.assertIn(b'"completion_tokens":30', raw.read_until(b"\0"))


class FileLimit(unittest.TestCase):
    def test_a14_no_file_left(self):
        """More connections than the process may have files, on both ports: who is in is served, it neither spins nor fills
        the log, and afterwards both ports take newcomers again."""
        server = Server(TINY, "--kv-blocks", "200", "--threads", "1", files=256)
        self.addCleanup(server.close)
        request = generate(ids=[1], max_tokens=2)
        self.assertEqual(server.stub.Generate(request, timeout=10).usage.output_tokens, 2)
        self.assertEqual(server.load().num_running, 0)
        crowd = []
        for port in (server.http_port, server.port, server.http_port, server.port):
            for _ in range(150):
                crowd.append(RawSocket(port))
                try:
                    crowd[-1].send("P")  # the beginning of something
                except OSError:
                    pass  # sent away
        time.sleep(0.5)
        before = server.cpu_s()
        time.sleep(2)
        self.assertLess(server.cpu_s() - before, 0.5)
        with server.connect(port=server.control_port) as operator:  # gets in
            load = control_pb2_grpc.ControlStub(operator).GetLoad(control_pb2.GetLoadRequest(), timeout=10)
        self.assertEqual(load.num_running, 0)
        self.assertEqual(server.stub.Generate(request, timeout=10).usage.output_tokens, 2)
        self.assertLess(len(server.lines), 30, server.lines[-10:])
        for raw in crowd:
            raw.socket.close()
        self.assertEqual(self.health_of_newcomer(server), 200)
        with server.connect() as fresh:
            self.assertEqual(check_health(fresh), SERVING)
        server.wait_idle()

    def health_of_newcomer(self, server):
        """Waits until those that left are noticed."""
        end = time.monotonic() + 10
        while True:
            try:
                with RawSocket(server.http_port, timeout=2) as raw:
                    raw.send("GET /health HTTP/1.1\r\nHost: h\r\n\r\n")
                    status = int(raw.read_until(b"\r\n").split(b" ")[1])
                    if status == 200:
                        return status
            except (OSError, IndexError):
                pass  # sent away once more
            self.assertLess(time.monotonic(), end)
            time.sleep(0.1)


if __name__ == "__main__":
    unittest.main()
