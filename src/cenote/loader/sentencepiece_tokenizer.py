"""A tokenizer from SentencePiece's model file, for folders that have no tokenizer.json.

Texts are cut as SentencePiece itself cuts them. What differs by family is the ids (fairseq moved
XLM-RoBERTa's and CamemBERT's), what is put around a text, and what is done before SentencePiece.
Facts: each family's tokenizer in transformers 5.24. It encodes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tokenizers import AddedToken, Regex, decoders, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE, Unigram

from cenote.errors import ModelLoadError
from cenote.loader.added_tokens import add_listed_tokens
from cenote.loader.sentencepiece import Kind, Piece, SentencePiece, read_sentencepiece
from cenote.loader.special_tokens import BERT, ROBERTA

FILES = ("sentencepiece.bpe.model", "spiece.model", "spm.model", "tokenizer.model")

REMEDY = (
    "Make a tokenizer.json with transformers: "
    "AutoTokenizer.from_pretrained(folder).save_pretrained(folder)."
)

_SPACE = "▁"
_XLM = {"bos": "<s>", "eos": "</s>", **ROBERTA}
_LLAMA = {"bos": "<s>", "eos": "</s>", "unk": "<unk>"}


@dataclass(frozen=True, slots=True)
class _Family:
    """`special`: roles that tokens have where the folder doesn't say. `around`: the form of a text
    and of a pair. `front` and `back` are put before and after the model file's pieces, of which the
    first `dropped` are left out; `heavy` are scores of theirs. `cleans`: as ALBERT does."""

    special: Mapping[str, str]
    around: Literal["xlm", "bert", "t5", "llama"]
    front: Sequence[str] = ()
    dropped: int = 0
    back: Sequence[str] = ()
    heavy: Mapping[str, float] = field(default_factory=dict)
    cleans: bool = False


_FAMILIES: dict[str, _Family] = {
    "XLMRoberta": _Family(_XLM, "xlm", ("<s>", "<pad>", "</s>", "<unk>"), 3, ("<mask>",)),
    "Camembert": _Family(
        _XLM,
        "xlm",
        ("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"),
        1,
        ("<mask>",),
        {"<unk>NOTUSED": -100.0},
    ),
    "Albert": _Family({**BERT, "unk": "<unk>", "pad": "<pad>"}, "bert", cleans=True),
    "DebertaV2": _Family(BERT, "bert"),
    "T5": _Family({"eos": "</s>", "unk": "<unk>", "pad": "<pad>"}, "t5"),
    "Llama": _Family(_LLAMA, "llama"),
    "Gemma": _Family({"bos": "<bos>", "eos": "<eos>", "unk": "<unk>", "pad": "<pad>"}, "llama"),
}
# By model_type of config.json, where tokenizer_config.json names no class.
_BY_TYPE = {
    "xlm-roberta": "XLMRoberta",
    "xlm-roberta-xl": "XLMRoberta",
    "camembert": "Camembert",
    "albert": "Albert",
    "deberta-v2": "DebertaV2",
    "t5": "T5",
    "llama": "Llama",
    "mistral": "Llama",
    "gemma": "Gemma",
    "gemma2": "Gemma",
}


def from_sentencepiece(
    path: Path, model_type: str, settings: Mapping[str, Any], special: dict[str, str]
) -> Backend:
    """The tokenizer of the file `path`.

    `settings` is tokenizer_config.json; the roles that the family knows are added to `special`.
    Raises `ModelLoadError` for a family that isn't known and for what can't be built exactly.
    """
    family = _family(path, model_type, settings)
    for role, token in family.special.items():
        special.setdefault(role, token)
    model = read_sentencepiece(path)
    _check(path, model)
    pieces = _pieces(family, model)
    unk = next((i for i, piece in enumerate(pieces) if piece.text == special["unk"]), None)
    if unk is None:
        raise ModelLoadError(f"{path} has no piece {special['unk']!r} for what is unknown.")
    before = _before(family, settings)
    try:
        backend = Backend(_network(model, pieces, unk))
        backend.normalizer = normalizers.Sequence([*before, *_normalizers(model)])
    except Exception as error:  # the library raises plain Exception
        raise ModelLoadError(f"{path} makes no tokenizer: {error}") from error
    backend.pre_tokenizer = _pre_tokenizer(model, pieces, settings)
    backend.decoder = _decoder(model)
    add_listed_tokens(backend, path.parent, settings)
    tokens = [piece.text for piece in pieces if piece.kind == Kind.CONTROL]
    backend.add_special_tokens(
        [
            AddedToken(token, lstrip=token == special.get("mask"), normalized=False)
            for token in dict.fromkeys([*tokens, *special.values(), *_extra(family, settings)])
        ]
    )
    _put_around(path, backend, family, settings, special)
    return backend


def _family(path: Path, model_type: str, settings: Mapping[str, Any]) -> _Family:
    named = str(settings.get("tokenizer_class") or "")
    name = named.removesuffix("Fast").removesuffix("Tokenizer") or _BY_TYPE.get(model_type, "")
    if name not in _FAMILIES:
        raise ModelLoadError(
            f"{path}: how {named or model_type!r} uses a SentencePiece model is not known; known: "
            f"{', '.join(_FAMILIES)}. {REMEDY}"
        )
    return _FAMILIES[name]


def _check(path: Path, model: SentencePiece) -> None:
    """Refuses what the tokenizers library can't do exactly."""
    for name, value in (
        ("model_type", model.algorithm if model.algorithm not in ("unigram", "bpe") else ""),
        ("treat_whitespace_as_suffix", model.space_after),
        ("escape_whitespaces", not model.escape_spaces),
        ("pieces that are UNUSED", any(piece.kind == Kind.UNUSED for piece in model.pieces)),
    ):
        if value:
            raise ModelLoadError(f"{path}: {name} ({value}) is not supported.")


