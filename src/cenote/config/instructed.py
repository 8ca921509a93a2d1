"""Embedders whose own code, not a file, says how an instruction stands before a text.

NV-Embed (arXiv:2405.17428) and GritLM (arXiv:2402.09906) leave it out of the mean. Facts: the
config.json of the one, the model card of the other. It knows no tokens.
"""

from __future__ import annotations

from dataclasses import replace

from cenote.config import architectures
from cenote.config.fields import Raw
from cenote.config.pooling import PoolerConfig

NV_EMBED = "nvembed"

# What stands between GritLM's instruction and its text, and alone before a text without one.
_EMBED = "<|embed|>\n"


def with_instructions(config: PoolerConfig, hf: Raw) -> PoolerConfig:
    """`config` with what is known of the model that `hf` (its config.json) describes."""
    if architectures.is_gritlm(hf):
        return replace(
            config,
            include_prompt=False,
            prompt_end=_EMBED,
            prompts={"query": _EMBED, "document": _EMBED},
            default_prompt_name="document",
        )
    if hf.get("model_type") == NV_EMBED:
        return replace(
            config,
            include_prompt=not hf.get("is_mask_instruction", True),
            append_eos=bool(hf.get("add_eos", True)),
        )
    return config
