"""Who is let in, and who is shown out: API keys, tenants, priorities, TLS, readers that stop."""

import hashlib
import os
import signal
import subprocess
import tempfile
import time
import unittest

import grpc

from folio.v1 import control_pb2, control_pb2_grpc, generation_pb2_grpc
from support import SERVER, SERVING, TINY, Code, Joined, Server, check_health, generate

CLIENT = os.environ["FOLIO_CLIENT"]
FLAGS = ("--kv-blocks", "400", "--threads", "2", "--check-invariants")
PROMPT = list(range(40))


def keys_toml(**keys):
    """A key file: each argument is a name with (key, more lines)."""
    return "".join(f'[keys.{name}]\nsha256 = "{hashlib.sha256(key.encode()).hexdigest()}"\n{more}\n'
                   for name, (key, more) in keys.items())


class DoorsCase(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def start(self, *flags, **more):
        server = Server(TINY, *FLAGS, *flags, **more)
        self.addCleanup(server.close)
        return server

    def stub(self, server, key):
        channel = server.connect(key=key)
        self.addCleanup(channel.close)
        return generation_pb2_grpc.GenerationStub(channel)

    def refused(self, code, call):
        with self.assertRaises(grpc.RpcError) as error:
            call()
        self.assertEqual(error.exception.code(), code, error.exception.details())
        return error.exception.details()


class Keys(DoorsCase):
    def setUp(self):
        super().setUp()
        self.file = self.write("keys.toml", keys_toml(
            gold=("gold-key", "highest_priority = 5"), silver=("silver-key", ""),
            shared=("shared-key", "share_prefix = true"), twin=("twin-key", "share_prefix = true"),
            admin=("admin-key", "admin = true")))
        self.server = self.start("--api-key-file", self.file, key="admin-key")

    def cached(self, key, salt=""):
        request = generate(ids=PROMPT, max_tokens=1)
        request.cache.salt = salt
        return self.stub(self.server, key).Generate(request, timeout=20).usage.cached_tokens

    def test_a09_without_a_known_key_nothing_is_open(self):
        for key in ("", "wrong", "gold-key ", "Gold-key", "x" * 5000):
            stub = self.stub(self.server, key)
            details = self.refused(Code.UNAUTHENTICATED, lambda: stub.Generate(generate(ids=[1]), timeout=20))
            self.assertNotIn(key or "gold", details)
            self.refused(Code.UNAUTHENTICATED, lambda: list(stub.GenerateStream(generate(ids=[1]), timeout=20)))
        plain = self.server.connect(key="")
        self.addCleanup(plain.close)
        for scheme in ("Basic gold-key", "gold-key", "Bearer"):
            call = plain.unary_unary("/folio.v1.Generation/ListModels")
            self.refused(Code.UNAUTHENTICATED, lambda: call(b"", metadata=[("authorization", scheme)]))
        self.assertTrue(call(b"", metadata=[("authorization", "bearer gold-key")]))
        two = [("authorization", "Bearer gold-key"), ("authorization", "Bearer silver-key")]
        self.refused(Code.UNAUTHENTICATED, lambda: call(b"", metadata=two))
        self.assertEqual(check_health(plain), SERVING)
        for line in self.server.lines:
            self.assertNotIn("gold-key", line)

    def test_control_is_for_admins(self):
        for key, code in (("", Code.UNAUTHENTICATED), ("gold-key", Code.PERMISSION_DENIED)):
            channel = self.server.connect(port=self.server.control_port, key=key)
            self.addCleanup(channel.close)
            control = control_pb2_grpc.ControlStub(channel)
            self.refused(code, lambda: control.Drain(control_pb2.DrainRequest(), timeout=5))
            self.refused(code, lambda: list(control.DumpBlocks(control_pb2.DumpBlocksRequest(), timeout=5)))
            self.assertEqual(check_health(channel), SERVING)
        self.assertEqual(self.server.load().num_running, 0)

    def test_tenant_and_priority_are_the_keys(self):
        gold = self.stub(self.server, "gold-key")
        self.assertEqual(gold.Generate(generate(ids=[1], max_tokens=1, tenant="gold", priority=5)).usage.output_tokens, 1)
        request = generate(ids=[1], max_tokens=1, tenant="silver")
        self.assertIn("tenant: ", self.refused(Code.PERMISSION_DENIED, lambda: gold.Generate(request)))
        request = generate(ids=[1], max_tokens=1, priority=6)
        self.assertIn("priority: 6", self.refused(Code.PERMISSION_DENIED, lambda: list(gold.GenerateStream(request))))
        self.server.wait_idle()

    def test_a_tenants_prefixes_are_its_own(self):
        self.assertEqual(self.cached("gold-key"), 0)
        self.assertGreaterEqual(self.cached("gold-key"), 32)
        self.assertEqual(self.cached("silver-key"), 0)
        self.assertEqual(self.cached("shared-key"), 0)
        self.assertGreaterEqual(self.cached("twin-key"), 32)
        self.assertEqual(self.cached("gold-key", "s"), 0)
        for salt in ("t4:golds", "4:golds", "golds"):
            for key in ("silver-key", "shared-key"):
                self.assertEqual(self.cached(key, salt), 0, (key, salt))
        self.server.wait_idle()

    def test_keys_are_read_again(self):
        gold, late = self.stub(self.server, "gold-key"), self.stub(self.server, "late-key")
        running = gold.GenerateStream(generate(ids=[1], max_tokens=400, ignore_eos=True))
        first = next(running)
        self.refused(Code.UNAUTHENTICATED, lambda: late.Generate(generate(ids=[1], max_tokens=1)))
        self.write("keys.toml", keys_toml(late=("late-key", ""), admin=("admin-key", "admin = true")))
        self.server.terminate(signal.SIGHUP)
        self.server.wait_line("2 API keys")
        self.assertEqual(late.Generate(generate(ids=[1], max_tokens=1)).usage.output_tokens, 1)
        self.refused(Code.UNAUTHENTICATED, lambda: gold.Generate(generate(ids=[1], max_tokens=1)))
        self.assertEqual(Joined([first, *running]).usage.output_tokens, 400)  # who was in stays in
        self.write("keys.toml", keys_toml(late=("late-key", "")) + "[keys.broken]\nsha256 = 'oops'\n")
        self.server.terminate(signal.SIGHUP)
        line = self.server.wait_line("the API keys stay as they were")
        self.assertIn("keys.toml:5: keys.\"broken\".sha256", line)
        self.assertEqual(late.Generate(generate(ids=[1], max_tokens=1)).usage.output_tokens, 1)
        self.server.wait_idle()

    def test_the_client_shows_its_key(self):
        command = [CLIENT, "generate", "--address", f"127.0.0.1:{self.server.port}", "--max-tokens", "2", "abc"]
        without = subprocess.run(command, capture_output=True, text=True, timeout=20, env={})
        self.assertEqual(without.returncode, 5)
        self.assertIn("UNAUTHENTICATED", without.stderr)
        given = subprocess.run(command, capture_output=True, text=True, timeout=20, env={"FOLIO_API_KEY": "gold-key"})
        self.assertEqual(given.returncode, 0, given.stderr)


class KeyFiles(DoorsCase):
    def test_a_wrong_file_ends_the_start_before_the_model_is_opened(self):
        for text, words in (("", "no [keys.NAME] in it"), (keys_toml(a=("", "")), "is the hash of an empty key"),
                            ('[keys.a]\nsha256 = "sk-clear"\n', "keys.toml:2: keys.\"a\".sha256: is not 64")):
            path = self.write("keys.toml", text)
            result = subprocess.run([SERVER, "--model", "/nowhere.gguf", "--grpc-port", "0", "--control-listen", "off",
                                     "--api-key-file", path], capture_output=True, text=True, timeout=20)
            self.assertEqual(result.returncode, 1)
            self.assertIn(words, result.stderr.splitlines()[-1])
            self.assertNotIn("sk-clear", result.stderr)
            self.assertNotIn("gRPC on", result.stderr)


class Tls(DoorsCase):
    """Certificates are made here, by openssl's own command."""

    def openssl(self, *arguments):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=self.folder.name)

    def authority(self, name):
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                     "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem")

    def certified(self, authority, name):
        self.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
                     "-keyout", f"{name}.key", "-out", f"{name}.csr")
        extensions = self.write("san.txt", "subjectAltName = DNS:localhost, IP:127.0.0.1\n")
        self.openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.pem", "-CAkey", f"{authority}.key",
                     "-CAcreateserial", "-days", "2", "-extfile", extensions, "-out", f"{name}.pem")

    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def credentials(self, client=None):
        return grpc.ssl_channel_credentials(self.read("ca.pem"), client and self.read(f"{client}.key"),
                                            client and self.read(f"{client}.pem"))

    def unreachable(self, channel):
        stub = generation_pb2_grpc.GenerationStub(channel)
        self.refused(Code.UNAVAILABLE, lambda: stub.Generate(generate(ids=[1], max_tokens=1), timeout=5))
        channel.close()

    def test_tls_and_mutual_tls_on_both_listeners(self):
        self.authority("ca")
        self.certified("ca", "server")
        self.certified("ca", "client")
        flags = ("--tls-cert", self.path("server.pem"), "--tls-key", self.path("server.key"))
        server = self.start(*flags, credentials=self.credentials())
        self.assertEqual(server.stub.Generate(generate(ids=[1], max_tokens=1)).usage.output_tokens, 1)
        self.assertEqual(server.load().num_running, 0)
        self.unreachable(grpc.insecure_channel(f"127.0.0.1:{server.port}"))
        self.unreachable(grpc.insecure_channel(f"127.0.0.1:{server.control_port}"))
        command = [CLIENT, "generate", "--address", f"127.0.0.1:{server.port}", "--max-tokens", "2", "abc"]
        given = subprocess.run([*command, "--tls-ca", self.path("ca.pem")], capture_output=True, text=True, timeout=20)
        self.assertEqual(given.returncode, 0, given.stderr)
        server.wait_idle()

        self.authority("stranger")
        self.certified("stranger", "other")
        mutual = self.start(*flags, "--tls-client-ca", self.path("ca.pem"), credentials=self.credentials("client"))
        self.assertEqual(mutual.stub.Generate(generate(ids=[1], max_tokens=1)).usage.output_tokens, 1)
        for port in (mutual.port, mutual.control_port):
            self.unreachable(grpc.secure_channel(f"127.0.0.1:{port}", self.credentials()))
            self.unreachable(grpc.secure_channel(f"127.0.0.1:{port}", self.credentials("other")))
        command = [CLIENT, "generate", "--address", f"127.0.0.1:{mutual.port}", "--max-tokens", "2", "abc"]
        ours = ("--tls-ca", self.path("ca.pem"), "--tls-cert", self.path("client.pem"), "--tls-key",
                self.path("client.key"))
        given = subprocess.run([*command, *ours], capture_output=True, text=True, timeout=20)
        self.assertEqual(given.returncode, 0, given.stderr)
        self.assertEqual(mutual.wait_idle().num_running, 0)

    def test_files_that_do_not_fit_end_the_start(self):
        self.authority("ca")
        self.certified("ca", "server")
        self.certified("ca", "other")
        for cert, key, words in (("server.pem", "other.key", "tls-key: is not the key of"),
                                 ("server.key", "server.key", "tls-cert: holds no PEM certificate"),
                                 ("none.pem", "server.key", "none.pem: tls-cert: cannot be read: No such file")):
            result = subprocess.run([SERVER, "--model", "/nowhere.gguf", "--grpc-port", "0", "--control-listen", "off",
                                     "--tls-cert", self.path(cert), "--tls-key", self.path(key)],
                                    capture_output=True, text=True, timeout=20)
            self.assertEqual(result.returncode, 1)
            self.assertIn(words, result.stderr.splitlines()[-1])
        alone = subprocess.run([SERVER, "--tls-cert", self.path("server.pem")], capture_output=True, text=True,
                               timeout=20)
        self.assertEqual(alone.returncode, 2)
        self.assertIn("--tls-cert: goes with --tls-key", alone.stderr)


