"""The engine core on tiny random models: results, isolation of errors, shared runs, new weights."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from cenote.config.engine import EngineConfig
from cenote.engine.core import EngineCore
from cenote.engine.messages import EngineOutput, EnginePrompt, EngineRequest, StepStats
from cenote.errors import InvalidRequest, ModelLoadError
from cenote.params import LateInteractionParams, PoolingParams
from cenote.runner.model_runner import ModelRunner
from cenote.step import PooledResult, ScheduledStep

EMBED = PoolingParams("embed")


def new_core(folder: Path, **settings: object) -> EngineCore:
    return EngineCore(
        EngineConfig(model=str(folder), dtype="float32", kernels="torch", **settings)  # type: ignore[arg-type]
    )


@pytest.fixture
def core(tiny_bert: Path) -> EngineCore:
    return new_core(tiny_bert)


@pytest.fixture
def colbert(tiny_colbert: Path) -> EngineCore:
    return new_core(tiny_colbert)


def request(name: str, ids: list[int], params: PoolingParams = EMBED) -> EngineRequest:
    return EngineRequest(name, EnginePrompt(ids), params)


def group(
    key: str, query: list[int], documents: list[list[int]], content: str | None = None
) -> list[EngineRequest]:
    made = [
        request(
            key,
            query,
            PoolingParams(
                "token_embed",
                input_type="query",
                late_interaction=LateInteractionParams(
                    "cache_query", key, len(documents), content_key=content
                ),
            ),
        )
    ]
    part = LateInteractionParams("score_doc", key)
    params = PoolingParams("token_embed", input_type="document", late_interaction=part)
    made += [request(f"{key}.{i}", ids, params) for i, ids in enumerate(documents)]
    return made


def run(core: EngineCore) -> dict[str, EngineOutput]:
    """Steps until nothing is left to do."""
    outputs = {}
    while core.has_work:
        outputs.update({one.request_id: one for one in core.step().outputs})
    return outputs


def entries(core: EngineCore) -> int:
    assert isinstance(core.runner, ModelRunner)
    return core.runner.pooling.num_entries


def rescaled(source: Path, target: Path, edit: Callable[[torch.Tensor], torch.Tensor]) -> Path:
    """A copy of a model folder whose weights went through `edit`."""
    shutil.copytree(source, target)
    file = target / "model.safetensors"
    weights = {name: edit(tensor).contiguous() for name, tensor in load_file(file).items()}
    save_file(weights, file, metadata={"format": "pt"})
    return target


# --- results ------------------------------------------------------------------------------------


def test_a_prompt_gives_a_unit_vector_with_times(core: EngineCore) -> None:
    core.add([request("a", [101, 2000, 102])])
    output = run(core)["a"]
    assert output.array().shape == (32,)
    assert output.dtype == "float32"
    assert np.linalg.norm(output.array()) == pytest.approx(1.0, rel=1e-5)
    assert output.run_time > 0
    assert output.queue_time >= 0
    assert entries(core) == 0


def test_alone_or_in_a_full_batch_is_the_same(core: EngineCore) -> None:
    prompts = {str(n): [101, *range(2000, 2000 + n), 102] for n in range(1, 40)}
    core.add([request(name, ids) for name, ids in prompts.items()])
    together = run(core)
    for name in ("1", "7", "39"):
        core.add([request(name, prompts[name])])
        np.testing.assert_allclose(run(core)[name].array(), together[name].array(), atol=1e-6)


def test_two_tasks_in_one_step(core: EngineCore) -> None:
    core.add(
        [
            request("tokens", [101, 7, 102], PoolingParams("token_embed")),
            request("vector", [101, 7, 102]),
            request("more", [101, 8, 9, 102], PoolingParams("token_embed")),
        ]
    )
    outputs = core.step().outputs
    assert {one.request_id: one.shape for one in outputs} == {
        "tokens": (3, 32),
        "vector": (32,),
        "more": (4, 32),
    }


def test_a_step_leaves_one_record(core: EngineCore) -> None:
    core.add([request("a", [1, 2]), request("b", [1, 2]), request("c", [3])])
    stats = core.step().stats
    assert stats is not None
    assert (stats.batch_requests, stats.batch_tokens, stats.shared_runs) == (2, 3, 1)
    assert stats.step_time > 0
    assert core.step().stats is None  # only the ends are told


def test_sharers_get_the_same_bytes_and_abort_of_one_leaves_the_other(core: EngineCore) -> None:
    core.add([request("a", [1, 2]), request("b", [1, 2])])
    core.add([request("c", [1, 2])])
    core.abort(["a"])
    outputs = run(core)
    assert set(outputs) == {"b", "c"}
    assert outputs["b"].data == outputs["c"].data
    assert entries(core) == 0


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ids", "params", "code", "words"),
    [
        ([], EMBED, "invalid_request", "no tokens"),
        ([1] * 129, EMBED, "input_too_long", "129 tokens"),
        ([-1], EMBED, "invalid_request", "Token id -1"),
        ([30522], EMBED, "invalid_request", "Token id 30522"),
        ([1], PoolingParams("classify"), "unsupported_task", "'embed', 'token_embed'"),
        ([1], PoolingParams(), "unsupported_task", "None"),
    ],
)
def test_bad_requests_are_refused_and_the_engine_goes_on(
    core: EngineCore, ids: list[int], params: PoolingParams, code: str, words: str
) -> None:
    core.add([request("bad", ids, params)])
    core.add([request("good", [101, 102])])
    outputs = run(core)
    assert outputs["bad"].error_code == code
    assert words in str(outputs["bad"].error_message)
    assert outputs["good"].error_code is None
    assert entries(core) == 0


def test_a_document_without_its_query_is_refused(colbert: EngineCore) -> None:
    colbert.add(group("q", [1], [[2]])[1:])
    assert run(colbert)["q.0"].error_code == "invalid_request"
    assert entries(colbert) == 0
    assert colbert.scheduler.num_groups == 0


# --- isolation ----------------------------------------------------------------------------------


def test_a_request_that_raises_fails_alone(
    core: EngineCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute = core.runner.execute

    def poisoned(step: ScheduledStep) -> list[PooledResult]:
        if any(one.request_id == "poison" for one in step.requests):
            raise RuntimeError("boom")
        return execute(step)

    monkeypatch.setattr(core.runner, "execute", poisoned)
    core.add([request(name, [n + 1]) for n, name in enumerate(["a", "poison", "b"])])
    outputs = run(core)
    assert outputs["poison"].error_code == "internal_error"
    assert "boom" in str(outputs["poison"].error_message)
    assert outputs["a"].error_code is None
    assert outputs["b"].error_code is None
    assert entries(core) == 0


def test_bad_token_types_fail_alone(core: EngineCore) -> None:
    bad = EMBED.with_extra(compressed_token_type_ids=99)
    core.add([request("a", [1, 2]), request("bad", [3], bad)])
    outputs = run(core)
    assert outputs["bad"].error_code == "invalid_request"
    assert "compressed_token_type_ids" in str(outputs["bad"].error_message)
    assert outputs["a"].error_code is None


def test_a_score_group_survives_a_neighbour_that_raises(colbert: EngineCore) -> None:
    bad = PoolingParams("token_embed", extra_kwargs={"compressed_token_type_ids": -1})
    colbert.add([*group("q", [1, 2], [[3, 4], [5, 6]]), request("bad", [9], bad)])
    outputs = run(colbert)
    assert [name for name, one in outputs.items() if one.error_code] == ["bad"]
    assert entries(colbert) == 0


def test_nan_is_an_error_of_that_request_only(core: EngineCore) -> None:
    assert isinstance(core.runner, ModelRunner)
    with torch.no_grad():
        for parameter in core.runner._model.parameters():
            if parameter.shape[0] == 30522:
                parameter[666] = float("nan")
                break
        else:
            pytest.fail("no embedding table found")
    core.add([request("evil", [101, 666]), request("good", [101, 667])])
    outputs = run(core)
    assert outputs["evil"].error_code == "non_finite_result"
    assert outputs["good"].error_code is None


def test_a_result_that_is_missing_is_an_error_not_a_hang(
    core: EngineCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core.runner, "execute", lambda step: [])
    core.add([request("a", [1])])
    assert run(core)["a"].error_code == "internal_error"


# --- late interaction ---------------------------------------------------------------------------


def test_scores_are_maxsim_of_the_vectors_and_nothing_is_left(colbert: EngineCore) -> None:
    query, documents = [101, 1, 2000, 102], [[101, 2, 3000, 3001, 102], [101, 2, 2000, 102]]
    colbert.add(group("q", query, documents))
    outputs = run(colbert)
    assert outputs["q"].array().tolist() == [0.0]
    vectors = {}
    for name, ids, side in (("q", query, "query"), *(("d", one, "document") for one in documents)):
        params = PoolingParams("token_embed", input_type=side)  # type: ignore[arg-type]
        colbert.add([request(f"{name}{len(vectors)}", ids, params)])
        vectors.update({k: v.array().astype(np.float64) for k, v in run(colbert).items()})
    left, *right = vectors.values()
    for i, one in enumerate(right):
        expected = (left @ one.T).max(axis=1).sum()
        assert outputs[f"q.{i}"].array()[0] == pytest.approx(expected, rel=1e-5)
        assert outputs[f"q.{i}"].shape == (1,)
    assert entries(colbert) == 0
    assert colbert.scheduler.num_groups == 0


def test_documents_aborted_while_they_wait_release_their_uses(tiny_colbert: Path) -> None:
    core = new_core(tiny_colbert, max_num_batched_tokens=4)
    core.add(group("q", [1, 2, 3, 4], [[5] * 4, [6] * 4, [7] * 4]))
    core.step()
    core.step()
    assert entries(core) > 0
    core.abort(["q.1", "q.2"])
    run(core)
    assert entries(core) == 0


def test_a_cached_query_runs_no_model_and_is_counted(colbert: EngineCore) -> None:
    records: list[StepStats] = []
    scores = []
    for key in ("q", "r"):
        colbert.add(group(key, [101, 1, 2000, 102], [[101, 3000, 102]], content="same"))
        while colbert.has_work:
            made = colbert.step()
            records += [] if made.stats is None else [made.stats]
            scores += [one.array()[0] for one in made.outputs if "." in one.request_id]
    assert sum(one.query_cache_misses for one in records) == 1
    assert sum(one.query_cache_hits for one in records) == 1
    # Plain torch's sums depend on the batch in the last bit.
    assert scores[0] == pytest.approx(scores[1], rel=1e-6)


def test_finished_are_told_before_preempted_join_them(
    colbert: EngineCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(colbert.runner, ModelRunner)
    told: list[tuple[str, object]] = []
    pooling = colbert.runner.pooling
    monkeypatch.setattr(pooling, "on_requests_finished", lambda ids: told.append(("end", [*ids])))
    monkeypatch.setattr(pooling, "remove_request", lambda one: told.append(("remove", one)))
    colbert.runner.execute(ScheduledStep([], {"z", "a"}, {"m"}))
    assert told == [("end", ["a", "z"]), ("remove", "a"), ("remove", "m"), ("remove", "z")]


# --- control ------------------------------------------------------------------------------------


def test_reset_encoder_cache_clears_late_interaction_and_the_query_cache(
    colbert: EngineCore,
) -> None:
    colbert.add(group("q", [1, 2], [[3]], content="text"))
    run(colbert)
    assert len(colbert.runner.query_cache) == 1
    assert colbert.ready_for("reset_encoder_cache")
    colbert.control("reset_encoder_cache", {})
    assert len(colbert.runner.query_cache) == 0


@pytest.mark.parametrize("method", ["reset_mm_cache", "reset_prefix_cache"])
def test_other_resets_leave_late_interaction_alone(tiny_colbert: Path, method: str) -> None:
    core = new_core(tiny_colbert, max_num_batched_tokens=4)
    core.add(group("q", [1, 2, 3, 4], [[5] * 4, [6] * 4], content="text"))
    core.step()
    before = entries(core)
    assert core.ready_for(method)
    core.control(method, {})
    assert entries(core) == before
    assert len(core.runner.query_cache) == 1
    assert all(one.error_code is None for one in run(core).values())


@pytest.mark.parametrize("method", ["reset_encoder_cache", "reload_weights"])
def test_requests_that_wait_survive_a_reset_and_leave_nothing(
    tiny_colbert: Path, method: str
) -> None:
    core = new_core(tiny_colbert, max_num_batched_tokens=4)
    core.add(group("begun", [1, 2, 3, 4], [[5] * 4, [6] * 4]))
    core.step()
    core.add(group("waits", [1, 2, 3, 4], [[7] * 4, [8] * 4, [9] * 4]))
    core.abort(["waits.1"])
    outputs = {}
    while not core.ready_for(method):
        outputs.update({one.request_id: one for one in core.step().outputs})
    assert set(outputs) == {"begun.0", "begun.1"}
    core.control(method, {})
    outputs.update(run(core))
    assert set(outputs) == {"begun.0", "begun.1", "waits", "waits.0", "waits.2"}
    assert all(one.error_code is None for one in outputs.values())
    assert entries(core) == 0


def test_unknown_methods_and_arguments_are_refused(core: EngineCore) -> None:
    with pytest.raises(InvalidRequest, match="'explode'"):
        core.control("explode", {})
    with pytest.raises(InvalidRequest, match="'path'"):
        core.control("reload_weights", {"path": "x"})


def test_stats_tells_the_latest_step(core: EngineCore) -> None:
    core.add([request("a", [1, 2])])
    run(core)
    told = core.control("stats", {})
    assert told["batch_tokens"] == 2
    assert told["request_entries"] == told["score_groups"] == told["query_cache_bytes"] == 0


def test_stats_wait_until_the_runner_knows_what_has_ended(core: EngineCore) -> None:
    core.add([request("a", [1, 2])])
    assert core.ready_for("stats")
    assert core.step().outputs
    assert not core.ready_for("stats")
    assert not core.step().outputs
    assert core.ready_for("stats")
    assert core.control("stats", {})["request_entries"] == 0


# --- new weights --------------------------------------------------------------------------------


def test_what_has_begun_finishes_on_the_old_weights_and_the_rest_on_the_new(
    tiny_bert: Path, make_tiny_bert: Callable[..., Path]
) -> None:
    other = make_tiny_bert(seed=1)
    prompts = [[101, n, 102] for n in range(6)]
    old, new = ({}, {})
    for folder, kept in ((tiny_bert, old), (other, new)):
        core = new_core(folder)
        core.add([request(str(i), ids) for i, ids in enumerate(prompts)])
        kept.update({name: one.array() for name, one in run(core).items()})
    core = new_core(tiny_bert, max_num_batched_tokens=3)
    core.add([request(str(i), prompts[i]) for i in range(3)])
    outputs = {one.request_id: one for one in core.step().outputs}
    core.add([request(str(i), prompts[i]) for i in range(3, 6)])
    while not core.ready_for("reload_weights"):
        outputs.update({one.request_id: one for one in core.step().outputs})
    core.control("reload_weights", {"folder": str(other)})
    outputs.update(run(core))
    for i in range(6):
        kept = old if i < 3 else new
        np.testing.assert_allclose(outputs[str(i)].array(), kept[str(i)], atol=1e-6)


def test_new_weights_clear_what_depended_on_the_old(tiny_colbert: Path, tmp_path: Path) -> None:
    core = new_core(tiny_colbert)
    other = rescaled(tiny_colbert, tmp_path / "other", lambda one: one.flip(0))
    scores = []
    for key in ("q", "r"):
        core.add(group(key, [101, 1, 2000, 102], [[101, 3000, 102]], content="text"))
        scores.append(run(core)[f"{key}.0"].array()[0])
        assert core.ready_for("reload_weights")
        core.control("reload_weights", {"folder": str(other)})
        assert len(core.runner.query_cache) == 0
    fresh = new_core(other)
    fresh.add(group("q", [101, 1, 2000, 102], [[101, 3000, 102]]))
    assert scores[1] == pytest.approx(run(fresh)["q.0"].array()[0], rel=1e-5)
    assert scores[0] != pytest.approx(scores[1], rel=1e-3)


def _missing(tiny: Path, root: Path) -> Path:
    return root / "nowhere"


def _broken(tiny: Path, root: Path) -> Path:
    folder = shutil.copytree(tiny, root / "broken")
    (folder / "model.safetensors").write_bytes(b"this is no checkpoint")
    return folder


def _nan(tiny: Path, root: Path) -> Path:
    return rescaled(tiny, root / "nan", lambda one: one * float("nan"))


def _other_size(tiny: Path, root: Path) -> Path:
    folder = shutil.copytree(tiny, root / "size")
    config = (folder / "config.json").read_text()
    (folder / "config.json").write_text(
        config.replace('"num_hidden_layers": 2', '"num_hidden_layers": 3')
    )
    return folder


@pytest.mark.parametrize("bad", [_missing, _broken, _nan, _other_size])
def test_a_bad_checkpoint_leaves_the_old_weights_serving(
    tiny_bert: Path, tmp_path: Path, bad: Callable[[Path, Path], Path]
) -> None:
    core = new_core(tiny_bert)
    core.add([request("before", [101, 102])])
    before = run(core)["before"].data
    assert core.ready_for("reload_weights")
    with pytest.raises(ModelLoadError):
        core.control("reload_weights", {"folder": str(bad(tiny_bert, tmp_path))})
    core.add([request("after", [101, 102])])
    assert run(core)["after"].data == before


def test_a_model_that_gives_nan_is_refused_at_start(tiny_bert: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="NaN"):
        new_core(_nan(tiny_bert, tmp_path))
