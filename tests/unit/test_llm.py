"""The offline API over a spy engine: order, chunks, what is accepted, what is cleaned up."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from served import Served
from spy_engine import SpyEngine

import cenote
from cenote.config.engine import EngineConfig
from cenote.engine.messages import EngineOutput, EngineRequest
from cenote.errors import InvalidRequest, NonFiniteResult, Overloaded
from cenote.llm import LLM
from cenote.processors.window import CHUNK_PROMPTS


@pytest.fixture
def served(tiny_bert: Path) -> Served:
    return Served(tiny_bert, ["embed", "token_embed"])


def test_one_text_gives_a_list_too(served: Served) -> None:
    llm = served.llm()
    assert len(llm.embed("one")) == 1
    assert len(llm.embed([101, 102])) == 1
    assert len(llm.embed(["one", [101, 102]])) == 2
    assert len(llm.score("q", "d")) == 1


def test_many_texts_keep_their_order_over_chunks(served: Served) -> None:
    texts = ["x " * (index % 7 + 1) for index in range(3 * CHUNK_PROMPTS + 5)]
    results = served.llm().embed(texts)
    assert [item.prompt_tokens for item in results] == [2 + index % 7 + 1 for index in range(773)]
    assert [len(submit) for submit in served.spy.submits] == [32, 64, 128, 256, 256, 37]


def test_documents_of_one_query_stay_together(served: Served) -> None:
    served.llm().score("q", [f"d{index}" for index in range(CHUNK_PROMPTS)])
    assert [len(submit) for submit in served.spy.submits] == [CHUNK_PROMPTS + 1]


def test_a_generator_is_read_as_it_is_needed(served: Served) -> None:
    def texts() -> Iterator[str]:
        for index in range(600):
            yield f"text {index}"

    assert len(served.llm().embed(texts())) == 600


def test_pairs_keep_their_order_over_chunks(served: Served) -> None:
    texts = [f"t{index % 5}" for index in range(600)]
    llm = served.llm()
    assert all(item.score == pytest.approx(1.0) for item in llm.score(texts, texts))
    ranking = llm.rerank("t3", texts, top_n=120)
    assert {item.document for item in ranking.results} == {"t3"}
    assert [item.index for item in ranking.results] == list(range(3, 600, 5))


class SlowEngine(SpyEngine):
    """Answers only when asked to, and counts what it holds."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.waiting: list[tuple[Future[list[EngineOutput]], list[EngineRequest]]] = []
        self.most = 0
        self.limit = 1_000_000

    def submit(self, requests: list[EngineRequest]) -> Future[list[EngineOutput]]:
        if len(self.waiting) >= self.limit:
            raise Overloaded("full")
        engine = self

        class Lazy(Future[list[EngineOutput]]):
            def result(self, timeout: float | None = None) -> list[EngineOutput]:
                engine.waiting = [item for item in engine.waiting if item[0] is not self]
                return engine.answer(requests)

        future = Lazy()
        self.waiting.append((future, requests))
        self.most = max(self.most, len(self.waiting))
        return future


def slow_llm(served: Served, **engine: Any) -> tuple[LLM, SlowEngine]:
    spy = SlowEngine(["embed"], max_model_len=served.config.max_model_len)
    config = EngineConfig(model=str(served.config.path), **engine)
    return LLM.over(spy, config, served.config, served.tokenizer), spy


def test_chunks_run_ahead_but_never_without_bound(served: Served) -> None:
    llm, spy = slow_llm(served)
    assert len(llm.embed(["x"] * (20 * CHUNK_PROMPTS))) == 20 * CHUNK_PROMPTS
    assert spy.most == 8


def test_waiting_tokens_stay_below_half_the_queue(served: Served) -> None:
    llm, spy = slow_llm(served, max_waiting_tokens=3000)
    results = llm.embed(["x " * 98] * 40)
    assert len(results) == 40
    assert spy.most == 1, "a chunk of 11 prompts of 100 tokens is over a third of the queue"


