"""The tokenizer gives the reference's tokens, cut the reference's way, and refuses bad ids."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, processors, trainers

from cenote.config.engine import EngineConfig
from cenote.config.model import load_model_config
from cenote.errors import InputTooLong, InvalidRequest, ModelLoadError
from cenote.loader.tokenizer_files import read_vocabulary
from cenote.params import TruncationSide
from cenote.processors.tokenizer import Encoded, Tokenizer

Strategy = Literal["longest_first", "only_second"]

WORDS = st.sampled_from(
    ["cenote", "Yucatán", "hydrology", "日本語", "😀", "don't", "[SEP]", "a", "\x00b", "ﬁ", "É"]
)
TEXTS = st.lists(WORDS, max_size=30).map(" ".join) | st.text(max_size=60)
SIDES: st.SearchStrategy[TruncationSide] = st.sampled_from(["left", "right"])


def load(folder: Path, **engine: Any) -> Tokenizer:
    config = load_model_config(folder, name="test", revision="local", engine=EngineConfig(**engine))
    return Tokenizer(folder, config)


@pytest.fixture(scope="module")
def tokenizer(minilm_path: Path) -> Tokenizer:
    return load(minilm_path)


@pytest.fixture(scope="module")
def byte_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-level tokenizer with RoBERTa's pairs (`<s> a </s></s> b </s>`), cut on the left."""
    folder = tmp_path_factory.mktemp("byte_level")
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(["the cenote holds the water of the aquifer"] * 4, trainer)
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    backend.enable_truncation(7)
    backend.enable_padding(length=9)
    backend.save(str(folder / "tokenizer.json"))
    settings_file = {
        "truncation_side": "left",
        "tokenizer_class": "PreTrainedTokenizerFast",
        "mask_token": {"__type": "AddedToken", "content": "<mask>"},
        "eos_token": "</s>",
        "cls_token": "<s>",
        "model_input_names": ["input_ids", "attention_mask"],
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings_file))
    config = {
        "architectures": ["RobertaModel"],
        "model_type": "roberta",
        "vocab_size": 400,
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "type_vocab_size": 2,
        "max_position_embeddings": 66,
        "pad_token_id": 1,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


Reference = Callable[..., dict[str, list[Any]]]


def reference_of(folder: Path) -> Reference:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)

    def encode(
        texts: list[str],
        pairs: list[str] | None,
        *,
        special: bool,
        limit: int | None,
        side: str | None,
        strategy: str = "longest_first",
    ) -> dict[str, list[Any]]:
        if side is not None:
            tokenizer.truncation_side = side
        found = tokenizer(
            texts,
            pairs,
            add_special_tokens=special,
            truncation=strategy if limit is not None else False,
            max_length=limit,
            padding=False,
            return_token_type_ids=True,
            return_offsets_mapping=True,
        )
        return dict(found)

    return encode


@pytest.fixture(scope="module")
def reference(minilm_path: Path) -> Reference:
    return reference_of(minilm_path)


@pytest.fixture(scope="module")
def byte_tokenizer(byte_folder: Path) -> Tokenizer:
    return load(byte_folder)


@pytest.fixture(scope="module")
def byte_reference(byte_folder: Path) -> Reference:
    return reference_of(byte_folder)


def assert_same(ours: list[Encoded], theirs: dict[str, list[Any]]) -> None:
    assert [item.ids for item in ours] == theirs["input_ids"]
    assert [item.type_ids for item in ours] == theirs["token_type_ids"]
    assert [item.offsets for item in ours] == theirs["offset_mapping"]


