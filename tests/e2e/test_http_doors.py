"""HTTP's door of the real server: the API keys and the certificates that gRPC has (test_doors.py)."""

import http.client
import json
import os
import signal
import ssl
import subprocess
import tempfile
import unittest

import grpc

from http_support import RawSocket
from support import TINY, Server
from test_doors import keys_toml

FLAGS = ("--kv-blocks", "400", "--threads", "2", "--check-invariants")
ORIGIN = "https://app.example"
PROMPT = {"prompt": [1, 2, 3], "max_tokens": 1, "temperature": 0}


class HttpDoorsCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def start(self, *flags, **more):
        self.server = Server(TINY, *FLAGS, *flags, **more)
        self.addCleanup(self.server.close)

    def ask(self, method, path, body=None, context=None, **headers):
        """-> status, JSON"""
        kind = http.client.HTTPSConnection if context else http.client.HTTPConnection
        connection = kind("localhost", self.server.http_port, timeout=10, **({"context": context} if context else {}))
        try:
            connection.request(method, path, body and json.dumps(body), {"Content-Type": "application/json", **headers})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null")
        finally:
            connection.close()


class Keys(HttpDoorsCase):
    def setUp(self):
        super().setUp()
        with open(self.path("keys.toml"), "w", encoding="utf-8") as file:
            file.write(keys_toml(gold=("gold-key", "highest_priority = 5"), silver=("silver-key", ""),
                                 shared=("shared-key", "share_prefix = true"), twin=("twin-key", "share_prefix = true"),
                                 admin=("admin-key", "admin = true")))
        self.start("--api-key-file", self.path("keys.toml"), "--cors-allow-origin", ORIGIN, key="admin-key")

    def complete(self, key=None, **fields):
        headers = {} if key is None else {"Authorization": key}
        return self.ask("POST", "/v1/completions", {**PROMPT, **fields}, **headers)

    def test_a09_keys(self):
        self.assertEqual(self.complete("Bearer gold-key")[0], 200)
        self.assertEqual(self.complete("bearer gold-key")[0], 200, "a scheme has no case")
        for key in (None, "Bearer", "Bearer ", "Bearer wrong", "gold-key", "Basic gold-key", "Bearer " + "x" * 5000):
            status, answer = self.complete(key)
            self.assertEqual((status, answer["error"]["code"]), (401, "invalid_api_key"), key)
            self.assertNotIn("gold", answer["error"]["message"])
        two = "Bearer gold-key\r\nAuthorization: Bearer silver-key"
        with RawSocket(self.server.http_port) as raw:
            raw.send(f"GET /v1/models HTTP/1.1\r\nHost: h\r\nAuthorization: {two}\r\n\r\n")
            self.assertTrue(raw.read_until(b"}}").startswith(b"HTTP/1.1 401 "))
        for path in ("/v1/models", "/metrics", "/", "/no/such/path", "//v1/models"):
            self.assertEqual(self.ask("GET", path)[0], 401, path)
        for path in ("/health", "/ready"):
            self.assertEqual(self.ask("GET", path)[0], 200, path)
        for line in self.server.lines:
            self.assertNotIn("gold-key", line)

    def test_what_a_key_does_not_allow(self):
        self.assertEqual(self.complete("Bearer gold-key", tenant="gold", priority=5)[0], 200)
        for field, value in {"tenant": "silver", "priority": 6}.items():
            for stream in (False, True):
                status, answer = self.complete("Bearer gold-key", stream=stream, **{field: value})
                self.assertEqual((status, answer["error"]["param"]), (403, field))

    def cached(self, key, **fields):
        status, answer = self.complete(f"Bearer {key}", prompt=list(range(40)), **fields)
        self.assertEqual(status, 200, answer)
        return answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    def test_a_tenants_prefixes_are_its_own(self):
        self.assertEqual(self.cached("gold-key"), 0)
        self.assertGreaterEqual(self.cached("gold-key"), 32)
        self.assertEqual(self.cached("silver-key"), 0)
        self.assertEqual(self.cached("shared-key"), 0)
        self.assertGreaterEqual(self.cached("twin-key"), 32)
        for salt in ("s", "4:golds"):
            self.assertEqual(self.cached("gold-key" if salt == "s" else "silver-key", cache_salt=salt), 0)
        self.server.wait_idle()

    def test_keys_are_read_again(self):
        with RawSocket(self.server.http_port) as raw:
            raw.post("/v1/completions", {**PROMPT, "max_tokens": 400, "ignore_eos": True, "stream": True},
                     "Authorization: Bearer gold-key")
            raw.read_until(b"data: ")
            with open(self.path("keys.toml"), "w", encoding="utf-8") as file:
                file.write(keys_toml(late=("late-key", ""), admin=("admin-key", "admin = true")))
            self.server.terminate(signal.SIGHUP)
            self.server.wait_line("2 API keys")
            self.assertEqual(self.complete("Bearer late-key")[0], 200)
            self.assertEqual(self.complete("Bearer gold-key")[0], 401)
            self.assertIn(b"data: [DONE]", raw.read_until(b"data: [DONE]"))  # who was in stays in
        with open(self.path("keys.toml"), "a", encoding="utf-8") as file:
            file.write("[keys.broken]\nsha256 = 'oops'\n")
        self.server.terminate(signal.SIGHUP)
        self.server.wait_line("the API keys stay as they were")
        self.assertEqual(self.complete("Bearer late-key")[0], 200)
        self.server.wait_idle()

    def test_a09_pages_of_another_site(self):
        """A preflight has no key and does nothing; answers, errors and streams name the site that may read them."""
        def headers(method, path, body=None, **fields):
            connection = http.client.HTTPConnection("127.0.0.1", self.server.http_port, timeout=10)
            connection.request(method, path, body and json.dumps(body), {"Content-Type": "application/json", **fields})
            answer = connection.getresponse()
            text = answer.read()
            connection.close()
            return answer.status, answer.headers, text

        asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization, content-type"}
        status, found, text = headers("OPTIONS", "/v1/completions", Origin=ORIGIN, **asked)
        self.assertEqual((status, text, found["Access-Control-Allow-Origin"]), (204, b"", ORIGIN))
        self.assertIn("authorization", found["Access-Control-Allow-Headers"].lower())
        for key, stream, expected in (("gold-key", False, 200), ("gold-key", True, 200), ("wrong", False, 401)):
            status, found, text = headers("POST", "/v1/completions", {**PROMPT, "stream": stream}, Origin=ORIGIN,
                                          Authorization=f"Bearer {key}")
            self.assertEqual((status, found["Access-Control-Allow-Origin"]), (expected, ORIGIN))
        _, found, _ = headers("OPTIONS", "/v1/completions", Origin="https://evil.example", **asked)
        self.assertNotEqual(found["Access-Control-Allow-Origin"], "https://evil.example")


