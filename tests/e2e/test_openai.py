"""The official OpenAI client, unchanged, against the real server. Run by the Python of build/openai, where scripts/setup
--with-tests installs it; by any other the tests are skipped."""

import time
import unittest

try:
    import openai
except ImportError:
    openai = None

from http_support import EMOJI, HttpCase, RawSocket

USER = [{"role": "user", "content": "Name three primary colours."}]


@unittest.skipUnless(openai, "the openai package is not there: scripts/setup --with-tests installs it into build/openai")
class OpenAi(HttpCase):
    def setUp(self):
        self.client = openai.OpenAI(base_url=f"http://127.0.0.1:{self.server.http_port}/v1", api_key="none", max_retries=0,
                                    timeout=60)
        self.model = self.client.models.list().data[0].id

    def tearDown(self):
        self.client.close()
        super().tearDown()

    def test_models(self):
        models = list(self.client.models.list())
        self.assertEqual([model.id for model in models], ["smollm2-135m-q4_1"])
        self.assertEqual(models[0].object, "model")
        self.assertEqual(self.client.models.retrieve(self.model).id, self.model)
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("gpt-5")

    def test_chat(self):
        answer = self.client.chat.completions.create(model=self.model, messages=USER, temperature=0, max_tokens=20)
        self.assertEqual(answer.object, "chat.completion")
        self.assertTrue(answer.id.startswith("chatcmpl-"))
        self.assertEqual(answer.model, self.model)
        self.assertEqual(answer.choices[0].message.role, "assistant")
        self.assertEqual(answer.choices[0].finish_reason, "length")
        self.assertEqual(answer.usage.completion_tokens, 20)
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + 20)
        again = self.client.chat.completions.create(model=self.model, messages=USER, temperature=0, max_completion_tokens=20)
        self.assertEqual(again.choices[0].message.content, answer.choices[0].message.content)
        self.assertGreater(again.usage.prompt_tokens_details.cached_tokens, 0)

    def test_a_conversation_sent_back(self):
        first = self.client.chat.completions.create(model=self.model, messages=USER, temperature=0, max_tokens=8)
        history = [*USER, first.choices[0].message, {"role": "user", "content": [{"type": "text", "text": "And then?"}]}]
        second = self.client.chat.completions.create(model=self.model, messages=history, temperature=0, max_tokens=4)
        self.assertGreater(second.usage.prompt_tokens, first.usage.total_tokens)

    def test_chat_streams(self):
        whole = self.client.chat.completions.create(model=self.model, messages=USER, seed=5, max_tokens=30, n=2)
        stream = self.client.chat.completions.create(model=self.model, messages=USER, seed=5, max_tokens=30, n=2,
                                                     stream=True, stream_options={"include_usage": True})
        texts, finished, usage = {}, {}, None
        for chunk in stream:
            self.assertIsNone(usage, "a chunk after the usage")
            usage = chunk.usage
            for choice in chunk.choices:
                texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
                if choice.finish_reason:
                    self.assertNotIn(choice.index, finished)
                    finished[choice.index] = choice.finish_reason
        for choice in whole.choices:
            self.assertEqual(texts[choice.index], choice.message.content)
            self.assertEqual(finished[choice.index], choice.finish_reason)
        self.assertEqual(usage.completion_tokens, whole.usage.completion_tokens)

    def test_the_stream_helper(self):
        # An answer that ends by itself: the helper raises an error for one that a limit cut.
        fields = {"model": self.model, "messages": USER, "temperature": 0, "max_tokens": 40, "stop": ["primary"]}
        with self.client.chat.completions.stream(**fields) as stream:
            final = stream.get_final_completion()
        whole = self.client.chat.completions.create(**fields)
        self.assertEqual(whole.choices[0].finish_reason, "stop")
        self.assertEqual(final.choices[0].message.content, whole.choices[0].message.content)

    def test_completions(self):
        fields = {"model": self.model, "prompt": "The capital of France is", "temperature": 0, "max_tokens": 8}
        whole = self.client.completions.create(**fields, logprobs=2, stop=["\n"])
        self.assertEqual(whole.choices[0].text, " Paris.")
        self.assertEqual(whole.choices[0].finish_reason, "stop")
        self.assertEqual(whole.choices[0].logprobs.tokens[0], " Paris")
        self.assertEqual(len(whole.choices[0].logprobs.top_logprobs[0]), 2)
        pieces = [chunk.choices[0].text for chunk in self.client.completions.create(**fields, stream=True)]
        self.assertEqual("".join(pieces), self.client.completions.create(**fields).choices[0].text)
        self.assertEqual(self.client.completions.create(model=self.model, prompt=[1, 2, 3], max_tokens=1).usage.prompt_tokens, 3)

    def test_chat_logprobs(self):
        answer = self.client.chat.completions.create(model=self.model, messages=USER, temperature=0, max_tokens=5,
                                                     logprobs=True, top_logprobs=3)
        content = answer.choices[0].logprobs.content
        self.assertEqual(len(content), 5)
        self.assertEqual(b"".join(bytes(entry.bytes) for entry in content).decode(), answer.choices[0].message.content)
        for entry in content:
            self.assertEqual(len(entry.top_logprobs), 3)
            self.assertEqual(entry.logprob, entry.top_logprobs[0].logprob)

    def test_folios_own_fields(self):
        fields = {"model": self.model, "prompt": "x", "max_tokens": 3}
        answer = self.client.completions.create(**fields, extra_body={"top_k": 1, "ignore_eos": True, "cache_salt": "me"})
        self.assertEqual(answer.usage.completion_tokens, 3)
        answer = self.client.completions.create(**fields, seed=7)
        self.assertEqual(answer.model_extra["seed"], 7)

    def test_emoji(self):
        answer = self.client.completions.create(model=self.model, prompt=EMOJI * 20, temperature=0, max_tokens=12)
        self.assertNotIn("\uFFFD", answer.choices[0].text[:3])

    def test_errors_are_the_clients_own(self):
        with self.assertRaises(openai.BadRequestError) as bad:
            self.client.chat.completions.create(model=self.model, messages=USER, temperature=500)
        self.assertEqual(bad.exception.param, "temperature")
        self.assertEqual(bad.exception.type, "invalid_request_error")
        self.assertEqual(bad.exception.status_code, 400)
        with self.assertRaises(openai.NotFoundError) as missing:
            self.client.chat.completions.create(model="gpt-5", messages=USER)
        self.assertEqual(missing.exception.code, "model_not_found")
        with self.assertRaises(openai.BadRequestError) as long:
            self.client.completions.create(model=self.model, prompt=[1] * 9000)
        self.assertEqual(long.exception.code, "context_length_exceeded")
        with self.assertRaises(openai.BadRequestError) as tools:
            self.client.chat.completions.create(model=self.model, messages=USER, tools=[
                {"type": "function", "function": {"name": "f", "parameters": {}}}])
        self.assertEqual(tools.exception.param, "tools")
        with self.assertRaises(openai.BadRequestError):
            self.client.chat.completions.create(model=self.model, messages=USER, stream=True, temperature=500)
        with self.assertRaises(openai.NotFoundError):
            self.client.embeddings.create(model=self.model, input="x")

    def test_a_stream_that_is_closed_early(self):
        stream = self.client.chat.completions.create(model=self.model, messages=USER, max_tokens=4000, stream=True,
                                                     extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        self.server.wait_idle(2)

    def test_an_error_in_the_middle_of_a_stream(self):
        from folio.v1 import control_pb2
        stream = self.client.chat.completions.create(model=self.model, messages=USER, max_tokens=4000, stream=True,
                                                     extra_body={"ignore_eos": True})
        with self.assertRaises(openai.APIError):
            for number, chunk in enumerate(stream):
                if number == 0:
                    self.server.control.Abort(control_pb2.AbortRequest(id=int(chunk.id.rsplit("-", 1)[1])))

    def test_the_asynchronous_client(self):
        import asyncio

        async def run():
            async with openai.AsyncOpenAI(base_url=self.client.base_url, api_key="none", max_retries=0) as client:
                async def one(number):
                    text = ""
                    stream = await client.completions.create(model=self.model, prompt=f"{number},", temperature=0,
                                                             max_tokens=8, stream=True)
                    async for chunk in stream:
                        text += chunk.choices[0].text
                    return text
                return await asyncio.gather(*(one(i) for i in range(8)))

        for number, text in enumerate(asyncio.run(run())):
            self.assertEqual(text, self.complete(f"{number},", max_tokens=8)["choices"][0]["text"])


@unittest.skipUnless(openai, "the openai package is not there: scripts/setup --with-tests installs it into build/openai")
class Overload(HttpCase):
    FLAGS = ("--kv-blocks", "600", "--max-num-seqs", "1", "--max-queue", "1", "--check-invariants")

    def test_a_full_queue_is_a_rate_limit(self):
        blockers = [RawSocket(self.server.http_port) for _ in range(2)]
        for number, raw in enumerate(blockers):  # one runs, one waits
            raw.post("/v1/completions", {"prompt": "x", "max_tokens": 4000, "ignore_eos": True})
            end = time.monotonic() + 10
            while (self.server.load().num_running, self.server.load().num_waiting) != (1, number):
                self.assertLess(time.monotonic(), end, self.server.load())
        with openai.OpenAI(base_url=f"http://127.0.0.1:{self.server.http_port}/v1", api_key="none", max_retries=0) as client:
            with self.assertRaises(openai.RateLimitError) as full:
                client.completions.create(model="smollm2-135m-q4_1", prompt="x")
            self.assertGreaterEqual(int(full.exception.response.headers["retry-after"]), 1)
        for raw in blockers:
            raw.socket.close()
        self.server.wait_idle(2)


if __name__ == "__main__":
    unittest.main()
