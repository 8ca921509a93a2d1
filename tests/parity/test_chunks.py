"""Prompts in parts against transformers: every chunking, preemption and cache gives its numbers."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from heads import reference_outputs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from reference import serve
from test_decoders import FAMILIES
from tiny import MakeTiny
from torch import Tensor
from torch.nn import functional as F

from cenote import LLM
from cenote.config.engine import EngineConfig
from cenote.config.server import ServerConfig
from cenote.engine.client import start_engine
from cenote.engine.core import EngineCore
from cenote.engine.messages import EngineOutput, EnginePrompt, EngineRequest
from cenote.errors import InvalidRequest, UnsupportedTask
from cenote.models.registry import ARCHITECTURES, model_class
from cenote.params import PoolingParams, Task
from cenote.server import run as run_server
from cenote.server.app import create_app
from cenote.step import PooledResult, ScheduledStep

TOLERANCE = 1e-5
LENGTH = 160
SETTINGS = {"num_key_value_heads": 2, "max_position_embeddings": LENGTH, "initializer_range": 0.2}
MODES = ("last", "mean", "cls", "max", "weightedmean", "mean_sqrt_len_tokens")


def prompts() -> list[list[int]]:
    """Sixteen prompts: half of them begin alike, for 37 tokens or 12 of them."""
    made = random.Random(0)
    start = [made.randrange(5, 400) for _ in range(37)]
    lengths = [1, 2, 15, 16, 17, 33, 64, 97]
    alone = [[made.randrange(5, 400) for _ in range(n)] for n in lengths]
    return alone + [start[: 37 if n % 2 else 12] + tail for n, tail in enumerate(alone)]


PROMPTS = prompts()


@pytest.fixture(scope="module")
def llama(make_tiny: MakeTiny) -> Path:
    return make_tiny("LlamaModel", "bpe", length=LENGTH, **SETTINGS)


@pytest.fixture(scope="module")
def classifier(make_tiny: MakeTiny) -> Path:
    return make_tiny("LlamaForSequenceClassification", "bpe", num_labels=3, **SETTINGS)


@cache
def rows(folder: Path) -> list[Tensor]:
    """transformers' outputs of all prompts: hidden states, or a classifier's logits."""
    return reference_outputs(serve(folder, "torch"), PROMPTS, None)


def pooled(mode: str, hidden: Tensor) -> NDArray[np.float32]:
    n = len(hidden)
    weights = torch.arange(1, n + 1)[:, None].float()
    vector = {
        "last": hidden[-1],
        "cls": hidden[0],
        "max": hidden.amax(0),
        "mean": hidden.mean(0),
        "mean_sqrt_len_tokens": hidden.sum(0) / n**0.5,
        "weightedmean": (hidden * weights).sum(0) / weights.sum(),
    }[mode]
    found: NDArray[np.float32] = F.normalize(vector, dim=-1).numpy()
    return found


@cache
def core(folder: Path, **changes: Any) -> EngineCore:
    """An engine for many examples; its budget is changed between them."""
    config = {"dtype": "float32", "threads": 1, "max_model_len": LENGTH, **changes}
    return EngineCore(EngineConfig(model=str(folder), **config))


def requests(which: list[int], task: Task, salt: str | None = None) -> list[EngineRequest]:
    params = PoolingParams(task, use_activation=None if task == "embed" else False)
    return [EngineRequest(str(i), EnginePrompt(PROMPTS[i], cache_salt=salt), params) for i in which]


def run(
    engine: EngineCore, budget: int, preempted: list[int] | None = None
) -> dict[str, EngineOutput]:
    """Steps to the end; before step n the running request number `preempted[n]` is preempted."""
    engine.scheduler.max_tokens = budget
    outputs: dict[str, EngineOutput] = {}
    points = list(preempted or ())
    while engine.has_work:
        running = list(engine.scheduler.running.values())
        if points and running:
            engine.scheduler.preempt(running[points.pop(0) % len(running)])
        for one in engine.step().outputs:
            assert one.error_code is None, one.error_message
            assert one.request_id not in outputs
            outputs[one.request_id] = one
    assert engine.runner.num_entries == 0
    assert engine.scheduler.prompts.usage().held == 0
    return outputs


def assert_right(outputs: dict[str, EngineOutput], expected: dict[int, NDArray[Any]]) -> None:
    assert set(outputs) == {str(i) for i in expected}
    for i, right in expected.items():
        difference = np.abs(outputs[str(i)].array() - right).max() / max(1.0, np.abs(right).max())
        assert difference <= TOLERANCE, f"prompt {i} ({len(PROMPTS[i])} tokens): {difference:.1e}"


CHUNKINGS = {
    "budget": st.integers(1, 64),
    "which": st.lists(st.integers(0, 15), min_size=1, max_size=6, unique=True),
    "preempted": st.lists(st.integers(0, 3), max_size=4),
}
EXAMPLES = settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_every_chunking_gives_the_pooled_rows_of_transformers(
    mode: str, caching: bool, kernels: str, llama: Path
) -> None:
    engine = core(llama, pooling=mode, kernels=kernels, enable_prefix_caching=caching, block_size=5)

    @EXAMPLES
    @given(**CHUNKINGS)
    def check(budget: int, which: list[int], preempted: list[int]) -> None:
        engine.add(requests(which, "embed"))
        expected = {i: pooled(mode, rows(llama)[i]) for i in which}
        assert_right(run(engine, budget, preempted), expected)

    check()
    assert mode != "last" or not caching or engine.scheduler.prompts.usage().hits > 0


@pytest.mark.parametrize("caching", [True, False])
def test_every_chunking_gives_the_logits_of_transformers(
    caching: bool, kernels: str, classifier: Path
) -> None:
    engine = core(classifier, kernels=kernels, enable_prefix_caching=caching)

    @EXAMPLES
    @given(**CHUNKINGS)
    def check(budget: int, which: list[int], preempted: list[int]) -> None:
        engine.add(requests(which, "classify"))
        expected = {i: rows(classifier)[i].numpy() for i in which}
        assert_right(run(engine, budget, preempted), expected)

    check()


DECODERS: dict[str, dict[str, Any]] = {
    **FAMILIES,
    "Llama": {},
    "Lfm2": {
        "num_hidden_layers": 4,
        "layer_types": ["conv", "full_attention", "conv", "full_attention"],
        "conv_L_cache": 4,
        "conv_bias": True,
        "block_multiple_of": 16,
    },
}


def test_every_causal_family_is_tried() -> None:
    causal = {one for one in ARCHITECTURES if model_class(one).info.causal}
    families = {ARCHITECTURES[one].partition(":")[0] for one in causal}
    tried = {ARCHITECTURES[f"{family}Model"].partition(":")[0] for family in DECODERS}
    # Reward models are Qwen2 with another head.
    assert tried == families - {"cenote.models.qwen2_reward"}


@pytest.mark.parametrize("family", DECODERS)
def test_every_chunking_of_every_family(
    family: str, kernels: str, make_tiny: MakeTiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a pool of 50 blocks, so that prefixes are evicted and prompts wait for each other."""
    monkeypatch.setattr("cenote.runner.kv_memory._MOST_TOKENS", 150)
    folder = make_tiny(f"{family}Model", "bpe", **{**SETTINGS, **DECODERS[family]})
    engine = core(folder, kernels=kernels, block_size=3)

    @settings(EXAMPLES, max_examples=8)
    @given(**CHUNKINGS)
    def check(budget: int, which: list[int], preempted: list[int]) -> None:
        engine.add(requests(which, "embed"))
        expected = {i: pooled("last", rows(folder)[i]) for i in which}
        assert_right(run(engine, budget, preempted), expected)

    check()
    use = engine.scheduler.prompts.usage()
    assert use.num_blocks == 50
    assert use.hits > 0
    assert engine.scheduler.preemptions > 0