class Tls(HttpDoorsCase):
    def openssl(self, *arguments):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=self.folder)

    def certified(self, name):
        """Its own authority, which is enough for one server and one client."""
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
                     "/CN=localhost", "-addext", "subjectAltName = DNS:localhost, IP:127.0.0.1", "-keyout", f"{name}.key",
                     "-out", f"{name}.pem")

    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def test_answers_through_tls(self):
        self.certified("server")
        credentials = grpc.ssl_channel_credentials(self.read("server.pem"))
        self.start("--tls-cert", self.path("server.pem"), "--tls-key", self.path("server.key"), credentials=credentials)
        context = ssl.create_default_context(cafile=self.path("server.pem"))
        self.assertEqual(self.ask("GET", "/health", context=context)[0], 200)
        status, answer = self.ask("POST", "/v1/completions", {**PROMPT, "max_tokens": 50, "ignore_eos": True}, context=context)
        self.assertEqual((status, answer["usage"]["completion_tokens"]), (200, 50))
        with self.assertRaises(ssl.SSLError):
            self.ask("GET", "/health", context=ssl.create_default_context())
        with self.assertRaises((ConnectionError, http.client.HTTPException)):
            self.ask("GET", "/health")
        self.server.wait_idle()

    def test_mutual_tls(self):
        for name in ("server", "client", "stranger"):
            self.certified(name)
        credentials = grpc.ssl_channel_credentials(self.read("server.pem"), self.read("client.key"), self.read("client.pem"))
        self.start("--tls-cert", self.path("server.pem"), "--tls-key", self.path("server.key"), "--tls-client-ca",
                   self.path("client.pem"), credentials=credentials)

        def context(client=None):
            out = ssl.create_default_context(cafile=self.path("server.pem"))
            if client:
                out.load_cert_chain(self.path(f"{client}.pem"), self.path(f"{client}.key"))
            return out

        self.assertEqual(self.ask("POST", "/v1/completions", PROMPT, context=context("client"))[0], 200)
        for path in ("/health", "/v1/models"):  # not even what asks for no key
            for name in (None, "stranger"):
                with self.assertRaises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
                    self.ask("GET", path, context=context(name))
        self.server.wait_idle()


if __name__ == "__main__":
    unittest.main()
