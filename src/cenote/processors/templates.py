"""Jinja templates for prompts: score templates of rerankers, and chat templates.

Templates run in a sandbox that can't change its arguments, in the environment that Hugging Face
gives them. `chat_template_kwargs` arrive here and go nowhere else. A score template comes from the
request, if the server trusts it, from the server's own file, or is the one that a known reranker
was trained with; a model's chat template is taken for one only where sentence-transformers'
metadata says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NoReturn, TypeVar

from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from cenote.config.engine import EngineConfig
from cenote.config.files import read_json, read_object
from cenote.config.model import ModelConfig
from cenote.config.reranker import OWN_TEMPLATE, RerankerConfig
from cenote.errors import InvalidRequest, ModelLoadError
from cenote.processors.score.prompts import PROMPTS
from cenote.processors.validation import check_type

# A request may not replace the template, the texts, or how the result is used.
RESERVED = frozenset({"chat_template", "tools", "tokenize", "messages", "query", "document"})

MAX_TEMPLATE_CHARACTERS = 100_000

# Of all prompts that are rendered for a request: a template may repeat what it is given.
MAX_RENDERED_CHARACTERS = 1 << 26

TemplateT = TypeVar("TemplateT", bound="Template")


class _Refused(TemplateError):
    """A template's own `raise_exception`."""


def _raise_exception(message: str) -> NoReturn:
    raise _Refused(message)


def _to_json(value: Any, indent: int | None = None) -> str:
    """JSON as Hugging Face's templates expect it: no HTML escapes, letters as they are."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    return environment


class Template:
    """One compiled template. Raises `ModelLoadError`, naming `where`, if it can't be compiled."""

    def __init__(
        self, source: str, *, where: str = "template", constants: Mapping[str, Any] | None = None
    ) -> None:
        self._constants = dict(constants or {})
        try:
            self._template = _environment().from_string(source)
        except TemplateError as error:
            raise ModelLoadError(f"{where} is not a valid Jinja template: {error}") from error

    def fill(self, variables: Mapping[str, Any] | None, own: Mapping[str, Any]) -> str:
        """The text. `variables` are the request's `chat_template_kwargs`, `own` what we bring.

        Raises `InvalidRequest` for reserved variables, for whatever the template refuses, and for a
        prompt of more than `MAX_RENDERED_CHARACTERS`.
        """
        given = dict(variables or {})
        taken = sorted(RESERVED & given.keys())
        if taken:
            raise InvalidRequest(
                f"chat_template_kwargs may not set {', '.join(taken)}.",
                param="chat_template_kwargs",
            )
        try:
            parts = self._template.generate({**self._constants, **own, **given})
            return "".join(bounded(parts))
        except InvalidRequest:
            raise
        except Exception as error:  # a template's expressions can raise anything
            raise InvalidRequest(
                f"The template can't be rendered with these values: {error}",
                param="chat_template_kwargs",
            ) from error


def bounded(parts: Iterable[str]) -> Iterator[str]:
    """The same parts. Raises `InvalidRequest` once they are more than may be rendered."""
    left = MAX_RENDERED_CHARACTERS
    for part in parts:
        left -= len(part)
        if left < 0:
            raise InvalidRequest(
                f"With these values the template writes more than {MAX_RENDERED_CHARACTERS} "
                "characters for this request.",
                param="chat_template_kwargs",
            )
        yield part


class ScoreTemplate(Template):
    """Makes one prompt of a query and a document.

    A template finds them as the variables `query` and `document`, and as `messages` with the roles
    `query` and `document`. `complete`: it writes special tokens itself, none are added to it.
    """

    complete: ClassVar[bool] = False

    def render(self, query: str, document: str, variables: Mapping[str, Any] | None = None) -> str:
        """The pair's prompt. Raises `InvalidRequest`, as all rendering does."""
        messages = [
            {"role": "query", "content": query},
            {"role": "document", "content": document},
        ]
        return self.fill(variables, {"query": query, "document": document, "messages": messages})


class RerankerTemplate(ScoreTemplate):
    """A known reranker's own prompt, up to the token that its answer is read from."""

    complete: ClassVar[bool] = True


class ChatScoreTemplate(RerankerTemplate):
    """A chat template that takes a pair's roles; an instruction is the system's message."""

    def __init__(self, source: str, *, instruction: str = "", **settings: Any) -> None:
        super().__init__(source, **settings)
        self._instruction = instruction

    def render(self, query: str, document: str, variables: Mapping[str, Any] | None = None) -> str:
        """As `ScoreTemplate`."""
        given = dict(variables or {})
        instruction = given.pop("instruction", self._instruction)
        messages = [{"role": "system", "content": instruction}] if instruction else []
        messages += [
            {"role": "query", "content": query},
            {"role": "document", "content": document},
        ]
        return self.fill(given, {"add_generation_prompt": False, "messages": messages})