def test_a_common_prefix_within_one_step_gives_the_same(kernels: str, llama: Path) -> None:
    engine = core(llama, kernels=kernels, max_num_batched_tokens=4096)
    engine.control("reset_prefix_cache", {})
    which = list(range(8, 16))
    engine.add(requests(which, "embed"))
    outputs = run(engine, 4096)
    assert_right(outputs, {i: pooled("last", rows(llama)[i]) for i in which})
    # 37 tokens in common are two full blocks; the first of them computes those.
    cached = [outputs[str(i)].num_cached_tokens for i in which]
    assert cached == [0, 0, 0, 32, 0, 32, 0, 32]


@pytest.mark.parametrize("kind", ["linear", "dynamic", "yarn"])
def test_rotary_scaling_survives_chunks(kind: str, make_tiny: MakeTiny) -> None:
    scaling = {"rope_type": kind, "factor": 2.0, "rope_theta": 100.0}
    scaling |= {"original_max_position_embeddings": 32} if kind != "linear" else {}
    config = {**SETTINGS, "max_position_embeddings": 64, "rope_parameters": scaling}
    folder = make_tiny("LlamaModel", "bpe", **config)
    engine = core(folder, kernels="torch", max_model_len=64)
    which = [i for i in range(16) if len(PROMPTS[i]) <= 64]
    engine.add(requests(which, "embed"))
    expected = {i: pooled("last", rows(folder)[i]) for i in which}
    assert_right(run(engine, 10), expected)
    # Dynamic scaling changes nothing up to the length of the training.
    assert engine.scheduler.prompts.usage().num_blocks > 0


