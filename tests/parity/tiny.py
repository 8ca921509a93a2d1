"""Tiny random models of any family, saved with a tokenizer that is trained on the spot.

They are the reference library's own classes, so they load in Cenote and in the reference alike.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Literal

import torch
import transformers
from reference import TEXTS
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import trainers as train

Kind = Literal["wordpiece", "mpnet", "bpe", "unigram"]
MakeTiny = Callable[..., Path]

# Each style's special tokens in id order, with the roles that they play.
BERT_TOKENS = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
ROBERTA_TOKENS = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>", "mask": "<mask>"}
SPECIAL: dict[Kind, dict[str, str]] = {
    "wordpiece": BERT_TOKENS,
    "mpnet": ROBERTA_TOKENS,
    "bpe": ROBERTA_TOKENS,
    "unigram": ROBERTA_TOKENS,
}
README = Path(__file__).parents[2] / "README.md"
VOCAB_SIZE = 400
SMALL = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 66,
    # Wide weights, so that a mistake shows.
    "initializer_range": 0.3,
}


@cache
def trained(kind: Kind) -> Tokenizer:
    """A tokenizer of at most 400 tokens, of the texts that tests use and some English."""
    special = list(SPECIAL[kind].values())
    corpus = [*TEXTS, *(text.lower() for text in TEXTS), *README.read_text().splitlines()]
    settings: dict[str, Any] = {
        "vocab_size": VOCAB_SIZE,
        "special_tokens": special,
        "show_progress": False,
    }
    trainer: Any
    if kind in ("wordpiece", "mpnet"):
        tokenizer = Tokenizer(models.WordPiece(unk_token=SPECIAL[kind]["unk"]))
        tokenizer.normalizer = normalizers.BertNormalizer()
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece()
        trainer = train.WordPieceTrainer(**settings)
    elif kind == "bpe":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = train.BpeTrainer(**settings, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    else:
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.normalizer = normalizers.NFKC()
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer.decoder = decoders.Metaspace()
        trainer = train.UnigramTrainer(**settings, unk_token="<unk>")
    tokenizer.train_from_iterator(corpus, trainer)
    ids = {token: tokenizer.token_to_id(token) for token in special}
    if kind == "wordpiece":
        single, pair = "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1"
    else:
        single, pair = "<s> $A </s>", "<s> $A </s> </s> $B </s>"
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single,
        pair=pair,
        special_tokens=[(token, ids[token]) for token in special if token in pair],
    )
    return tokenizer


def save_tiny(
    folder: Path,
    architecture: str,
    kind: Kind,
    *,
    length: int = 64,
    types: bool = False,
    **config: Any,
) -> Path:
    """Saves a random `architecture` and its tokenizer, which says the longest `length`.

    `types`: the model is fed token types.
    """
    special = SPECIAL[kind]
    names = ["input_ids", "attention_mask", *(["token_type_ids"] if types else [])]
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=trained(kind),
        model_input_names=names,
        model_max_length=length,
        **{f"{role}_token": token for role, token in special.items()},
        **({} if kind == "wordpiece" else {"cls_token": "<s>", "sep_token": "</s>"}),
    )
    tokenizer.save_pretrained(folder)
    cls = getattr(transformers, architecture)
    settings = {**SMALL, "pad_token_id": list(special).index("pad"), **config}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = cls(cls.config_class(**settings)).eval()
        # Biases and norms start out as zeros and ones, which would hide a swapped pair.
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.data += 0.1 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    return folder


def edit_config(folder: Path, **changes: Any) -> None:
    """Changes entries of a folder's config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