class ChatTemplate(Template):
    """Makes one prompt of a conversation."""

    def render(
        self, messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any] | None = None
    ) -> str:
        """The conversation's prompt, without a generation prompt unless `variables` ask for it."""
        return self.fill(variables, {"messages": list(messages), "add_generation_prompt": False})


def given_template(kind: type[TemplateT], source: str, config: ModelConfig) -> TemplateT:
    """A request's own template. Raises `InvalidRequest` for one that is no template."""
    check_type(source, "chat_template", str, "a string")
    if len(source) > MAX_TEMPLATE_CHARACTERS:
        raise InvalidRequest(
            f"chat_template has {len(source)} characters; at most {MAX_TEMPLATE_CHARACTERS} are "
            "taken.",
            param="chat_template",
        )
    try:
        return kind(source, where="chat_template", constants=_special_tokens(config))
    except ModelLoadError as error:
        raise InvalidRequest(error.message, param="chat_template") from error


def load_score_template(config: ModelConfig, engine: EngineConfig) -> ScoreTemplate | None:
    """The score template that the server was given, else a known reranker's; None: there is none.

    Raises `ModelLoadError`, also for a reranker whose prompt nobody knows.
    """
    if engine.score_template is None:
        return None if config.reranker is None else _reranker_template(config, config.reranker)
    path = Path(engine.score_template).expanduser()
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelLoadError(
            f"score_template {engine.score_template!r} can't be read: {error}"
        ) from error
    return ScoreTemplate(source, where=f"score_template {path}", constants=_special_tokens(config))


def _reranker_template(config: ModelConfig, reranker: RerankerConfig) -> ScoreTemplate:
    constants = {**_special_tokens(config), **reranker.template_kwargs}
    if reranker.template in PROMPTS:
        return RerankerTemplate(PROMPTS[reranker.template], constants=constants)
    source = _chat_template(config) if reranker.template == OWN_TEMPLATE else None
    if source is None:
        raise ModelLoadError(
            "This reranker scores by the logits of tokens, and its prompt is not known. Give it as "
            "score_template, a file with a Jinja template.",
            param="score_template",
        )
    pooler = config.pooler
    template = ChatScoreTemplate(
        source,
        where=f"chat template of {config.transformer_path}",
        constants=constants,
        instruction=pooler.prompts.get(pooler.default_prompt_name or "", ""),
    )
    _check_takes_pairs(template)
    return template


def _check_takes_pairs(template: ScoreTemplate) -> None:
    """Refuses a template that drops a side: its scores would be plausible and wrong."""
    sides = ("the query's words", "the document's words")
    try:
        shown = template.render(*sides)
    except InvalidRequest as error:
        raise ModelLoadError(error.message, param="score_template") from error
    if any(side not in shown for side in sides):
        raise ModelLoadError(
            "The chat template doesn't write out messages with the roles query and document. Give "
            "this reranker's prompt as score_template, a file with a Jinja template.",
            param="score_template",
        )


def load_chat_template(config: ModelConfig) -> ChatTemplate | None:
    """The model's own chat template, or None: `chat_template.jinja`, else tokenizer_config.json."""
    source = _chat_template(config)
    if source is None:
        return None
    return ChatTemplate(
        source,
        where=f"chat template of {config.transformer_path}",
        constants=_special_tokens(config),
    )


def _chat_template(config: ModelConfig) -> str | None:
    folder = config.transformer_path
    file = folder / "chat_template.jinja"
    if file.is_file():
        source: Any = file.read_text(encoding="utf-8")
    else:
        source = read_object(folder / "tokenizer_config.json").get("chat_template")
        source = source or (read_json(folder / "chat_template.json") or {}).get("chat_template")
    if isinstance(source, list):
        named = {item.get("name"): item.get("template") for item in source}
        source = named.get("default")
    return source if isinstance(source, str) else None


def _special_tokens(config: ModelConfig) -> dict[str, str]:
    """`bos_token` and its like, which templates write out."""
    settings = read_object(config.transformer_path / "tokenizer_config.json")
    found = {}
    for name, value in settings.items():
        text = value.get("content") if isinstance(value, Mapping) else value
        if name.endswith("_token") and isinstance(text, str):
            found[name] = text
    return found
