"""What folio is measured on beside its peers, and how far ahead it means to be."""
from typing import NamedTuple

OPENVINO, LLAMA = "OpenVINO", "llama.cpp"
SMOLLM2 = "smollm2-135m-q4_1.gguf"
Q4_0, Q8_0 = "smollm2-135m-q4_0.gguf", "smollm2-135m-q8_0.gguf"
GEMMA3 = "gemma-3-270m-q4_k_m.gguf"
LABELS = {SMOLLM2: "SmolLM2 Q4_1", Q4_0: "SmolLM2 Q4_0", Q8_0: "SmolLM2 Q8_0", GEMMA3: "Gemma 3 270M Q4_K_M"}


class Goal(NamedTuple):
    must: float            # times the peer
    aim: float = 0.0       # times the peer; 0: of_limit says it
    of_limit: float = 0.0  # aimed share of the machine's limit


class Case(NamedTuple):
    model: str
    measure: str  # prefill or decode
    batch: int
    prompt: int
    output: int
    goals: dict     # folio's KV type -> Goal
    against: tuple  # the peers that count; the better of them
    prefix: int = 0  # tokens that all prompts begin with, prefix caches on

    @property
    def name(self) -> str:
        if self.prefix:
            return f"{LABELS[self.model]}: decode, {self.batch} users sharing {self.prefix} tokens"
        return f"{LABELS[self.model]}: {self.measure}, PP {self.prompt}, B {self.batch}"

    @property
    def prompt_tokens(self) -> int:
        """That have to be computed, of all prompts."""
        return self.prefix + self.batch * (self.prompt - self.prefix)

    @property
    def key(self) -> str:
        return f"{self.batch},{self.prompt},{self.output}"


def f16(must: float, aim: float = 0.0, of_limit: float = 0.0) -> dict:
    return {"f16": Goal(must, aim, of_limit)}


SHORT_PREFILL = {kv: Goal(1.1, 1.35) for kv in ("f16", "bf16")}
BOTH = (OPENVINO, LLAMA)
CASES = [
    Case(SMOLLM2, "prefill", 1, 512, 1, SHORT_PREFILL, (OPENVINO,)),
    Case(SMOLLM2, "prefill", 1, 4096, 1, {kv: Goal(1.1, 1.3) for kv in ("f16", "bf16", "int8")}, (OPENVINO,)),
    Case(SMOLLM2, "decode", 1, 128, 64, f16(1.6, of_limit=0.75), (LLAMA,)),
    Case(SMOLLM2, "decode", 8, 128, 64, f16(1.3, 2), (OPENVINO,)),
    Case(SMOLLM2, "decode", 32, 128, 64, f16(1.4, 2), (OPENVINO,)),
    Case(SMOLLM2, "decode", 64, 128, 64, f16(1.4, 2), (OPENVINO,)),
    Case(SMOLLM2, "decode", 1, 2048, 32, {"f16": Goal(1.6, 2.7), "int8": Goal(1.6, 3.5)}, BOTH),
    Case(SMOLLM2, "decode", 1, 7680, 32, {"f16": Goal(1.6, 2.7), "int8": Goal(1.6, 3.5)}, BOTH),
    Case(SMOLLM2, "decode", 8, 2048, 32, {"f16": Goal(3, 4.5), "int8": Goal(3, 5.5)}, (OPENVINO,)),
    Case(SMOLLM2, "decode", 32, 1056, 32, f16(1.5, 2.5), (OPENVINO,), prefix=1024),
    Case(Q4_0, "prefill", 1, 512, 1, SHORT_PREFILL, BOTH),
    Case(Q4_0, "decode", 1, 128, 64, f16(1.35, of_limit=0.75), (LLAMA,)),
    Case(Q4_0, "decode", 8, 128, 64, f16(1.2, 2), BOTH),
    Case(Q4_0, "decode", 32, 128, 64, f16(1.2, 2), BOTH),
    Case(Q8_0, "prefill", 1, 512, 1, SHORT_PREFILL, BOTH),
    Case(Q8_0, "decode", 8, 128, 64, f16(1.2, 2), BOTH),
    Case(Q8_0, "decode", 32, 128, 64, f16(1.2, 2), BOTH),
    Case(GEMMA3, "prefill", 1, 512, 1, f16(1.6, 2.4), (LLAMA,)),
    Case(GEMMA3, "decode", 1, 128, 64, f16(1.4, 1.5), (LLAMA,)),
    Case(GEMMA3, "decode", 32, 128, 64, f16(2, 4), (LLAMA,)),
]
