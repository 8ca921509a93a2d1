"""Types of the fields that carry text or token ids, checked so that the error names the item.

They are checked by hand, because a union of four list types would answer with a page of errors.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import PlainValidator, ValidationInfo, WithJsonSchema

from cenote.errors import InvalidRequest

_MOST_SHOWN = 60
_WORDS = {None: "null", True: "true", False: "false"}


def shown(value: Any) -> str:
    """A value for an error message, in JSON's words, cut where it is long."""
    if value is None or isinstance(value, bool):
        return _WORDS[value]
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def _check_prompts(value: Any, info: ValidationInfo) -> list[str] | list[list[int]]:
    field = str(info.field_name)
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise InvalidRequest(
            f"{field} must be a string, a list of strings, a list of token ids or a list of "
            f"token-id lists, not {shown(value)}.",
            param=field,
        )
    if not value:
        return []
    if isinstance(value[0], dict):
        return [text_of(item, field, f"{field}[{i}]") for i, item in enumerate(value)]
    if isinstance(value[0], str):
        return _all_strings(value, field)
    if isinstance(value[0], list):
        return [_all_ids(ids, field, f"{field}[{i}]") for i, ids in enumerate(value)]
    return [_all_ids(value, field, field)]


def _check_texts(value: Any, info: ValidationInfo) -> list[str]:
    field = str(info.field_name)
    if isinstance(value, list):
        return [text_of(item, field, f"{field}[{i}]") for i, item in enumerate(value)]
    return [text_of(value, field, field)]


def _check_optional_texts(value: Any, info: ValidationInfo) -> list[str] | None:
    return None if value is None else _check_texts(value, info)


def _check_text(value: Any, info: ValidationInfo) -> str:
    return text_of(value, str(info.field_name), str(info.field_name))


def _check_documents(value: Any, info: ValidationInfo) -> list[str | dict[str, Any]]:
    field = str(info.field_name)
    items = value if isinstance(value, list) else [value]
    for i, item in enumerate(items):
        if not isinstance(item, str | dict):
            where = f"{field}[{i}]" if items is value else field
            raise InvalidRequest(
                f"{where} must be a string or an object with text, not {shown(item)}.",
                param=field,
            )
    return items


def _all_strings(items: list[Any], field: str) -> list[str]:
    for i, item in enumerate(items):
        if not isinstance(item, str):
            raise InvalidRequest(
                f"{field}[{i}] must be a string like the items before it, not {shown(item)}.",
                param=field,
            )
    return items


def _all_ids(items: Any, field: str, where: str) -> list[int]:
    if not isinstance(items, list):
        raise InvalidRequest(
            f"{where} must be a list of token ids, not {shown(items)}.", param=field
        )
    for i, item in enumerate(items):
        if type(item) is not int:
            raise InvalidRequest(
                f"{where}[{i}] must be a token id (a whole number), not {shown(item)}.",
                param=field,
            )
    return items


def text_of(item: Any, field: str, where: str) -> str:
    """The text of a string, of `{"text": …}` or of `{"content": [{"type": "text", "text": …}]}`."""
    if isinstance(item, str):
        return item
    if not isinstance(item, dict):
        raise InvalidRequest(
            f"{where} must be a string or an object with text, not {shown(item)}.", param=field
        )
    content = item.get("text", item.get("content"))
    if isinstance(content, str):
        return content
    if isinstance(content, list) and content:
        return "".join(_part_text(part, field, where) for part in content)
    raise InvalidRequest(
        f"{where} must have text, or content with parts of type text, not {shown(item)}.",
        param=field,
    )


def _part_text(part: Any, field: str, where: str) -> str:
    if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    raise InvalidRequest(
        f"{where} has a part that is no text, which is all this model reads: {shown(part)}.",
        param=field,
    )


def _array(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


_STRING: dict[str, Any] = {"type": "string"}
_IDS = _array({"type": "integer", "minimum": 0})
_PART = {
    "type": "object",
    "properties": {"type": {"const": "text"}, "text": _STRING},
    "required": ["type", "text"],
}
_TEXT_OBJECT = {"type": "object", "properties": {"text": _STRING, "content": _array(_PART)}}
_TEXT = {"anyOf": [_STRING, _TEXT_OBJECT]}
_TEXT_OBJECTS = _array(_TEXT_OBJECT)
_TEXTS = {"anyOf": [_STRING, _TEXT_OBJECT, _array(_TEXT)]}

# One text, several, one prompt of token ids, or several; always a list after the check.
Prompts = Annotated[
    list[str] | list[list[int]],
    PlainValidator(_check_prompts),
    WithJsonSchema({"anyOf": [_STRING, _array(_STRING), _IDS, _array(_IDS), _TEXT_OBJECTS]}),
]
# One text or several, as strings or objects with text.
Texts = Annotated[list[str], PlainValidator(_check_texts), WithJsonSchema(_TEXTS)]
OptionalTexts = Annotated[
    list[str] | None,
    PlainValidator(_check_optional_texts),
    WithJsonSchema({"anyOf": [*_TEXTS["anyOf"], {"type": "null"}]}),
]
# One text, as a string or an object with text.
Text = Annotated[str, PlainValidator(_check_text), WithJsonSchema(_TEXT)]
# Texts, or objects whose text may be in fields that another field of the body names.
Documents = Annotated[
    list[str | dict[str, Any]],
    PlainValidator(_check_documents),
    WithJsonSchema(
        {"anyOf": [_STRING, {"type": "object"}, _array({"anyOf": [_STRING, {"type": "object"}]})]}
    ),
]
