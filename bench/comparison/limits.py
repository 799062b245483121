"""The physical limit of a case on a machine of given peaks.

A step reads every weight once and the K and V of its contexts (a shared prefix once), and computes two operations a
weight and token, and four a head dimension, head and visible key. It can take no less than the longer of the two:
bytes / read bandwidth; matmul operations / int8 peak + attention operations / the better float peak.
"""
import struct
from typing import NamedTuple

from .cases import Case

# GGUF: id of a tensor type -> (elements, bytes) of its block.
TENSOR_BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 12: (256, 144),
                 13: (256, 176), 14: (256, 210), 30: (1, 2)}
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


class Peaks(NamedTuple):
    """A second."""
    read_bytes: float
    int8: float  # 0: the machine has no such instruction
    f32: float
    bf16: float


class ModelFacts(NamedTuple):
    weight_bytes: int   # of all matrices; a tied embedding once
    layer_weights: int  # elements of the layers' matrices
    output_weights: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int


class Reader:
    def __init__(self, file):
        self.file = file

    def scalar(self, kind: str):
        return struct.unpack("<" + kind, self.file.read(struct.calcsize("<" + kind)))[0]

    def string(self) -> str:
        return self.file.read(self.scalar("Q")).decode()

    def value(self, kind: int):
        """Of an array the length only."""
        if kind == STRING:
            return self.string()
        if kind != ARRAY:
            return self.scalar(SCALARS[kind])
        of_what, count = self.scalar("I"), self.scalar("Q")
        for _ in range(count):
            self.value(of_what)
        return count


def read_facts(path) -> ModelFacts:
    """Raises ValueError naming the file when it is not one."""
    try:
        return facts_of(path)
    except (struct.error, KeyError, MemoryError, OverflowError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: no GGUF file, or one that breaks off") from error


def facts_of(path) -> ModelFacts:
    with open(path, "rb") as file:
        reader = Reader(file)
        magic, _, num_tensors, num_values = struct.unpack("<4sIQQ", file.read(24))
        if magic != b"GGUF":
            raise ValueError(f"{path}: no GGUF file")
        values = {}
        for _ in range(num_values):
            name = reader.string()
            values[name] = reader.value(reader.scalar("I"))
        matrices = {}  # name -> (elements, bytes)
        for _ in range(num_tensors):
            name = reader.string()
            shape = [reader.scalar("Q") for _ in range(reader.scalar("I"))]
            (elements, size), _ = TENSOR_BLOCKS[reader.scalar("I")], reader.scalar("Q")
            if len(shape) == 2:
                matrices[name] = (shape[0] * shape[1], shape[0] * shape[1] // elements * size)
    get = lambda name: values[f"{values['general.architecture']}.{name}"]  # noqa: E731
    output = matrices.get("output.weight", matrices["token_embd.weight"])
    layers = [matrix for name, matrix in matrices.items() if name.startswith("blk.")]
    heads = get("attention.head_count")
    head_dim = values.get(f"{values['general.architecture']}.attention.key_length", get("embedding_length") // heads)
    return ModelFacts(output[1] + sum(m[1] for m in layers), sum(m[0] for m in layers), output[0], get("block_count"),
                      heads, get("attention.head_count_kv"), head_dim)


def kv_bytes(model: ModelFacts, kv: str) -> int:
    """Of one token."""
    of_head = {"f16": 4 * model.head_dim, "bf16": 4 * model.head_dim, "int8": 2 * (model.head_dim + 4)}[kv]
    return model.layers * model.kv_heads * of_head


def limit(case: Case, model: ModelFacts, kv: str, peaks: Peaks):
    """Tokens a second, or None where a peak is not known. Windows are not looked at: no case with one outgrows it."""
    keys_ops = 4 * model.layers * model.heads * model.head_dim  # of a token, for each key it sees
    if case.measure == "prefill":
        tokens = case.batch * case.prompt
        matmul = 2 * (tokens * model.layer_weights + case.batch * model.output_weights)
        attention = tokens * keys_ops * case.prompt / 2
        read = model.weight_bytes
    else:
        tokens = case.batch
        context = case.prompt + case.output / 2
        matmul = 2 * tokens * (model.layer_weights + model.output_weights)
        attention = tokens * keys_ops * context
        in_memory = case.prefix + case.batch * (context - case.prefix)
        read = model.weight_bytes + in_memory * kv_bytes(model, kv)
    if not (peaks.read_bytes and peaks.int8):
        return None
    seconds = max(read / peaks.read_bytes, matmul / peaks.int8 + attention / max(peaks.f32, peaks.bf16))
    return tokens / seconds
