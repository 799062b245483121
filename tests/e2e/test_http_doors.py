"""HTTP's door of the real server: the API keys and the certificates that gRPC has (test_doors.py)."""

import http.client
import json
import os
import ssl
import subprocess
import tempfile
import unittest

import grpc

from support import TINY, Server
from test_doors import keys_toml

FLAGS = ("--kv-blocks", "400", "--threads", "2", "--check-invariants")
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
            file.write(keys_toml(gold=("gold-key", "highest_priority = 5"), admin=("admin-key", "admin = true")))
        self.start("--api-key-file", self.path("keys.toml"), key="admin-key")

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


class Tls(HttpDoorsCase):
    def openssl(self, *arguments):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=self.folder)

    def test_answers_through_tls(self):
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
                     "/CN=localhost", "-addext", "subjectAltName = DNS:localhost, IP:127.0.0.1", "-keyout", "key.pem",
                     "-out", "cert.pem")
        with open(self.path("cert.pem"), "rb") as file:
            credentials = grpc.ssl_channel_credentials(file.read())
        self.start("--tls-cert", self.path("cert.pem"), "--tls-key", self.path("key.pem"), credentials=credentials)
        context = ssl.create_default_context(cafile=self.path("cert.pem"))
        self.assertEqual(self.ask("GET", "/health", context=context)[0], 200)
        status, answer = self.ask("POST", "/v1/completions", {**PROMPT, "max_tokens": 50, "ignore_eos": True}, context=context)
        self.assertEqual((status, answer["usage"]["completion_tokens"]), (200, 50))
        with self.assertRaises(ssl.SSLError):
            self.ask("GET", "/health", context=ssl.create_default_context())
        with self.assertRaises((ConnectionError, http.client.HTTPException)):
            self.ask("GET", "/health")
        self.server.wait_idle()


if __name__ == "__main__":
    unittest.main()
