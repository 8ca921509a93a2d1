"""Late interaction beside the model: every row of its life cycle, and what leaves the engine.

Hidden states stand for token vectors here: the pooler is a fake that hands them through.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from cenote.errors import InvalidRequest, NonFiniteResult, UnsupportedTask
from cenote.layers.packed import PackedBatch
from cenote.params import LateInteractionParams, PoolingParams
from cenote.poolers.base import Pooled
from cenote.runner.input_batch import make_batch
from cenote.runner.late_interaction_runner import all_finite
from cenote.runner.pooling_runner import PoolingRunner, batch_order, supported_tasks
from cenote.step import PooledResult, ScheduledRequest

CPU = torch.device("cpu")
DIM = 8


def hand_through(
    hidden: Tensor, batch: PackedBatch, params: Sequence[PoolingParams]
) -> list[Pooled]:
    """Token vectors; a document's row 0 is left out, as a skip list would."""
    made = []
    for rows, one in zip(hidden.split(batch.seq_lens), params, strict=True):
        if one.input_type == "document":
            positions = torch.arange(1, rows.shape[0], dtype=torch.int32)
            made.append(Pooled(rows[1:], positions))
        else:
            made.append(Pooled(rows))
    return made


def first_row(hidden: Tensor, batch: PackedBatch, params: Sequence[PoolingParams]) -> list[Pooled]:
    return [Pooled(rows[0]) for rows in hidden.split(batch.seq_lens)]


def new_runner(cache: int = 0) -> PoolingRunner:
    poolers = {"token_embed": hand_through, "embed": first_row}
    return PoolingRunner(poolers, causal=False, query_cache_bytes=cache)  # type: ignore[arg-type]


@pytest.fixture
def runner() -> PoolingRunner:
    return new_runner()


def query(
    key: str, uses: int | None, tokens: int = 3, name: str = "", content: str | None = None
) -> ScheduledRequest:
    part = LateInteractionParams("cache_query", key, uses, content_key=content)
    return scheduled(name or f"query {key}", tokens, PoolingParams("token_embed", None, None, part))


def document(name: str, key: str, tokens: int = 5, explain: bool = False) -> ScheduledRequest:
    part = LateInteractionParams("score_doc", key, explain=explain)
    params = PoolingParams("token_embed", late_interaction=part, input_type="document")
    return scheduled(name, tokens, params)


def scheduled(name: str, tokens: int, params: PoolingParams) -> ScheduledRequest:
    return ScheduledRequest(name, list(range(tokens)), params, 0, tokens)


def vectors(name: str, tokens: int) -> Tensor:
    """The fake model: a request's token vectors follow from its name."""
    seed = int.from_bytes(name.encode(), "little") % 2**31
    return torch.randn(tokens, DIM, generator=torch.Generator().manual_seed(seed))


def run(runner: PoolingRunner, *requests: ScheduledRequest) -> dict[str, PooledResult]:
    """One step on the fake model."""
    for request in requests:
        runner.add_request(request.request_id, request.params)
    ordered = sorted(requests, key=batch_order)
    hidden = torch.cat([vectors(one.request_id, one.num_tokens) for one in ordered])
    results = runner.conclude(runner.pool(hidden, make_batch(ordered, CPU), ordered))
    return {result.request_id: result for result in results}


def end(runner: PoolingRunner, *names: str) -> None:
    runner.on_requests_finished(names)
    for name in names:
        runner.remove_request(name)


def expected(query_name: str, document_name: str, q: int = 3, d: int = 5) -> float:
    left = vectors(query_name, q).double()
    right = vectors(document_name, d)[1:].double()
    return float((left @ right.T).max(dim=1).values.sum())


def score(result: PooledResult) -> float:
    assert result.data is not None, result.error
    assert result.data.shape == (1,)
    return float(result.data[0])


def uses(runner: PoolingRunner, key: str) -> int | None:
    return runner.late_interaction._uses.get(key)


def is_kept(runner: PoolingRunner, key: str) -> bool:
    return key in runner.late_interaction._queries


# --- the life cycle, row by row -----------------------------------------------------------------


