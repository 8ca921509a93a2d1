"""API keys, CORS, draining and limits on ids."""

from __future__ import annotations

import pytest
from fake_engine import FakeEngine
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from test_bad_input import refused

from cenote.config.server import ServerConfig
from cenote.errors import InvalidRequest, ModelLoadError
from cenote.server.app import create_app
from conftest import MakeClient, MakeModel

EMBED = "/v1/embeddings"


def test_every_route_but_health_asks_for_the_key(make_client: MakeClient) -> None:
    client = make_client(config=ServerConfig(api_key=("one", "two"), enable_admin=True))
    paths = [getattr(route, "path", "") for route in client.app.routes]
    assert EMBED in paths
    assert "/docs" in paths
    for path in paths:
        for method in ("GET", "POST"):
            response = client.request(method, path)
            if path in ("/health", "/infinity/health", "/ping"):
                assert response.status_code != 401
            else:
                assert response.status_code == 401
                assert "API key" in response.text
                assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "value", ["", "Bearer", "Bearer ", "Bearer on", "Bearer onee", "one", "Basic one"]
)
def test_wrong_keys_are_refused(make_client: MakeClient, value: str) -> None:
    client = make_client(config=ServerConfig(api_key=("one",)))
    refused(client.get("/v1/models", headers={"Authorization": value}), 401)


@pytest.mark.parametrize("value", ["Bearer one", "bearer two"])
def test_any_of_several_keys_is_accepted(make_client: MakeClient, value: str) -> None:
    client = make_client(config=ServerConfig(api_key=("one", "two")))
    headers = {"Authorization": value}
    assert client.get("/v1/models", headers=headers).status_code == 200
    assert client.post(EMBED, json={"input": "a"}, headers=headers).status_code == 200


def test_keys_come_from_the_environment_unless_given() -> None:
    environ = {"CENOTE_API_KEY": "a, b"}
    assert ServerConfig().with_environment(environ).api_key == ("a", "b")
    assert ServerConfig(api_key=("c",)).with_environment(environ).api_key == ("c",)
    assert ServerConfig().with_environment({}).api_key == ()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("port", -1),
        ("port", 65536),
        ("max_body_bytes", 0),
        ("max_items_per_request", 0),
        ("drain_timeout", -1.0),
        ("api_key", ("",)),
    ],
)
def test_settings_out_of_range_are_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(InvalidRequest, match=field):
        ServerConfig(**{field: value})


def test_every_setting_has_a_help_text() -> None:
    for item in ServerConfig.__dataclass_fields__.values():
        assert item.metadata["help"].endswith("."), item.name


def test_cors_is_closed_unless_opened(make_client: MakeClient) -> None:
    headers = {"Origin": "https://page", "Access-Control-Request-Method": "POST"}
    closed = make_client()
    assert "access-control-allow-origin" not in closed.get("/health", headers=headers).headers
    opened = make_client(config=ServerConfig(cors_origins=("https://page",), api_key=("k",)))
    preflight = opened.options(EMBED, headers=headers)
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == "https://page"
    refusal = opened.post(EMBED, json={"input": "a"}, headers={"Origin": "https://page"})
    assert refusal.status_code == 401
    assert refusal.headers["access-control-allow-origin"] == "https://page"


def test_while_draining_new_work_is_503(make_client: MakeClient) -> None:
    client = make_client()
    client.app.state.server.is_draining = True
    response = client.post(EMBED, json={"input": "a"})
    refused(response, 503, "shutting down")
    assert response.headers["retry-after"]
    refused(client.get("/health"), 503)
    assert client.get("/metrics").status_code == 200


def test_unsafe_request_ids_are_replaced(make_client: MakeClient) -> None:
    client = make_client()
    for value in ("a" * 129, "a b", "é"):
        response = client.get("/health", headers={"X-Request-Id": value.encode()})
        assert response.headers["x-request-id"] != value


