"""What a loaded model takes: at most 1.6 times its file, beside the KV pool."""

import os
import re
import unittest

from support import GEMMA3, SMOLLM2, Joined, ServerCase, generate

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


class Scores(ServerCase):
    MODEL = GEMMA3
    FLAGS = ("--kv-memory", f"{KV_MIB}MiB", "--threads", "2")

    def test_a_scored_prompt_takes_the_logits_of_64_rows(self):
        """A row of logits is 1 MiB here: 512 of them in a step, and 1,500 in all, are never there at once."""
        ids = list(range(1000, 2500))
        Joined(self.stub.GenerateStream(generate(ids=ids, max_tokens=1)))
        before = pss(self.server.process.pid)
        Joined(self.stub.GenerateStream(generate(ids=ids, max_tokens=1, prompt_logprobs=20)))
        grown = pss(self.server.process.pid) - before
        self.assertLess(grown, 110 * MIB, f"{grown >> 20} MiB")
        self.assertGreater(grown, 40 * MIB, "the test sees rows of logits")


if __name__ == "__main__":
    unittest.main()
