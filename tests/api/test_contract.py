"""Our OpenAPI document against the app: generated requests get documented answers, and never a 5xx.

The default run is a sample; `-m slow` runs some thousand cases. Both are seeded.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fake_engine import FakeEngine
from hypothesis import HealthCheck, Phase, given, seed, settings

from cenote.config.server import ServerConfig
from cenote.server.app import create_app
from conftest import MakeModel

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis (extra dev) not installed")

SEED = 20260101
CASES_A_ROUTE = {"sample": 4, "all": 80}
TASKS = ["embed", "classify", "token_embed", "token_classify", "sparse_embed"]


@pytest.fixture(scope="module")
def schema(make_model: MakeModel) -> Iterator[object]:
    """The document of a server whose model does every task."""
    engine = FakeEngine(TASKS)
    config = ServerConfig(enable_admin=True, max_items_per_request=64)
    app = create_app([make_model(engine, allow_any_dimensions=True)], config)
    yield schemathesis.openapi.from_asgi("/openapi.json", app)
    engine.close()


def run(schema: object, cases: int) -> int:
    """Sends `cases` generated requests to each route and checks the answers; returns how many."""
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_headers_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    checks = [
        not_a_server_error,
        content_type_conformance,
        response_headers_conformance,
        response_schema_conformance,
        status_code_conformance,
    ]
    sent = 0
    for result in schema.get_all_operations():
        operation = result.ok()

        @seed(SEED)
        @settings(
            max_examples=cases,
            deadline=None,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def send(case: object) -> None:
            nonlocal sent
            sent += 1
            case.call_and_validate(checks=checks)

        send()
    return sent


def test_generated_requests_get_documented_answers(schema: object) -> None:
    assert run(schema, CASES_A_ROUTE["sample"]) > 150


@pytest.mark.slow
def test_thousands_of_generated_requests_get_documented_answers(schema: object) -> None:
    assert run(schema, CASES_A_ROUTE["all"]) > 3000