@pytest.mark.parametrize("count", [None, -1])
def test_adding_a_query_needs_a_use(runner: PoolingRunner, count: int | None) -> None:
    with pytest.raises(InvalidRequest, match="query_uses"):
        run(runner, query("k", count))
    assert runner.num_entries == 0


def test_a_query_whose_documents_are_gone_is_not_kept(runner: PoolingRunner) -> None:
    assert "query q" in run(runner, query("q", 0))
    assert not is_kept(runner, "q")
    end(runner, "query q")
    assert runner.num_entries == 0


def test_adding_a_query_needs_a_key(runner: PoolingRunner) -> None:
    with pytest.raises(InvalidRequest, match="query_key"):
        run(runner, query("", 1))
    assert runner.num_entries == 0


def test_a_key_belongs_to_one_query(runner: PoolingRunner) -> None:
    run(runner, query("k", 1))
    with pytest.raises(InvalidRequest, match="already in use"):
        run(runner, query("k", 1, name="another"))


def test_late_interaction_needs_token_vectors(runner: PoolingRunner) -> None:
    part = LateInteractionParams("cache_query", "k", 1)
    with pytest.raises(UnsupportedTask):
        runner.add_request("q", PoolingParams("embed", late_interaction=part))
    assert runner.num_entries == 0


def test_a_pooled_query_is_kept_with_its_uses_and_gives_a_zero(runner: PoolingRunner) -> None:
    results = run(runner, query("k", 2))
    assert score(results["query k"]) == 0.0
    assert is_kept(runner, "k")
    assert uses(runner, "k") == 2


def test_kept_vectors_are_a_clone_of_the_batch_buffer(runner: PoolingRunner) -> None:
    one = query("k", 1)
    runner.add_request(one.request_id, one.params)
    hidden = vectors(one.request_id, 3)
    runner.conclude(runner.pool(hidden, make_batch([one], CPU), [one]))
    hidden.fill_(777.0)
    assert score(run(runner, document("d", "k"))["d"]) == pytest.approx(expected("query k", "d"))


def test_a_scored_document_spends_a_use_and_the_last_one_drops_the_query(
    runner: PoolingRunner,
) -> None:
    run(runner, query("k", 2))
    results = run(runner, document("d", "k"))
    assert score(results["d"]) == pytest.approx(expected("query k", "d"), rel=1e-6)
    assert uses(runner, "k") == 1
    run(runner, document("e", "k"))
    assert not is_kept(runner, "k")
    end(runner, "query k", "d", "e")
    assert runner.num_entries == 0


def test_a_finished_document_that_scored_does_not_release_again(runner: PoolingRunner) -> None:
    run(runner, query("k", 2), document("d", "k"))
    end(runner, "d")
    end(runner, "d")
    assert uses(runner, "k") == 1
    assert is_kept(runner, "k")


def test_a_document_without_its_query_is_an_error_and_leaves_nothing(
    runner: PoolingRunner,
) -> None:
    results = run(runner, document("d", "gone"))
    assert isinstance(results["d"].error, InvalidRequest)
    end(runner, "d")
    assert runner.num_entries == 0


def test_a_document_aborted_unscored_releases_its_use(runner: PoolingRunner) -> None:
    run(runner, query("k", 2))
    runner.add_request("d", document("d", "k").params)
    end(runner, "d")
    assert uses(runner, "k") == 1
    run(runner, document("e", "k"))
    end(runner, "query k", "e")
    assert runner.num_entries == 0


def test_documents_aborted_before_their_query_ran_count_as_used(runner: PoolingRunner) -> None:
    one = query("k", 1)
    runner.add_request(one.request_id, one.params)
    runner.add_request("d", document("d", "k").params)
    end(runner, "d")
    run(runner, one)
    assert not is_kept(runner, "k")
    end(runner, "query k")
    assert runner.num_entries == 0


def test_a_query_aborted_before_it_ran_is_forgotten(runner: PoolingRunner) -> None:
    one = query("k", 2)
    runner.add_request(one.request_id, one.params)
    runner.add_request("d", document("d", "k").params)
    end(runner, "query k", "d")
    assert runner.num_entries == 0