@settings(max_examples=120, deadline=None)
@given(
    texts=st.lists(TEXTS, min_size=1, max_size=4),
    special=st.booleans(),
    limit=st.none() | st.integers(3, 40),
    side=SIDES,
)
def test_single_texts_are_the_references(
    tokenizer: Tokenizer,
    reference: Reference,
    texts: list[str],
    special: bool,
    limit: int | None,
    side: TruncationSide,
) -> None:
    ours = tokenizer.encode(texts, add_special_tokens=special, max_tokens=limit, side=side)
    assert_same(ours, reference(texts, None, special=special, limit=limit, side=side))
    whole = tokenizer.encode(texts, add_special_tokens=special)
    for cut, full in zip(ours, whole, strict=True):
        assert cut.num_tokens_before_cut == len(full.ids)
        assert cut.truncated == (len(cut.ids) < len(full.ids))


@settings(max_examples=120, deadline=None)
@given(
    pairs=st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=4),
    limit=st.none() | st.integers(3, 50),
    side=SIDES,
)
def test_pairs_are_the_references(
    tokenizer: Tokenizer,
    reference: Reference,
    pairs: list[tuple[str, str]],
    limit: int | None,
    side: TruncationSide,
) -> None:
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    ours = tokenizer.encode(first, pairs=second, max_tokens=limit, side=side)
    assert_same(ours, reference(first, second, special=True, limit=limit, side=side))


@settings(max_examples=60, deadline=None)
@given(
    pairs=st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=3),
    limit=st.none() | st.integers(4, 50),
    side=SIDES,
)
def test_roberta_pairs_are_the_references(
    byte_tokenizer: Tokenizer,
    byte_reference: Reference,
    pairs: list[tuple[str, str]],
    limit: int | None,
    side: TruncationSide,
) -> None:
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    ours = byte_tokenizer.encode(first, pairs=second, max_tokens=limit, side=side)
    theirs = byte_reference(first, second, special=True, limit=limit, side=side)
    # Offsets aside: the reference's lose the trimmed space of a token that a left cut makes first.
    assert [item.ids for item in ours] == theirs["input_ids"]
    assert [item.type_ids for item in ours] == theirs["token_type_ids"]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("limit", range(14, 24))
def test_only_second_keeps_the_first_text(
    tokenizer: Tokenizer, reference: Reference, side: TruncationSide, limit: int
) -> None:
    first, second = ["one two three four five six seven eight nine ten"], ["eleven twelve " * 5]
    ours = tokenizer.encode(
        first, pairs=second, max_tokens=limit, side=side, strategy="only_second"
    )
    theirs = reference(first, second, special=True, limit=limit, side=side, strategy="only_second")
    assert_same(ours, theirs)


def test_only_second_refuses_a_first_text_that_does_not_fit(tokenizer: Tokenizer) -> None:
    with pytest.raises(InvalidRequest, match="no room for the second"):
        tokenizer.encode(["one " * 20], pairs=["two"], max_tokens=10, strategy="only_second")


@pytest.mark.parametrize("length", [1, 253, 254, 255, 256, 257, 510, 512, 600])
def test_lengths_around_the_limits(tokenizer: Tokenizer, reference: Reference, length: int) -> None:
    texts = ["word " * length]
    for limit in (128, 256, 512):
        ours = tokenizer.encode(texts, max_tokens=limit)
        assert_same(ours, reference(texts, None, special=True, limit=limit, side="right"))
        assert ours[0].truncated == (length + 2 > limit)
    assert len(tokenizer.encode(texts)[0].ids) == length + 2


def test_the_files_own_truncation_and_padding_are_off(byte_folder: Path) -> None:
    tokenizer = load(byte_folder)
    short, long = tokenizer.encode(["the", "the cenote holds the water of the aquifer " * 4])
    assert len(short.ids) < 9
    assert len(long.ids) > 30


def test_side_comes_from_the_folder_unless_the_request_says_it(byte_folder: Path) -> None:
    tokenizer = load(byte_folder)
    whole = tokenizer.encode(["the cenote holds the water"])[0].ids
    default = tokenizer.encode(["the cenote holds the water"], max_tokens=5)[0].ids
    right = tokenizer.encode(["the cenote holds the water"], max_tokens=5, side="right")[0].ids
    assert default == [whole[0], *whole[-4:-1], whole[-1]]
    assert right == [*whole[:4], whole[-1]]


