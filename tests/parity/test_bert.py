"""BERT against its references: sentence-transformers for vectors, transformers for the heads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from reference import BFLOAT16, FLOAT32, TEXTS, Served, assert_matches_reference, serve
from sentence_transformers import SentenceTransformer
from torch import Tensor

from cenote.params import PoolingParams

LONG_TEXT = "a passage about packed attention on ordinary processors " * 90
PAIRS = (
    ("what is a cenote?", "A cenote is a natural pit that exposes groundwater."),
    ("short", "x"),
    ("who?", "one two three four five six seven eight nine ten " * 6),
)


@pytest.fixture(scope="module")
def minilm_reference(minilm_path: Path) -> SentenceTransformer:
    reference = SentenceTransformer(str(minilm_path), device="cpu")
    reference.max_seq_length = 512
    return reference


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_real_model_gives_the_vectors_of_sentence_transformers(
    kernels: str, dtype: str, minilm_path: Path, minilm_reference: SentenceTransformer
) -> None:
    texts = [*TEXTS, LONG_TEXT]
    served = serve(minilm_path, kernels, getattr(torch, dtype))
    ids = served.encode(texts, 512)
    assert len(ids[-1]) == 512
    expected = torch.from_numpy(minilm_reference.encode(texts, batch_size=1))
    tolerance = FLOAT32 if dtype == "float32" else BFLOAT16
    assert_matches_reference(served, "embed", ids, list(expected), tolerance=tolerance)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_native_vectors_do_not_depend_on_the_batch_bit_for_bit(
    dtype: str, minilm_path: Path
) -> None:
    if find_spec("cenote._native") is None:
        pytest.skip("the native kernels are not built here")
    served = serve(minilm_path, "native", getattr(torch, dtype))
    ids = served.encode([*TEXTS, LONG_TEXT], 512)
    together = run_embed(served, ids)
    for index, own in enumerate(ids):
        assert torch.equal(run_embed(served, [own])[0], together[index])


def test_dimensions_are_cut_before_the_vector_is_normalised(
    kernels: str, minilm_path: Path, minilm_reference: SentenceTransformer
) -> None:
    expected = minilm_reference.encode(
        list(TEXTS), truncate_dim=64, normalize_embeddings=True, convert_to_tensor=True
    )
    served = serve(minilm_path, kernels)
    assert_matches_reference(
        served,
        "embed",
        served.encode(TEXTS),
        list(expected),
        params=PoolingParams(task="embed", dimensions=64),
    )


def reference_logits(
    cls: Any, folder: Path, ids: Sequence[Sequence[int]], types: Any = None
) -> list[Tensor]:
    """Logits of each sequence alone, so that the reference pads nothing."""
    model = cls.from_pretrained(folder).eval()
    with torch.inference_mode():
        return [
            model(
                input_ids=torch.tensor([row]),
                token_type_ids=None if types is None else torch.tensor([types[i]]),
            ).logits[0]
            for i, row in enumerate(ids)
        ]


@pytest.mark.parametrize(
    ("labels", "problem", "activation"),
    [
        (3, "single_label_classification", lambda logits: logits.softmax(-1)),
        (3, "multi_label_classification", torch.sigmoid),
        (1, None, torch.sigmoid),
    ],
)
def test_sequence_classes_of_pairs_are_those_of_transformers(
    kernels: str,
    labels: int,
    problem: str | None,
    activation: Callable[[Tensor], Tensor],
    make_tiny_bert: Callable[..., Path],
) -> None:
    folder = make_tiny_bert(
        "BertForSequenceClassification", num_labels=labels, problem_type=problem
    )
    served = serve(folder, kernels)
    texts, pairs = map(list, zip(*PAIRS, strict=True))
    encoded = served.tokenizer.encode(texts, pairs=pairs)
    ids, types = [item.ids for item in encoded], [item.type_ids for item in encoded]
    logits = reference_logits(transformers.BertForSequenceClassification, folder, ids, types)
    expected = [activation(item) for item in logits]
    assert_matches_reference(served, "classify", ids, expected, types=types)
    raw = PoolingParams(task="classify", use_activation=False)
    assert_matches_reference(served, "classify", ids, logits, types=types, params=raw)


def test_token_classes_are_those_of_transformers(kernels: str, tiny_token_classifier: Path) -> None:
    served = serve(tiny_token_classifier, kernels)
    ids = served.encode(TEXTS)
    logits = reference_logits(transformers.BertForTokenClassification, tiny_token_classifier, ids)
    assert_matches_reference(served, "token_classify", ids, [x.softmax(-1) for x in logits])


def test_sparse_vectors_are_splade_over_the_masked_lm_of_transformers(
    kernels: str, make_tiny_bert: Callable[..., Path]
) -> None:
    folder = make_tiny_bert("BertForMaskedLM")
    # Together more than one chunk of logits, so that sequences are broken off and continued.
    served = serve(folder, kernels)
    ids = served.encode([*TEXTS, LONG_TEXT, LONG_TEXT[100:]])
    logits = reference_logits(transformers.BertForMaskedLM, folder, ids)
    for found, row in zip(served.run("sparse_embed", ids), logits, strict=True):
        expected = torch.log1p(torch.relu(row)).amax(dim=0)
        assert found.indices is not None
        assert (found.data > 0).all()
        assert (found.data.diff() <= 0).all()
        dense = torch.zeros(expected.shape).index_put((found.indices.long(),), found.data)
        assert (dense - expected).abs().max() <= 1e-5


def test_colbert_vectors_are_projected_and_a_document_drops_its_skip_list(
    kernels: str, tiny_colbert: Path
) -> None:
    from safetensors.torch import load_file

    served = serve(tiny_colbert, kernels)
    ids = served.encode(["well, this; is - punctuated!", "plain words"])
    weights = load_file(tiny_colbert / "model.safetensors")
    body = transformers.BertModel(transformers.BertConfig.from_pretrained(tiny_colbert)).eval()
    body.load_state_dict(
        {name.removeprefix("bert."): x for name, x in weights.items() if name != "linear.weight"}
    )
    assert set(served.poolers) == {"token_embed"}
    with torch.inference_mode():
        rows = [body(torch.tensor([row])).last_hidden_state[0] for row in ids]
    expected = [torch.nn.functional.normalize(x @ weights["linear.weight"].T, dim=-1) for x in rows]
    query = PoolingParams(task="token_embed", input_type="query")
    assert_matches_reference(served, "token_embed", ids, expected, params=query)
    words = served.tokenizer.tokens(ids[0])
    kept = [i for i, word in enumerate(words) if word not in {",", ";", "-", "!"}]
    document = PoolingParams(task="token_embed", input_type="document")
    found = served.run("token_embed", ids, params=document)
    assert found[0].indices is not None
    assert found[0].indices.tolist() == kept
    assert (found[0].data - expected[0][kept]).abs().max() <= 1e-5


def save_sentence_transformer(body: Path, folder: Path, **modules: Any) -> SentenceTransformer:
    """Saves a model made of the body's Transformer, a Pooling module and more, and returns it."""
    from sentence_transformers import models

    transformer = models.Transformer(str(body))
    pooling = models.Pooling(transformer.get_embedding_dimension(), **modules["pooling"])
    reference = SentenceTransformer(
        modules=[transformer, pooling, *modules.get("extra", ())], device="cpu"
    )
    reference.save(str(folder))
    return reference