def test_a_preempted_document_keeps_its_reservation(runner: PoolingRunner) -> None:
    run(runner, query("k", 1))
    end(runner, "query k")
    runner.add_request("d", document("d", "k").params)
    runner.remove_request("d")  # preempted: not among the finished
    assert uses(runner, "k") == 1
    results = run(runner, document("d", "k"))
    assert score(results["d"]) == pytest.approx(expected("query k", "d"), rel=1e-6)
    end(runner, "d")
    assert runner.num_entries == 0


def test_a_preempted_query_does_not_get_its_uses_back(runner: PoolingRunner) -> None:
    one = query("k", 2)
    runner.add_request(one.request_id, one.params)
    runner.add_request("d", document("d", "k").params)
    end(runner, "d")
    runner.remove_request(one.request_id)
    run(runner, one)
    assert uses(runner, "k") == 1


def test_clear_forgets_everything(runner: PoolingRunner) -> None:
    run(runner, query("k", 2), document("d", "k"))
    runner.add_request("e", document("e", "k").params)
    runner.clear()
    assert runner.num_entries == 0
    assert isinstance(run(runner, document("e", "k"))["e"].error, InvalidRequest)


# --- batches ------------------------------------------------------------------------------------


def test_two_queries_interleaved_in_one_batch(runner: PoolingRunner) -> None:
    results = run(
        runner,
        document("d", "k"),
        query("m", 2, tokens=4),
        document("e", "m", tokens=7),
        query("k", 2),
        document("f", "k"),
        document("g", "m"),
    )
    assert score(results["d"]) == pytest.approx(expected("query k", "d"), rel=1e-6)
    assert score(results["f"]) == pytest.approx(expected("query k", "f"), rel=1e-6)
    assert score(results["e"]) == pytest.approx(expected("query m", "e", 4, 7), rel=1e-6)
    assert score(results["g"]) == pytest.approx(expected("query m", "g", 4), rel=1e-6)
    assert not is_kept(runner, "k")
    assert not is_kept(runner, "m")


def test_documents_in_other_batches_than_their_query(runner: PoolingRunner) -> None:
    run(runner, query("k", 3))
    end(runner, "query k")
    for name in ("d", "e", "f"):
        results = run(runner, document(name, "k"))
        assert score(results[name]) == pytest.approx(expected("query k", name), rel=1e-6)
        end(runner, name)
    assert runner.num_entries == 0


def test_other_tasks_pass_through_untouched(runner: PoolingRunner) -> None:
    plain = scheduled("plain", 4, PoolingParams("token_embed"))
    embed = scheduled("embed", 4, PoolingParams("embed"))
    results = run(runner, query("k", 1), embed, document("d", "k"), plain)
    np.testing.assert_array_equal(results["plain"].data, vectors("plain", 4).numpy())
    np.testing.assert_array_equal(results["embed"].data, vectors("embed", 4)[0].numpy())
    assert score(results["d"]) == pytest.approx(expected("query k", "d"), rel=1e-6)


def test_a_chunk_that_is_not_the_last_gives_no_output(runner: PoolingRunner) -> None:
    params = PoolingParams("embed")
    chunk = ScheduledRequest("long", list(range(10)), params, 0, 6)
    whole = scheduled("whole", 4, params)
    assert set(run(runner, chunk, whole)) == {"whole"}


def test_explain_gives_each_query_row_its_match_as_a_prompt_position(
    runner: PoolingRunner,
) -> None:
    run(runner, query("k", 1))
    result = run(runner, document("d", "k", explain=True))["d"]
    similarities = vectors("query k", 3) @ vectors("d", 5)[1:].T
    best, rows = similarities.max(dim=1)
    assert result.data is not None
    assert result.data[0] == pytest.approx(float(best.sum()), rel=1e-6)
    np.testing.assert_allclose(result.data[1:], best.numpy(), rtol=1e-6)
    assert result.indices is not None
    assert result.indices.tolist() == (rows + 1).tolist()  # row 0 of a document is left out