def test_a_full_queue_is_waited_for(served: Served) -> None:
    llm, spy = slow_llm(served)
    spy.limit = 2
    assert len(llm.embed(["x"] * (5 * CHUNK_PROMPTS))) == 5 * CHUNK_PROMPTS
    spy.limit = 0
    with pytest.raises(Overloaded):
        llm.embed(["x"])


def test_an_error_aborts_the_chunks_behind_it(served: Served) -> None:
    futures: list[Future[list[EngineOutput]]] = []

    class Failing(SpyEngine):
        def submit(self, requests: list[EngineRequest]) -> Future[list[EngineOutput]]:
            future: Future[list[EngineOutput]] = Future()
            if not futures:
                future.set_exception(NonFiniteResult("NaN"))
            futures.append(future)
            return future

    llm = LLM.over(Failing(["embed"]), served.engine, served.config, served.tokenizer)
    with pytest.raises(NonFiniteResult):
        llm.embed(["x"] * (3 * CHUNK_PROMPTS))
    assert len(futures) > 2
    assert all(future.cancelled() for future in futures[1:])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda llm: llm.embed([]), "at least one prompt"),
        (lambda llm: llm.embed(7), "texts must be"),
        (lambda llm: llm.embed(["a", None]), "must be a text"),
        (lambda llm: llm.embed("a", truncate=True), "Unknown option 'truncate'.*truncat"),
        (lambda llm: llm.score([], ["d"]), "At least one text element"),
        (lambda llm: llm.score(["q"], []), "At least one text_pair element"),
        (lambda llm: llm.score(["q", "r"], ["a", "b", "c"]), "1:1, 1:N or N:N, not 2:3"),
        (lambda llm: llm.rerank(["q"], ["d"]), "query must be a string"),
        (lambda llm: llm.rerank("q", []), "At least one text_pair element"),
        (lambda llm: llm.rerank("q", ["d"], top_n=-1), "top_n"),
        (lambda llm: llm.classify("a"), "Unsupported task: 'classify'"),
        (lambda llm: LLM("minilm", dtypes="float32"), "Unknown setting 'dtypes'.*'dtype'"),
    ],
)
def test_bad_calls_say_what_is_wrong(served: Served, call: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        call(served.llm())


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("count", "progress", "drawn"),
    [(3 * CHUNK_PROMPTS, True, True), (3 * CHUNK_PROMPTS, False, False), (3, True, False)],
)
def test_long_work_at_a_terminal_has_a_bar_unless_switched_off(
    served: Served, monkeypatch: pytest.MonkeyPatch, count: int, progress: bool, drawn: bool
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    served.llm().embed(["x"] * count, progress=progress)
    assert ("embed" in terminal.getvalue()) == drawn


def test_it_closes_its_engine(served: Served) -> None:
    with served.llm() as llm:
        assert llm.supported_tasks == ("embed", "token_embed")
        assert llm.score_kind == "bi_encoder"
    assert served.spy.closed


def test_an_engine_whose_llm_could_not_be_made_is_closed_at_once(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise InvalidRequest("no such calibration")

    monkeypatch.setattr(cenote.llm, "start_engine", lambda config, in_process: served.spy)
    monkeypatch.setattr(cenote.llm, "Processors", refuse)
    # The traceback holds the half-made LLM, which closes its engine when it is collected at last.
    with pytest.raises(InvalidRequest, match="calibration") as held:
        LLM(str(served.engine.model))
    assert held.tb is not None
    assert served.spy.closed


def test_the_public_names_are_all_there() -> None:
    for name in cenote.__all__:
        assert getattr(cenote, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'LMM'"):
        _ = cenote.LMM
    assert cenote.LLM is LLM


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = "('torch', 'transformers', 'numpy', 'tokenizers', 'rich')"
    code = f"import sys, cenote; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
