"""T08 and A13: chat templates that refuse, fail or do not end, over HTTP and gRPC, on a tiny model whose template does all
of that when it is told to."""

import os
import tempfile
import time
import unittest

import grpc

from gguf_template import with_template
from http_support import EMOJI, HttpCase
from support import TINY, Code, Server, chat, pb

WORDS = "\u6f22" + EMOJI + "\n100 % no"
TEMPLATE = (
    "{% for m in messages %}"
    "{% if m.role == 'system' and not loop.first %}{{ raise_exception('system comes first: WORDS') }}{% endif %}"
    "{% if m.role in ('user', 'assistant') and not loop.first and m.role == messages[loop.index0 - 1].role %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "{% if m.role not in ('system', 'user', 'assistant') %}{{ raise_exception('no role ' ~ m.role) }}{% endif %}"
    "{% if m.content == 'divide' %}{{ 1/0 }}{% endif %}"
    "{% if m.content == 'loop' %}{% for i in range(100000000) %}x{% endfor %}{% endif %}"
    "{% if m.content == 'nested' %}{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}{% endif %}"
    "{% if m.content == 'nothing' %}{{ no_such_thing.at_all }}{% endif %}"
    "{% if m.content == 'long' %}{{ raise_exception('" + "\u6f22" * 3000 + "') }}{% endif %}"
    "<{{ m.role }}>{{ m.content }}{% endfor %}").replace("WORDS", WORDS.replace("\n", "\\n"))
USER = ("user", "hi")
# Conversations that the template or its limits refuse, and what the answer says of it.
REFUSED = [([USER, USER], "roles must alternate"), ([USER, ("assistant", ""), ("assistant", "x")], "roles must alternate"),
           ([USER, ("system", "x")], "system comes first: \u6f22" + EMOJI), ([USER, ("tool", "x")], "no role tool"),
           ([USER, ("developer", "x")], "no role developer"), ([("user", "divide")], "division by zero"),
           ([("user", "nothing")], "no_such_thing"), ([("user", "loop")], ""), ([("user", "long")], "\u6f22\u6f22")]
TAKEN = [[USER], [("system", "x")], [("assistant", ""), USER], [USER, ("assistant", ""), USER]]


class Templates(HttpCase):
    MODEL = TINY

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.server = Server(with_template(TINY, os.path.join(cls.folder.name, "refusing.gguf"), TEMPLATE), *cls.FLAGS)
        cls.stub = cls.server.stub

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.folder.cleanup()

    def body(self, messages):
        return {"messages": [{"role": role, "content": content} for role, content in messages]}

    def test_t08_a13_what_a_template_refuses_is_the_callers_fault(self):
        for messages, words in REFUSED:
            start = time.monotonic()
            texts = [self.refused(400, "messages", path, self.body(messages))["message"]
                     for path in ("/v1/chat/completions", "/tokenize")]
            request = chat(*messages, max_tokens=1)
            for call in (lambda: self.stub.Chat(request), lambda: list(self.stub.ChatStream(request)),
                         lambda: self.stub.ApplyChatTemplate(pb.ApplyChatTemplateRequest(messages=request.messages))):
                with self.assertRaises(grpc.RpcError) as error:
                    call()
                self.assertEqual(error.exception.code(), Code.INVALID_ARGUMENT)
                texts.append(error.exception.details())
            self.assertLess(time.monotonic() - start, 10)
            for text in texts:
                self.assertIn(words, text)
                self.assertLess(len(text.encode()), 1100)
                self.assertNotIn("\uFFFD", text)

    def test_t08_one_that_does_not_end(self):
        start = time.monotonic()
        message = self.refused(400, "messages", "/v1/chat/completions", self.body([("user", "nested")]))["message"]
        self.assertLess(time.monotonic() - start, 3)
        with self.assertRaises(grpc.RpcError) as error:
            self.stub.Chat(chat(("user", "nested")), timeout=5)
        self.assertEqual((error.exception.code(), error.exception.details()), (Code.INVALID_ARGUMENT, message))
        self.assertEqual(self.stub.Chat(chat(USER, max_tokens=1)).usage.output_tokens, 1)

    def test_t08_what_it_takes(self):
        for messages in TAKEN:
            self.assertGreater(self.chat([{"role": role, "content": content} for role, content in messages],
                                         max_tokens=1)["usage"]["prompt_tokens"], 0)
            self.assertEqual(self.stub.Chat(chat(*messages, max_tokens=1)).usage.output_tokens, 1)


if __name__ == "__main__":
    unittest.main()