# --- what a causal model offers -------------------------------------------------------------------


def test_token_level_tasks_are_dropped_together(llama: Path) -> None:
    assert core(llama, kernels="torch").ready.supported_tasks == ["embed"]
    with LLM(str(llama), dtype="float32", max_model_len=LENGTH) as llm:
        for task in ("token_embed", "token_classify", "sparse_embed"):
            with pytest.raises(UnsupportedTask):
                llm.encode(["a text"], task=task)


def test_a_bidirectional_model_has_no_pool(make_tiny: MakeTiny) -> None:
    engine = core(make_tiny("BertModel", "wordpiece"), kernels="torch", max_model_len=None)
    assert type(engine.scheduler.prompts).__name__ == "WholePrompts"
    assert engine.scheduler.prompts.usage().num_blocks == 0
    assert engine.runner.ready_info.kv is None


def test_usage_tells_cached_tokens(llama: Path) -> None:
    with LLM(str(llama), dtype="float32", max_model_len=LENGTH) as llm:
        text = "the same long beginning of a text, which fills some blocks of the cache: "
        first, second = (llm.embed([text + end])[0] for end in ("one", "two"))
    assert first.num_cached_tokens == 0
    assert second.num_cached_tokens >= 16
    assert second.num_cached_tokens % 16 == 0


def test_usage_tells_cached_tokens_over_http(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        run_server, "start_engine", lambda config, **_: start_engine(config, in_process=True)
    )
    config = EngineConfig(model=str(llama), dtype="float32", threads=1)
    model = run_server.load(config, ServerConfig())
    try:
        client = TestClient(create_app([model], ServerConfig()))
        body = {"input": "a text that is long enough to fill a block of sixteen tokens, or two"}
        usages = [client.post("/v1/embeddings", json=body).json()["usage"] for _ in range(2)]
        salted = client.post("/v1/embeddings", json={**body, "cache_salt": "x"}).json()["usage"]
        metrics = client.get("/metrics").text
    finally:
        model.client.close()
    assert not (usages[0].get("prompt_tokens_details") or {}).get("cached_tokens")
    cached = usages[1]["prompt_tokens_details"]["cached_tokens"]
    assert cached >= 16
    assert not (salted.get("prompt_tokens_details") or {}).get("cached_tokens")
    assert f"cenote_prefix_cache_hits_total {float(cached)}" in metrics


# --- too little memory ----------------------------------------------------------------------------

BLOCK_BYTES = 16 * 2 * 2 * 16 * 4  # 16 tokens, 2 layers, keys and values of 2 heads of 8 numbers


def test_a_pool_of_a_tenth_answers_all_and_ends_empty(llama: Path) -> None:
    """Sixteen threads want about 100 blocks at once; there are 10."""
    config = EngineConfig(
        model=str(llama),
        dtype="float32",
        max_model_len=LENGTH,
        kv_cache_bytes=10 * BLOCK_BYTES,
        max_num_batched_tokens=48,
        threads=1,
    )
    engine = start_engine(config, in_process=True)
    right = [pooled("last", item) for item in rows(llama)]
    params = PoolingParams("embed")

    def work(seed: int) -> None:
        chooser = random.Random(seed)
        for _ in range(12):
            which = chooser.sample(range(16), 3)
            made = [
                EngineRequest(str(i), EnginePrompt(PROMPTS[i]), params, chooser.randrange(-2, 3))
                for i in which
            ]
            future = engine.submit(made)
            if chooser.random() < 0.15:
                future.cancel()
                continue
            for i, output in zip(which, future.result(60), strict=True):
                assert np.abs(output.array() - right[i]).max() <= TOLERANCE

    try:
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(work, range(16)))
        stats = engine.control("stats").result(10)
        assert (stats["kv_blocks"], stats["kv_blocks_held"]) == (10, 0)
        assert stats["request_entries"] == 0
    finally:
        engine.close()


