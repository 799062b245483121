"""--device: the CUDA library that is not there, or not ours, each in one clear line; a toy in its place that serves, and
whose loss ends the server."""

import os
import shutil
import subprocess
import tempfile
import unittest

import grpc

from support import SERVER, TINY, Code, Server, generate

TOYS = os.environ["FOLIO_DEVICE_TOYS"]
REAL = os.path.join(os.path.dirname(os.path.realpath(SERVER)), "libfolio_cuda.so")


class Device(unittest.TestCase):
    def program(self, kind):
        """The server in a folder of its own, beside the library of this kind: the first place where it looks."""
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        if kind is not None:
            shutil.copy(os.path.join(TOYS, kind, "libfolio_cuda.so"), folder)
        return shutil.copy2(SERVER, folder)

    def fails(self, program, *flags):
        """What the server says last before it exits with 1."""
        done = subprocess.run([program, "--model", TINY, "--grpc-port", "0", "--http-port", "off", "--control-listen", "off",
                               "--device", "cuda", *flags], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 1, done.stderr)
        line = done.stderr.rstrip("\n").rpartition("\n")[2]
        self.assertIn("--device cuda: ", line)
        return line

    def start(self, *flags):
        server = Server(TINY, "--device", "cuda", "--kv-blocks", "64", "--check-invariants", *flags,
                        program=self.program("toy"))
        self.addCleanup(server.process.kill)
        return server

    def test_without_a_library(self):
        self.assertIn("libfolio_cuda.so is not there: build with -DFOLIO_CUDA=ON", self.fails(self.program(None)))

    def test_without_a_device(self):
        if not os.path.exists(REAL):
            self.skipTest("built without -DFOLIO_CUDA=ON: there is no libfolio_cuda.so")
        if os.path.exists("/dev/nvidiactl"):
            self.skipTest("this machine has an NVIDIA device")
        self.assertRegex(self.fails(SERVER), "no NVIDIA driver|no CUDA device")

    def test_a_library_that_is_not_ours(self):
        self.assertIn("libfolio_cuda.so is of another build: it is 0.0.1-of-long-ago, this is ",
                      self.fails(self.program("other_build")))
        self.assertIn("libfolio_cuda.so is no CUDA backend of folio", self.fails(self.program("no_plugin")))
        self.assertIn("--kv-dtype f32: the toy has no such cache", self.fails(self.program("toy"), "--kv-dtype", "f32"))

    def test_a_device_serves_at_depth_2(self):
        server = self.start()
        answers = [server.stub.Generate.future(generate(ids=[9] * count, max_tokens=20, ignore_eos=True))
                   for count in (3, 17, 40)]
        for count, answer in zip((3, 17, 40), answers):
            self.assertEqual(list(answer.result(timeout=20).outputs[0].tokens), list(range(count, count + 20)))
        server.wait_idle()
        server.close()

    def test_a_lost_device_ends_the_requests_and_the_server(self):
        server = self.start()
        calls = [server.stub.Generate.future(generate(ids=[9] * count, max_tokens=200, ignore_eos=True))
                 for count in (3, 17, 40)]
        for call in calls:
            error = call.exception(timeout=20)
            self.assertIsInstance(error, grpc.RpcError)
            self.assertEqual(error.code(), Code.UNAVAILABLE)
            self.assertIn("the device was lost: the toy fell off the table", error.details())
        self.assertEqual(server.wait_exit(20), 1)
        server.wait_line("stopped: the device was lost")
        self.assertEqual(len([line for line in server.lines if "the toy fell off the table" in line]), 1, server.lines)


if __name__ == "__main__":
    unittest.main()
