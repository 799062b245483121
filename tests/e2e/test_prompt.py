"""The prompt in the answer: its log probabilities, its echo, and the border between its text and the output's."""

import json
import unittest

from support import GEMMA3, SMOLLM2, Joined, ServerCase, generate, pb

LLAMA = [10813, 116, 243]  # U+1F999 as F0 9F | A6 | 99
CAPITAL = "The capital of France is"
REPLACEMENT = "\uFFFD"


def reference(model):
    with open("tests/reference/perplexity.json") as file:
        return json.load(file)["models"][model]


class PromptCase(ServerCase):
    FLAGS = ("--kv-blocks", "512", "--max-num-seqs", "16", "--check-invariants")

    def both(self, request):
        """Runs both forms and holds them equal; the unary answer."""
        whole = self.stub.Generate(request, timeout=120)
        joined = Joined(self.stub.GenerateStream(request, timeout=120))
        self.assertEqual(joined.prompt_logprobs, list(whole.prompt_info.logprobs))
        self.assertEqual(joined.info.num_tokens, whole.prompt_info.num_tokens)
        for output in whole.outputs:
            self.assertEqual(joined.text[output.index], output.text)
            self.assertEqual(joined.tokens[output.index], list(output.tokens))
            self.assertEqual(joined.finish[output.index], output.finish_reason)
        return whole

    def ids_of(self, text):
        return list(self.stub.Tokenize(pb.TokenizeRequest(text=text, add_special=True)).tokens)

    def decode(self, ids):
        return self.stub.Detokenize(pb.DetokenizeRequest(tokens=ids)).text

    def check_against_float32(self, model, limit):
        """The log probabilities of a text, against those of an independent implementation in float32."""
        text = reference(model)
        ids, exact = text["token_ids"][:512], text["float32_token_logprobs_A"][0]
        if text["bos_prepended_per_window"] is not None:
            ids = [text["bos_prepended_per_window"]] + ids
        whole = self.stub.Generate(generate(ids=ids, max_tokens=0, prompt_logprobs=0), timeout=120)
        entries = whole.prompt_info.logprobs
        self.assertEqual([entry.token for entry in entries], ids)
        self.assertFalse(entries[0].HasField("logprob"))
        scored = [entry.logprob for entry in entries[-len(exact):]]
        self.assertLess(sum(abs(a - b) for a, b in zip(scored, exact)) / len(exact), limit)
        self.assertAlmostEqual(sum(scored) / sum(exact), 1, delta=0.01)

    def check_scores(self):
        """An answer scored as a prompt has the log probabilities that it was made with, to the bit."""
        prompt = self.ids_of(CAPITAL)
        made = self.stub.Generate(generate(ids=prompt, max_tokens=20, logprobs=3, temperature=1, seed=5)).outputs[0]
        again = self.both(generate(ids=prompt + list(made.tokens), max_tokens=0, prompt_logprobs=3))
        scored = again.prompt_info.logprobs
        self.assertEqual(len(scored), len(prompt) + len(made.tokens))
        self.assertEqual(list(scored[len(prompt):]), list(made.logprobs))
        self.assertEqual(again.prompt_info.cached_tokens, 0)
        self.assertEqual(again.usage.output_tokens, 0)

    def check_rule(self, prompt, **fields):
        """Output text = decode(prompt + output) less decode(prompt); with echo all of it."""
        plain = self.both(generate(ids=prompt, **fields))
        echoed = self.both(generate(ids=prompt, echo=True, **fields))
        before = self.decode(prompt)
        for one, other in zip(plain.outputs, echoed.outputs):
            self.assertEqual(list(one.tokens), list(other.tokens))
            all_text = self.decode(prompt + list(one.tokens))
            self.assertEqual(other.text, all_text)
            common = 0
            while common < min(len(before), len(all_text)) and before[common] == all_text[common]:
                common += 1
            self.assertEqual(one.text, all_text[common:])
        return plain.outputs[0]


