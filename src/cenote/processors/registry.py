"""All processors of one served model: what the server and `LLM` call.

It decides which scorer a model has; everything else is in the processors. Thread-safe.
"""

from __future__ import annotations

from typing import Any, Literal

from cenote.config.architectures import LISTWISE
from cenote.config.engine import EngineConfig
from cenote.config.model import ModelConfig
from cenote.engine.messages import EngineReady
from cenote.errors import InvalidRequest, UnsupportedTask
from cenote.outputs import Classification, Embedding, Ranking, Score
from cenote.params import Task
from cenote.processors import classify, embed, pooling
from cenote.processors.chat import Chat
from cenote.processors.colbert import ColbertEncoder
from cenote.processors.inputs import (
    ClassifyInput,
    EmbedInput,
    PoolingInput,
    PromptOptions,
    RerankInput,
    ScoreInput,
)
from cenote.processors.prepare import Preparer
from cenote.processors.prepared import Prepared
from cenote.processors.prompts import prefix_for
from cenote.processors.quantize import Quantizer
from cenote.processors.score import (
    bi_encoder,
    cross_encoder,
    late_interaction,
    listwise,
    rerank,
    sparse,
)
from cenote.processors.templates import load_score_template
from cenote.processors.tokenizer import Tokenizer

ScoreKind = Literal["bi_encoder", "cross_encoder", "late_interaction", "listwise", "sparse"]

# The task that `/pooling` runs where a request names none: the first that the model supports.
_DEFAULT_ORDER: tuple[Task, ...] = (
    "embed",
    "classify",
    "token_embed",
    "token_classify",
    "sparse_embed",
)


class Processors:
    """Makes engine requests from inputs, and results from the engine's outputs."""

    def __init__(
        self,
        config: ModelConfig,
        tokenizer: Tokenizer,
        ready: EngineReady,
        engine: EngineConfig,
    ) -> None:
        self._preparer = Preparer(config, tokenizer, ready, engine)
        colbert = config.pooler.colbert
        self._colbert = None if colbert is None else ColbertEncoder(self._preparer, colbert)
        self._template = load_score_template(config, engine)
        self.quantizer = Quantizer.from_file(engine.calibration)
        self.chat_text = Chat(config).text
        self.limits = engine

    @property
    def supported_tasks(self) -> tuple[Task, ...]:
        """The tasks that the served model can do."""
        return self._preparer.supported_tasks

    @property
    def default_task(self) -> Task:
        """The task of a pooling request that names none."""
        order = [task for task in _DEFAULT_ORDER if task in self.supported_tasks]
        if not order:
            raise UnsupportedTask("pooling", self.supported_tasks)
        return order[0]

    def prompt_text(self, name: str | None) -> str:
        """The model's own prompt of that name ("" for None). Raises `InvalidRequest`."""
        options = PromptOptions(prompt_name=name)
        return prefix_for(self._preparer.config, options) if name is not None else ""

    @property
    def score_kind(self) -> ScoreKind | None:
        """How this model scores pairs; None: it can't.

        A cross-encoder is a classifier with exactly one label (a reward is none), late interaction
        needs a ColBERT head, any other model with embeddings is a bi-encoder, and one with nothing
        but sparse vectors scores by those.
        """
        tasks = self.supported_tasks
        config = self._preparer.config
        if config.architecture in LISTWISE:
            return "listwise"
        rewards = config.architecture.endswith("RewardModel")
        if "classify" in tasks and config.num_labels == 1 and not rewards:
            return "cross_encoder"
        if "token_embed" in tasks and self._colbert is not None:
            return "late_interaction"
        if "embed" in tasks:
            return "bi_encoder"
        return "sparse" if "sparse_embed" in tasks else None

    def embed(self, request: EmbedInput) -> Prepared[list[Embedding]]:
        """One vector for each prompt."""
        return embed.embed(self._preparer, request)

    def classify(self, request: ClassifyInput) -> Prepared[list[Classification]]:
        """Class scores for each prompt."""
        return classify.classify(self._preparer, request)

    def pooling(self, request: PoolingInput) -> Prepared[Any]:
        """Any task by name: a list of that task's result type."""
        return pooling.pooling(self._preparer, self._colbert, request, self.default_task)

    def score(self, request: ScoreInput) -> Prepared[list[Score]]:
        """Scores of pairs. Raises `UnsupportedTask` for a model that can't score."""
        kind = self.score_kind
        if request.score_weights is not None and kind != "bi_encoder":
            raise InvalidRequest(
                "score_weights is for embedding models; this one has a scorer of its own.",
                param="score_weights",
            )
        if kind == "cross_encoder":
            return cross_encoder.score(self._preparer, self._template, request)
        if kind == "listwise":
            return listwise.score(self._preparer, request)
        if kind == "late_interaction" and self._colbert is not None:
            return late_interaction.score(self._preparer, self._colbert, request)
        if kind == "bi_encoder":
            return bi_encoder.score(self._preparer, request)
        if kind == "sparse":
            return sparse.score(self._preparer, request)
        raise UnsupportedTask("score", self.supported_tasks)

    def rerank(self, request: RerankInput) -> Prepared[Ranking]:
        """Documents by their score with one query, best first."""
        return rerank.rerank(self.score, request)
