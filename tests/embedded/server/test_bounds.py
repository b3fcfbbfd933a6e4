"""One request, one connection or one slow reader doesn't take time, memory or connections from the others."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.embedded.server.harness import JSON, Client, Served
from tests.real_cluster.api import until

from windlass.embedded.api.errors import ApiError
from windlass.embedded.api.kinds import Kind
from windlass.embedded.api.selectors import field_selector, label_selector, parse_labels
from windlass.embedded.api.structural_schema import TooExpensive, Walk, schema_errors
from windlass.embedded.server import listener, request_body, responses, watch_memory
from windlass.embedded.server.work_meter import CAPACITY_SECONDS, REFILL, WorkMeter

MAPS = "/api/v1/namespaces/default/configmaps"
YAML = "application/yaml"


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path).start()
    yield served
    served.stop()


def config_map(name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **fields}


class TestCaches:
    def test_long_selectors_are_not_kept(self) -> None:
        text = f"k in ({','.join(f'v{number}' for number in range(1000))})"
        assert parse_labels(text) is not parse_labels(text)

    def test_short_ones_are(self) -> None:
        assert parse_labels("a=b") is parse_labels("a=b")

    def test_selectors_have_a_limited_number_of_requirements(self) -> None:
        with pytest.raises(ApiError, match="at most 200 requirements"):
            label_selector(",".join(f"k{number}" for number in range(300)))
        kind = Kind("Pod", "pods", "", "v1")
        with pytest.raises(ApiError, match="at most 200 requirements"):
            field_selector(",".join(f"metadata.name!=k{number}" for number in range(300)), kind)


class TestSchemas:
    ENUM = {"type": "string", "enum": [f"v{number}" for number in range(50_000)]}

    def test_a_large_object_and_a_large_schema_are_too_much_together(self) -> None:
        with pytest.raises(TooExpensive):
            list(schema_errors(["v1"] * 50_000, {"type": "array", "items": self.ENUM}, "", Walk(300_000)))

    def test_a_message_shows_some_of_many_choices(self) -> None:
        (error,) = schema_errors("x", self.ENUM, "spec", Walk(300_000))
        assert "v99" in str(error)
        assert "v100" not in str(error)

    def test_a_long_enum_is_read_once_for_all_values(self) -> None:
        class Choices(list[str]):
            reads = 0

            def __iter__(self) -> Iterator[str]:
                self.reads += 1
                return super().__iter__()

        choices = Choices(f"v{number}" for number in range(1000))
        schema = {"type": "array", "items": {"type": "string", "enum": choices}}
        assert not list(schema_errors(["v1", "v999"] * 50, schema, "", Walk(300_000)))
        assert choices.reads == 1
        assert len(list(schema_errors(["v1", "w", "v2", ""], schema, "", Walk(300_000)))) == 2

    def test_an_object_that_is_refused_says_so(self, client: Client) -> None:
        items = {"type": "array", "items": self.ENUM}
        schema = {"type": "object", "properties": {"words": items}}
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        names = {"plural": "enums", "kind": "Enum"}
        crd = {"spec": {"group": "b.example.com", "scope": "Namespaced", "names": names, "versions": [version]}}
        crd |= {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
        crd["metadata"] = {"name": "enums.b.example.com"}
        client.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd).ok()
        made = {"apiVersion": "b.example.com/v1", "kind": "Enum", "metadata": {"name": "e"}}
        path = "/apis/b.example.com/v1/namespaces/default/enums"
        answer = client.post(path, {**made, "words": ["x"] * 20_000})
        assert (answer.code, len(answer.data) < 1_000_000) == (422, True)
        answer = client.post(path, {**made, "words": ["v49999"] * 20_000})
        assert answer.code == 422
        assert "too large for its schema" in answer.message


class TestBodies:
    def test_more_values_than_a_write_can_have(self, client: Client) -> None:
        data = {f"k{number}": "" for number in range(70_000)}
        assert client.post(MAPS, config_map("many", data=data)).code == 413
        text = config_map("text", data={"a": ",:" * 300_000})
        assert client.post(MAPS, text).code == 201

    def test_yaml_is_read_beside_the_loop(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        threads = []
        decode = request_body.decode_value

        def noted(body: bytes, media_type: str) -> Any:
            threads.append(threading.current_thread().name)
            return decode(body, media_type)

        monkeypatch.setattr(request_body, "decode_value", noted)
        lines = "".join(f"  k{number}: v\n" for number in range(3000))
        body = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: beside}}\ndata:\n{lines}"
        assert client.send("POST", MAPS, body.encode(), YAML).code == 201
        assert client.send("POST", MAPS, json.dumps(config_map("on")).encode(), JSON).code == 201
        assert [name.startswith("asyncio_") for name in threads] == [True, False]

    def test_yaml_with_too_many_values_is_refused(self, client: Client) -> None:
        body = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: dense}\ndata: [" + "1," * 200_000 + "]"
        answer = client.send("POST", MAPS, body.encode(), YAML)
        assert (answer.code, "values" in answer.message) == (400, True)


class TestFairness:
    def test_an_account_that_is_overdrawn_refuses_large_requests_until_it_has_refilled(self) -> None:
        now = 100.0
        meter = WorkMeter(lambda: now, lambda: now)
        with meter.measure("a", is_large=True):
            now += CAPACITY_SECONDS + 1
        with pytest.raises(ApiError) as caught, meter.measure("a", is_large=True):
            pass
        assert caught.value.code == 429
        assert caught.value.status()["details"]["retryAfterSeconds"] > 0
        with meter.measure("a", is_large=False), meter.measure("b", is_large=True):
            pass
        now += 1 / REFILL
        with meter.measure("a", is_large=True):
            pass

    def test_a_request_that_waits_for_the_processor_draws_nothing(self) -> None:
        now = 100.0
        meter = WorkMeter(lambda: now, lambda: 0.0)
        with meter.measure("a", is_large=True):
            now += CAPACITY_SECONDS + 1
        with meter.measure("a", is_large=True):
            pass

    def test_the_client_is_told_when_to_come_back(self, fresh: Served) -> None:
        fresh.server._writes._meter._accounts["system:admin"] = (-1000.0, 0.0)
        fresh.server._writes._meter._clock = lambda: 0.0
        large = config_map("large", data={"a": "x" * 100_000})
        answer = fresh.client.post(MAPS, large)
        assert (answer.code, answer.json["reason"]) == (429, "TooManyRequests")
        assert int(answer.headers["Retry-After"]) > 0
        assert fresh.client.post(MAPS, config_map("small")).code == 201
        long = f"k in ({','.join(f'v{number}' for number in range(1000))})"
        assert fresh.client.get(MAPS, labelSelector=long).code == 429
        assert fresh.client.get(MAPS, labelSelector="k=v").code == 200


def connect(served: Served) -> ssl.SSLSocket:
    where = urlsplit(served.client.url)
    trust = ssl.create_default_context(cadata=served.identity.authority)
    plain = socket.create_connection((where.hostname, where.port))
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    secure = trust.wrap_socket(plain, server_hostname="localhost")
    secure.settimeout(60)
    return secure


def ask(served: Served, path: str) -> ssl.SSLSocket:
    """Sends a request and reads nothing."""
    secure = connect(served)
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {served.identity.token}\r\n\r\n"
    secure.sendall(head.encode())
    return secure


def is_closed(secure: ssl.SSLSocket) -> bool:
    """Whether the server ends the connection, sooner or later."""
    try:
        while secure.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


class TestConnections:
    def test_one_without_a_token_is_closed_soon(self, fresh: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(listener, "STRANGER_SECONDS", 0.5)
        where = urlsplit(fresh.client.url)
        with connect(fresh) as idle, socket.create_connection((where.hostname, where.port)) as silent:
            silent.settimeout(60)
            assert is_closed(idle)
            assert silent.recv(1) == b"", "not even a handshake"

    def test_many_of_them_keep_nobody_out(self, fresh: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(listener, "MAX_STRANGERS", 10)
        monkeypatch.setattr(listener, "LEAST_SECONDS", 0.0)
        where = urlsplit(fresh.client.url)
        idle = [socket.create_connection((where.hostname, where.port)) for _ in range(50)]
        assert fresh.client.get(MAPS).code == 200
        assert len(fresh.call(lambda: fresh.server._listener._strangers)) <= 10  # type: ignore[union-attr]
        for connection in idle:
            connection.close()

    def test_one_with_a_token_stays(self, fresh: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(listener, "STRANGER_SECONDS", 0.3)
        with fresh.client.watch(MAPS) as events:
            with connect(fresh) as idle:
                assert is_closed(idle)
            fresh.client.post(MAPS, config_map("later")).ok()
            assert next(events)["object"]["metadata"]["name"] == "later"


class TestSlowReaders:
    def test_a_watcher_that_does_not_read_is_ended(self, fresh: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(watch_memory, "MAX_WATCHER_BYTES", 2 << 20)
        memory = fresh.server._reads._memory
        with ask(fresh, f"{MAPS}?watch=true"):
            until(lambda: fresh.server.registry.store.watcher_count == 1, what="the watch")
            text = "x" * 500_000
            for number in range(20):
                fresh.client.post(MAPS, config_map(f"m{number}", data={"a": text})).ok()
            until(lambda: fresh.server.registry.store.watcher_count == 0, what="its end")
        assert memory.total_bytes == 0

    def test_the_first_events_are_not_copied_for_each_watcher(self, fresh: Served) -> None:
        text = "x" * 500_000
        for number in range(10):
            fresh.client.post(MAPS, config_map(f"m{number}", data={"a": text})).ok()
        watchers = [ask(fresh, f"{MAPS}?watch=true") for _ in range(10)]
        until(lambda: fresh.server.registry.store.watcher_count == 10, what="the watches")
        assert fresh.server._reads._memory.total_bytes == 0
        for secure in watchers:
            secure.close()

    def test_a_list_that_is_not_read_ends_its_connection(self, fresh: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(responses, "SLOW_READER_SECONDS", 0.3)
        for number in range(20):
            fresh.client.post(MAPS, config_map(f"m{number}", data={"a": "x" * 900_000})).ok()
        with ask(fresh, MAPS):
            until(lambda: responses._Unread.total_bytes > 0, what="the response")
            until(lambda: responses._Unread.total_bytes == 0, what="its end")
        assert len(fresh.client.get(MAPS).ok()["items"]) == 20

    def test_too_many_unread_responses_are_not_begun(self, fresh: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        for number in range(20):
            fresh.client.post(MAPS, config_map(f"m{number}", data={"a": "x" * 900_000})).ok()
        monkeypatch.setattr(responses, "MAX_UNREAD_BYTES", 20 << 20)
        with ask(fresh, MAPS):
            until(lambda: responses._Unread.total_bytes > 0, what="the response")
            assert fresh.client.get(MAPS).code == 429
            assert fresh.client.get(MAPS, limit=1).code == 200