class Smol(PromptCase):
    MODEL = SMOLLM2

    def test_scores(self):
        self.check_scores()
        self.check_against_float32("smollm2", 0.08)

    def test_the_prompt_is_told_once_whatever_runs_beside_it(self):
        text = reference("smollm2")["token_ids"]
        request = generate(ids=text[:900], max_tokens=3, prompt_logprobs=2, n=2)
        alone = self.both(request).prompt_info.logprobs
        self.assertEqual(len(alone), 900)
        others = [self.stub.Generate.future(generate(ids=text[i:i + 400], max_tokens=60, ignore_eos=True))
                  for i in range(4)]
        self.assertEqual(self.both(request).prompt_info.logprobs, alone)
        for other in others:
            other.result(timeout=60)

    def test_echo(self):
        for count in (1, 3):
            whole = self.both(generate(CAPITAL, max_tokens=4, echo=True, n=count))
            plain = self.both(generate(CAPITAL, max_tokens=4, n=count))
            for one, other in zip(whole.outputs, plain.outputs):
                self.assertEqual(one.text, CAPITAL + other.text)
                self.assertEqual(one.tokens, other.tokens)
        alone = self.both(generate(CAPITAL, max_tokens=0, echo=True, prompt_logprobs=1, n=2))
        for output in alone.outputs:
            self.assertEqual((output.text, list(output.tokens)), (CAPITAL, []))
            self.assertEqual(output.finish_reason, pb.FINISH_REASON_LENGTH)
        self.assertEqual(b"".join(entry.piece for entry in alone.prompt_info.logprobs), CAPITAL.encode())

    def test_s01_a_character_across_the_border_is_the_outputs(self):
        llama = "\U0001F999"
        forced = lambda ids, token: self.check_rule(ids, max_tokens=1, logit_bias={token: 1000}).text
        self.assertEqual(forced([504] + LLAMA[:2], LLAMA[2]), llama)
        self.assertEqual(forced([504] + LLAMA[:1], LLAMA[1]), "", "one unfinished character still")
        self.assertEqual(forced([504] + LLAMA[:2], 30), ".")
        self.assertEqual(forced([504], LLAMA[1]), REPLACEMENT)
        for length in range(1, 7):  # prompts that end at each of two characters' bytes
            self.check_rule((LLAMA * 2)[:length], max_tokens=12)
            self.check_rule([504] + (LLAMA * 2)[:length], max_tokens=12, temperature=2, seed=length, n=3)

    def test_s02_s10_bytes_that_are_no_text(self):
        for token in (243, LLAMA[0]):
            for count in (1, 2, 3):
                self.check_rule([504], max_tokens=count, logit_bias={token: 1000})

    def test_s04_spaces(self):
        for text in (CAPITAL, "a  b", "\tif x:\n        return", "one\n  two", "x "):
            self.check_rule(self.ids_of(text), max_tokens=12)
        self.assertEqual(self.both(generate(CAPITAL, max_tokens=1)).outputs[0].text[0], " ")

    def test_s06_s08_stops_are_the_outputs(self):
        text = self.both(generate(CAPITAL, max_tokens=20)).outputs[0].text
        for stop in (text[5:9], "capital", CAPITAL[-4:] + text[:3], text[-3:] + "@@"):
            for count in (1, 2, 3, 17):
                whole = self.both(generate(CAPITAL, max_tokens=count)).outputs[0].text
                plain = self.both(generate(CAPITAL, max_tokens=count, stop=[stop])).outputs[0]
                echoed = self.both(generate(CAPITAL, max_tokens=count, stop=[stop], echo=True)).outputs[0]
                self.assertEqual(echoed.text, CAPITAL + plain.text)
                self.assertEqual(echoed.finish_reason, plain.finish_reason)
                self.assertEqual(plain.text, whole.split(stop)[0])

    def test_chat_echoes_the_rendered_prompt(self):
        from support import chat
        request = chat(("system", "Be brief."), ("user", "Hi"), max_tokens=3, echo=True)
        shown = self.stub.ApplyChatTemplate(pb.ApplyChatTemplateRequest(messages=request.messages))
        whole = self.stub.Chat(request)
        self.assertEqual(whole.outputs[0].text, self.decode(list(shown.tokens) + list(whole.outputs[0].tokens)))

    def test_a_cancelled_prompt_has_told_a_beginning(self):
        ids = reference("smollm2")["token_ids"][:2400]
        call = self.stub.GenerateStream(generate(ids=ids, max_tokens=1, prompt_logprobs=0))
        first = next(call)
        self.assertGreater(len(first.prompt_info.logprobs), 0)
        self.assertLess(len(first.prompt_info.logprobs), 2400)
        call.cancel()
        self.server.wait_idle()


class Gemma(PromptCase):
    """SentencePiece-style pieces, and a begin token that is no text."""
    MODEL = GEMMA3

    def test_scores(self):
        self.check_scores()
        self.check_against_float32("gemma3", 0.08)

    def test_s04_spaces(self):
        for text in (CAPITAL, "a  b", "\tif x:\n        return", "one\n  two", "x "):
            self.check_rule(self.ids_of(text), max_tokens=12)
        first = self.both(generate(CAPITAL, max_tokens=1)).outputs[0]
        self.assertEqual(first.text[0], " ")
        self.assertEqual(self.both(generate(CAPITAL, max_tokens=1, echo=True)).outputs[0].text, CAPITAL + first.text)

    def test_s01_bytes_across_the_border(self):
        pieces = list(self.stub.Tokenize(pb.TokenizeRequest(text="\U0001D518")).tokens)  # byte tokens
        self.assertEqual(len(pieces), 4)
        for length in range(4):
            whole = self.check_rule([2, 100] + pieces[:length], max_tokens=1, logit_bias={pieces[length]: 1000})
            self.assertEqual(whole.text, "\U0001D518" if length == 3 else REPLACEMENT if length == 0 else "")


if __name__ == "__main__":
    unittest.main()
