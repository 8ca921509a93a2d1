"""A model's pooling metadata in one normalised form, from the files of every generation.

Sentence-transformers (`modules.json` and what it names, `config_sentence_transformers.json`,
`sentence_bert_config.json`), Stanford ColBERT (`artifact.metadata`), PyLate and Jina. Unknown
pooling is refused, never guessed. It knows no weights and no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

PoolingMode = Literal["cls", "mean", "max", "mean_sqrt_len", "weightedmean", "last"]
Similarity = Literal["cosine", "dot", "euclidean", "manhattan"]


@dataclass(frozen=True, slots=True)
class DenseConfig:
    """One Dense module of a sentence-transformers model; weights lie in `folder` (relative).

    `residual`: what goes in is added to what comes out, by a matrix where their sizes differ.
    """

    folder: str
    in_features: int
    out_features: int
    bias: bool
    activation: str  # an activation of kernels.activation: identity, tanh, gelu_erf, relu, silu…
    residual: bool = False


@dataclass(frozen=True, slots=True)
class ColbertConfig:
    """How a late-interaction model wants its two sides encoded.

    Markers are put after the first special token; one that is no token of the vocabulary (with its
    trailing space or without) is ordinary text before the input. Lengths count special tokens and
    marker; longer inputs are cut. Expansion pads queries to `expansion_length` (None:
    `query_length`) with `expansion_token` (None: the mask token, or EOS where there is none).
    `skiplist` words give the token ids whose document rows are dropped.
    """

    dim: int
    query_marker: str = "[unused0]"
    document_marker: str = "[unused1]"
    query_length: int = 32
    document_length: int = 180
    do_query_expansion: bool = True
    attend_to_expansion_tokens: bool = False
    skiplist: tuple[str, ...] = ()
    expansion_length: int | None = None
    expansion_token: str | None = None


@dataclass(frozen=True, slots=True)
class SparseConfig:
    """SPLADE: how rows of vocabulary logits become one sparse vector.

    `activation`: relu is log(1 + relu(x)); log1p_relu takes the logarithm twice. `query_weights` is
    the folder (relative) of an inference-free query side: one weight for each vocabulary entry,
    looked up for the tokens of the text. `default_side` is what a text is where nobody says.
    """

    strategy: Literal["max", "sum"] = "max"
    activation: Literal["relu", "log1p_relu"] = "relu"
    query_weights: str | None = None
    default_side: Literal["query", "document"] = "document"


@dataclass(frozen=True, slots=True)
class PoolerConfig:
    """Everything after the hidden states, and the prompts before them.

    `include_prompt=False` leaves prompts out of pooling. A text that begins with `prompt_form` (a
    pattern) brings its own. `append_eos`: texts end with the tokenizer's EOS though its file
    doesn't say so. `modes` are concatenated in order. `activation` is a cross-encoder's own (None:
    sigmoid for one label, softmax for more). `matryoshka` is the sizes the model declares; empty:
    none declared.
    """

    modes: tuple[PoolingMode, ...] = ("mean",)
    include_prompt: bool = True
    prompt_form: str | None = None
    append_eos: bool = False
    dense: tuple[DenseConfig, ...] = ()
    normalize: bool = True
    similarity: Similarity = "cosine"
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    max_seq_length: int | None = None
    do_lower_case: bool = False
    activation: str | None = None
    matryoshka: tuple[int, ...] = ()
    is_matryoshka: bool = False
    colbert: ColbertConfig | None = None
    sparse: SparseConfig | None = None
    # BGE-M3's two further heads lie beside the weights.
    bge_m3: bool = False
    # True where the folder had sentence-transformers metadata; False: documented defaults are used.
    declared: bool = False
