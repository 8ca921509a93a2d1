"""Settings that come as keywords are checked by name, type and range."""

from __future__ import annotations

from typing import Any

import pytest

from cenote.config.engine import EngineConfig
from cenote.config.server import ServerConfig
from cenote.errors import InvalidRequest

WRONG: list[tuple[type, str, Any, str]] = [
    (EngineConfig, "dtype", "int3", "one of 'auto', 'float32', 'bfloat16', 'float16', not 'int3'"),
    (EngineConfig, "kernels", None, "one of 'auto', 'native', 'torch', not None"),
    (EngineConfig, "threads", "2", "a whole number, not '2'"),
    (EngineConfig, "threads", True, "a whole number, not True"),
    (EngineConfig, "max_num_seqs", 1.5, "a whole number, not 1.5"),
    (EngineConfig, "max_model_len", "512", "a whole number or None, not '512'"),
    (EngineConfig, "model", None, "a string, not None"),
    (EngineConfig, "normalize", "yes", "true or false or None, not 'yes'"),
    (EngineConfig, "adapters", "name=folder", "a list of strings, not 'name=folder'"),
    (EngineConfig, "threads", -1, "at least 0, not -1"),
    (ServerConfig, "port", "8000", "a whole number, not '8000'"),
    (ServerConfig, "request_timeout", "1", "a number, not '1'"),
    (ServerConfig, "log_level", "loud", "one of 'debug'"),
    (ServerConfig, "api_key", "secret", "a list of strings"),
]


@pytest.mark.parametrize(("kind", "name", "value", "message"), WRONG)
def test_a_wrong_setting_is_refused_by_name(
    kind: type, name: str, value: Any, message: str
) -> None:
    with pytest.raises(InvalidRequest, match=f"^{name} must be .*{message}") as caught:
        kind(**{name: value})
    assert caught.value.param == name


def test_settings_of_their_types_pass() -> None:
    assert EngineConfig(adapters=("a=b",), max_model_len=None, normalize=False).threads == 0
    assert ServerConfig(request_timeout=3, api_key=("k",)).request_timeout == 3