@pytest.mark.parametrize(
    "modes",
    [
        ("cls",),
        ("mean",),
        ("max",),
        ("mean_sqrt_len_tokens",),
        ("weightedmean",),
        ("lasttoken",),
        ("cls", "max", "mean"),
        ("mean", "weightedmean", "mean_sqrt_len_tokens", "lasttoken"),
    ],
)
def test_every_pooling_mode_is_that_of_sentence_transformers(
    modes: tuple[str, ...], kernels: str, tiny_bert: Path, tmp_path: Path
) -> None:
    reference = save_sentence_transformer(tiny_bert, tmp_path, pooling={"pooling_mode": modes})
    expected = reference.encode(list(TEXTS), convert_to_tensor=True, batch_size=1)
    served = serve(tmp_path, kernels)
    assert_matches_reference(served, "embed", served.encode(TEXTS), list(expected))


@pytest.mark.parametrize("mode", ["cls", "mean", "max", "weightedmean", "lasttoken"])
def test_a_prompt_that_is_not_included_takes_no_part_in_pooling(
    mode: str, kernels: str, tiny_bert: Path, tmp_path: Path
) -> None:
    pooling = {"pooling_mode": mode, "include_prompt": False}
    reference = save_sentence_transformer(tiny_bert, tmp_path, pooling=pooling)
    prompt = "represent this sentence: "
    expected = reference.encode(list(TEXTS), prompt=prompt, convert_to_tensor=True, batch_size=1)
    served = serve(tmp_path, kernels)
    assert not served.config.pooler.include_prompt
    ids = served.encode([prompt + text for text in TEXTS])
    # [CLS] and the prompt's own tokens, without its [SEP].
    params = PoolingParams(task="embed", skip_tokens=len(served.encode([prompt])[0]) - 1)
    assert_matches_reference(served, "embed", ids, list(expected), params=params)


