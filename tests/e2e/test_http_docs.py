"""The HTTP half of docs/api.md: its command lines do what it shows, and its Python program runs."""

import hashlib
import os
import shutil
import subprocess
import tempfile
import unittest

import grpc

from doc_support import blocks, chapter, check_alike, commands
from http_support import HttpCase
from support import SMOLLM2, Server

TEXT = chapter("docs/api.md", after="# HTTP, for OpenAI clients")
OPENAI_PYTHON = "build/openai/bin/python"
# What is another number in every run.
VOLATILE = [(r'"(chatcmpl|cmpl)-[0-9a-f]{8}-\d+"', r'"\1-ID"'), (r'"created":\d+', '"created":N'), (r'"seed":\d+', '"seed":N'),
            (r'"cached_tokens":\d+', '"cached_tokens":N'), (r'Date: .*', 'Date: D')]
KEY = "a-key-for-the-page"


def run(command, **variables):
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=True,
                          env={**os.environ, **variables})
    return done.stdout


@unittest.skipUnless(shutil.which("curl"), "curl is not there: scripts/setup --with-tests installs it")
class Commands(HttpCase):
    def test_they_print_what_the_page_shows(self):
        found = [entry for block in blocks(TEXT, "console") for entry in commands(block)]
        self.assertGreater(len(found), 15)
        secure = self.secure_server()
        for command, shown in found:
            with self.subTest(command):
                command = command.replace("127.0.0.1:8080", f"127.0.0.1:{self.server.http_port}")
                command = command.replace("localhost:8080", f"localhost:{secure.http_port}")
                command = command.replace("ca.pem", self.authority)
                check_alike(self, run(command, KEY=KEY), shown, VOLATILE)

    def secure_server(self):
        """One with TLS and API keys, for the lines of https."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = lambda name: os.path.join(folder.name, name)
        self.authority = path("server.pem")  # its own
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                        "-subj", "/CN=localhost", "-addext", "subjectAltName = DNS:localhost, IP:127.0.0.1", "-keyout",
                        path("server.key"), "-out", self.authority], check=True, capture_output=True)
        with open(path("keys.toml"), "w", encoding="utf-8") as file:
            file.write(f'[keys.page]\nsha256 = "{hashlib.sha256(KEY.encode()).hexdigest()}"\nadmin = true\n')
        with open(self.authority, "rb") as file:
            credentials = grpc.ssl_channel_credentials(file.read())
        server = Server(SMOLLM2, "--kv-blocks", "64", "--tls-cert", self.authority, "--tls-key", path("server.key"),
                        "--api-key-file", path("keys.toml"), key=KEY, credentials=credentials)
        self.addCleanup(server.close)
        return server


@unittest.skipUnless(os.path.exists(OPENAI_PYTHON),
                     "the openai package is not there: scripts/setup --with-tests installs it into build/openai")
class Programs(HttpCase):
    def test_the_python_program(self):
        [program] = blocks(TEXT, "python")
        [shown] = blocks(TEXT, "text")
        program = program.replace("127.0.0.1:8080", f"127.0.0.1:{self.server.http_port}")
        printed = subprocess.run([OPENAI_PYTHON, "-c", program], capture_output=True, text=True, timeout=60, check=True)
        self.assertEqual(printed.stdout, shown)


if __name__ == "__main__":
    unittest.main()
