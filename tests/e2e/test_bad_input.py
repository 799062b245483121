"""Input that must be refused at the door, each by its name, with the server fine afterwards."""

import unittest

import grpc

from support import Code, ServerCase, chat, generate, pb

VOCAB = 512
NAN, INF = float("nan"), float("inf")


class BadInput(ServerCase):
    FLAGS = ("--kv-blocks", "20", "--check-invariants", "--log-level", "debug")  # 320 tokens; the context is 512

    def tearDown(self):
        self.assertEqual(self.stub.Generate(generate(ids=[5], max_tokens=1)).usage.output_tokens, 1)
        super().tearDown()

    def test_q04_empty_prompts(self):
        self.refused(Code.INVALID_ARGUMENT, "prompt", text="")
        self.refused(Code.INVALID_ARGUMENT, "prompt", ids=[])
        self.refused(Code.INVALID_ARGUMENT, "prompt")

    def test_q06_sampling_values(self):
        for field, values in {"temperature": (-1, 101, NAN, INF), "top_p": (0, 1.0001, -1, NAN),
                              "min_p": (1, 2, -1, NAN), "repetition_penalty": (0, -1, 1e9, NAN),
                              "presence_penalty": (1e9, -1e9, NAN), "frequency_penalty": (1e9, -1e9, INF)}.items():
            for value in values:
                self.refused(Code.INVALID_ARGUMENT, f"sampling.{field}", "is not in", ids=[1], **{field: value})
        self.refused(Code.INVALID_ARGUMENT, "sampling.logit_bias[5]", ids=[1], logit_bias={5: 1e9})
        for top_k in (-1, 0, 1, VOCAB - 1, VOCAB, VOCAB + 1, 9_999_999, 2**31 - 1, -2**31):
            answer = self.stub.Generate(generate(ids=[1], max_tokens=2, temperature=1, top_k=top_k, seed=1))
            self.assertEqual(answer.usage.output_tokens, 2)

    def test_q08_logprob_counts(self):
        for count in (-1, 21, 49153):
            self.refused(Code.INVALID_ARGUMENT, "logprobs", str(count), ids=[1], logprobs=count)
            self.refused(Code.INVALID_ARGUMENT, "prompt_logprobs", str(count), ids=[1], prompt_logprobs=count)

    def test_q11_token_ids(self):
        for bad in (-1, VOCAB, 999_999, 2**31 - 1):
            self.refused(Code.INVALID_ARGUMENT, "prompt", str(bad), ids=[1, bad])
            self.refused(Code.INVALID_ARGUMENT, "logit_bias", str(bad), ids=[1], logit_bias={bad: 5})
            self.refused(Code.INVALID_ARGUMENT, "stop_token_ids", str(bad), ids=[1], stop_token_ids=[bad])
            with self.assertRaises(grpc.RpcError) as error:
                self.stub.Detokenize(pb.DetokenizeRequest(tokens=[bad]))
            self.assertEqual(error.exception.code(), Code.INVALID_ARGUMENT)

    def test_q01_what_can_never_fit(self):
        waiting = [self.stub.Generate.future(generate(ids=[i], max_tokens=50, ignore_eos=True)) for i in (1, 2, 3)]
        self.refused(Code.INVALID_ARGUMENT, "400", "320", ids=[1] * 400, max_tokens=1)
        for future in waiting:
            self.assertEqual(future.result(timeout=20).usage.output_tokens, 50)
        grown = self.stub.Generate(generate(ids=[1] * 200, max_tokens=250, ignore_eos=True))
        self.assertEqual(grown.outputs[0].finish_reason, pb.FINISH_REASON_LENGTH)
        self.assertGreaterEqual(grown.usage.output_tokens, 100)
        both = [self.stub.Generate.future(generate(ids=[i] * 100, max_tokens=200, ignore_eos=True)) for i in (1, 2)]
        for future in both:
            self.assertEqual(future.result(timeout=20).usage.output_tokens, 200)
        many = self.stub.Generate(generate(ids=[3] * 100, max_tokens=20, n=8, ignore_eos=True), timeout=20)
        self.assertEqual(len(many.outputs), 8)

    def test_n_beyond_the_server(self):
        self.refused(Code.INVALID_ARGUMENT, "n", "65", ids=[1], n=65)

    def test_stop_strings_together(self):
        self.refused(Code.INVALID_ARGUMENT, "stopping.stop", "at most 8192", ids=[1], stop=["x" * 1000] * 9)
        self.assertTrue(self.stub.Generate(generate(ids=[1], max_tokens=1, stop=["x" * 1000] * 8)).outputs)

    def test_max_tokens(self):
        self.refused(Code.INVALID_ARGUMENT, "stopping.max_tokens", "-1", ids=[1], max_tokens=-1)
        self.assertFalse(self.stub.Generate(generate(ids=[1] * 320, max_tokens=0)).outputs[0].tokens)
        self.refused(Code.INVALID_ARGUMENT, "321", "320", ids=[1] * 321, max_tokens=0)

    def test_tenant_and_cache(self):
        self.refused(Code.INVALID_ARGUMENT, "tenant: 257 bytes", ids=[1], tenant="t" * 257)
        request = generate(ids=[1])
        request.cache.salt = "s" * 257
        self.refused(Code.INVALID_ARGUMENT, "cache.salt: 257 bytes", request=request)
        request.cache.salt, request.cache.bypass, request.cache.pin_ms = "s", True, 1
        self.refused(Code.INVALID_ARGUMENT, "cache.pin_ms: not together with cache.bypass", request=request)

    def test_a05_large_messages(self):
        self.refused(Code.RESOURCE_EXHAUSTED, str(16 << 20), text="x" * (17 << 20))
        self.refused(Code.INVALID_ARGUMENT, "512", ids=[1] * 1_000_000)
        # By its size alone; a shorter one by its tokens.
        self.refused(Code.INVALID_ARGUMENT, f"prompt: {15 << 18} bytes", "512 tokens", text="ab " * (5 << 18))
        self.refused(Code.INVALID_ARGUMENT, "over the context of 512 tokens", text="ab " * 600)

    def test_a05_messages_far_above_the_limit_are_not_kept(self):
        """The library gathers a message before it looks at its size: what arrives has a bound of its own, 256 MiB."""
        with open(f"/proc/{self.server.process.pid}/clear_refs", "w", encoding="utf-8") as control:
            control.write("5")  # VmHWM, the peak, begins anew
        before = self.server.of_status("VmHWM")
        channel = self.server.connect(**{"grpc.max_send_message_length": -1})
        call = channel.unary_unary("/folio.v1.Generation/Generate")
        for size_mib in (100, 500):
            with self.assertRaises(grpc.RpcError) as error:
                call(bytes(size_mib << 20), timeout=60)
            self.assertEqual(error.exception.code(), Code.RESOURCE_EXHAUSTED, error.exception.details())
        channel.close()
        self.assertLess(self.server.of_status("VmHWM") - before, 320 << 10)
        for text in ["ab " * (5 << 20)] * 4:  # below the limit, all of them
            self.refused(Code.INVALID_ARGUMENT, "prompt", text=text)

    def test_a13_names_in_messages(self):
        name = "\u6f22\U0001F999\n%"
        error = self.refused(Code.NOT_FOUND, name, ids=[1], model=name)
        long = self.refused(Code.NOT_FOUND, ids=[1], model="\u6f22" * 34_000)
        for text in (error.details(), long.details()):
            self.assertLess(len(text.encode()), 300)
            self.assertNotIn("\uFFFD", text)

    def test_t08_no_chat_template(self):
        with self.assertRaises(grpc.RpcError) as error:
            self.stub.Chat(chat(("user", "hi")))
        self.assertEqual(error.exception.code(), Code.FAILED_PRECONDITION)

    def test_bytes_that_do_not_parse(self):
        for method in ("Generate", "Chat", "Tokenize"):
            with self.assertRaises(grpc.RpcError) as error:
                self.server.channel.unary_unary(f"/folio.v1.Generation/{method}")(b"\xff\xff\xff\xff")
            self.assertEqual(error.exception.code(), Code.INVALID_ARGUMENT)
        with self.assertRaises(grpc.RpcError) as error:
            self.server.channel.unary_unary("/folio.v1.Generation/Generate")(b"\x1a\x02\xc0\x80")
        self.assertIn("UTF-8", error.exception.details())

    def test_s10_the_library_says_what_it_cannot_read_and_not_without_end(self):
        """protobuf's own log goes through ours: at most ten lines in ten seconds, and what was left out is counted."""
        said = lambda: [line for line in self.server.lines if "protobuf: " in line]
        call = self.server.channel.unary_unary("/folio.v1.Generation/Generate")
        for number in range(40):
            with self.assertRaises(grpc.RpcError) as error:
                call(b"\x1a\x02\xc0\x80")  # `text`, and not UTF-8
            self.assertEqual(error.exception.code(), Code.INVALID_ARGUMENT)
        self.assertIn("UTF-8", said()[0])
        self.assertLessEqual(len(said()), 20)  # a period may have ended in between

    def test_the_log_has_one_line_a_record(self):
        for line in self.server.lines:
            self.assertRegex(line, r"^\d{4}-\d\d-\d\d ")


class Context(ServerCase):
    """Q02: prompts at the edge of the context."""

    FLAGS = ("--kv-blocks", "64", "--max-context", "128", "--check-invariants")

    def test_q02_the_edge(self):
        for length in (126, 127):
            answer = self.stub.Generate(generate(ids=[7] * length, ignore_eos=True))
            self.assertEqual(answer.outputs[0].finish_reason, pb.FINISH_REASON_LENGTH)
            self.assertEqual(answer.usage.output_tokens, 128 - length)
        for length in (128, 129, 100_000):
            self.refused(Code.INVALID_ARGUMENT, str(length), "128", ids=[7] * length, max_tokens=1)
        clipped = self.stub.Generate(generate(ids=[7], ignore_eos=True, max_tokens=10_000))
        self.assertEqual(clipped.usage.output_tokens, 127)


if __name__ == "__main__":
    unittest.main()
