"""What the reference libraries give for `cenote verify`: sentence-transformers and transformers.

The only place that knows them; they are imported when the command runs. It compares nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from cenote.cli.console import note
from cenote.config.model import ModelConfig
from cenote.config.reranker import OWN_TEMPLATE
from cenote.errors import CenoteError, InvalidRequest
from cenote.processors.templates import load_score_template

if TYPE_CHECKING:
    from cenote import LLM

Array = NDArray[np.float32]
Kind = Literal[
    "embed",
    "cross_encoder",
    "prompted_reranker",
    "late_interaction",
    "sparse",
    "classify",
    "token_classify",
]

# Embedders that no library loads, or that it loads as something else.
_OWN_CODE = frozenset({"GritLM", "NVEmbedModel"})


def kind_of(llm: LLM) -> Kind:
    """What of a model is compared. Raises `InvalidRequest` for one without a reference."""
    config, tasks = llm.model_config, llm.supported_tasks
    own_code = llm.score_kind == "listwise" or config.architecture in _OWN_CODE
    if own_code or config.architecture.endswith("RewardModel"):
        raise InvalidRequest(
            f"verify has nothing to compare {config.architecture} with: its reference is code of "
            "the model's repository, which never runs.",
            param="model",
        )
    if llm.score_kind is None and config.reranker is not None:
        raise InvalidRequest(
            f"verify compares one score of a pair; this model gives {config.num_labels}.",
            param="model",
        )
    if llm.score_kind == "cross_encoder":
        return "prompted_reranker" if _writes_prompts(llm) else "cross_encoder"
    if llm.score_kind == "late_interaction":
        return "late_interaction"
    if llm.score_kind == "sparse":
        return "sparse"
    if "embed" in tasks:
        return "embed"
    return "classify" if "classify" in tasks else "token_classify"


def _writes_prompts(llm: LLM) -> bool:
    """Whether a pair becomes a prompt that no CrossEncoder would write."""
    reranker = llm.model_config.reranker
    by_name = reranker is not None and reranker.template != OWN_TEMPLATE
    return by_name or llm.config.score_template is not None


def results_of(folder: Path, llm: LLM, kind: Kind, query: str, texts: Sequence[str]) -> list[Array]:
    """An array for each text, in float32; where queries are encoded, the query's comes first.

    Raises `CenoteError` where the library isn't installed or can't run the model.
    """
    try:
        import sentence_transformers
        import transformers
    except ImportError as error:
        raise CenoteError(
            "verify needs the reference library: pip install 'cenote[reference]'"
        ) from error
    transformers.utils.logging.disable_progress_bar()
    plain = kind in ("prompted_reranker", "classify", "token_classify")
    library = transformers if plain else sentence_transformers
    note(f"Running {library.__name__.replace('_', '-')} {library.__version__} in float32")
    try:
        if kind == "prompted_reranker":
            return _prompted(transformers, llm, query, texts)
        if plain:
            return _classes(transformers, llm.model_config, kind, texts)
        return _sentences(sentence_transformers, str(folder), llm.model_config, kind, query, texts)
    except (ImportError, OSError, ValueError, KeyError, RuntimeError) as error:
        raise CenoteError(f"The reference can't run this model: {error}") from error


def _sentences(
    library: Any, name: str, config: ModelConfig, kind: Kind, query: str, texts: Sequence[str]
) -> list[Array]:
    if kind == "embed":
        embedder = library.SentenceTransformer(name, device="cpu")
        # A folder that doesn't say is normalised here, and not there.
        return list(embedder.encode(list(texts), normalize_embeddings=config.pooler.normalize))
    if kind == "sparse":
        sparse = library.SparseEncoder(name, device="cpu")
        left, right = sparse.encode_query([query]), sparse.encode_document(list(texts))
        return [*left.to_dense().numpy(), *right.to_dense().numpy()]
    if kind == "cross_encoder":
        scores = library.CrossEncoder(name, device="cpu").predict([(query, t) for t in texts])
        return [np.array([score], np.float32) for score in scores]
    encoder = library.MultiVectorEncoder(name, device="cpu")
    first = encoder.encode_query([query], convert_to_numpy=True)
    documents = encoder.encode_document(list(texts), convert_to_numpy=True)
    return [np.asarray(item) for item in (*first, *documents)]


def _classes(library: Any, config: ModelConfig, kind: Kind, texts: Sequence[str]) -> list[Array]:
    """Class probabilities of texts, `[classes]`, or of their tokens, `[tokens, classes]`."""
    name = config.transformer_path
    tokenizer = library.AutoTokenizer.from_pretrained(name)
    sort = "Token" if kind == "token_classify" else "Sequence"
    auto = getattr(library, f"AutoModelFor{sort}Classification")
    model = auto.from_pretrained(name, dtype="float32").eval().requires_grad_(False)
    found = []
    for text in texts:
        inputs = tokenizer(
            text, truncation=True, max_length=config.max_model_len, return_tensors="pt"
        )
        (logits,) = model(**inputs).logits
        found.append(_probabilities(logits, config.problem_type).numpy())
    return found


def _probabilities(logits: Any, problem_type: str | None) -> Any:
    """As transformers' pipelines make them of logits `[..., classes]`."""
    if logits.shape[-1] == 1 or problem_type == "multi_label_classification":
        return logits.sigmoid()
    return logits if problem_type == "regression" else logits.softmax(-1)


def _prompted(library: Any, llm: LLM, query: str, texts: Sequence[str]) -> list[Array]:
    """A score for each pair: of the answer's tokens after the prompt, or of the score head.

    The prompts are those that are served; it is what the model makes of them that is compared.
    """
    config, reranker = llm.model_config, llm.model_config.reranker
    template = load_score_template(config, llm.config)
    if template is None:
        raise InvalidRequest("verify knows no prompt of this reranker.", param="model")
    answers = () if reranker is None else reranker.tokens
    name = config.transformer_path
    tokenizer = library.AutoTokenizer.from_pretrained(name)
    sort = "CausalLM" if answers else "SequenceClassification"
    auto = getattr(library, f"AutoModelFor{sort}")
    model = auto.from_pretrained(name, dtype="float32").eval().requires_grad_(False)
    wanted = [tokenizer.convert_tokens_to_ids(a) if isinstance(a, str) else a for a in answers]
    found = []
    for text in texts:
        prompt = template.render(query, text)
        inputs = tokenizer(prompt, add_special_tokens=not template.complete, return_tensors="pt")
        logits = model(**inputs).logits[0]
        score = logits[-1, wanted] if answers else logits
        if reranker is not None and reranker.difference:
            score = score[1:] - score[:1]
        found.append((score if config.pooler.activation == "identity" else score.sigmoid()).numpy())
    return found