def _pieces(family: _Family, model: SentencePiece) -> list[Piece]:
    """The vocabulary in the order of its ids."""
    own = model.pieces[family.dropped :]
    return [
        *(Piece(text, family.heavy.get(text, 0.0), Kind.CONTROL) for text in family.front),
        *(map(_without_comma, own) if family.cleans else own),
        *(Piece(text, 0.0, Kind.CONTROL) for text in family.back),
    ]


def _without_comma(piece: Piece) -> Piece:
    """ALBERT's own code cuts the comma off digits; a low score does it here."""
    if re.search(r"\d,$", piece.text):
        return piece._replace(score=piece.score - 100)
    return piece


def _network(model: SentencePiece, pieces: Sequence[Piece], unk: int) -> Unigram | BPE:
    if model.algorithm == "unigram":
        vocabulary = [(piece.text, piece.score) for piece in pieces]
        return Unigram(vocabulary, unk, model.byte_fallback)
    ids = {piece.text: index for index, piece in enumerate(pieces)}
    return BPE(
        ids,
        _merges(pieces),
        unk_token=pieces[unk].text,
        fuse_unk=True,
        byte_fallback=model.byte_fallback,
        # Pieces of the user's own are whole, without merges.
        ignore_merges=any(piece.kind == Kind.USER_DEFINED for piece in pieces),
    )


def _merges(pieces: Sequence[Piece]) -> list[tuple[str, str]]:
    """The pairs that make a piece, best piece first: SentencePiece merges by score alone."""
    ranks = {
        piece.text: (-piece.score, index)
        for index, piece in enumerate(pieces)
        if piece.kind == Kind.NORMAL
    }
    found = [
        (rank, text[:cut], text[cut:])
        for text, rank in ranks.items()
        for cut in range(1, len(text))
        if text[:cut] in ranks and text[cut:] in ranks
    ]
    return [(left, right) for _, left, right in sorted(found)]