class WriteTimeout(DoorsCase):
    def test_readers_that_stop_are_ended_and_others_feel_nothing(self):
        server = self.start("--write-timeout", "1")
        # More than a connection takes unread: the log probabilities of 20 tokens for each.
        request = generate(ids=[3, 7, 9], max_tokens=450, ignore_eos=True, n=8, logprobs=20)
        channel = server.connect(**{"grpc.http2.bdp_probe": 0, "grpc.http2.lookahead_bytes": 65536})
        self.addCleanup(channel.close)
        stub = generation_pb2_grpc.GenerationStub(channel)
        streams = [stub.GenerateStream(request) for _ in range(6)]
        for stream in streams:
            next(stream)
        end = time.monotonic() + 20
        while server.load().num_write_timeouts < 6 and time.monotonic() < end:
            self.assertEqual(server.stub.Generate(generate(ids=[1], max_tokens=1), timeout=10).usage.output_tokens, 1)
            time.sleep(0.05)
        self.assertEqual(server.load().num_write_timeouts, 6)
        load = server.wait_idle()
        self.assertEqual(load.blocks_held, 0)
        for stream in streams:
            with self.assertRaises(grpc.RpcError) as error:
                list(stream)
            self.assertEqual(error.exception.code(), Code.CANCELLED)
            self.assertIn("--write-timeout", error.exception.details())
        # One that reads slowly, but reads, gets all.
        slow = []
        for chunk in server.stub.GenerateStream(generate(ids=[3], max_tokens=450, ignore_eos=True, n=8, logprobs=20)):
            slow.append(chunk)
            if len(slow) < 12:
                time.sleep(0.2)
        self.assertEqual(Joined(slow).usage.output_tokens, 8 * 450)
        self.assertEqual(server.load().num_write_timeouts, 6)


if __name__ == "__main__":
    unittest.main()
