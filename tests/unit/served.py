"""A served model without an engine: real config and tokenizer of a folder, a spy for the engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from spy_engine import SpyEngine

from cenote.config.engine import EngineConfig
from cenote.config.model import ModelConfig, load_model_config
from cenote.llm import LLM
from cenote.params import Task
from cenote.processors.prepared import Prepared
from cenote.processors.registry import Processors
from cenote.processors.tokenizer import Tokenizer


class Served:
    """`run` does what the server does: prepare, submit, finish."""

    def __init__(
        self,
        folder: Path,
        tasks: list[Task],
        *,
        labels: int = 1,
        engine: EngineConfig | None = None,
        pooler: dict[str, Any] | None = None,
        **config: Any,
    ) -> None:
        self.engine = engine or EngineConfig(model=str(folder))
        loaded = load_model_config(folder, name="tiny", revision="r1", engine=self.engine)
        loaded = replace(loaded, pooler=replace(loaded.pooler, **(pooler or {})), **config)
        self.config: ModelConfig = loaded
        self.tokenizer = Tokenizer(folder, loaded)
        self.spy = SpyEngine(tasks, labels=labels, max_model_len=loaded.max_model_len)
        self.processors = Processors(loaded, self.tokenizer, self.spy.ready, self.engine)

    def run(self, prepared: Prepared[Any]) -> Any:
        return prepared.finish(self.spy.submit(prepared.requests).result())

    def llm(self) -> LLM:
        return LLM.over(self.spy, self.engine, self.config, self.tokenizer)
