"""Which architecture a config.json names, and whether its family reads from left to right only.

It knows names; which of them can be served is the model registry's business.
"""

from __future__ import annotations

from cenote.config.fields import Raw
from cenote.errors import ModelLoadError

# The plain encoder of a model_type, for a config.json that doesn't name its architecture.
DEFAULTS: dict[str, str] = {
    "albert": "AlbertModel",
    "bert": "BertModel",
    "camembert": "CamembertModel",
    "deberta-v2": "DebertaV2Model",
    "distilbert": "DistilBertModel",
    "electra": "ElectraModel",
    "eurobert": "EuroBertModel",
    "gemma3_text": "Gemma3TextModel",
    "llama": "LlamaModel",
    "mistral": "MistralModel",
    "modernbert": "ModernBertModel",
    "mpnet": "MPNetModel",
    "nomic_bert": "NomicBertModel",
    "qwen2": "Qwen2Model",
    "qwen3": "Qwen3Model",
    "roberta": "RobertaModel",
    "xlm-roberta": "XLMRobertaModel",
}

# Families whose attention is causal unless the configuration says otherwise.
_CAUSAL = frozenset(
    {
        "falcon",
        "gemma",
        "gemma2",
        "gemma3_text",
        "gpt2",
        "gpt_neox",
        "llama",
        "mistral",
        "olmo",
        "phi",
        "phi3",
        "qwen2",
        "qwen3",
        "starcoder2",
    }
)


def name_of(hf: Raw, model_type: str) -> str:
    """`architectures[0]`, or the documented default of the model_type."""
    named = hf.get("architectures")
    if named:
        if not isinstance(named, list) or not isinstance(named[0], str):
            raise ModelLoadError(f"config.json: architectures must be a list, not {named!r}.")
        return named[0]
    try:
        return DEFAULTS[model_type]
    except KeyError:
        raise ModelLoadError(
            f"config.json names no architecture, and there is no default for model_type "
            f'{model_type!r}. Add e.g. "architectures": ["BertModel"].'
        ) from None


def is_causal(hf: Raw, architecture: str) -> bool:
    """Whether a text is read from left to right only, as far as the configuration tells."""
    for key, causal in (("use_bidirectional_attention", False), ("is_causal", True)):
        if isinstance(hf.get(key), bool):
            return bool(hf[key]) is causal
    return hf.get("model_type") in _CAUSAL or architecture.endswith("ForCausalLM")