def test_several_names_and_adapters_find_the_model(make_client: MakeClient) -> None:
    engine = FakeEngine()
    client = make_client(engine, names=("first", "second"), adapters=("tuned",))
    for name in ("first", "second", "tuned"):
        body = client.post(EMBED, json={"input": "a", "model": name}).json()
        assert body["model"] == name
        assert engine.requests[-1].adapter == ("tuned" if name == "tuned" else None)
    assert client.post(EMBED, json={"input": "a"}).json()["model"] == "first"
    ids = {card["id"]: card for card in client.get("/v1/models").json()["data"]}
    assert list(ids) == ["first", "second", "tuned"]
    assert (ids["tuned"]["parent"], ids["first"]["parent"]) == ("first", None)


def test_two_models_on_one_port_are_found_by_name(make_model: MakeModel) -> None:
    engines = [FakeEngine(), FakeEngine(["classify"])]
    models = [
        make_model(engine, names=(name,))
        for engine, name in zip(engines, ("embedder", "classifier"), strict=True)
    ]
    client = TestClient(create_app(models, ServerConfig()))
    assert client.post(EMBED, json={"input": "a"}).json()["model"] == "embedder"
    body = client.post("/classify", json={"input": "a", "model": "classifier"}).json()
    assert body["model"] == "classifier"
    refused(client.post("/classify", json={"input": "a"}), 400, "Unsupported task")
    assert [len(engine.submits) for engine in engines] == [1, 1]
    assert 'cenote_engine_up{model="classifier"} 1.0' in client.get("/metrics").text
    engines[1].is_alive = False
    refused(client.get("/health"), 503)


def test_two_models_of_one_name_are_refused(make_model: MakeModel) -> None:
    models = [make_model(FakeEngine()), make_model(FakeEngine(), names=("other", "minilm"))]
    with pytest.raises(InvalidRequest, match="'minilm'"):
        create_app(models, ServerConfig())


def test_admin_routes_exist_only_if_enabled(make_client: MakeClient) -> None:
    paths = ("/reload_weights", "/reset_encoder_cache", "/reset_mm_cache", "/reset_prefix_cache")
    closed = make_client()
    for path in paths:
        refused(closed.post(path), 404)
    refused(closed.get("/engine_stats"), 404)
    engine = FakeEngine()
    opened = make_client(engine, ServerConfig(enable_admin=True))
    for path in paths:
        response = opened.post(path)
        assert response.status_code == 200
        assert response.json() == {"model": "minilm", "method": path[1:], "result": None}
    opened.post("/reload_weights", json={"folder": "/models/new"})
    assert [method for method, _ in engine.controls[:4]] == [path[1:] for path in paths]
    assert engine.controls[-1] == ("reload_weights", {"folder": "/models/new"})
    engine.fail_with = ModelLoadError("no weights in /x")
    response = opened.post("/reload_weights", json={"folder": "/x"})
    refused(response, 400, "old weights", "/x", param="folder")
    refused(opened.post("/reload_weights", json={"folder": 1}), 400, param="folder")
    refused(opened.post("/reset_mm_cache", json={"model": "none"}), 404, param="model")
    refused(opened.get("/engine_stats", params={"model": "none"}), 404, param="model")


def test_only_api_routes_are_documented_by_hand(make_client: MakeClient) -> None:
    app = make_client(config=ServerConfig(enable_admin=True)).app
    for route in app.routes:
        if isinstance(route, APIRoute) and route.include_in_schema:
            assert route.description, route.path


def test_a_field_names_an_adapter_as_well(make_client: MakeClient) -> None:
    engine = FakeEngine()
    client = make_client(engine, names=("base",), adapters=("tuned", "other"))
    answer = client.post(EMBED, json={"input": "a", "adapter": "tuned"})
    assert answer.json()["model"] == "base"
    assert engine.requests[-1].adapter == "tuned"
    for body in ({"adapter": "nobody"}, {"model": "other", "adapter": "tuned"}):
        answer = client.post(EMBED, json={"input": "a", **body})
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "adapter"
