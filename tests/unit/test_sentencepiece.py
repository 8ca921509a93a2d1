"""Tokenizers of SentencePiece's model files cut as SentencePiece does, with each family's ids."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import pytest
import sentencepiece
import transformers
from tokenizers import Tokenizer as Backend

from cenote.errors import ModelLoadError
from cenote.loader.tokenizer_files import read_vocabulary

# No tables: runs of equal signs have several cuts of the same score.
CORPUS = [
    line
    for name in ("assert", "class", "debugger", "import", "typesmapping", "with")
    for line in topics[name].splitlines()
    if line.strip() and "---" not in line and "===" not in line
]
BERT = {"pad_piece": "[PAD]", "bos_piece": "[CLS]", "eos_piece": "[SEP]", "unk_piece": "[UNK]"}
GEMMA = {"pad_piece": "<pad>", "eos_piece": "<eos>", "bos_piece": "<bos>"}
RAW = {
    "model_type": "bpe",
    "byte_fallback": True,
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
}
# Family → file, how it is trained, its tokenizer_config.json.
FAMILIES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "XLMRoberta": ("sentencepiece.bpe.model", {}, {}),
    "Camembert": ("sentencepiece.bpe.model", {}, {}),
    "Albert": (
        "spiece.model",
        {
            **{"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1},
            "control_symbols": ["[CLS]", "[SEP]"],
            "user_defined_symbols": ["[MASK]", "(", ")"],
        },
        {"do_lower_case": False, "keep_accents": True},
    ),
    "DebertaV2": ("spm.model", {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3, **BERT}, {}),
    "T5": ("spiece.model", {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}, {}),
    "Llama": ("tokenizer.model", {**RAW, "allow_whitespace_only_pieces": True}, {}),
    "Gemma": (
        "tokenizer.model",
        {
            **{**RAW, "add_dummy_prefix": False, **GEMMA},
            **{"pad_id": 0, "eos_id": 1, "bos_id": 2, "unk_id": 3},
            "user_defined_symbols": ["<unused0>", "\n\n"],
        },
        {},
    ),
}
# How many ids fairseq's families are ahead of the file's.
SHIFTS = {"XLMRoberta": 1, "Camembert": 4}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("sentencepiece")
    for family, (file, options, settings) in FAMILIES.items():
        (root / family).mkdir()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(CORPUS),
            model_prefix=str(root / "made"),
            vocab_size=450,
            minloglevel=2,
            **options,
        )
        (root / "made.model").rename(root / family / file)
        own = {"tokenizer_class": f"{family}Tokenizer", **settings}
        (root / family / "tokenizer_config.json").write_text(json.dumps(own))
    return {family: root / family for family in FAMILIES}


def texts(count: int) -> list[str]:
    """Parts of the corpus, and signs of many kinds."""
    chosen, signs = random.Random(0), "abcdefgh ABC  .,()1234\n\té漢字😀ﬁ½-'\"_▁ Å"
    found = ["", " ", "\n", "▁", " two  spaces ", "é", "漢字 and 漢字"]
    for _ in range(count):
        line = chosen.choice(CORPUS)
        start = chosen.randrange(len(line))
        found += [
            line[start : start + chosen.randint(1, 60)],
            "".join(chosen.choice(signs) for _ in range(chosen.randint(1, 40))),
        ]
    # Left out: what ALBERT's normalizer or its rule for commas changes, and special tokens.
    return [text for text in found if not re.search(r"``|''|<|[0-9],", text)]


def are_alike(
    reference: sentencepiece.SentencePieceProcessor, own: list[int], ids: list[int]
) -> bool:
    """The same cut, or one of the same score: "000" may be "00" and "0", or "0" and "00"."""
    scores = [sum(map(reference.get_score, cut)) for cut in (own, ids)]
    return own == ids or (sorted(own) == sorted(ids) and scores[0] == pytest.approx(scores[1]))


@pytest.mark.parametrize("family", FAMILIES)
def test_texts_are_cut_as_sentencepiece_cuts_them(family: str, folders: dict[str, Path]) -> None:
    (path,) = folders[family].glob("*.model")
    reference = sentencepiece.SentencePieceProcessor(model_file=str(path))
    backend, shift = read_vocabulary(folders[family]), SHIFTS.get(family, 0)
    unknown = reference.unk_id()
    ties = 0
    for text in texts(300):
        ids = reference.encode(text)
        own = [
            unknown if shift and token == 3 else token - shift
            for token in backend.encode(text, add_special_tokens=False).ids
        ]
        assert are_alike(reference, own, ids), repr(text)
        ties += own != ids
    assert ties <= 5


@pytest.mark.parametrize("family", ["XLMRoberta", "Camembert", "T5"])
def test_ids_are_those_of_transformers(family: str, folders: dict[str, Path]) -> None:
    reference = getattr(transformers, f"{family}Tokenizer").from_pretrained(folders[family])
    backend = read_vocabulary(folders[family])
    assert backend.get_vocab_size() == len(reference)
    for text in texts(100):
        assert backend.encode(text).ids == reference(text)["input_ids"], repr(text)
    pair = "where is it?", "in the cave"
    assert backend.encode(*pair).ids == reference(*pair)["input_ids"]


@pytest.mark.parametrize(
    ("family", "single", "pair", "types"),
    [
        ("XLMRoberta", "<s> ▁a </s>", "<s> ▁a </s> </s> ▁a </s>", [0] * 6),
        ("DebertaV2", "[CLS] ▁a [SEP]", "[CLS] ▁a [SEP] ▁a [SEP]", [0, 0, 0, 1, 1]),
        ("T5", "▁a </s>", "▁a </s> ▁a </s>", [0] * 4),
        ("Llama", "<s> ▁a", "<s> ▁a <s> ▁a", [0, 0, 1, 1]),
        ("Gemma", "<bos> a", "<bos> a <bos> a", [0, 0, 1, 1]),
    ],
)
def test_special_tokens_stand_around_texts_and_pairs(
    family: str, single: str, pair: str, types: list[int], folders: dict[str, Path]
) -> None:
    backend = read_vocabulary(folders[family])
    assert backend.encode("a").tokens == single.split()
    both = backend.encode("a", "a")
    assert (both.tokens, both.type_ids) == (pair.split(), types)


def test_settings_of_the_folder_are_followed(folders: dict[str, Path], tmp_path: Path) -> None:
    settings = {"add_bos_token": False, "add_eos_token": True}
    assert _changed(folders["Llama"], tmp_path, **settings).encode("a").tokens == ["▁a", "</s>"]
    (tmp_path / "tokenizer_config.json").unlink()
    (tmp_path / "config.json").write_text('{"model_type": "mistral"}')
    assert read_vocabulary(tmp_path).encode("a").tokens == ["<s>", "▁a"]


def test_added_tokens_have_the_ids_that_the_folder_gives(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    """DeBERTa v3's mask is not in its model file."""
    (tmp_path / "added_tokens.json").write_text('{"[MASK]": 450}')
    backend = _changed(folders["DebertaV2"], tmp_path)
    assert backend.encode("a [MASK]").ids[-2] == 450
    (tmp_path / "added_tokens.json").write_text('{"[MASK]": 128000}')
    with pytest.raises(ModelLoadError, match="has id 128000, but in the vocabulary it is 450"):
        read_vocabulary(tmp_path)


