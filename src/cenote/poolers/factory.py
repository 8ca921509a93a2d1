"""Which poolers a model gets: from its head and its folder's metadata.

Which of the tasks are offered (a causal model drops the token-level ones) is the pooling runner's.
"""

from __future__ import annotations

import torch

from cenote.config.architectures import LISTWISE, MARKERS, STEPWISE
from cenote.config.model import ModelConfig
from cenote.errors import ModelLoadError
from cenote.loader.small_heads import read_small_head
from cenote.models.base import PoolingModel
from cenote.params import Task
from cenote.poolers.base import Pooler
from cenote.poolers.bge_m3 import UNWEIGHTED, LexicalPooler, MultiVectorPooler
from cenote.poolers.heads import check_chain, class_activation, load_dense
from cenote.poolers.marker import MarkerPooler
from cenote.poolers.methods import ClassifyPooler, EmbedPooler
from cenote.poolers.skiplist import skip_ids
from cenote.poolers.sparse import SparsePooler, load_query_weights
from cenote.poolers.step import step_pooler
from cenote.poolers.token import TokenClassifyPooler, TokenEmbedPooler


def build_poolers(
    config: ModelConfig, model: PoolingModel, device: torch.device
) -> dict[Task, Pooler]:
    """One pooler for each task that the model's head can do.

    A head decides alone; a bare encoder gives embeddings and token vectors, a late-interaction
    model token vectors only. Raises ModelLoadError for metadata that doesn't fit the model.
    """
    match model.info.head:
        case "classify":
            return {"classify": ClassifyPooler(model, class_activation(config))}
        case "token_classify" if config.architecture in STEPWISE:
            return {"token_classify": step_pooler(config, model, class_activation(config))}
        case "token_classify":
            return {"token_classify": TokenClassifyPooler(model, class_activation(config))}
        case "vocab":
            return {"sparse_embed": _sparse(config, model, device)}
        case None:
            return _vectors(config, model, device)


def _sparse(config: ModelConfig, model: PoolingModel, device: torch.device) -> SparsePooler:
    own = config.pooler.sparse
    if own is None or own.query_weights is None:
        return SparsePooler(model, own)
    folder = config.path / own.query_weights
    return SparsePooler(model, own, load_query_weights(folder, config.vocab_size, device))


def _bge_m3(config: ModelConfig, device: torch.device) -> dict[Task, Pooler]:
    weight, bias = read_small_head(config.path, "sparse_linear", config.hidden_size)
    if weight.shape[0] != 1:
        raise ModelLoadError(f"sparse_linear must have one output, not {weight.shape[0]}.")
    unweighted = skip_ids(config.transformer_path, UNWEIGHTED)
    colbert = read_small_head(config.path, "colbert_linear", config.hidden_size)
    return {
        "sparse_embed": LexicalPooler(weight.to(device), bias.to(device), unweighted),
        "token_embed": MultiVectorPooler(*(tensor.to(device) for tensor in colbert)),
    }


def _vectors(config: ModelConfig, model: PoolingModel, device: torch.device) -> dict[Task, Pooler]:
    pooler = config.pooler
    if config.architecture in LISTWISE:
        markers = skip_ids(config.transformer_path, MARKERS)
        if len(markers) < len(MARKERS):
            raise ModelLoadError(f"The vocabulary lacks one of the tokens {list(MARKERS)}.")
        return {"token_embed": MarkerPooler(model, markers)}
    dense = load_dense(config.path, pooler.dense, device)
    if pooler.colbert is not None:
        if pooler.dense:
            check_chain(pooler.dense, config.hidden_size)
        skipped = skip_ids(config.transformer_path, pooler.colbert.skiplist)
        return {
            "token_embed": TokenEmbedPooler(
                model, dense, normalize=pooler.normalize, skip_ids=skipped
            )
        }
    check_chain(pooler.dense, config.hidden_size * len(pooler.modes))
    # Dense modules of a concatenation don't fit a single row.
    token_dense = dense if len(pooler.modes) == 1 else []
    embed = EmbedPooler(pooler.modes, dense, normalize=pooler.normalize)
    if pooler.bge_m3:
        return {"embed": embed, **_bge_m3(config, device)}
    return {
        "embed": embed,
        "token_embed": TokenEmbedPooler(model, token_dense, normalize=True),
    }
