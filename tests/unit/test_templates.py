"""Templates run in a sandbox, see what they should, and turn every failure into a clear error."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from cenote.config.engine import EngineConfig
from cenote.config.model import ModelConfig, load_model_config
from cenote.errors import InvalidRequest, ModelLoadError
from cenote.processors import templates
from cenote.processors.templates import (
    RESERVED,
    ChatTemplate,
    ScoreTemplate,
    load_chat_template,
    load_score_template,
)


@pytest.fixture
def model(minilm_path: Path) -> ModelConfig:
    return load_model_config(minilm_path, name="m", revision="r", engine=EngineConfig())


def test_score_template_sees_variables_and_roles() -> None:
    plain = ScoreTemplate("{{ instruction or 'Judge' }}: {{ query }} | {{ document }}")
    roles = ScoreTemplate(
        "{% for m in messages if m.role == 'query' %}{{ m.content }}{% endfor %} | "
        "{{ messages | selectattr('role', 'eq', 'document') | map(attribute='content') | first }}"
    )
    assert plain.render("q?", "d.") == "Judge: q? | d."
    assert plain.render("q?", "d.", {"instruction": "Find"}) == "Find: q? | d."
    assert roles.render("q?", "d.") == "q? | d."


def test_texts_are_never_taken_for_templates() -> None:
    assert ScoreTemplate("{{ query }}").render("{{ 7 * 7 }}<b>", "d") == "{{ 7 * 7 }}<b>"


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_reserved_variables_are_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match=name) as caught:
        ScoreTemplate("{{ query }}").render("q", "d", {name: "x"})
    assert caught.value.param == "chat_template_kwargs"


@pytest.mark.parametrize(
    "source",
    [
        "{{ query.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ extra.update({'a': 1}) }}",
        "{{ 1 / 0 }}",
        "{{ undefined_name.attribute }}",
        "{{ raise_exception('only one system message') }}",
        "{% for i in range(10 ** 9) %}{% endfor %}",
        "{% include 'other' %}",
    ],
)
def test_whatever_a_template_does_wrong_is_a_clear_refusal(source: str) -> None:
    extra: dict[str, Any] = {"kept": True}
    with pytest.raises(InvalidRequest, match="can't be rendered"):
        ScoreTemplate(source).render("q", "d", {"extra": extra})
    assert extra == {"kept": True}


def test_a_prompt_larger_than_may_be_rendered_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templates, "MAX_RENDERED_CHARACTERS", 100)
    repeat = ScoreTemplate("{% for i in range(times) %}{{ query }}{% endfor %}")
    assert repeat.render("ten chars.", "d", {"times": 10}) == "ten chars." * 10
    with pytest.raises(InvalidRequest, match="more than 100 characters"):
        repeat.render("ten chars.", "d", {"times": 11})


def test_template_that_does_not_compile_stops_the_start() -> None:
    with pytest.raises(ModelLoadError, match="score_template x is not a valid Jinja template"):
        ScoreTemplate("{% for %}", where="score_template x")


def test_score_template_comes_from_the_servers_file_only(
    model: ModelConfig, minilm_path: Path, tmp_path: Path
) -> None:
    assert load_score_template(model, EngineConfig()) is None
    file = tmp_path / "score.jinja"
    file.write_text("{{ cls_token }}{{ query }}{{ sep_token }}{{ document }}")
    template = load_score_template(model, EngineConfig(score_template=str(file)))
    assert template is not None
    assert template.render("a", "b") == "[CLS]a[SEP]b"
    with pytest.raises(ModelLoadError, match=r"nowhere\.jinja"):
        load_score_template(model, EngineConfig(score_template=str(tmp_path / "nowhere.jinja")))


CHAT = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{{ note }}"


@pytest.mark.parametrize("form", ["file", "settings", "named"])
def test_chat_template_of_each_form(minilm_path: Path, tmp_path: Path, form: str) -> None:
    shutil.copy(minilm_path / "config.json", tmp_path)
    if form == "file":
        (tmp_path / "chat_template.jinja").write_text(CHAT)
    else:
        value = CHAT if form == "settings" else [{"name": "default", "template": CHAT}]
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": value}))
    config = load_model_config(tmp_path, name="m", revision="r", engine=EngineConfig())
    template = load_chat_template(config)
    assert template is not None
    assert template.render([{"role": "user", "content": "hi"}], {"note": "!"}) == "<user>hi!"


def test_model_without_a_chat_template_has_none(model: ModelConfig) -> None:
    assert load_chat_template(model) is None


def test_generation_prompt_only_on_request() -> None:
    template = ChatTemplate("{% if add_generation_prompt %}go{% else %}stop{% endif %}")
    assert template.render([]) == "stop"
    assert template.render([], {"add_generation_prompt": True}) == "go"


def test_rendering_is_the_references(tmp_path: Path) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    source = (
        "{% for m in messages %}\n"
        "    {% if m.role == 'system' %}\n"
        "{{ m.content | trim }}\n"
        "    {% continue %}\n"
        "    {% endif %}\n"
        "<{{ m.role }}>{{ m.content }}\n"
        "{% endfor %}\n"
        "{{ extra | default('none') }}{{ messages | tojson }}"
    )
    messages = [{"role": "system", "content": " be kind "}, {"role": "user", "content": "<hé>"}]
    (expected,), _ = render_jinja_template(conversations=[messages], chat_template=source)
    assert ChatTemplate(source).render(messages) == expected
