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
    "data2vec-text": "Data2VecTextModel",
    "deberta": "DebertaModel",
    "deberta-v2": "DebertaV2Model",
    "distilbert": "DistilBertModel",
    "electra": "ElectraModel",
    "ernie": "ErnieModel",
    "eurobert": "EuroBertModel",
    "gemma": "GemmaModel",
    "gemma2": "Gemma2Model",
    "gemma3_text": "Gemma3TextModel",
    "gpt2": "GPT2Model",
    "lfm2": "Lfm2Model",
    "lfm2_bidirectional": "Lfm2BidirectionalModel",
    "gte": "GteModel",
    "jina_embeddings_v3": "JinaEmbeddingsV3Model",
    "llama": "LlamaModel",
    "mistral": "MistralModel",
    "modernbert": "ModernBertModel",
    "mpnet": "MPNetModel",
    "new": "NewModel",
    "nomic_bert": "NomicBertModel",
    "phi3": "Phi3Model",
    "qwen2": "Qwen2Model",
    "qwen3": "Qwen3Model",
    "roberta": "RobertaModel",
    "xlm-roberta": "XLMRobertaModel",
    "xlm-roberta-xl": "XLMRobertaXLModel",
}

# Rows of the token type table where a config.json doesn't say; families not named here have none.
TOKEN_TYPES: dict[str, int] = {
    "albert": 2,
    "bert": 2,
    "camembert": 2,
    "data2vec-text": 2,
    "electra": 2,
    "ernie": 2,
    "gte": 1,
    "jina_embeddings_v3": 1,
    "new": 1,
    "nomic_bert": 2,
    "roberta": 2,
    "xlm-roberta": 2,
    "xlm-roberta-xl": 1,
}

# Rerankers that read a query and all documents as one prompt, and the tokens after a document and
# after the query whose rows are compared.
LISTWISE = frozenset({"JinaForRanking"})
MARKERS = ("<|embed_token|>", "<|rerank_token|>")

# Classifiers of tokens that answer at the ends of steps only.
STEPWISE = frozenset({"Qwen2ForProcessRewardModel"})

# Only configurations of XLM-RoBERTa's flash implementation have one of these.
_FLASH = frozenset({"use_flash_attn", "rotary_emb_base"})

# Families whose attention is causal unless the configuration says otherwise.
_CAUSAL = frozenset(
    {
        "falcon",
        "gemma",
        "gemma2",
        "gemma3_text",
        "gpt2",
        "gpt_neox",
        "lfm2",
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
        return _own_name(hf, named[0])
    try:
        return DEFAULTS[model_type]
    except KeyError:
        raise ModelLoadError(
            f"config.json names no architecture, and there is no default for model_type "
            f'{model_type!r}. Add e.g. "architectures": ["BertModel"].'
        ) from None


def _own_name(hf: Raw, named: str) -> str:
    """Our name of an architecture whose first repository shares a name with another one."""
    # Embedding models are saved under their pre-training's name, without its head.
    if named == "JinaBertForMaskedLM" and hf.get("emb_pooler"):
        return "JinaBertModel"
    if is_gritlm(hf):
        return "GritLM"
    # XLM-RoBERTa with flash attention, of which Jina's models are made, has other tensors.
    if hf.get("model_type") == "xlm-roberta" and _FLASH & hf.keys():
        if named == "HF_ColBERT":
            return "JinaEmbeddingsV3ForColBERT"
        return named.replace("XLMRoberta", "JinaEmbeddingsV3")
    return named


def is_gritlm(hf: Raw) -> bool:
    """Whether a Mistral is GritLM's, by its repository's code or by the name that vLLM goes by."""
    named, code = str(hf.get("architectures")), str(hf.get("auto_map"))
    return "GritLM" in named or ("Mistral" in named and "modeling_gritlm7b" in code)


def classifier_of(architecture: str) -> str:
    """The classifier of a language model's family."""
    family = architecture.removesuffix("LMHeadModel").removesuffix("ForCausalLM")
    family = "Gemma3Text" if family == "Gemma3" else family
    if family == architecture and not architecture.endswith("ForSequenceClassification"):
        raise ModelLoadError(
            f"{architecture} is no language model, so it can't score by the logits of tokens."
        )
    if family == architecture:
        return architecture
    return f"{family}ForSequenceClassification"


def is_causal(hf: Raw, architecture: str) -> bool:
    """Whether a text is read from left to right only, as far as the configuration tells."""
    for key, causal in (("use_bidirectional_attention", False), ("is_causal", True)):
        if isinstance(hf.get(key), bool):
            return bool(hf[key]) is causal
    if "Bidirectional" in architecture or is_gritlm(hf):
        return False
    return hf.get("model_type") in _CAUSAL or architecture.endswith("ForCausalLM")
