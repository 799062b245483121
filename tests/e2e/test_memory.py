"""What a loaded model takes: at most 1.6 times its file, beside the KV pool."""

import os
import re
import unittest

from support import SMOLLM2, Joined, ServerCase, generate

KV_MIB = 64
MIB = 1 << 20


def pss(pid):
    """Bytes: this process's share of each page that it has in memory."""
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return int(re.search(r"^Pss:\s+(\d+) kB", file.read(), re.M)[1]) << 10


class Memory(ServerCase):
    MODEL = SMOLLM2
    FLAGS = ("--kv-memory", f"{KV_MIB}MiB", "--threads", "2")

    def test_the_file_once_and_the_pool(self):
        """The mapped file is given back after the weights are repacked, and the embedding in both roles is kept once."""
        limit = 1.6 * os.path.getsize(SMOLLM2) + KV_MIB * MIB
        loaded = pss(self.server.process.pid)
        self.assertLess(loaded, limit, f"{loaded >> 20} MiB after the start")
        self.assertGreater(loaded, KV_MIB * MIB, "the pool is in memory before the first request")
        Joined(self.stub.GenerateStream(generate(ids=list(range(1000, 1400)), max_tokens=32, ignore_eos=True)))
        loaded = pss(self.server.process.pid)
        self.assertLess(loaded, limit, f"{loaded >> 20} MiB after a prompt")


if __name__ == "__main__":
    unittest.main()