# --- numbers that are none ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("numbers", "finite"),
    [
        ([], True),
        ([1.0, -2.0], True),
        ([3e38, 3e38], True),
        ([1.0, float("nan")], False),
        ([float("inf"), float("-inf")], False),
        ([3e38, 3e38, float("-inf")], False),
    ],
)
def test_large_numbers_are_told_apart_from_what_is_none(numbers: list[float], finite: bool) -> None:
    assert all_finite(torch.tensor([numbers])) is finite


def test_a_document_with_nan_fails_alone_and_its_use_is_released(
    runner: PoolingRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(runner, query("k", 2))
    real = vectors
    poison = {"bad": torch.full((5, DIM), float("nan"))}
    monkeypatch.setitem(globals(), "vectors", lambda n, t: poison.get(n, real(n, t)))
    results = run(runner, document("good", "k"), document("bad", "k"))
    assert isinstance(results["bad"].error, NonFiniteResult)
    assert score(results["good"]) == pytest.approx(expected("query k", "good"), rel=1e-6)
    end(runner, "query k", "good", "bad")
    assert runner.num_entries == 0


def test_a_query_with_infinity_is_an_error_and_never_cached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runner = new_runner(cache=1 << 20)
    monkeypatch.setitem(globals(), "vectors", lambda n, t: torch.full((t, DIM), float("inf")))
    results = run(runner, query("k", 1, content="text"))
    assert isinstance(results["query k"].error, NonFiniteResult)
    assert not is_kept(runner, "k")
    assert len(runner.query_cache) == 0
    end(runner, "query k")
    assert runner.num_entries == 0


# --- the query cache ----------------------------------------------------------------------------


def test_a_query_that_was_encoded_before_needs_no_run() -> None:
    runner = new_runner(cache=1 << 20)
    run(runner, query("k", 1, content="text"), document("d", "k"))
    again = query("m", 1, name="again", content="text")
    runner.add_request(again.request_id, again.params)
    results, to_run = runner.answer_from_cache([again])
    assert [result.request_id for result in results] == ["again"]
    assert to_run == []
    assert (runner.query_cache.hits, runner.query_cache.misses) == (1, 0)
    assert score(run(runner, document("e", "m"))["e"]) == pytest.approx(expected("query k", "e"))


def test_another_salt_or_none_never_hits() -> None:
    runner = new_runner(cache=1 << 20)
    run(runner, query("k", 1, content="text with salt a"))
    others = [query("m", 1, content="text with salt b"), query("n", 1)]
    for one in others:
        runner.add_request(one.request_id, one.params)
    results, to_run = runner.answer_from_cache(others)
    assert results == []
    assert to_run == others


def test_the_cache_is_bounded_by_bytes_and_drops_the_oldest() -> None:
    size = 3 * DIM * 4
    runner = new_runner(cache=2 * size)
    for name in "abc":
        run(runner, query(name, 1, content=name))
    assert len(runner.query_cache) == 2
    assert runner.query_cache.nbytes == 2 * size
    assert runner.query_cache.get("a") is None
    run(runner, query("large", 1, tokens=7, content="large"))
    assert runner.query_cache.get("large") is None
    assert len(runner.query_cache) == 2


def test_no_cache_at_zero_bytes(runner: PoolingRunner) -> None:
    run(runner, query("k", 1, content="text"))
    assert len(runner.query_cache) == 0


def test_clear_empties_the_cache_too() -> None:
    runner = new_runner(cache=1 << 20)
    run(runner, query("k", 1, content="text"))
    runner.clear()
    assert len(runner.query_cache) == 0
    assert runner.query_cache.nbytes == 0


# --- tasks --------------------------------------------------------------------------------------


def test_a_causal_model_drops_all_token_level_tasks_together() -> None:
    offered = ("embed", "classify", "token_embed", "token_classify", "sparse_embed")
    assert supported_tasks(offered, causal=True) == {"embed", "classify"}
    assert supported_tasks(offered, causal=False) == set(offered)


def test_an_unsupported_task_is_refused_by_name(runner: PoolingRunner) -> None:
    with pytest.raises(UnsupportedTask, match=r"'classify'.*embed.*token_embed"):
        runner.add_request("a", PoolingParams("classify"))
    assert runner.num_entries == 0
