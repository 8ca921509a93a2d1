"""Builds the tokenizer of a model folder, with its own truncation and padding switched off.

`tokenizer.json` where there is one; otherwise the older files: `vocab.txt` (BERT, MPNet), or
`vocab.json` with `merges.txt` (RoBERTa, DeBERTa), or SentencePiece's model file. It encodes
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tokenizers import AddedToken, Regex, decoders, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE, WordPiece

from cenote.config.files import read_object
from cenote.config.pooling import PoolerConfig
from cenote.errors import ModelLoadError
from cenote.loader.added_tokens import add_listed_tokens
from cenote.loader.sentencepiece_tokenizer import FILES, REMEDY, from_sentencepiece
from cenote.loader.special_tokens import BERT, ROBERTA

_ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")

_GPT2_END = "<|endoftext|>"
# How Qwen2 cuts a text ahead of its merges: each digit stands alone.
_QWEN2_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """What a folder says about its tokenizer. `special` is role (`mask`, `pad`…) → token text."""

    backend: Backend
    special: Mapping[str, str]
    truncation_side: Literal["left", "right"]
    input_names: tuple[str, ...] | None


def load_tokenizer_files(folder: Path, pooler: PoolerConfig) -> TokenizerFiles:
    """Reads the tokenizer of `folder`. `pooler.do_lower_case` lower-cases ahead of the tokenizer's
    own normaliser; `pooler.append_eos` puts EOS after texts. Raises `ModelLoadError`."""
    settings = read_object(folder / "tokenizer_config.json")
    special = _special_tokens(folder, settings)
    backend = _backend(folder, settings, special)
    # A file may carry the settings of whoever saved it: all-MiniLM-L6-v2 cuts and pads to 128.
    backend.no_truncation()
    backend.no_padding()
    if pooler.do_lower_case:
        _lower_case(backend)
    if pooler.append_eos:
        _append_eos(backend, special.get("eos", ""))
    side = settings.get("truncation_side", "right")
    if side not in ("left", "right"):
        raise ModelLoadError(f"tokenizer_config.json: truncation_side {side!r} is unknown.")
    _try(folder, backend)
    names = settings.get("model_input_names") or None
    if not isinstance(names, list | None):
        raise ModelLoadError(f"tokenizer_config.json: model_input_names {names!r} is not a list.")
    return TokenizerFiles(backend, special, side, None if names is None else tuple(names))


def _try(folder: Path, backend: Backend) -> None:
    """Raises `ModelLoadError` for a tokenizer that was read, but breaks on a text."""
    try:
        backend.encode("a", "b")
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of the library is no Exception
        raise ModelLoadError(f"{folder}: its tokenizer can't encode a text: {error}") from None


def read_vocabulary(folder: Path) -> Backend:
    """The tokenizer of `folder`, to look tokens up in. Raises `ModelLoadError`."""
    settings = read_object(folder / "tokenizer_config.json")
    return _backend(folder, settings, _special_tokens(folder, settings))


def _backend(folder: Path, settings: Mapping[str, Any], special: dict[str, str]) -> Backend:
    """From the first of the files that is there. `special` gets the roles that follow from it."""
    if (folder / "tokenizer.json").is_file():
        return _from_json(folder / "tokenizer.json")
    if (folder / "vocab.txt").is_file():
        return _from_vocabulary(folder / "vocab.txt", settings, special)
    if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        return _from_merges(folder, settings, special)
    for name in FILES:
        if (folder / name).is_file():
            model_type = str(read_object(folder / "config.json").get("model_type"))
            return from_sentencepiece(folder / name, model_type, settings, special)
    raise ModelLoadError(
        f"{folder} has no tokenizer: neither tokenizer.json nor vocab.txt, vocab.json with "
        f"merges.txt, or one of {', '.join(FILES)}. {REMEDY}"
    )


def _from_json(path: Path) -> Backend:
    try:
        return Backend.from_file(str(path))
    except Exception as error:  # the library raises plain Exception
        raise ModelLoadError(f"{path} is not a tokenizer: {error}") from error


def _from_vocabulary(
    path: Path, settings: Mapping[str, Any], special: Mapping[str, str]
) -> Backend:
    """A BERT tokenizer (Devlin et al. 2019): lower case unless the settings say otherwise."""
    tokens = {**BERT, **special}
    try:
        vocabulary = WordPiece.read_file(str(path))
    except Exception as error:  # the library raises plain Exception
        raise ModelLoadError(f"{path} is not a vocabulary: {error}") from error
    backend = Backend(WordPiece(vocabulary, unk_token=tokens["unk"]))
    backend.normalizer = normalizers.BertNormalizer(
        lowercase=bool(settings.get("do_lower_case", True)),
        handle_chinese_chars=bool(settings.get("tokenize_chinese_chars", True)),
        strip_accents=settings.get("strip_accents"),
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    add_listed_tokens(backend, path.parent, settings)
    _add_special_tokens(backend, tokens, path)
    return backend


def _from_merges(folder: Path, settings: Mapping[str, Any], special: dict[str, str]) -> Backend:
    """A byte-level BPE tokenizer (Radford et al. 2019): with RoBERTa's or BERT's special tokens
    around texts, or with none in a vocabulary that has neither (GPT-2, Qwen2)."""
    try:
        vocabulary, merges = BPE.read_file(str(folder / "vocab.json"), str(folder / "merges.txt"))
        backend = Backend(BPE(vocabulary, merges))
    except Exception as error:  # the library raises plain Exception
        raise ModelLoadError(f"{folder}: vocab.json or merges.txt is broken: {error}") from error
    prefix = bool(settings.get("add_prefix_space", False))
    if str(settings.get("tokenizer_class")).startswith("Qwen2"):
        backend.normalizer = normalizers.NFC()
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(_QWEN2_WORDS), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=False),
            ]
        )
    else:
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    backend.decoder = decoders.ByteLevel()
    add_listed_tokens(backend, folder, settings)
    if vocabulary.keys().isdisjoint((ROBERTA["cls"], BERT["cls"], special.get("cls"))):
        for role in ("bos", "eos", "unk"):
            special.setdefault(role, _GPT2_END)
        known = [token for token in special.values() if backend.token_to_id(token) is not None]
        backend.add_special_tokens([AddedToken(token, normalized=False) for token in known])
        return backend
    tokens = {**(ROBERTA if ROBERTA["cls"] in vocabulary else BERT), **special}
    _add_special_tokens(backend, tokens, folder / "vocab.json", prefix=prefix)
    return backend


def _add_special_tokens(
    backend: Backend, tokens: Mapping[str, str], path: Path, *, prefix: bool = False
) -> None:
    """Makes tokens whole, and puts them around texts: as RoBERTa does (two separators in a pair,
    a mask that takes the space before it) if the first one is `<s>`, else as BERT does."""
    vocabulary = backend.get_vocab(with_added_tokens=False)
    absent = [tokens[role] for role in ("cls", "sep", "unk") if tokens[role] not in vocabulary]
    if absent:
        raise ModelLoadError(f"{path} lacks the special tokens {absent}.")
    roberta = tokens["cls"] == ROBERTA["cls"]
    backend.add_special_tokens(
        [
            AddedToken(token, lstrip=roberta and role == "mask", normalized=False)
            for role, token in tokens.items()
            if token in vocabulary
        ]
    )
    first, last = ((tokens[role], vocabulary[tokens[role]]) for role in ("cls", "sep"))
    if roberta:
        backend.post_processor = processors.RobertaProcessing(
            last, first, trim_offsets=True, add_prefix_space=prefix
        )
        return
    backend.post_processor = processors.TemplateProcessing(
        single=f"{first[0]}:0 $A:0 {last[0]}:0",
        pair=f"{first[0]}:0 $A:0 {last[0]}:0 $B:1 {last[0]}:1",
        special_tokens=[first, last],
    )


def _append_eos(backend: Backend, token: str) -> None:
    """Puts EOS after every text, where the file doesn't. Raises `ModelLoadError` without EOS."""
    token_id = backend.token_to_id(token)
    if token_id is None:
        raise ModelLoadError("The model ends texts with EOS, but its tokenizer has no eos_token.")
    if backend.encode("").ids[-1:] == [token_id]:
        return
    last = processors.TemplateProcessing(
        single=f"$A {token}", pair=f"$A $B {token}", special_tokens=[(token, token_id)]
    )
    before = backend.post_processor
    backend.post_processor = last if before is None else processors.Sequence([before, last])


def _special_tokens(folder: Path, settings: Mapping[str, Any]) -> dict[str, str]:
    """Special tokens by role; a token is a string, or an object with its `content`."""
    found: dict[str, str] = {}
    for source in (read_object(folder / "special_tokens_map.json"), settings):
        for role in _ROLES:
            value = source.get(f"{role}_token")
            text = value.get("content") if isinstance(value, Mapping) else value
            if isinstance(text, str):
                found[role] = text
    return found


def _lower_case(backend: Backend) -> None:
    own = backend.normalizer
    parts = [own] if own is not None else []
    backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), *parts])