@pytest.mark.parametrize(
    "activation",
    [
        torch.nn.Tanh(),
        torch.nn.Identity(),
        torch.nn.GELU(),
        torch.nn.ReLU(),
        torch.nn.Softmax(dim=-1),
    ],
)
def test_dense_modules_and_normalising_are_those_of_sentence_transformers(
    activation: torch.nn.Module, kernels: str, tiny_bert: Path, tmp_path: Path
) -> None:
    from sentence_transformers import models

    torch.manual_seed(3)
    extra = [
        models.Dense(64, 24, activation_function=activation),
        models.Dense(24, 24, activation_function=torch.nn.Tanh(), use_residual=True),
        models.Dense(24, 18, bias=False, activation_function=torch.nn.Tanh(), use_residual=True),
        models.Dense(18, 12, bias=False, activation_function=torch.nn.Identity()),
        models.Normalize(),
    ]
    pooling = {"pooling_mode": ("mean", "max")}
    reference = save_sentence_transformer(tiny_bert, tmp_path, pooling=pooling, extra=extra)
    expected = reference.encode(list(TEXTS), convert_to_tensor=True, batch_size=1)
    served = serve(tmp_path, kernels)
    assert_matches_reference(served, "embed", served.encode(TEXTS), list(expected))


def test_checkpoints_with_other_names_load_alike(tiny_bert: Path, tmp_path: Path) -> None:
    """With the `bert.` prefix, gamma and beta, a position buffer and unused heads."""
    import shutil

    from safetensors.torch import load_file, save_file

    shutil.copytree(tiny_bert, tmp_path, dirs_exist_ok=True)
    weights = {}
    for name, tensor in load_file(tiny_bert / "model.safetensors").items():
        name = name.replace("LayerNorm.weight", "LayerNorm.gamma")
        weights["bert." + name.replace("LayerNorm.bias", "LayerNorm.beta")] = tensor
    weights["bert.embeddings.position_ids"] = torch.arange(128).unsqueeze(0)
    weights["cls.predictions.bias"] = torch.zeros(30522)
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    served = serve(tmp_path, "torch")
    ids = served.encode(TEXTS)
    plain = run_embed(serve(tiny_bert, "torch"), ids)
    for ours, theirs in zip(run_embed(served, ids), plain, strict=True):
        assert torch.equal(ours, theirs)


def run_embed(served: Served, ids: list[list[int]]) -> list[Tensor]:
    return [item.data for item in served.run("embed", ids)]
