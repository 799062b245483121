"""Start, stop, ports and health of the process."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

import grpc

from support import (NOT_SERVING, SERVING, Code, SERVER, SMOLLM2, Server, TINY, check_health, generate, pb,
                     watch_health)

FLAGS = ("--kv-blocks", "200")  # where a server is not expected to start


def long_request(seed=1):
    return generate(ids=[seed, 7, 9], ignore_eos=True, max_tokens=500)


class Lifecycle(unittest.TestCase):
    def start(self, *flags, model=TINY, blocks=200, **options):
        server = Server(model, "--kv-blocks", str(blocks), *flags, **options)
        self.addCleanup(server.close)
        return server

    def test_a03_sigterm_lets_open_streams_finish(self):
        server = self.start("--threads", "1")
        streams = [server.stub.GenerateStream(long_request(i)) for i in range(1, 5)]
        firsts = [next(stream) for stream in streams]
        watch = watch_health(server.channel)
        self.assertEqual(next(watch)[1], SERVING)
        server.terminate()
        self.assertEqual(next(watch)[1], NOT_SERVING)
        for first, stream in zip(firsts, streams):
            self.assertEqual([first, *stream][-1].outputs[0].finish_reason, pb.FINISH_REASON_LENGTH)
        self.assertEqual(server.wait_exit(5), 0)
        with self.assertRaises(grpc.RpcError):
            next(watch)

    def test_a_log_whose_reader_is_gone_ends_nothing(self):
        reader, writer = os.pipe()
        process = subprocess.Popen([SERVER, "--model", TINY, *FLAGS, "--grpc-port", "0", "--http-port", "off",
                                    "--control-listen", "off"], stderr=writer)
        os.close(writer)
        with os.fdopen(reader) as log:
            while "ready: " not in log.readline():
                pass
        process.terminate()
        self.assertEqual(process.wait(10), 0)

    def test_calls_during_the_close_are_unavailable(self):
        server = self.start()
        server.terminate()
        server.wait_line("draining: ")  # from here on
        with self.assertRaises(grpc.RpcError) as refused:
            server.stub.Generate(generate(ids=[1, 2], max_tokens=1))
        self.assertEqual(refused.exception.code(), Code.UNAVAILABLE)

    def test_a03_the_drain_has_an_end(self):
        # The large model: its streams last longer than the drain.
        if not os.path.exists(SMOLLM2):
            self.skipTest(f"{SMOLLM2} is not there: scripts/setup fetches it")
        server = self.start("--drain-timeout", "0.5", "--max-num-seqs", "4", model=SMOLLM2, blocks=2000)
        slow = lambda: generate("Once upon a time", ignore_eos=True, max_tokens=4000)
        streams = [server.stub.GenerateStream(slow()) for _ in range(4)]
        for stream in streams:
            next(stream)
        sleeper = server.stub.GenerateStream(slow())  # queued behind, and never read
        server.terminate()
        start = time.monotonic()
        server.wait_line("SIGTERM")
        with self.assertRaises(grpc.RpcError) as refused:
            while True:
                server.stub.Generate(slow(), timeout=5)
        self.assertEqual(refused.exception.code(), Code.UNAVAILABLE)
        for stream in streams:
            with self.assertRaises(grpc.RpcError) as error:
                list(stream)
            self.assertEqual(error.exception.code(), Code.UNAVAILABLE)
        self.assertEqual(server.wait_exit(5), 0)
        self.assertLess(time.monotonic() - start, 3)
        del sleeper

    def test_a03_a_second_signal_leaves_at_once(self):
        if not os.path.exists(SMOLLM2):
            self.skipTest(f"{SMOLLM2} is not there: scripts/setup fetches it")
        server = self.start(model=SMOLLM2)
        stream = server.stub.GenerateStream(generate("a b c", ignore_eos=True, max_tokens=3000))
        next(stream)
        server.terminate(signal.SIGINT)
        server.wait_line("SIGINT")
        server.terminate(signal.SIGINT)
        self.assertEqual(server.wait_exit(3), 128 + signal.SIGINT)

    def test_a03_sigterm_while_loading_and_while_idle(self):
        loading = self.start(model=SMOLLM2 if os.path.exists(SMOLLM2) else TINY, wait=False)
        loading.terminate()
        self.assertEqual(loading.wait_exit(5), 0)
        idle = self.start()
        idle.terminate()
        self.assertEqual(idle.wait_exit(5), 0)
        # The port is free again at once.
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(("127.0.0.1", idle.port))

    def test_drain_by_the_control_listener(self):
        from folio.v1 import control_pb2
        server = self.start()
        server.control.Drain(control_pb2.DrainRequest())
        self.assertEqual(server.wait_exit(5), 0)

    def test_a12_a_taken_port_ends_the_start(self):
        first = self.start()
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            taken = other.getsockname()[1]
            for flags in (("--grpc-port", str(first.port), "--control-listen", "off"),
                          ("--grpc-port", str(first.port), "--control-listen", "off", "--host", "0.0.0.0"),
                          ("--grpc-port", "0", "--control-listen", f"127.0.0.1:{first.control_port}"),
                          ("--grpc-port", str(taken), "--control-listen", "off"),
                          ("--grpc-port", "0", "--control-listen", "off", "--http-port", str(first.http_port)),
                          ("--grpc-port", "0", "--control-listen", "off", "--http-port", str(first.http_port), "--host",
                           "0.0.0.0"),
                          ("--grpc-port", "0", "--control-listen", "off", "--http-port", str(taken))):
                if "--http-port" not in flags:
                    flags += ("--http-port", "off")
                start = time.monotonic()
                result = subprocess.run([SERVER, "--model", TINY, *FLAGS, *flags], stderr=subprocess.PIPE, text=True,
                                        timeout=20)
                self.assertLess(time.monotonic() - start, 1)
                self.assertEqual(result.returncode, 1)
                self.assertIn("cannot listen on", result.stderr)
                self.assertIn("in use", result.stderr)
                self.assertEqual(len(result.stderr.splitlines()), 2 + (flags[1] == "0"), "the options, the reason")
                self.assertNotIn("ready: ", result.stderr)
        self.assertEqual(first.stub.Generate(generate(ids=[1], max_tokens=1)).usage.output_tokens, 1)

    def refused_start(self, *flags, before=()):
        """-> the last line of one that cannot start"""
        start = time.monotonic()
        result = subprocess.run([*before, SERVER, "--model", TINY, *FLAGS, "--control-listen", "off", *flags],
                                stderr=subprocess.PIPE, text=True, timeout=20)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertNotIn("ready: ", result.stderr)
        return result.stderr.splitlines()[-1], time.monotonic() - start

    def test_a12_a_host_that_is_none(self):
        for host in ("no.such.host.invalid", "300.1.1.1", "[::zz]", "1.2.3"):
            for flags in (("--grpc-port", "0", "--http-port", "off"), ("--grpc-port", "0", "--http-port", "0")):
                line, _ = self.refused_start("--host", host, *flags)
                self.assertIn(host, line)

    def test_a12_a_port_without_the_right_to_it(self):
        user = ["unshare", "--user"]  # of a namespace of its own, without rights outside it
        with open("/proc/sys/net/ipv4/ip_unprivileged_port_start", encoding="ascii") as first:
            if int(first.read()) <= 80 or not shutil.which("unshare") or subprocess.run([*user, "true"]).returncode != 0:
                self.skipTest("port 80 is free for all here, or a user namespace is not allowed")
        for flags in (("--grpc-port", "0", "--http-port", "80"), ("--grpc-port", "80", "--http-port", "off")):
            line, seconds = self.refused_start(*flags, before=user)
            self.assertIn("cannot listen on 127.0.0.1:80: Permission denied", line)
            self.assertLess(seconds, 1)

    def test_a12_again_on_the_same_ports_after_a_kill(self):
        first = self.start()
        with socket.create_connection(("127.0.0.1", first.http_port)) as http:
            http.sendall(b"GET /health HTTP/1.1\r\nHost: h\r\n\r\n")
            http.recv(1000)
            stream = first.stub.GenerateStream(long_request())
            next(stream)
            ports = first.port, first.http_port, first.control_port
            first.process.kill()  # it closes first: its ends of the connections stay in TIME_WAIT
            first.wait_exit(5)
            self.assertEqual(http.recv(1000), b"")
        process = subprocess.Popen([SERVER, "--model", TINY, *FLAGS, "--grpc-port", str(ports[0]), "--http-port",
                                    str(ports[1]), "--control-listen", f"127.0.0.1:{ports[2]}"], stderr=subprocess.PIPE, text=True)
        said = []
        while not said or ("ready: " not in said[-1] and said[-1]):
            said.append(process.stderr.readline())
        process.terminate()
        self.assertEqual(process.wait(10), 0, said)
        process.stderr.close()
        self.assertIn("ready: ", said[-1], said)

    def test_bad_files_are_named(self):
        with tempfile.NamedTemporaryFile(suffix=".gguf") as empty, tempfile.NamedTemporaryFile(suffix=".gguf") as text:
            text.write(b"this is not a model file, whatever its name says" * 10)
            text.flush()
            for path in (empty.name, text.name, "/no/such/model.gguf", "/tmp"):
                result = subprocess.run([SERVER, "--model", path, "--grpc-port", "0", "--http-port", "off",
                                         "--control-listen", "off", *FLAGS], stderr=subprocess.PIPE, text=True, timeout=20)
                self.assertEqual(result.returncode, 1, result.stderr)
                self.assertIn(path, result.stderr.splitlines()[-1])

    def test_the_start_line_shows_every_option(self):
        server = self.start("--max-batch-tokens", "100")
        self.assertIn("--max-batch-tokens 100", server.lines[0])
        self.assertIn("--kv-blocks 200", server.lines[0])

    def test_health_watch_ends_with_the_server(self):
        server = self.start()
        for service in ("", "folio.v1.Generation"):
            self.assertEqual(check_health(server.channel, service), SERVING)
        self.assertEqual(check_health(server.control_channel, "folio.v1.Control"), SERVING)
        with self.assertRaises(grpc.RpcError) as error:
            check_health(server.channel, "no.such.Service")
        self.assertEqual(error.exception.code(), Code.NOT_FOUND)

    def test_control_is_not_on_the_user_listener(self):
        server = self.start()
        with self.assertRaises(grpc.RpcError) as error:
            server.channel.unary_unary("/folio.v1.Control/Drain")(b"")
        self.assertEqual(error.exception.code(), Code.UNIMPLEMENTED)


if __name__ == "__main__":
    unittest.main()
