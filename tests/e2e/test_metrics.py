"""GET /metrics of the real server: what gRPC's and HTTP's callers saw, added up."""

import re
import unittest

import grpc
from http_support import HttpCase
from support import generate

SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\} (\S+)')


class Metrics(HttpCase):
    FLAGS = ("--kv-blocks", "512", "--threads", "2", "--check-invariants", "--metrics-prefix", "vllm:")

    def scrape(self):
        """-> {(name, labels without model_name): value}"""
        status, headers, text = self.call("GET", "/metrics")
        self.assertEqual(status, 200)
        self.assertEqual(headers["Content-Type"], "text/plain; version=0.0.4; charset=utf-8")
        samples = {}
        for line in text.splitlines():
            if line.startswith("#"):
                self.assertRegex(line, r"^# (HELP|TYPE) vllm:[a-z0-9_]+ ")
                continue
            name, labels, value = SAMPLE.fullmatch(line).groups()
            labels = dict(re.findall(r'([a-z_]+)="([^"]*)"', labels))
            self.assertTrue(name.startswith("vllm:") and labels.pop("model_name"), line)
            samples[name[len("vllm:"):], tuple(sorted(labels.items()))] = float(value)
        return samples

    def test_what_all_callers_saw(self):
        before = self.scrape()
        prompt_tokens = output_tokens = ended = 0
        for number in range(3):
            usage = self.stub.Generate(generate(f"gRPC, number {number}", max_tokens=5 + number, ignore_eos=True)).usage
            prompt_tokens += usage.prompt_tokens
            output_tokens += usage.output_tokens
            usage = self.complete(f"HTTP, number {number}", max_tokens=3 + number, ignore_eos=True)["usage"]
            prompt_tokens += usage["prompt_tokens"]
            output_tokens += usage["completion_tokens"]
            ended += 2
        stream = self.stream("/v1/completions", prompt="a stream", max_tokens=9, ignore_eos=True,
                             stream_options={"include_usage": True})
        prompt_tokens += stream.usage["prompt_tokens"]
        output_tokens += stream.usage["completion_tokens"]
        ended += 1
        with self.assertRaises(grpc.RpcError):
            self.stub.Generate(generate("x", top_p=0.0))
        self.refused(400, "top_p", "/v1/completions", {"prompt": "x", "top_p": 0})
        self.refused(400, "body", "/v1/completions", b"{")
        self.refused(404, "model", "/v1/completions", {"prompt": "x", "model": "another"})

        now = self.scrape()
        grown = lambda name, **labels: now[name, tuple(labels.items())] - before[name, tuple(labels.items())]
        self.assertEqual(grown("request_success_total", finished_reason="length"), ended)
        self.assertEqual(grown("admission_rejections_total", reason="invalid_argument"), 3)
        self.assertEqual(grown("admission_rejections_total", reason="not_found"), 1)
        self.assertEqual(grown("prompt_tokens_total"), prompt_tokens)
        self.assertEqual(grown("generation_tokens_total"), output_tokens)
        self.assertEqual(grown("time_to_first_token_seconds_count"), ended)
        self.assertEqual(grown("inter_token_latency_seconds_count"), output_tokens - ended)
        self.assertEqual(grown("request_generation_tokens_sum"), output_tokens)
        self.assertGreater(grown("e2e_request_latency_seconds_sum"), 0)
        for states in (before, now):
            self.assertEqual(sum(states["kv_blocks", (("state", state),)] for state in ("free", "held", "cached")), 512)
            self.assertEqual(states["kv_blocks_unaccounted", ()], 0)

    def test_a_caller_who_leaves_is_an_abort(self):
        for leave in (self.leave_grpc, self.leave_http):
            before = self.scrape()
            leave()
            self.server.wait_idle()
            now = self.scrape()
            aborts = "request_success_total", (("finished_reason", "abort"),)
            self.assertEqual(now[aborts] - before[aborts], 1)

    def leave_grpc(self):
        stream = self.stub.GenerateStream(generate("a long story", max_tokens=4000, ignore_eos=True))
        next(stream)
        stream.cancel()

    def leave_http(self):
        connection = self.connection()
        connection.request("POST", "/v1/completions", '{"prompt": "a", "max_tokens": 4000, "ignore_eos": true, "stream": true}',
                           {"Content-Type": "application/json"})
        connection.getresponse().read(1)
        connection.close()


if __name__ == "__main__":
    unittest.main()
