"""--device: the CUDA library that is not there, or not ours, each in one clear line; a toy in its place that serves, and
whose loss ends the server."""

import os
import subprocess
import unittest

import grpc

from support import SERVER, TINY, Code, Server, generate

TOYS = os.environ["FOLIO_DEVICE_TOYS"]
REAL = os.path.join(os.path.dirname(os.path.realpath(SERVER)), "libfolio_cuda.so")


class Device(unittest.TestCase):
    def fails(self, kind, *flags):
        """What the server says last before it exits with 1. The library that the system finds is that of this kind."""
        environment = {**os.environ, "LD_LIBRARY_PATH": os.path.join(TOYS, kind)}
        done = subprocess.run([SERVER, "--model", TINY, "--grpc-port", "0", "--http-port", "off", "--control-listen", "off",
                               "--device", "cuda", *flags], env=environment, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 1, done.stderr)
        line = done.stderr.rstrip("\n").rpartition("\n")[2]
        self.assertIn("--device cuda: ", line)
        return line

    def start(self, *flags):
        if os.path.exists(REAL):
            self.skipTest(f"{REAL} is there and comes before a stand-in")
        before = os.environ.get("LD_LIBRARY_PATH")
        os.environ["LD_LIBRARY_PATH"] = os.path.join(TOYS, "toy")
        try:
            server = Server(TINY, "--device", "cuda", "--kv-blocks", "64", "--check-invariants", *flags)
        finally:
            del os.environ["LD_LIBRARY_PATH"]
            if before is not None:
                os.environ["LD_LIBRARY_PATH"] = before
        self.addCleanup(server.process.kill)
        return server

    def test_without_a_library_or_a_device(self):
        if os.path.exists("/dev/nvidiactl"):
            self.skipTest("this machine has an NVIDIA device")
        line = self.fails("nowhere")
        if os.path.exists(REAL):
            self.assertRegex(line, "no NVIDIA driver|no CUDA device")
        else:
            self.assertIn("libfolio_cuda.so is not there: build with -DFOLIO_CUDA=ON", line)

    def test_a_library_that_is_not_ours(self):
        if os.path.exists(REAL):
            self.skipTest(f"{REAL} is there and comes before a stand-in")
        self.assertIn("libfolio_cuda.so is of another build: it is 0.0.1-of-long-ago, this is ", self.fails("other_build"))
        self.assertIn("libfolio_cuda.so is no CUDA backend of folio", self.fails("no_plugin"))
        self.assertIn("--kv-dtype f32: the toy has no such cache", self.fails("toy", "--kv-dtype", "f32"))

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
