"""The gRPC half of docs/api.md, and the control listener's example of docs/operations.md: their command lines do what they
show, and their Python blocks run, as one program each."""

import os
import re
import subprocess
import sys
import tempfile
import unittest

from doc_support import blocks, chapter, check_alike, commands, outputs, program
from support import SMOLLM2, ServerCase

PAGE = "docs/api.md"
HTTP_HALF = "# HTTP, for OpenAI clients"
CLIENT = os.environ["FOLIO_CLIENT"]
PROTO_PACKAGE = "/usr/share/grpc-proto"
VOLATILE = [
    (r"\d+\.\d ms", "T ms"), (r"\d+ ms$", "T ms"), (r"\(\d+\.\d tokens/s\)", "(R tokens/s)"), (r"seed \d{5,}", "seed N"),
    (r"\(\d+ cached,", "(C cached,"), (r'"cached_tokens":"\d+"', '"cached_tokens":"C"'), (r'"id":"\d+"', '"id":"N"'),
    (r"^id \d+ ", "id N "),
    (r"^\d+ tokens, FINISH_REASON_DEADLINE", "N tokens, FINISH_REASON_DEADLINE"),
    # A busy machine may let the client's own clock speak first.
    (r"^DEADLINE_EXCEEDED .*", "DEADLINE_EXCEEDED"),
]
# The example of GetServerInfo and WatchLoad: a server of another size, on another machine.
ALL_NUMBERS = [(r"avx\w+|scalar", "ISA"), (r"\b\d+\b", "N")]


class GrpcDocs(ServerCase):
    MODEL = SMOLLM2
    FLAGS = ("--kv-blocks", "1455", "--check-invariants")

    def setUp(self):
        """A folder that looks like the source folder to the commands of the page, and where they may write."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        os.symlink(os.path.abspath("proto"), os.path.join(self.folder, "proto"))
        os.makedirs(os.path.join(self.folder, "grpc-proto/usr/share"))
        os.symlink(PROTO_PACKAGE, os.path.join(self.folder, "grpc-proto/usr/share/grpc-proto"))

    def with_ports(self, text):
        return (text.replace("127.0.0.1:50051", f"127.0.0.1:{self.server.port}")
                .replace("127.0.0.1:50052", f"127.0.0.1:{self.server.control_port}"))

    def run_command(self, command):
        command = re.sub(r"build/bin/folio-client (\w+)", rf"{CLIENT} \1 --address 127.0.0.1:{self.server.port}", command)
        done = subprocess.run(["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60,
                              cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def run_program(self, source):
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run([sys.executable, "-B", "-c", self.with_ports(source)], capture_output=True, text=True, timeout=90,
                              cwd=self.folder, env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def check_program(self, text, volatile, least):
        source, shown = program(text)
        self.assertGreaterEqual(len(shown), least)
        for number, (mine, theirs) in enumerate(zip(outputs(self.run_program(source)), shown, strict=True)):
            with self.subTest(block=number):
                check_alike(self, mine, theirs, volatile)

    @unittest.skipUnless(os.path.isdir(PROTO_PACKAGE), "grpc-proto is not there: scripts/setup --with-tests installs it")
    def test_commands_and_programs(self):
        text = chapter(PAGE, before=HTTP_HALF)
        found = [entry for block in blocks(text, "console") for entry in commands(block)]
        self.assertGreaterEqual(len(found), 7)
        variables = ""
        for command, shown in found:
            if command.startswith("apt-get download"):
                continue  # what it unpacks is installed
            if re.fullmatch(r"[A-Z]+=\S+", command):
                variables += command + "; "
                continue
            with self.subTest(command):
                check_alike(self, self.run_command(variables + command), shown, VOLATILE)
        self.check_program(text, VOLATILE, 15)
        control = chapter("docs/operations.md", after="## The control listener", before="## Metrics")
        self.check_program(control, ALL_NUMBERS, 1)


if __name__ == "__main__":
    unittest.main()