def test_alberts_own_cleaning(folders: dict[str, Path], tmp_path: Path) -> None:
    cleaned = _changed(folders["Albert"], tmp_path, do_lower_case=True, keep_accents=False)
    assert cleaned.encode("``Náme'' ").ids == cleaned.encode('"name"').ids


def test_special_tokens_places_and_texts_come_back(folders: dict[str, Path]) -> None:
    backend = read_vocabulary(folders["XLMRoberta"])
    found = backend.encode("the <mask> class", add_special_tokens=False)
    assert found.ids[1] == backend.get_vocab_size() - 1
    spans = ["the <mask> class"[start:end].strip() for start, end in found.offsets]
    assert "".join(spans) == "the<mask>class"
    for family in ("XLMRoberta", "Llama", "Gemma"):
        backend = read_vocabulary(folders[family])
        assert backend.decode(backend.encode("the engine runs").ids) == "the engine runs"


def _changed(folder: Path, target: Path, **settings: Any) -> Backend:
    for path in folder.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    own = json.loads((folder / "tokenizer_config.json").read_text())
    (target / "tokenizer_config.json").write_text(json.dumps({**own, **settings}))
    return read_vocabulary(target)


@pytest.mark.parametrize(
    ("family", "change", "message"),
    [
        ("Llama", {"tokenizer_class": "XLNetTokenizer"}, "'XLNetTokenizer' uses a SentencePiece"),
        ("Llama", {"unk_token": "[none]"}, r"no piece '\[none\]'"),
        ("T5", {"extra_ids": -1}, "extra_ids -1"),
    ],
)
def test_what_is_not_known_is_refused_by_name(
    family: str, change: dict[str, Any], message: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(ModelLoadError, match=message):
        _changed(folders[family], tmp_path, **change)


def test_other_algorithms_are_refused(tmp_path: Path) -> None:
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS),
        model_prefix=str(tmp_path / "made"),
        model_type="char",
        minloglevel=2,
    )
    (tmp_path / "made.model").rename(tmp_path / "spiece.model")
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    with pytest.raises(ModelLoadError, match=r"model_type \(char\) is not supported"):
        read_vocabulary(tmp_path)


@pytest.mark.parametrize("seed", range(40))
def test_a_broken_file_is_refused(seed: int, folders: dict[str, Path], tmp_path: Path) -> None:
    chosen = random.Random(seed)
    raw = bytearray((folders["T5"] / "spiece.model").read_bytes())
    if seed % 2:
        raw = raw[: chosen.randrange(len(raw))]
    else:
        for _ in range(seed):
            raw[chosen.randrange(len(raw))] = chosen.randrange(256)
    (tmp_path / "spiece.model").write_bytes(raw)
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    try:
        read_vocabulary(tmp_path).encode("how does it work?")
        message = str(tmp_path / "spiece.model")
    except ModelLoadError as error:
        message = error.message
    assert "spiece.model" in message
