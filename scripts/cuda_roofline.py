#!/usr/bin/env python3
"""The roofline of a decode step on one GPU: the least time that a step can take, and so the most tokens a second.

A step reads every weight once (all matrices but the input embedding, of which it takes a row a sequence) and the K and
V of every sequence, and computes two operations a weight and sequence and four a query dimension and key. It takes at
least as long as its bytes at the memory's bandwidth and its operations at the tensor cores' peak. Activations, norms,
the K and V written and the launches are left out, so no server reaches it.

Prints a Markdown table, which docs/performance.md keeps; batches whose weights and K/V fit in no form are left out.
"""
import argparse
import sys
from typing import NamedTuple


class Model(NamedTuple):
    layers: int = 32
    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    hidden: int = 4096
    ff: int = 14336
    vocab: int = 128256

    def matrix_weights(self) -> int:
        """Weights that a step multiplies with."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        return self.layers * (attention + 3 * self.hidden * self.ff) + self.vocab * self.hidden

    def kv_bytes_per_token(self, kv: str) -> int:
        """K and V of one position, all layers; int8 has a float scale for each."""
        row = {"bf16": 2 * self.head_dim, "int8": self.head_dim + 4}[kv]
        return self.layers * self.kv_heads * 2 * row


class Machine(NamedTuple):
    bandwidth: float = 4.8e12  # bytes/s
    flops: float = 990e12  # dense bf16
    memory: float = 141e9  # bytes


class Bound(NamedTuple):
    weight_bytes: float
    kv_bytes: float
    flops: float
    seconds: float
    by: str  # what takes that long: weights, K/V or FLOPs
    tokens_per_second: float
    fits: bool


def bound(model: Model, machine: Machine, batch: int, context: int, weight_bits: float, kv: str) -> Bound:
    weight_bytes = model.matrix_weights() * weight_bits / 8
    kv_bytes = batch * context * model.kv_bytes_per_token(kv)
    flops = batch * (2 * model.matrix_weights() + 4 * model.layers * model.heads * model.head_dim * context)
    reading = (weight_bytes + kv_bytes) / machine.bandwidth
    computing = flops / machine.flops
    seconds = max(reading, computing)
    by = "FLOPs" if computing > reading else "weights" if weight_bytes >= kv_bytes else "K/V"
    return Bound(weight_bytes, kv_bytes, flops, seconds, by, batch / seconds, weight_bytes + kv_bytes <= machine.memory)


VARIANTS = [(bits, kv) for bits in (4.5, 16) for kv in ("bf16", "int8")]


def cell(of: Bound) -> str:
    if not of.fits:
        return "does not fit"
    return f"{of.seconds * 1e3:.2f} ms, {of.tokens_per_second:,.0f}/s, {of.by}"


def table(model: Model, machine: Machine, batches: list, contexts: list) -> str:
    heads = [f"{bits:g} bits, {kv}" for bits, kv in VARIANTS]
    lines = ["| batch | context | GFLOP | K/V, bf16 | K/V, int8 | " + " | ".join(heads) + " |",
             "|---" * (5 + len(heads)) + "|"]
    for batch in batches:
        for context in contexts:
            bounds = [bound(model, machine, batch, context, bits, kv) for bits, kv in VARIANTS]
            if not any(of.fits for of in bounds):
                continue
            kv_bytes = [f"{of.kv_bytes / 1e9:,.2f} GB" for of in bounds[:2]]
            cells = [str(batch), f"{context // 1024}k", f"{bounds[0].flops / 1e9:,.0f}", *kv_bytes, *map(cell, bounds)]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main(arguments: list) -> int:
    parser = argparse.ArgumentParser(description="The roofline of decode on one GPU, as a Markdown table. "
                                     "Without options: Llama 3 8B's shape on an H200.")
    for name, default in Model()._asdict().items():
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=default, help=f"default {default}")
    parser.add_argument("--bandwidth", type=float, default=4.8, help="TB/s, default 4.8")
    parser.add_argument("--tflops", type=float, default=990, help="dense bf16, default 990")
    parser.add_argument("--memory", type=float, default=141, help="GB, default 141")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32, 64, 128, 256])
    parser.add_argument("--context", type=int, nargs="+", default=[1, 4, 16, 64, 128], help="in units of 1024 tokens")
    options = parser.parse_args(arguments)
    model = Model(*(getattr(options, name) for name in Model._fields))
    machine = Machine(options.bandwidth * 1e12, options.tflops * 1e12, options.memory * 1e9)
    weights = model.matrix_weights()
    at_bits = [f"{weights * bits / 8e9:.2f} GB at {bits:g}" for bits in (4.5, 16)]
    print(f"{weights / 1e9:.2f} G weights: {at_bits[0]} bits, {at_bits[1]}.\n")
    print(table(model, machine, options.batch, [1024 * context for context in options.context]), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
