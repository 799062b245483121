"""Makes chat_1000.csv: lengths of 1,000 requests whose prompts and outputs are log-normal, by median and 95th percentile.

    python3 bench/traces/make_trace.py > bench/traces/chat_1000.csv

The lengths are the quantiles of the distributions, so that median and percentile are exact, in a random order of their
own for prompts and outputs. max_tokens is what the caller asks for when it does not know the length of the answer: the
next power of two (as "Orca (Pow2)" in W. Kwon et al., "Efficient Memory Management for Large Language Model Serving
with PagedAttention", SOSP 2023).
"""
import math
import random
import statistics

NUM_REQUESTS = 1000
MAX_CONTEXT = 8192
SEED = 20261130


def quantiles(median: float, p95: float) -> list[int]:
    normal = statistics.NormalDist()
    sigma = math.log(p95 / median) / normal.inv_cdf(0.95)
    return [max(1, round(median * math.exp(sigma * normal.inv_cdf((i + 0.5) / NUM_REQUESTS))))
            for i in range(NUM_REQUESTS)]


def main() -> None:
    shuffle = random.Random(SEED).shuffle
    prompts, outputs = quantiles(120, 900), quantiles(180, 700)
    shuffle(prompts)
    shuffle(outputs)
    print("prompt_tokens,output_tokens,max_tokens")
    for prompt, output in zip(prompts, outputs):
        output = min(output, MAX_CONTEXT - prompt)
        print(f"{prompt},{output},{min(1 << (output - 1).bit_length(), MAX_CONTEXT - prompt)}")


if __name__ == "__main__":
    main()
