"""Which class serves an architecture: a plain dict of import paths.

It imports no torch until a class is asked for, so that the list can be read anywhere.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from cenote.errors import ModelLoadError

if TYPE_CHECKING:
    from cenote.models.base import ModelInfo, PoolingModel

_HEADS = ("Model", "ForSequenceClassification", "ForTokenClassification", "ForMaskedLM")


def _family(name: str, module: str, served_as: str | None = None) -> dict[str, str]:
    """The usual four architectures of a family; a twin is `served_as` another family's classes."""
    return {f"{name}{head}": f"cenote.models.{module}:{served_as or name}{head}" for head in _HEADS}


def _decoder(name: str, module: str, language_model: str | None = None) -> dict[str, str]:
    """The usual three architectures of a causal family; a language model is served as its body."""
    path = f"cenote.models.{module}:{name}"
    return {
        f"{name}Model": f"{path}Model",
        language_model or f"{name}ForCausalLM": f"{path}Model",
        f"{name}ForSequenceClassification": f"{path}ForSequenceClassification",
    }


ARCHITECTURES: dict[str, str] = {
    "StaticEmbedding": "cenote.models.static:StaticEmbedding",
    **_family("Bert", "bert"),
    "BertForPreTraining": "cenote.models.bert:BertModel",
    "HF_ColBERT": "cenote.models.bert:BertForColBERT",
    "ColBERT": "cenote.models.bert:BertForColBERT",
    **_family("Roberta", "roberta"),
    **_family("XLMRoberta", "roberta", "Roberta"),
    **_family("XLMRobertaXL", "xlm_roberta_xl"),
    **_family("Camembert", "roberta", "Roberta"),
    **_family("Data2VecText", "roberta", "Roberta"),
    **_family("DistilBert", "distilbert"),
    **_family("MPNet", "mpnet"),
    **_family("Electra", "electra"),
    "ElectraForPreTraining": "cenote.models.electra:ElectraModel",
    **_family("Albert", "albert"),
    "AlbertForPreTraining": "cenote.models.albert:AlbertModel",
    **_family("Deberta", "deberta"),
    **_family("DebertaV2", "deberta_v2"),
    **_family("Ernie", "ernie"),
    "ErnieForPreTraining": "cenote.models.ernie:ErnieModel",
    **_family("ModernBert", "modernbert"),
    **_family("EuroBert", "eurobert"),
    **_family("Gte", "gte"),
    **_family("New", "gte", "Gte"),
    **_family("NomicBert", "nomic_bert"),
    **_family("JinaBert", "jina_bert"),
    **_family("JinaEmbeddingsV3", "jina_embeddings_v3"),
    "JinaEmbeddingsV3ForColBERT": "cenote.models.jina_embeddings_v3:JinaEmbeddingsV3ForColBERT",
    **_decoder("Llama", "llama"),
    "LlamaBidirectionalModel": "cenote.models.llama_bidirectional:LlamaBidirectionalModel",
    "LlamaBidirectionalForSequenceClassification": (
        "cenote.models.llama_bidirectional:LlamaBidirectionalForSequenceClassification"
    ),
    **_decoder("Mistral", "mistral"),
    "GritLM": "cenote.models.mistral_bidirectional:MistralBidirectionalModel",
    "NVEmbedModel": "cenote.models.nv_embed:NVEmbedModel",
    **_decoder("Qwen2", "qwen2"),
    "Qwen2ForRewardModel": "cenote.models.qwen2_reward:Qwen2ForRewardModel",
    "Qwen2ForProcessRewardModel": "cenote.models.qwen2_reward:Qwen2ForProcessRewardModel",
    **_decoder("Qwen3", "qwen3"),
    "JinaForRanking": "cenote.models.jina_ranking:JinaForRanking",
    **_decoder("Phi3", "phi3"),
    **_decoder("Gemma", "gemma"),
    **_decoder("Gemma2", "gemma2"),
    **_decoder("Gemma3Text", "gemma3", "Gemma3ForCausalLM"),
    **_decoder("GPT2", "gpt2", "GPT2LMHeadModel"),
    **_decoder("Lfm2", "lfm2"),
    "Lfm2BidirectionalModel": "cenote.models.lfm2:Lfm2BidirectionalModel",
    "Lfm2BidirectionalForMaskedLM": "cenote.models.lfm2:Lfm2BidirectionalModel",
}


def model_class(architecture: str) -> type[PoolingModel]:
    """The class of an architecture (config.json's name): its own, else transformers' in our form.

    Raises ModelLoadError where there is neither.
    """
    path = ARCHITECTURES.get(architecture)
    if path is None:
        return _fallback(architecture)
    module, _, name = path.partition(":")
    found: type[PoolingModel] = getattr(import_module(module), name)
    return found


def _fallback(architecture: str) -> type[PoolingModel]:
    from cenote.models.transformers_fallback import fallback_class

    try:
        return fallback_class(architecture)
    except ModelLoadError as error:
        raise ModelLoadError(
            f"{error.message}\nImplementations of our own: {', '.join(sorted(ARCHITECTURES))}."
        ) from error


def model_info(architecture: str) -> ModelInfo:
    """What the engine must know of an architecture; imports its class."""
    return model_class(architecture).info
