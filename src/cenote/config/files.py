"""Reading a model folder's JSON files, with errors that name the file.

It knows no model and no field.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from cenote.errors import ModelLoadError


def read_json(path: Path) -> Any:
    """The parsed file, or None where it doesn't exist. Raises `ModelLoadError` on bad JSON, and for
    what is there but no file (a folder, a pipe, a link to nowhere)."""
    if not path.is_file():
        if os.path.lexists(path):
            raise ModelLoadError(f"{path} is not a file.")
        return None
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelLoadError(f"{path} can't be read: {error}") from error
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelLoadError(f"{path} is not valid JSON: {error}") from error


def read_object(path: Path) -> dict[str, Any]:
    """The file's JSON object, empty where there is no such file."""
    found = read_json(path)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ModelLoadError(f"{path} must hold a JSON object, not a {type(found).__name__}.")
    return found
