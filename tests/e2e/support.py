"""A real folio-server for a test: started on free ports, spoken to over gRPC, and asked afterwards whether it is idle."""

import os
import resource
import signal
import subprocess
import threading
import time
import unittest

import grpc

from folio.v1 import control_pb2, control_pb2_grpc, generation_pb2, generation_pb2_grpc

SERVER = os.environ["FOLIO_SERVER"]
SMOLLM2 = "models/smollm2-135m-q4_1.gguf"
GEMMA3 = "models/gemma-3-270m-q4_k_m.gguf"
TINY = "tests/reference/tiny_models/llama-mha.gguf"
START_TIMEOUT_S = 60

pb = generation_pb2
Code = grpc.StatusCode


class WithKey(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):
    """Adds an API key to every call."""

    def __init__(self, key):
        self.header = ("authorization", f"Bearer {key}")

    def _add(self, continuation, details, request):
        return continuation(details._replace(metadata=[*(details.metadata or ()), self.header]), request)

    intercept_unary_unary = intercept_unary_stream = _add


class Server:
    """One process. `flags` are added to free ports and what the test gives; stopped by SIGTERM in close().

    `program`: another than the one that was built. `key`: what the test's own stubs show at the door. `credentials`: for a server that speaks TLS. `files`: how many it may
    have open.
    """

    def __init__(self, model, *flags, wait=True, key=None, credentials=None, files=None, program=SERVER):
        self.key, self.credentials = key, credentials
        self.lines = []
        self.silent = False  # it will say no more
        self.changed = threading.Condition()
        self.started = time.monotonic()
        http = () if "--http-port" in flags else ("--http-port", "0")
        self.process = subprocess.Popen(
            [program, "--model", model, "--grpc-port", "0", *http, "--control-listen", "127.0.0.1:0", *flags],
            stderr=subprocess.PIPE, text=True, errors="replace",
            preexec_fn=files and (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))))
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        try:
            self.port = int(self.wait_line("gRPC on ").rsplit(":", 1)[1])
            self.http_port = int(self.wait_line("HTTP on ").rsplit(":", 1)[1]) if http else None
            self.control_port = int(self.wait_line("control on ").rsplit(":", 1)[1])
            if wait:
                self.wait_line("ready: ")
        except AssertionError:
            self.process.kill()
            raise
        self.channel = self.connect()
        self.stub = generation_pb2_grpc.GenerationStub(self.channel)
        self.control_channel = self.connect(port=self.control_port)
        self.control = control_pb2_grpc.ControlStub(self.control_channel)

    def connect(self, port=None, key=None, credentials=None, **options):
        """A channel of its own. By default to the user listener, as the server's own stubs are; key "": without one."""
        address = f"127.0.0.1:{port or self.port}"
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", 64 << 20),
                   ("grpc.max_send_message_length", 256 << 20), *options.items()]
        credentials = credentials or self.credentials
        channel = (grpc.secure_channel(address, credentials, options) if credentials
                   else grpc.insecure_channel(address, options))
        key = self.key if key is None else key
        return grpc.intercept_channel(channel, WithKey(key)) if key else channel

    def _read(self):
        for line in self.process.stderr:
            with self.changed:
                self.lines.append(line.rstrip("\n"))
                self.changed.notify_all()
        with self.changed:
            self.silent = True
            self.changed.notify_all()

    def wait_line(self, text):
        with self.changed:
            found = lambda: next((line for line in self.lines if text in line), None)
            self.changed.wait_for(lambda: found() or self.silent, START_TIMEOUT_S)
            if not found():
                raise AssertionError(f"no '{text}' from the server:\n" + "\n".join(self.lines))
            return found()

    def load(self):
        return self.control.GetLoad(control_pb2.GetLoadRequest(), timeout=5)

    def wait_idle(self, seconds=5):
        """No block is held but by pins: the check after every case."""
        end = time.monotonic() + seconds
        while True:
            load = self.load()
            idle = (load.num_running == load.num_waiting == load.num_front_waiting == load.blocks_unaccounted == 0
                    and load.blocks_held == load.blocks_pinned
                    and load.blocks_free + load.blocks_cached + load.blocks_held == load.blocks_total)
            if idle:
                return load
            if time.monotonic() > end:
                raise AssertionError(f"not idle after {seconds} s:\n{load}")
            time.sleep(0.02)

    def of_status(self, name):
        """A number of the process's from the kernel: VmRSS (KiB), Threads."""
        with open(f"/proc/{self.process.pid}/status", encoding="utf-8") as status:
            return int(next(line for line in status if line.startswith(name + ":")).split()[1])

    def cpu_s(self):
        with open(f"/proc/{self.process.pid}/stat", encoding="utf-8") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def terminate(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def wait_exit(self, seconds):
        return self.process.wait(timeout=seconds)

    def close(self):
        self.channel.close()
        self.control_channel.close()
        if self.process.poll() is None:
            self.terminate()
        try:
            code = self.wait_exit(15)
        finally:
            if self.process.poll() is None:
                self.process.kill()
            self.reader.join()
            self.process.stderr.close()
        return code


class ServerCase(unittest.TestCase):
    """A class of tests that share one server; each must leave it idle."""

    MODEL = TINY
    FLAGS = ("--kv-blocks", "512", "--threads", "2", "--check-invariants")

    @classmethod
    def setUpClass(cls):
        if not os.path.exists(cls.MODEL):
            raise unittest.SkipTest(f"{cls.MODEL} is not there: scripts/setup fetches it")
        cls.server = Server(cls.MODEL, *cls.FLAGS)
        cls.stub = cls.server.stub

    @classmethod
    def tearDownClass(cls):
        assert cls.server.close() == 0, "\n".join(cls.server.lines)

    def tearDown(self):
        self.server.wait_idle()
        self.assertEqual(check_health(self.server.channel), SERVING)

    def refused(self, code, *needles, request=None, **fields):
        """The unary and the streaming form are refused alike, and the message names what is wrong."""
        request = request or generate(**fields)
        with self.assertRaises(grpc.RpcError) as unary:
            self.stub.Generate(request, timeout=20)
        with self.assertRaises(grpc.RpcError) as stream:
            list(self.stub.GenerateStream(request, timeout=20))
        for error in (unary.exception, stream.exception):
            self.assertEqual(error.code(), code, error.details())
            for needle in needles:
                self.assertIn(needle, error.details())
        return unary.exception


def generate(text=None, ids=None, max_tokens=None, **fields):
    """A GenerateRequest: greedy unless told otherwise; fields of sampling and stopping by their own names."""
    request = pb.GenerateRequest()
    if text is not None:
        request.text = text
    if ids is not None:
        request.tokens.SetInParent()
        request.tokens.ids.extend(ids)
    if max_tokens is not None:
        request.stopping.max_tokens = max_tokens
    fields.setdefault("temperature", 0)
    set_fields(request, fields)
    return request


def chat(*messages, **fields):
    """messages: (role, content)"""
    request = pb.ChatRequest(messages=[pb.ChatMessage(role=role, content=content) for role, content in messages])
    fields.setdefault("temperature", 0)
    set_fields(request, fields)
    return request


def set_fields(request, fields):
    for name, value in fields.items():
        for message in (request.sampling, request.stopping, request):
            if name not in message.DESCRIPTOR.fields_by_name:
                continue
            if isinstance(value, dict):
                getattr(message, name).update(value)
            elif isinstance(value, (list, tuple)):
                getattr(message, name).extend(value)
            else:
                setattr(message, name, value)
            break
        else:
            raise KeyError(name)


class Joined:
    """A stream read to its end, with the order of its parts checked."""

    def __init__(self, chunks):
        self.text, self.tokens, self.finish, self.logprobs = {}, {}, {}, {}
        self.usage = self.seed = self.info = None
        self.prompt_logprobs = []
        self.num_chunks = 0
        for chunk in chunks:
            assert self.usage is None, "a chunk after the last one"
            self.num_chunks += 1
            if chunk.HasField("prompt_info"):
                assert not self.tokens and not self.finish, "the prompt comes before the outputs"
                assert (self.num_chunks == 1) == (self.info is None), "prompt_info is in the first chunk"
                assert self.num_chunks == 1 or chunk.prompt_info.logprobs, "prompt_info comes again for its logprobs"
                assert self.info is None or self.info.id == chunk.prompt_info.id
                self.info = chunk.prompt_info
                self.prompt_logprobs.extend(chunk.prompt_info.logprobs)
            for output in chunk.outputs:
                assert output.index not in self.finish, "an output after its finish reason"
                self.text[output.index] = self.text.get(output.index, "") + output.text
                self.tokens.setdefault(output.index, []).extend(output.tokens)
                self.logprobs.setdefault(output.index, []).extend(output.logprobs)
                if output.finish_reason:
                    self.finish[output.index] = output.finish_reason
            if chunk.HasField("usage"):
                self.usage, self.seed = chunk.usage, chunk.seed


SERVING, NOT_SERVING = 1, 2


def check_health(channel, service=""):
    """grpc.health.v1.Health/Check by its bytes: Debian has no Python package for it."""
    call = channel.unary_unary("/grpc.health.v1.Health/Check")
    name = service.encode()
    answer = call(b"\x0a" + bytes([len(name)]) + name if name else b"", timeout=5)
    return answer[1] if answer else 0


def watch_health(channel):
    return channel.unary_stream("/grpc.health.v1.Health/Watch")(b"")
