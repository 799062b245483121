"""Many callers, callers that leave, callers that do not read: the blocks come back and the others feel nothing."""

import random
import time
import unittest

import grpc

from support import SERVING, Code, Joined, ServerCase, check_health, generate, pb


def long_request(seed=1, **fields):
    return generate(ids=[seed % 500 + 1, 7, 9], ignore_eos=True, **{"max_tokens": 400, **fields})


class Traffic(ServerCase):
    FLAGS = ("--kv-blocks", "400", "--max-num-seqs", "16", "--max-queue", "256", "--check-invariants")

    def test_two_hundred_streams_at_once(self):
        expected = [list(self.stub.Generate(long_request(i, max_tokens=20)).outputs[0].tokens) for i in range(5)]
        streams = [self.stub.GenerateStream(long_request(i % 5, max_tokens=20), timeout=50) for i in range(200)]
        for i, stream in enumerate(streams):
            self.assertEqual(Joined(stream).tokens[0], expected[i % 5])

    def test_a01_cancel_running_and_queued_and_unary(self):
        running = [self.stub.GenerateStream(long_request(i)) for i in range(16)]
        for stream in running:
            next(stream)
        queued = [self.stub.GenerateStream(long_request(i)) for i in range(5)]
        unary = [self.stub.Generate.future(long_request(i)) for i in range(5)]
        for call in running + queued + unary:
            call.cancel()
        self.server.wait_idle(seconds=2)
        before = self.server.load().output_tokens
        time.sleep(0.1)
        self.assertEqual(self.server.load().output_tokens, before)
        self.assertEqual(self.stub.Generate(long_request(max_tokens=2), timeout=5).usage.output_tokens, 2)

    def test_b06_streams_closed_at_every_moment(self):
        total = self.server.wait_idle().blocks_total
        moments = random.Random(3)
        for i in range(150):
            fields = {"n": 4} if i % 10 == 0 else {}
            stream = self.stub.GenerateStream(long_request(i, max_tokens=moments.choice((1, 5, 200)), **fields))
            for _ in range(moments.choice((0, 1, 5))):
                if next(stream, None) is None:
                    break
            if i % 3 == 0:
                time.sleep(moments.random() * 0.01)
            stream.cancel()
        for i in range(50):
            self.refused(Code.INVALID_ARGUMENT, ids=[1] * 600)
        load = self.server.wait_idle(seconds=2)
        self.assertEqual((load.blocks_free + load.blocks_cached, load.blocks_total), (total, total))

    def test_channel_closed_in_mid_stream(self):
        channel = self.server.connect()
        call = channel.unary_stream("/folio.v1.Generation/GenerateStream",
                                    request_serializer=pb.GenerateRequest.SerializeToString,
                                    response_deserializer=pb.GenerateChunk.FromString)
        streams = [call(long_request(i)) for i in range(8)]
        for stream in streams:
            next(stream)
        channel.close()
        self.server.wait_idle(seconds=2)

    def test_deadlines(self):
        # More than a millisecond's work, each time.
        request = generate(ids=list(range(100)) * 4, n=8, max_tokens=100, ignore_eos=True)
        request.cache.bypass = True
        for limit in ({"timeout": 0.0005}, {}):
            request.time_limit_ms = 0 if limit else 1
            busy = [self.stub.GenerateStream(long_request(i)) for i in range(16)]
            with self.assertRaises(grpc.RpcError) as error:
                list(self.stub.GenerateStream(request, **limit))
            self.assertEqual(error.exception.code(), Code.DEADLINE_EXCEEDED)
            for stream in busy:
                stream.cancel()
        self.server.wait_idle()

    def test_a02_readers_that_sleep(self):
        full = list(self.stub.Generate(long_request(3, logprobs=20)).outputs[0].tokens)
        before = self.server.of_status("VmRSS")
        sleepers = [self.stub.GenerateStream(long_request(3, logprobs=20)) for _ in range(32)]
        firsts = [next(stream) for stream in sleepers]
        self.server.wait_idle(seconds=20)  # all was made, whoever reads
        self.assertLess(self.server.of_status("VmRSS") - before, 50 << 10)
        self.assertEqual(self.stub.Generate(long_request(max_tokens=2), timeout=5).usage.output_tokens, 2)
        for first, stream in zip(firsts, sleepers):
            self.assertEqual(Joined([first, *stream]).tokens[0], full)


class Burst(ServerCase):
    """A14: far more than the queue holds."""

    FLAGS = ("--kv-blocks", "200", "--max-num-seqs", "4", "--max-queue", "64", "--check-invariants")

    def test_a14_each_is_answered_or_refused_at_once(self):
        calls = [self.stub.Generate.future(long_request(i, max_tokens=30)) for i in range(500)]
        times = []
        while not all(call.done() for call in calls):
            start = time.monotonic()
            self.assertEqual(check_health(self.server.channel), SERVING)
            times.append(time.monotonic() - start)
            time.sleep(0.01)
        codes = [call.code() for call in calls]
        self.assertEqual(codes.count(Code.OK) + codes.count(Code.RESOURCE_EXHAUSTED), 500)
        self.assertGreaterEqual(codes.count(Code.OK), 64)
        self.assertGreater(codes.count(Code.RESOURCE_EXHAUSTED), 0)
        # The callers are threads of this process: its own turn comes late now and then.
        times.sort()
        self.assertLess(times[len(times) * 9 // 10], 0.2, times)
        for call in calls:
            if call.code() == Code.RESOURCE_EXHAUSTED:
                self.assertIn("grpc-retry-pushback-ms", dict(call.trailing_metadata()))


if __name__ == "__main__":
    unittest.main()
