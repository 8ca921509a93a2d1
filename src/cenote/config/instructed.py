"""Embedders whose own code, not a file, says how an instruction stands before a text.

NV-Embed (arXiv:2405.17428), GritLM (arXiv:2402.09906) and INSTRUCTOR (arXiv:2212.09741) leave it
out of the mean. Facts: the config.json of the first, the model card of the second, and what
sentence-transformers 6.2 does for the third. It knows no tokens.
"""

from __future__ import annotations

import re
from dataclasses import replace

from cenote.config import architectures
from cenote.config.fields import Raw
from cenote.config.pooling import PoolerConfig

NV_EMBED = "nvembed"

# What stands between GritLM's instruction and its text, and alone before a text without one.
_EMBED = "<|embed|>\n"
_ASKED = r"(?s:<\|user\|>\n.*?\n)?<\|embed\|>\n"


# INSTRUCTOR is a T5 like others: it is known by its releases' names.
_INSTRUCTOR = re.compile(r"(?:^|[/\\])instructor-(?:base|large|xl)[/\\]*$")


def with_instructions(config: PoolerConfig, hf: Raw, name: str) -> PoolerConfig:
    """`config` with what is known of the model that `hf` (its config.json) describes.

    `name` is what the user called it.
    """
    if _INSTRUCTOR.search(name):
        return replace(config, include_prompt=False)
    if architectures.is_gritlm(hf):
        return replace(
            config,
            include_prompt=False,
            prompt_form=_ASKED,
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