def test_what_can_never_fit_is_refused_at_once(llama: Path) -> None:
    engine = core(llama, kernels="torch", kv_cache_bytes=4 * BLOCK_BYTES)
    engine.add(requests([7], "embed"))
    (output,) = engine.step().outputs
    assert output.error_code == InvalidRequest.code
    assert output.error_message is not None
    assert "97 tokens need 7 blocks" in output.error_message
    assert "room for 64 tokens" in output.error_message


# --- failures, resets, new weights ----------------------------------------------------------------


def test_a_guilty_prompt_fails_alone_and_spoils_no_prefix(
    llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = core(llama, kernels="torch")
    engine.control("reset_prefix_cache", {})
    execute = engine.runner.execute

    def failing(step: ScheduledStep) -> list[PooledResult]:
        results = execute(step)
        if any(one.request_id == "9" for one in step.requests):
            raise RuntimeError("out of luck")
        return results

    monkeypatch.setattr(engine.runner, "execute", failing)
    engine.scheduler.max_tokens = 40
    engine.add(requests([9, 11, 13], "embed"))
    outputs = {}
    while engine.has_work:
        outputs.update({one.request_id: one for one in engine.step().outputs})
    assert outputs.pop("9").error_code == "internal_error"
    assert_right(outputs, {i: pooled("last", rows(llama)[i]) for i in (11, 13)})
    assert engine.scheduler.prompts.usage().held == 0


def test_new_weights_find_no_old_prefix(llama: Path) -> None:
    engine = core(llama, kernels="torch")
    for _ in range(2):
        engine.add(requests([15], "embed"))
        run(engine, 512)
    assert engine.ready_for("reload_weights")
    engine.control("reload_weights", {})
    assert engine.control("stats", {})["kv_blocks_kept"] == 0
    engine.add(requests([15], "embed"))
    assert run(engine, 512)["15"].num_cached_tokens == 0


@pytest.mark.parametrize("salts", [("a", "b"), ("a", None), (None, "a")])
def test_another_salt_finds_nothing(salts: tuple[str | None, str | None], llama: Path) -> None:
    engine = core(llama, kernels="torch")
    engine.control("reset_prefix_cache", {})
    cached = []
    for salt in (*salts, *salts):
        engine.add(requests([15], "embed", salt))
        cached.append(run(engine, 512)["15"].num_cached_tokens)
    assert cached == [0, 0, 128, 128]


@pytest.mark.parametrize("together", [True, False])
def test_salts_share_no_block_and_no_time(
    together: bool, llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time is what runs: as many tokens as if the other salt's prompt had never been there."""
    engine = core(llama, kernels="torch")
    engine.control("reset_prefix_cache", {})
    execute = engine.runner.execute
    ran: list[tuple[int, list[int]]] = []

    def noting(step: ScheduledStep) -> list[PooledResult]:
        ran.extend((one.num_tokens, one.block_ids or []) for one in step.requests)
        return execute(step)

    monkeypatch.setattr(engine.runner, "execute", noting)
    params = PoolingParams("embed")
    for index, salt in enumerate(["a", "b", "a"]):
        prompt = EnginePrompt(PROMPTS[15], cache_salt=salt)
        engine.add([EngineRequest(str(index), prompt, params, priority=index)])
        if not together or index == 1:
            run(engine, 512)
    run(engine, 512)
    (first, a), (second, b), (again, more) = ran
    assert first == second == len(PROMPTS[15])
    # Eight blocks are full and kept; the last one is given back to whoever comes.
    assert not set(a[:8]) & set(b)
    assert again == len(PROMPTS[15]) - 128
    assert more[:8] == a[:8]


def test_without_prefix_cache_nothing_is_found(llama: Path) -> None:
    engine = core(llama, kernels="torch", enable_prefix_caching=False)
    for _ in range(2):
        engine.add(requests([14, 15], "embed"))
        outputs = run(engine, 512)
        assert [one.num_cached_tokens for one in outputs.values()] == [0, 0]
    use = engine.scheduler.prompts.usage()
    assert (use.hits, use.queries, use.kept) == (0, 0, 0)
