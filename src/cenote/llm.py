"""The offline API: one model in this process, texts in, typed results out.

It shares everything below the HTTP layer with the server: the same processors, the same engine. It
knows no HTTP and no model code.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self, TypeVar

from cenote.config.engine import DEFAULT_MODEL, EngineConfig
from cenote.config.model import ModelConfig, load_model_config
from cenote.config.profile import with_profile
from cenote.engine.client import EngineClient, start_engine
from cenote.engine.messages import EngineReady
from cenote.loader.hub import resolve
from cenote.outputs import Classification, Embedding, Ranking, Score
from cenote.params import Task
from cenote.processors.inputs import (
    ClassifyInput,
    EmbedInput,
    PoolingInput,
    Prompt,
    ScoreInput,
    SparseOptions,
)
from cenote.processors.keywords import as_prompts, as_texts, engine_config, prompt_options
from cenote.processors.long_input import late_chunking_of
from cenote.processors.prepared import Prepared
from cenote.processors.quantize import Precision, check_precision
from cenote.processors.registry import Processors
from cenote.processors.score.rerank import check_rerank, ranking
from cenote.processors.score.shapes import pair_up
from cenote.processors.tokenizer import Tokenizer
from cenote.processors.window import CHUNK_PROMPTS, FIRST_PROMPTS, run_chunks

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class LLM:
    """One served model.

    `fields` are those of `EngineConfig` (dtype, device, max_model_len…). Methods take one text or
    many and give a list in their order; further keywords are the fields of `PromptOptions`
    (`prompt_name`, `use_activation`…). Nothing is cut unless `truncate_prompt_tokens` asks for it.
    Raises `ModelLoadError` for a model that can't be served, `InvalidRequest` for bad arguments.
    """

    def __init__(self, model: str = DEFAULT_MODEL, **fields: Any) -> None:
        config = engine_config(model, fields)
        found = resolve(config.model, config.revision)
        config = with_profile(config, found.folder)
        model_config = load_model_config(
            found.folder, name=found.name, revision=found.revision, engine=config
        )
        client = start_engine(config, in_process=True)
        weakref.finalize(self, client.close)  # for who doesn't: at the interpreter's exit at last
        try:
            self._start(config, model_config, Tokenizer(found.folder, model_config), client)
        except BaseException:
            client.close()
            raise

    @classmethod
    def over(
        cls,
        client: EngineClient,
        config: EngineConfig,
        model_config: ModelConfig,
        tokenizer: Tokenizer,
    ) -> Self:
        """An LLM over an engine that somebody else started (another process, or a fake)."""
        llm = cls.__new__(cls)
        llm._start(config, model_config, tokenizer, client)
        return llm

    def _start(
        self,
        config: EngineConfig,
        model_config: ModelConfig,
        tokenizer: Tokenizer,
        client: EngineClient,
    ) -> None:
        self.config = config
        self.model_config = model_config
        self._client = client
        self._processors = Processors(model_config, tokenizer, client.ready, config)

    @property
    def ready(self) -> EngineReady:
        """What the engine runs: dtype, kernels, limits, vector size."""
        return self._client.ready

    @property
    def supported_tasks(self) -> tuple[Task, ...]:
        """The tasks that the model can do."""
        return self._processors.supported_tasks

    @property
    def score_kind(self) -> str | None:
        """How the model scores: bi_encoder, cross_encoder, late_interaction, sparse, or None."""
        return self._processors.score_kind

    def embed(
        self,
        texts: Prompt | Iterable[Prompt],
        *,
        dimensions: int | None = None,
        precision: Precision = "float32",
        long_input: str = "error",
        late_chunking: bool = False,
        chunk_size: int | None = None,
        spans: Sequence[Sequence[int]] | None = None,
        progress: bool = True,
        **options: Any,
    ) -> list[Embedding]:
        """One vector for each text; `dimensions` cuts it where the model allows that.

        `precision` quantises it (int8, uint8, binary, ubinary); the ranges of int8 and uint8 are
        those of the setting `calibration`, else [-1, 1]. `long_input="chunk_mean"` averages the
        parts of a text over the limit. `late_chunking` runs all texts as one and gives a vector for
        each, or for a single text's `spans` (of characters) or parts of `chunk_size` tokens.
        """
        check_precision(precision, dimensions or self.ready.embedding_size)
        asked = EmbedInput(
            prompts=(),
            dimensions=dimensions,
            long_input=long_input,
            late_chunking=late_chunking_of(late_chunking, chunk_size, spans),
            options=prompt_options(options),
        )

        def prepare(chunk: list[Prompt]) -> Prepared[list[Embedding]]:
            return self._processors.embed(replace(asked, prompts=chunk))

        prompts = as_prompts(texts)
        if late_chunking:
            results = self._run("embed", [list(prompts)], lambda one: prepare(one[0]), progress)
        else:
            results = self._run("embed", prompts, prepare, progress)
        if precision == "float32":
            return results
        quantize = self._processors.quantizer.quantize
        return [replace(item, embedding=quantize(item.embedding, precision)) for item in results]

    def classify(
        self,
        texts: Prompt | Iterable[Prompt],
        *,
        candidate_labels: Sequence[str] | None = None,
        hypothesis_template: str = "This example is {}.",
        multi_label: bool = False,
        progress: bool = True,
        **options: Any,
    ) -> list[Classification]:
        """Class scores for each text, or logits with `use_activation=False`. An NLI model scores
        `candidate_labels`, where they are given, in place of its own classes."""
        asked = ClassifyInput(
            prompts=(),
            candidate_labels=candidate_labels,
            hypothesis_template=hypothesis_template,
            multi_label=multi_label,
            options=prompt_options(options),
        )

        def prepare(chunk: list[Prompt]) -> Prepared[list[Classification]]:
            return self._processors.classify(replace(asked, prompts=chunk))

        return self._run("classify", as_prompts(texts), prepare, progress)

    def encode(
        self,
        texts: Prompt | Iterable[Prompt],
        *,
        task: Task | Sequence[Task] | None = None,
        dimensions: int | None = None,
        sparse_top_k: int | None = None,
        sparse_threshold: float | None = None,
        return_tokens: bool = False,
        aggregation_strategy: str | None = None,
        progress: bool = True,
        **options: Any,
    ) -> list[Any]:
        """Any task by name (None: the model's default): a list of that task's result type.

        Several tasks share one forward pass and give `TaskResults`. The sparse options keep a
        sparse vector's heaviest entries and add their token strings. `aggregation_strategy` gives
        token_classify's entities: none, simple, first, average or max.
        """
        asked = PoolingInput(
            prompts=(),
            task=task,
            dimensions=dimensions,
            sparse=SparseOptions(
                top_k=sparse_top_k, threshold=sparse_threshold, return_tokens=return_tokens
            ),
            aggregation_strategy=aggregation_strategy,
            options=prompt_options(options),
        )

        def prepare(chunk: list[Prompt]) -> Prepared[list[Any]]:
            return self._processors.pooling(replace(asked, prompts=chunk))

        return self._run("encode", as_prompts(texts), prepare, progress)

    def score(
        self,
        queries: str | Sequence[str],
        documents: str | Sequence[str],
        *,
        max_tokens_per_query: int = 0,
        max_tokens_per_doc: int = 0,
        instruction: str | None = None,
        explain: bool = False,
        score_weights: Mapping[str, float] | None = None,
        progress: bool = True,
        **options: Any,
    ) -> list[Score]:
        """Scores of pairs: one query with one or many documents, or as many of each; with
        `score_weights`, the weighted mean of an embedding model's scores by task (BGE-M3)."""
        chosen = prompt_options(options)
        left, right = as_texts(queries), as_texts(documents)
        pair_up(left, right)

        def prepare(chunk: list[int]) -> Prepared[list[Score]]:
            return self._processors.score(
                ScoreInput(
                    queries=left if len(left) == 1 else [left[index] for index in chunk],
                    documents=[right[index] for index in chunk],
                    max_tokens_per_query=max_tokens_per_query,
                    max_tokens_per_doc=max_tokens_per_doc,
                    instruction=instruction,
                    explain=explain,
                    score_weights=score_weights,
                    options=chosen,
                )
            )

        # One query's documents aren't split without need: it would run, and count, once for each.
        first = CHUNK_PROMPTS if len(left) == 1 else FIRST_PROMPTS
        return self._run("score", range(len(right)), prepare, progress, first)

    def rerank(
        self,
        query: str,
        documents: str | Sequence[str],
        *,
        top_n: int | None = None,
        max_tokens_per_query: int = 0,
        max_tokens_per_doc: int = 0,
        instruction: str | None = None,
        explain: bool = False,
        progress: bool = True,
        **options: Any,
    ) -> Ranking:
        """Documents by `score` with one query, best first; `top_n` None or 0 keeps all."""
        check_rerank(query, top_n)
        texts = as_texts(documents)
        scores = self.score(
            query,
            texts,
            max_tokens_per_query=max_tokens_per_query,
            max_tokens_per_doc=max_tokens_per_doc,
            instruction=instruction,
            explain=explain,
            progress=progress,
            **options,
        )
        return ranking(scores, texts, top_n)

    def reload_weights(self, folder: str) -> None:
        """Loads new weights of the same architecture; bad ones leave the old in place."""
        self._client.control("reload_weights", folder=folder).result()

    def close(self) -> None:
        """Finishes what runs and stops the engine; calling it twice is fine."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _run(
        self,
        label: str,
        items: Iterable[ItemT],
        prepare: Callable[[list[ItemT]], Prepared[list[ResultT]]],
        progress: bool,
        first: int = FIRST_PROMPTS,
    ) -> list[ResultT]:
        return run_chunks(
            self._client, self.config, items, prepare, label=label, progress=progress, first=first
        )
