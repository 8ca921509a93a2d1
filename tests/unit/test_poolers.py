"""Poolers: mixed requests in one batch, heads, and what a model folder may say of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from cenote.config.engine import EngineConfig
from cenote.config.model import ModelConfig, load_model_config
from cenote.config.pooling import ColbertConfig, DenseConfig, PoolerConfig, SparseConfig
from cenote.errors import ModelLoadError
from cenote.kernels import backend
from cenote.layers.packed import PackedBatch
from cenote.models.base import ModelInfo, PoolingModel
from cenote.params import PoolingParams
from cenote.poolers.factory import build_poolers
from cenote.poolers.heads import class_activation, load_dense
from cenote.poolers.methods import ClassifyPooler, EmbedPooler
from cenote.poolers.skiplist import skip_ids
from cenote.poolers.sparse import CHUNK_ROWS, SparsePooler
from cenote.poolers.token import TokenClassifyPooler, TokenEmbedPooler

CPU = torch.device("cpu")
LENS = [2, 5, 1, 4]


@pytest.fixture(autouse=True)
def configured(kernels: str) -> Any:
    backend.configure(kernels, CPU, torch.float32, threads=1)  # type: ignore[arg-type]
    torch.manual_seed(0)
    yield
    backend.configure("torch", CPU, torch.float32)


@pytest.fixture
def config(tiny_bert: Path) -> ModelConfig:
    return load_model_config(tiny_bert, name="m", revision="", engine=EngineConfig())


class Fake(PoolingModel):
    """A model whose heads are plain slices and sums of its rows."""

    def classify(self, rows: Tensor) -> Tensor:
        return rows[:, :3] * 2

    def vocab_logits(self, rows: Tensor) -> Iterator[Tensor]:
        yield rows
        yield -rows.abs()


class FakeClassifier(Fake):
    info: ClassVar[ModelInfo] = ModelInfo(head="classify")


class FakeTagger(Fake):
    info: ClassVar[ModelInfo] = ModelInfo(head="token_classify")


class FakeMaskedLM(Fake):
    info: ClassVar[ModelInfo] = ModelInfo(head="vocab")


def batch_of(lens: Sequence[int], ids: Sequence[int] | None = None) -> PackedBatch:
    total = sum(lens)
    return PackedBatch(
        input_ids=torch.tensor(range(total) if ids is None else ids, dtype=torch.int32),
        positions=torch.cat([torch.arange(n) for n in lens]).int(),
        cu_seqlens=torch.tensor([0, *lens]).cumsum(0).int(),
        seq_lens=list(lens),
    )


def unit(x: Tensor) -> Tensor:
    return x / x.norm(dim=-1, keepdim=True)


def test_requests_of_one_batch_get_their_own_dimensions_and_activation() -> None:
    hidden, batch = torch.randn(sum(LENS), 16), batch_of(LENS)
    params = [
        PoolingParams(task="embed"),
        PoolingParams(task="embed", dimensions=4),
        PoolingParams(task="embed", use_activation=False),
        PoolingParams(task="embed", dimensions=4, use_activation=False),
    ]
    mixed = EmbedPooler(["mean"], [], normalize=True)(hidden, batch, params)
    means = [rows.mean(0) for rows in hidden.split(LENS)]
    expected = [unit(means[0]), unit(means[1][:4]), means[2], means[3][:4]]
    for found, vector in zip(mixed, expected, strict=True):
        torch.testing.assert_close(found.data, vector)
    for index, own in enumerate(params):
        alike = EmbedPooler(["mean"], [], normalize=True)(hidden, batch, [own] * 4)
        torch.testing.assert_close(alike[index].data, expected[index])


def test_a_model_without_normalising_normalises_on_request() -> None:
    hidden, batch = torch.randn(3, 16) * 9, batch_of([3])
    pooler = EmbedPooler(["last"], [], normalize=False)
    plain = pooler(hidden, batch, [PoolingParams(task="embed")])
    asked = pooler(hidden, batch, [PoolingParams(task="embed", use_activation=True)])
    torch.testing.assert_close(plain[0].data, hidden[2])
    torch.testing.assert_close(asked[0].data, unit(hidden[2]))


def test_only_the_request_with_a_prompt_skips_its_rows() -> None:
    hidden, batch = torch.randn(7, 16), batch_of([3, 4])
    params = [PoolingParams(task="embed"), PoolingParams(task="embed", skip_tokens=2)]
    found = EmbedPooler(["cls", "mean"], [], normalize=False)(hidden, batch, params)
    torch.testing.assert_close(found[0].data, torch.cat([hidden[0], hidden[:3].mean(0)]))
    torch.testing.assert_close(found[1].data, torch.cat([hidden[5], hidden[5:].mean(0)]))


def test_documents_drop_their_skip_list_and_queries_beside_them_do_not(
    config: ModelConfig,
) -> None:
    hidden, batch = torch.randn(7, 16), batch_of([3, 4], [9, 1, 8, 9, 2, 1, 7])
    pooler = TokenEmbedPooler(Fake(config), [], normalize=True, skip_ids=[1, 2])
    sides = [PoolingParams(input_type="query"), PoolingParams(input_type="document")]
    query, document = pooler(hidden, batch, sides)
    assert query.indices is None
    assert document.indices is not None
    assert document.indices.tolist() == [0, 3]
    torch.testing.assert_close(query.data, unit(hidden[:3]))
    torch.testing.assert_close(document.data, unit(hidden[[3, 6]]))
    first, second = pooler(hidden, batch, [sides[1]] * 2)
    assert first.indices is not None
    assert first.indices.tolist() == [0, 2]
    torch.testing.assert_close(second.data, document.data)
    kept = batch_of([2, 2], [9, 8, 9, 500])
    read = replace(kept, positions=torch.tensor([0, 2, 0, 3], dtype=torch.int32))
    again = pooler(hidden[[0, 2, 3, 6]], read, [sides[1]] * 2)
    assert [item.indices.tolist() for item in again if item.indices is not None] == [[0, 2], [0, 3]]
    assert torch.equal(again[1].data, document.data)
    whole = pooler(hidden, batch, [PoolingParams()] * 2)
    assert [item.data.shape[0] for item in whole] == [3, 4]


def test_token_vectors_are_cut_then_normalised_for_each_request(config: ModelConfig) -> None:
    hidden, batch = torch.randn(7, 16), batch_of([3, 4])
    pooler = TokenEmbedPooler(Fake(config), [], normalize=True)
    params = [PoolingParams(dimensions=4), PoolingParams(use_activation=False)]
    first, second = pooler(hidden, batch, params)
    torch.testing.assert_close(first.data, unit(hidden[:3, :4]))
    torch.testing.assert_close(second.data, hidden[3:])


def test_classes_are_activated_unless_a_request_wants_logits(config: ModelConfig) -> None:
    hidden, batch = torch.randn(7, 16), batch_of([3, 4])
    params = [PoolingParams(), PoolingParams(use_activation=False)]
    model = Fake(replace(config, num_labels=3))
    activation = class_activation(model.config)
    found = ClassifyPooler(model, activation)(hidden, batch, params)
    torch.testing.assert_close(found[0].data, torch.softmax(hidden[0, :3] * 2, -1))
    torch.testing.assert_close(found[1].data, hidden[3, :3] * 2)
    rows = TokenClassifyPooler(model, activation)(hidden, batch, params)
    torch.testing.assert_close(rows[0].data, torch.softmax(hidden[:3, :3] * 2, -1))
    torch.testing.assert_close(rows[1].data, hidden[3:, :3] * 2)


@pytest.mark.parametrize(
    ("labels", "problem", "own", "expected"),
    [
        (3, None, None, lambda x: x.softmax(-1)),
        (3, "single_label_classification", None, lambda x: x.softmax(-1)),
        (3, "multi_label_classification", None, torch.sigmoid),
        (3, "regression", None, lambda x: x),
        (1, None, None, torch.sigmoid),
        (1, None, "identity", lambda x: x),
        (3, None, "sigmoid", torch.sigmoid),
        (3, "multi_label_classification", "softmax", lambda x: x.softmax(-1)),
        (1, None, "softmax", torch.ones_like),
    ],
)
def test_the_class_activation_follows_the_model(
    labels: int, problem: str | None, own: str | None, expected: Any, config: ModelConfig
) -> None:
    pooler = PoolerConfig(activation=own)
    config = replace(config, num_labels=labels, problem_type=problem, pooler=pooler)
    logits = torch.randn(4, labels)
    torch.testing.assert_close(class_activation(config)(logits), expected(logits))


@pytest.mark.parametrize("strategy", ["max", "sum"])
@pytest.mark.parametrize("activation", ["relu", "log1p_relu"])
def test_sparse_weights_survive_being_computed_in_chunks(
    strategy: Any, activation: Any, config: ModelConfig
) -> None:
    lens = [3, CHUNK_ROWS * 2 + 7, 1, CHUNK_ROWS - 11, 40]
    hidden, batch = torch.randn(sum(lens), 16), batch_of(lens)
    hidden[:, 5] = -1  # an entry that no text has
    pooler = SparsePooler(Fake(config), SparseConfig(strategy, activation))
    params = [PoolingParams()] * 4 + [PoolingParams(use_activation=False)]
    for index, found in enumerate(pooler(hidden, batch, params)):
        rows = torch.relu(hidden.split(lens)[index])
        if index != 4:
            rows = torch.log1p(rows)
            rows = torch.log1p(rows) if activation == "log1p_relu" else rows
        dense = rows.amax(0) if strategy == "max" else rows.sum(0)
        assert found.indices is not None
        assert found.indices.dtype == torch.int32
        assert set(found.indices.tolist()) == set(dense.nonzero().squeeze(1).tolist())
        assert 5 not in found.indices
        assert (found.data.diff() <= 0).all()
        torch.testing.assert_close(found.data, dense[found.indices.long()])


def test_a_text_without_any_weight_has_an_empty_sparse_vector(config: ModelConfig) -> None:
    hidden, batch = -torch.ones(2, 16), batch_of([2])
    (found,) = SparsePooler(Fake(config), None)(hidden, batch, [PoolingParams()])
    assert found.data.shape == (0,)


@pytest.mark.parametrize(
    ("model", "tasks"),
    [
        (Fake, {"embed", "token_embed"}),
        (FakeClassifier, {"classify"}),
        (FakeTagger, {"token_classify"}),
        (FakeMaskedLM, {"sparse_embed"}),
    ],
)
def test_a_head_decides_the_tasks(model: Any, tasks: set[str], config: ModelConfig) -> None:
    config = replace(config, num_labels=3)
    assert set(build_poolers(config, model(config), CPU)) == tasks


def test_a_late_interaction_model_gives_token_vectors_only(config: ModelConfig) -> None:
    pooler = replace(config.pooler, colbert=ColbertConfig(dim=16, skiplist=("!", ",")))
    config = replace(config, pooler=pooler)
    poolers = build_poolers(config, Fake(config), CPU)
    assert set(poolers) == {"token_embed"}


def dense(folder: str = "2_Dense", **changes: Any) -> DenseConfig:
    values = {"in_features": 32, "out_features": 8, "bias": True, "activation": "tanh", **changes}
    return DenseConfig(folder=folder, **values)


def save_dense(folder: Path, **tensors: Tensor) -> None:
    folder.mkdir()
    save_file(
        {name.replace("__", "."): x for name, x in tensors.items()}, folder / "model.safetensors"
    )


def test_a_dense_module_is_loaded_strictly(tmp_path: Path) -> None:
    save_dense(tmp_path / "2_Dense", linear__weight=torch.randn(8, 32), other=torch.zeros(1))
    with pytest.raises(ModelLoadError) as error:
        load_dense(tmp_path, [dense()], CPU)
    assert "linear.bias" in str(error.value)
    assert "other" in str(error.value)


def test_dense_modules_that_do_not_fit_are_refused(config: ModelConfig, tmp_path: Path) -> None:
    save_dense(tmp_path / "2_Dense", linear__weight=torch.randn(8, 48), linear__bias=torch.randn(8))
    pooler = replace(config.pooler, dense=(dense(in_features=48),))
    config = replace(config, path=tmp_path, pooler=pooler)
    with pytest.raises(ModelLoadError, match="in_features is 48"):
        build_poolers(config, Fake(config), CPU)
    with pytest.raises(ModelLoadError, match="unknown activation 'swoosh'"):
        load_dense(tmp_path, [dense(activation="swoosh")], CPU)


def test_skip_lists_are_found_in_either_tokenizer_file(tiny_bert: Path, tmp_path: Path) -> None:
    words = ["!", ",", "not-a-token"]
    vocabulary = json.loads((tiny_bert / "tokenizer.json").read_text())["model"]["vocab"]
    expected = {vocabulary["!"], vocabulary[","]}
    assert set(skip_ids(tiny_bert, words)) == expected
    (tmp_path / "vocab.txt").write_bytes((tiny_bert / "vocab.txt").read_bytes())
    assert set(skip_ids(tmp_path, words)) == expected
    (tmp_path / "vocab.txt").unlink()
    assert skip_ids(tmp_path, []) == []
    with pytest.raises(ModelLoadError, match="has no tokenizer: neither"):
        skip_ids(tmp_path, words)
