"""How the engine is to run: frozen, resolved once, never written to afterwards.

CLI flags of `serve`, `embed`, `bench`… and the keywords of `LLM` are made from these fields: the
metadata's `help` is the flag's help. It knows nothing of what the model is (see `config.model`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from cenote.config.flags import check_values, flag
from cenote.errors import InvalidRequest

DTypeName = Literal["auto", "float32", "bfloat16", "float16"]
RerankerChoice = Literal["auto", "off", "qwen3", "bge-gemma", "mxbai-v2", "nemotron"]
Quantization = Literal["none", "int8", "int8-mixed"]
KernelChoice = Literal["auto", "native", "torch"]

DEFAULT_MODEL = "minilm"

# What max_num_batched_tokens=0 means: the knee of throughput against the length of a step.
STEP_TOKENS = {"cpu": 2048, "cuda": 16384}


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineConfig:
    """Every setting of one engine. `0` or None means: chosen for the model and the machine."""

    model: str = flag(DEFAULT_MODEL, "A folder, a hub id or a built-in name (minilm).")
    revision: str | None = flag(None, "Branch, tag or commit of a hub model.")
    dtype: DTypeName = flag("auto", "Number format of the weights; auto asks the processor.")
    device: str = flag("auto", "cpu, cuda, cuda:1, or auto.")
    quantization: Quantization = flag(
        "none", "int8: quantised products (CPU); int8-mixed: those of queries and keys spared."
    )
    kernels: KernelChoice = flag("auto", "native: our CPU kernels; torch: plain torch.")
    threads: int = flag(0, "CPU threads of the engine; 0: one for each core.")
    lanes: int = flag(
        0,
        "CPU, models that read prompts whole: steps run side by side, each on one thread; 0: one "
        "for each thread; 1: one step on all threads.",
    )
    replicas: int = flag(
        1, "Engine processes of the model, each with its share of the threads; for many cores."
    )
    max_model_len: int | None = flag(None, "Longest prompt in tokens; default: the model's own.")
    max_num_batched_tokens: int = flag(0, "Token budget of one step; 0: chosen for the machine.")
    max_num_seqs: int = flag(256, "Most prompts in one step.")
    max_waiting_tokens: int = flag(2_000_000, "Queue bound in tokens; beyond it requests get 429.")
    max_waiting_requests: int = flag(20_000, "Queue bound in prompts; beyond it requests get 429.")
    query_cache_bytes: int = flag(
        64 << 20, "Late interaction: memory for reusable queries; 0: off."
    )
    kv_cache_bytes: int = flag(
        0,
        "Causal models: memory for keys and values; 0: a quarter of what is free, 4 GiB at most, "
        "or half of a GPU's.",
    )
    block_size: int = flag(16, "Causal models: tokens in one KV block.")
    enable_prefix_caching: bool = flag(True, "Causal models: reuse the blocks of equal prefixes.")
    enable_chunked_prefill: bool = flag(True, "Causal models: split prompts over steps.")
    pooling: str | None = flag(
        None, "Pooling method in place of the model's: cls, mean, max, last…"
    )
    normalize: bool | None = flag(None, "Normalise embeddings in place of what the model says.")
    allow_any_dimensions: bool = flag(False, "Allow dimensions on models not known as matryoshka.")
    calibration: str | None = flag(
        None, "File (.npy, [n, dim]) of vectors whose ranges int8 and uint8 vectors get."
    )
    score_template: str | None = flag(None, "File with a Jinja template for rerank prompts.")
    reranker: RerankerChoice = flag(
        "auto",
        "Language models that score pairs; auto: found by metadata and name; off: none.",
    )
    profile: bool = flag(True, "Use what `cenote tune` found for this model on this machine.")
    adapters: tuple[str, ...] = flag((), "LoRA adapters in PEFT's form, as name=folder or hub id.")

    def __post_init__(self) -> None:
        check_values(self)
        for name, least in (
            ("threads", 0),
            ("lanes", 0),
            ("replicas", 1),
            ("max_num_batched_tokens", 0),
            ("max_num_seqs", 1),
            ("max_waiting_tokens", 1),
            ("max_waiting_requests", 1),
            ("query_cache_bytes", 0),
            ("kv_cache_bytes", 0),
            ("block_size", 1),
        ):
            value = getattr(self, name)
            if value < least:
                raise InvalidRequest(f"{name} must be at least {least}, not {value}.", param=name)
        if self.max_model_len is not None and self.max_model_len < 1:
            raise InvalidRequest(
                f"max_model_len must be at least 1, not {self.max_model_len}.",
                param="max_model_len",
            )

        self.adapter_sources()

    def adapter_sources(self) -> dict[str, str]:
        """`adapters` by name: a folder or a hub id each. Raises `InvalidRequest`."""
        found: dict[str, str] = {}
        for text in self.adapters:
            name, _, source = text.partition("=")
            if not name or not source or name in found:
                raise InvalidRequest(
                    f"adapters must be name=folder, each name once, not {text!r}.",
                    param="adapters",
                )
            found[name] = source
        return found

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return tuple(item.name for item in fields(cls))
