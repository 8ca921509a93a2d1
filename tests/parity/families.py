"""Every family that the registry serves: what a tiny model of it is, and what it is compared with.

`FAMILIES` has a row for the beginning of each architecture's name; the longest that fits counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from forms import (
    Form,
    SourceReference,
    both_sides,
    centred_rows,
    colbert,
    last_reward,
    last_scores,
    listwise,
    looked_up,
    marked,
    projected,
    renamed,
    reward,
    scored,
    static,
    step_rewards,
    unmasked,
)
from heads import reference_outputs
from jina_bert_formulas import formulas, save_jina
from reference import BFLOAT16, Tolerance
from test_decoders import FAMILIES as DECODERS
from test_decoders import SHARED
from test_instructed import latent_rows, save_nv_embed
from test_lfm2 import FORMS, SHAPE
from tiny import Kind, MakeTiny


@dataclass(frozen=True)
class Family:
    """`made_as`: whose classes of transformers are saved, where it has none of this name.

    `form` then writes the folder that is served, and `reference` reads the saved one. Texts have
    `lengths` and `longest` tokens, of ids from `first_id` on. `narrow`: bfloat16's bound.
    """

    tokenizer: Kind
    config: Mapping[str, Any] = field(default_factory=dict)
    types: bool = False
    lengths: Sequence[int] = (1, 2, 7, 33, 7)
    longest: int = 64
    first_id: int = 5
    made_as: str | None = None
    form: Form | None = None
    reference: SourceReference = reference_outputs
    narrow: Tolerance = BFLOAT16


LONG = {"max_position_embeddings": 600}
# Unnormalised embeddings make wide weights too wide.
NARROWER = {**LONG, "initializer_range": 0.2}
# deberta-base's settings, and deberta-v3-base's with buckets that lengths go well beyond.
BASE: dict[str, Any] = {
    "relative_attention": True,
    "pos_att_type": "c2p|p2c",
    "position_biased_input": False,
}
V3: dict[str, Any] = {
    "relative_attention": True,
    "position_buckets": 16,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": "p2c|c2p",
    "position_biased_input": False,
    "max_relative_positions": -1,
}
TYPELESS = {"type_vocab_size": 1}
decoder = partial(Family, "bpe", longest=200)
GROUPED = {"num_key_value_heads": 2}
LFM2 = {**SHAPE, **FORMS["by type"]}
QWEN2 = {**SHARED, **DECODERS["Qwen2"], "vocab_size": 402}
QWEN3 = {**SHARED, **DECODERS["Qwen3"], "vocab_size": 402}
# A window of 8 on both sides; four layers, so that both kinds of attention come.
WINDOWS = {"local_attention": 16, "num_hidden_layers": 4, **LONG}
# Its norms after each layer keep the weights' width from mattering: transformers' own is 0.014 off.
gemma3 = decoder({**SHARED, **DECODERS["Gemma3Text"]}, narrow=Tolerance(absolute=2e-2))

FAMILIES: dict[str, Family] = {
    **{name: decoder({**SHARED, **config}) for name, config in DECODERS.items()},
    **dict.fromkeys(("Gemma3", "Gemma3Text"), gemma3),
    "Albert": Family("unigram", {"embedding_size": 16, "hidden_act": "gelu_new"}, types=True),
    "Bert": Family("wordpiece", types=True),
    "Camembert": Family("unigram", TYPELESS),
    "ColBERT": Family("wordpiece", made_as="BertModel", form=colbert, reference=projected),
    "Data2VecText": Family("bpe", TYPELESS),
    "Deberta": Family("bpe", BASE),
    "DebertaV2": Family("wordpiece", V3),
    "DistilBert": Family("wordpiece", {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}),
    "Electra": Family("wordpiece", {"embedding_size": 16}, types=True),
    "Ernie": Family("wordpiece", {"use_task_id": True, "type_vocab_size": 4}, types=True),
    "EuroBert": Family("bpe", {**NARROWER, **GROUPED}, longest=600),
    "GritLM": decoder(SHARED, made_as="MistralModel", form=renamed, reference=unmasked),
    "Gte": Family("unigram", {"type_vocab_size": 2, **LONG}, types=True, longest=600),
    "HF_ColBERT": Family("wordpiece", made_as="BertModel", form=colbert, reference=projected),
    "JinaBert": Family(
        "wordpiece", NARROWER, types=True, made_as="Bert", form=save_jina, reference=formulas
    ),
    "JinaEmbeddingsV3": Family("unigram", {**TYPELESS, **NARROWER}, longest=600),
    "JinaEmbeddingsV3ForColBERT": Family(
        "unigram",
        {**TYPELESS, **NARROWER},
        longest=600,
        made_as="JinaEmbeddingsV3Model",
        form=colbert,
        reference=projected,
    ),
    "JinaForRanking": decoder(
        QWEN3, first_id=390, made_as="Qwen3Model", form=listwise, reference=marked
    ),
    "Lfm2": Family("bpe", LFM2),
    "Lfm2Bidirectional": Family(
        "bpe", LFM2, made_as="Lfm2Model", form=renamed, reference=centred_rows
    ),
    "Lfm2ForSequenceClassification": Family(
        "bpe", LFM2, made_as="Lfm2Model", form=scored, reference=last_scores
    ),
    "Llama": decoder({**SHARED, "attention_bias": True, "mlp_bias": True, "head_dim": 16}),
    "LlamaBidirectional": decoder(SHARED, made_as="Llama", form=both_sides, reference=unmasked),
    "MPNet": Family("mpnet", {"pad_token_id": 1, "max_position_embeddings": 302}, longest=300),
    # Below the window, at its edges, and above it.
    "ModernBert": Family("bpe", WINDOWS, lengths=(1, 2, 8, 9, 10, 17, 18, 33), longest=600),
    "New": Family("unigram", LONG, longest=600, made_as="Gte", form=renamed),
    "NVEmbed": decoder(SHARED, made_as="Mistral", form=save_nv_embed, reference=latent_rows),
    "NomicBert": Family("wordpiece", NARROWER, types=True, longest=600),
    "Qwen2ForProcessRewardModel": decoder(
        QWEN2, first_id=390, made_as="Qwen2Model", form=reward, reference=step_rewards
    ),
    "Qwen2ForRewardModel": decoder(QWEN2, made_as="Qwen2Model", form=reward, reference=last_reward),
    "Roberta": Family("bpe", TYPELESS),
    "StaticEmbedding": Family("wordpiece", made_as="BertModel", form=static, reference=looked_up),
    "XLMRoberta": Family("unigram", TYPELESS),
    "XLMRobertaXL": Family("unigram", TYPELESS),
}


def family_of(architecture: str) -> Family:
    """Its row, with the class of transformers that is made. Fails where there is none."""
    names = [name for name in FAMILIES if architecture.startswith(name)]
    assert names, f"{architecture} has no row in {Path(__file__).name}: add one"
    name = max(names, key=len)
    row = FAMILIES[name]
    made_as = row.made_as or name
    # A whole class's name stands for all heads of the row.
    if not made_as.endswith("Model"):
        made_as += architecture.removeprefix(name)
    return replace(row, made_as=made_as)


def save_family(
    architecture: str, make_tiny: MakeTiny, folder: Path, **config: Any
) -> tuple[Path, Path]:
    """The folder to serve, and the one that the reference reads."""
    family = family_of(architecture)
    settings = {**family.config, "num_labels": 3, "length": family.longest, **config}
    source = make_tiny(family.made_as, family.tokenizer, types=family.types, **settings)
    if family.form is None:
        return source, source
    family.form(source, folder, architecture)
    return folder, source