def _before(family: _Family, settings: Mapping[str, Any]) -> list[Any]:
    """What a family's own code does ahead of SentencePiece."""
    parts: list[Any] = []
    if family.cleans:
        parts += [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
        if not settings.get("keep_accents", False):
            parts += [normalizers.NFKD(), normalizers.StripAccents()]
    if settings.get("do_lower_case", family.cleans):
        parts.append(normalizers.Lowercase())
    return parts


def _normalizers(model: SentencePiece) -> list[Any]:
    """What SentencePiece does, in its order."""
    parts: list[Any] = []
    if model.charsmap:
        parts.append(normalizers.Precompiled(model.charsmap))
    if model.collapse_spaces:
        parts += [
            normalizers.Replace(Regex(r"\A +| +\z"), ""),
            normalizers.Replace(Regex(" {2,}"), " "),
        ]
    if model.add_prefix:
        parts.append(normalizers.Prepend(_SPACE))
    return [*parts, normalizers.Replace(" ", _SPACE)]


def _pre_tokenizer(
    model: SentencePiece, pieces: Sequence[Piece], settings: Mapping[str, Any]
) -> Any:
    """Cuts that change no result: at spaces, unless pieces reach over them, and around pieces of
    the user's own, which are always whole."""
    parts: list[Any] = []
    if settings.get("split_by_punct"):
        parts.append(pre_tokenizers.Punctuation(behavior="isolated"))
    normal = (piece.text for piece in pieces if piece.kind == Kind.NORMAL)
    if not any(_SPACE in text[1:] for text in normal):
        parts.append(pre_tokenizers.Metaspace(_SPACE, prepend_scheme="never", split=True))
    own = [piece.text for piece in pieces if piece.kind == Kind.USER_DEFINED]
    if own:
        longest_first = sorted(map(re.escape, own), key=len, reverse=True)
        parts.append(pre_tokenizers.Split(Regex("|".join(longest_first)), "isolated"))
    return pre_tokenizers.Sequence(parts)


def _decoder(model: SentencePiece) -> Any:
    parts: list[Any] = [decoders.Replace(_SPACE, " ")]
    if model.byte_fallback:
        parts.append(decoders.ByteFallback())
    parts.append(decoders.Fuse())
    if model.add_prefix:
        parts.append(decoders.Strip(" ", 1, 0))
    return decoders.Sequence(parts)


def _extra(family: _Family, settings: Mapping[str, Any]) -> list[str]:
    """T5's sentinels, whose ids go down; they may be in the model file already."""
    if family.around != "t5":
        return []
    count = settings.get("extra_ids", 100)
    if type(count) is not int or not 0 <= count <= 1000:
        raise ModelLoadError(f"tokenizer_config.json: extra_ids {count!r} is not from 0 to 1000.")
    return [f"<extra_id_{index}>" for index in reversed(range(count))]


def _put_around(
    path: Path,
    backend: Backend,
    family: _Family,
    settings: Mapping[str, Any],
    special: Mapping[str, str],
) -> None:
    """Special tokens before and after texts."""
    if family.around == "llama":
        first = special["bos"] if settings.get("add_bos_token", True) else ""
        last = special["eos"] if settings.get("add_eos_token", False) else ""
        single, pair = f"{first} $A {last}", f"{first} $A {last} {first}:1 $B:1 {last}:1"
        pair = pair.replace(" :1", "")
    elif family.around == "t5":
        last = special["eos"]
        single, pair = f"$A {last}", f"$A {last} $B {last}"
    elif family.around == "xlm":
        first, last = special["cls"], special["sep"]
        single, pair = f"{first} $A {last}", f"{first} $A {last} {last} $B {last}"
    else:
        first, last = special["cls"], special["sep"]
        single, pair = f"{first} $A {last}", f"{first} $A {last} $B:1 {last}:1"
    used = {token: backend.token_to_id(token) for token in special.values() if token in pair}
    absent = [token for token, token_id in used.items() if token_id is None]
    if absent:
        raise ModelLoadError(f"{path} lacks the special tokens {absent}.")
    backend.post_processor = processors.TemplateProcessing(
        single=single.split(), pair=pair.split(), special_tokens=list(used.items())
    )