def test_token_types_are_used_only_where_the_model_takes_them(
    tokenizer: Tokenizer, byte_folder: Path
) -> None:
    assert tokenizer.uses_token_types
    assert not load(byte_folder).uses_token_types


def test_without_offsets_all_else_is_the_same(tokenizer: Tokenizer) -> None:
    texts = ["Hello, cenote! 😀", "", "x " * 300]
    fast = tokenizer.encode(texts, max_tokens=20, offsets=False)
    slow = tokenizer.encode(texts, max_tokens=20)
    assert [item.ids for item in fast] == [item.ids for item in slow]
    assert all(item.offsets == [] for item in fast)


def test_offsets_are_characters_of_the_callers_text(tokenizer: Tokenizer) -> None:
    text = "😀 ÉCOLE  日本"
    (item,) = tokenizer.encode([text])
    pieces = [text[start:end] for start, end in item.offsets]
    assert pieces == ["", "😀", "ÉCOLE", "日", "本", ""]


def test_empty_text_has_special_tokens_or_none(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode([""])[0].ids == [101, 102]
    assert tokenizer.encode([""], add_special_tokens=False)[0].ids == []


def test_limit_below_the_special_tokens_is_refused(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode(["hello"], max_tokens=2)[0].ids == [101, 102]
    with pytest.raises(InvalidRequest, match="special tokens alone take 2") as caught:
        tokenizer.encode(["hello"], max_tokens=1)
    assert caught.value.param == "truncate_prompt_tokens"
    with pytest.raises(InvalidRequest, match="take 3"):
        tokenizer.encode(["hello"], pairs=["you"], max_tokens=2)


BLANKS = st.sampled_from([" ", "  ", "\n", "\t", "", " \n ", "\u3000"])
LONG_TEXTS = st.lists(st.tuples(WORDS, BLANKS), min_size=1, max_size=12).flatmap(
    lambda parts: st.integers(1, 200).map(lambda n: "".join(a + b for a, b in parts) * n)
)


@settings(max_examples=150, deadline=None)
@given(texts=st.lists(LONG_TEXTS, min_size=1, max_size=3), limit=st.integers(3, 150))
def test_beginnings_give_what_whole_texts_give(
    tokenizer: Tokenizer, byte_tokenizer: Tokenizer, texts: list[str], limit: int
) -> None:
    for one in (tokenizer, byte_tokenizer):
        whole = one.encode(texts)
        for cut, full in zip(one.encode(texts, max_tokens=limit, side="right"), whole, strict=True):
            fits = len(full.ids) <= limit
            assert cut.ids == (full.ids if fits else [*full.ids[: limit - 1], full.ids[-1]])
            assert cut.truncated != fits
            assert len(cut.ids) <= cut.num_tokens_before_cut <= len(full.ids)


@settings(max_examples=100, deadline=None)
@given(
    pairs=st.lists(st.tuples(LONG_TEXTS | TEXTS, LONG_TEXTS), min_size=1, max_size=2),
    limit=st.integers(4, 150),
)
def test_beginnings_of_pairs_are_the_references(
    tokenizer: Tokenizer, reference: Reference, pairs: list[tuple[str, str]], limit: int
) -> None:
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    ours = tokenizer.encode(first, pairs=second, max_tokens=limit, side="right")
    assert_same(ours, reference(first, second, special=True, limit=limit, side="right"))


def test_only_a_beginning_is_encoded(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    run = Tokenizer._run

    def noting(self: Tokenizer, inputs: Any, **options: Any) -> Any:
        sizes.extend(len(one) if isinstance(one, str) else len(one[1]) for one in inputs)
        return run(self, inputs, **options)

    monkeypatch.setattr(Tokenizer, "_run", noting)
    text = "The cenote holds clear water. " * 400
    tokenizer.encode([text, "short"], max_tokens=256)
    tokenizer.encode(["a question"], pairs=[text], max_tokens=256)
    assert max(sizes) <= 2048
    sizes.clear()
    sparse = "incomprehensibilities " * 400  # longer words than most: all is encoded after all
    tokenizer.encode([sparse, text], max_tokens=256)
    assert sizes[2:] in ([], [len(sparse)])


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_very_long_text_is_cut_as_a_whole_one(tokenizer: Tokenizer, side: TruncationSide) -> None:
    head, tail = "alpha beta Gamma! " * 8000, "omega psi, chi? " * 8000
    (item,) = tokenizer.encode([head + tail], max_tokens=100, side=side)
    (near,) = tokenizer.encode([head if side == "right" else tail], max_tokens=100, side=side)
    assert item.ids == near.ids
    assert item.truncated
    shift = 0 if side == "right" else len(head)
    assert item.offsets[1:-1] == [(a + shift, b + shift) for a, b in near.offsets[1:-1]]
    assert item.num_tokens_before_cut > 100


def test_long_text_of_few_tokens_is_not_taken_for_many(tokenizer: Tokenizer) -> None:
    text = "hello" + " " * 300_000 + "world"
    expected = [101, 7592, 2088, 102]
    assert tokenizer.encode([text], refuse_over=8)[0].ids == expected
    assert tokenizer.encode([text], max_tokens=8)[0].ids == expected
    assert tokenizer.encode([text], max_tokens=3, side="left")[0].ids == [101, 2088, 102]
    unknown = "x" * 300_000  # one [UNK]
    assert tokenizer.encode([unknown], refuse_over=8)[0].ids == [101, 100, 102]


def test_hopelessly_long_text_is_refused_early(tokenizer: Tokenizer) -> None:
    with pytest.raises(InputTooLong, match="at least") as caught:
        tokenizer.encode(["ok", "word " * 200_000], refuse_over=256, param="documents")
    assert caught.value.param == "documents"
    assert 512 < caught.value.length < 200_000
    assert len(tokenizer.encode(["word " * 300], refuse_over=256)[0].ids) == 302


def test_token_ids_are_fed_as_they_are(tokenizer: Tokenizer) -> None:
    ids = [5, 30521, 0, 7]
    assert tokenizer.check_ids(ids).ids == ids
    assert tokenizer.check_ids(ids, max_tokens=3).ids == [5, 30521, 0]
    left = tokenizer.check_ids(ids, max_tokens=3, side="left")
    assert (left.ids, left.truncated, left.num_tokens_before_cut) == ([30521, 0, 7], True, 4)
    assert tokenizer.check_ids([], max_tokens=3).ids == []


@pytest.mark.parametrize("bad", [-1, 30522, 1.0, "1", None, True])
def test_bad_token_id_is_refused_with_its_value(tokenizer: Tokenizer, bad: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        tokenizer.check_ids([101, bad], param="prompt")
    assert repr(bad) in caught.value.message
    assert caught.value.param == "prompt"


def test_token_that_the_model_has_no_row_for_is_refused(
    minilm_path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copy(minilm_path / "tokenizer.json", tmp_path)
    config = json.loads((minilm_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "vocab_size": 5000}))
    tokenizer = load(tmp_path)
    assert "30522 tokens, the model embeds 5000" in caplog.text
    assert tokenizer.encode(["the"])[0].ids == [101, 1996, 102]
    with pytest.raises(InvalidRequest, match=r"7592 \('hello'\) is out of range"):
        tokenizer.encode(["hello"])


def test_tokens_decode_and_special_ids(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(["hydrology!"])[0].ids
    assert tokenizer.tokens(ids) == ["[CLS]", "hydro", "##logy", "!", "[SEP]"]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "hydrology!"
    assert tokenizer.mask_token_id == tokenizer.token_to_id("[MASK]") == 103
    assert tokenizer.special_ids == {0, 100, 101, 102, 103}
    assert (tokenizer.num_special_tokens(), tokenizer.num_special_tokens(True)) == (2, 3)
    assert tokenizer.token_to_id("no such token") is None
    for token_id in (99999, -1, 2**32, 2**64, -(2**64)):
        with pytest.raises(InvalidRequest, match=f"{token_id} is out of range"):
            tokenizer.decode([token_id])


def test_special_tokens_may_be_objects(byte_folder: Path) -> None:
    tokenizer = load(byte_folder)
    assert (tokenizer.mask_token_id, tokenizer.eos_token_id) == (4, 2)


def test_vocabulary_file_alone_gives_the_same_tokens(
    minilm_path: Path, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    for name in ("vocab.txt", "config.json", "tokenizer_config.json"):
        shutil.copy(minilm_path / name, tmp_path)
    own = load(tmp_path)
    texts = ["Héllo [MASK] 日本 😀 don't", "", "x" * 200]
    assert own.encode(texts) == tokenizer.encode(texts)
    assert own.encode(texts, pairs=texts) == tokenizer.encode(texts, pairs=texts)
    ids = own.encode(texts)[0].ids
    assert own.decode(ids) == tokenizer.decode(ids)
    assert own.special_ids == tokenizer.special_ids


@pytest.mark.parametrize("family", ["GPT2", "Qwen2"])
def test_byte_level_merges_without_tokens_around_texts(
    family: str, byte_folder: Path, tmp_path: Path
) -> None:
    model = json.loads((byte_folder / "tokenizer.json").read_text())["model"]
    vocabulary = {token: index for token, index in model["vocab"].items() if token[0] != "<"}
    ids = {token: index for index, token in enumerate([*vocabulary, "<|endoftext|>"])}
    (tmp_path / "vocab.json").write_text(json.dumps(ids))
    pairs = (" ".join(pair) if isinstance(pair, list) else pair for pair in model["merges"])
    (tmp_path / "merges.txt").write_text("\n".join(["#version: 0.2", *pairs]))
    added = {str(len(ids)): {"content": "<|im_start|>", "special": True, "normalized": False}}
    own = {"tokenizer_class": f"{family}Tokenizer", "added_tokens_decoder": added}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(own))
    backend = read_vocabulary(tmp_path)
    reference = getattr(transformers, f"{family}Tokenizer").from_pretrained(tmp_path)
    texts = ["the water don't 1234 hold", " é e\u0301 \n\n x", "<|im_start|>a<|endoftext|>", "日本"]
    for text in texts:
        assert backend.encode(text).ids == reference(text)["input_ids"], text
    assert backend.encode("a", "a").ids == 2 * backend.encode("a").ids
    wrong = {**own, "added_tokens_decoder": {"7000": {"content": "<|im_end|>"}}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(wrong))
    with pytest.raises(ModelLoadError, match=r"'<\|im_end\|>' has id 7000"):
        read_vocabulary(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"added_tokens_decoder": {"a": {}}}')
    with pytest.raises(ModelLoadError, match="added_tokens_decoder or added_tokens"):
        read_vocabulary(tmp_path)


def test_merges_alone_give_the_tokens_of_the_reference(byte_folder: Path, tmp_path: Path) -> None:
    from transformers import RobertaTokenizer

    shutil.copy(byte_folder / "config.json", tmp_path)
    Backend.from_file(str(byte_folder / "tokenizer.json")).model.save(str(tmp_path))
    own = load(tmp_path)
    reference = RobertaTokenizer.from_pretrained(tmp_path)
    texts = ["the cenote", " the water\nof<mask> of  Ünï 😀", "", "</s> aquifer"]
    ids = [item.ids for item in own.encode(texts)]
    assert ids == reference(texts)["input_ids"]
    pairs = own.encode(texts, pairs=texts[::-1])
    assert [item.ids for item in pairs] == reference(texts, texts[::-1])["input_ids"]
    assert own.decode(ids[1]) == reference.decode(ids[1])


def test_vocabulary_file_of_mpnet_gives_pairs_of_its_own(tmp_path: Path) -> None:
    from transformers import MPNetTokenizer

    words = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "[UNK]", "a", "##b", "water"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    settings = {"cls_token": "<s>", "sep_token": "</s>", "mask_token": "<mask>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    config = {"model_type": "mpnet", "vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 1}
    (tmp_path / "config.json").write_text(json.dumps({**config, "num_attention_heads": 2}))
    own, reference = load(tmp_path), MPNetTokenizer(str(tmp_path / "vocab.txt"))
    first, second = ["ab water <mask>", "c"], ["water", "AB"]
    found = own.encode(first, pairs=second)
    assert [item.ids for item in found] == reference(first, second)["input_ids"]


def test_lower_case_of_sentence_transformers_comes_first(byte_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(byte_folder, tmp_path / "model")
    folder = tmp_path / "model"
    module = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}
    (folder / "modules.json").write_text(json.dumps([module]))
    (folder / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    lower, plain = load(folder), load(byte_folder)
    assert lower.encode(["THE Cenote İ"])[0].ids == plain.encode(["THE Cenote İ".lower()])[0].ids
    assert lower.encode(["THE"])[0].offsets == plain.encode(["the"])[0].offsets


def test_folder_without_tokenizer_says_what_to_do(minilm_path: Path, tmp_path: Path) -> None:
    shutil.copy(minilm_path / "config.json", tmp_path)
    with pytest.raises(ModelLoadError, match="AutoTokenizer"):
        load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelLoadError, match="is not a tokenizer"):
        load(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "vocab.txt").write_text("a\nb\n")
    with pytest.raises(ModelLoadError, match="special tokens"):
        load(tmp_path)


def test_threads_share_one_tokenizer(tokenizer: Tokenizer) -> None:
    texts = [f"cenote number {n} " * (n % 9 + 1) for n in range(64)]
    alone = {limit: tokenizer.encode(texts, max_tokens=limit) for limit in (8, 16, 32)}
    wrong = []

    def run(limit: int) -> None:
        for _ in range(10):
            if tokenizer.encode(texts, max_tokens=limit) != alone[limit]:
                wrong.append(limit)

    threads = [threading.Thread(target=run, args=(limit,)) for limit in (8, 16, 32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_tokenizer_needs_neither_torch_nor_transformers(minilm_path: Path) -> None:
    import subprocess
    import sys

    code = (
        "import sys; from pathlib import Path\n"
        "from cenote.config.engine import EngineConfig\n"
        "from cenote.config.model import load_model_config\n"
        "from cenote.processors.tokenizer import Tokenizer\n"
        "from cenote.processors import prompts, templates\n"
        f"folder = Path({str(minilm_path)!r})\n"
        "config = load_model_config(folder, name='m', revision='r', engine=EngineConfig())\n"
        "Tokenizer(folder, config).encode(['hi'])\n"
        "print({'torch', 'transformers'} & set(sys.modules))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "set()"


@pytest.mark.parametrize(
    "call",
    [
        lambda tok, text: tok.encode(["fine", text]),
        lambda tok, text: tok.encode(["fine", text], offsets=False),
        lambda tok, text: tok.encode(["fine"], pairs=[text]),
        lambda tok, text: tok.encode([text * 100_000], max_tokens=8),
        lambda tok, text: tok.encode([text * 100_000], refuse_over=8),
    ],
)
def test_half_of_a_surrogate_pair_is_refused(
    tokenizer: Tokenizer, call: Callable[[Tokenizer, str], Any]
) -> None:
    with pytest.raises(
        InvalidRequest, match=r"surrogate pair, '\\ud83d', at character 4"
    ) as caught:
        call(tokenizer, "bad \ud83d emoji ")
    assert caught.value.param == "input"
