"""Anything over the wire: the server answers 2xx or 4xx, lives on, and what it refused has changed nothing.

A bounded number of examples on every run; `HYPOTHESIS_PROFILE=thorough` for thousands.
"""

from __future__ import annotations

import json
import socket
import ssl
import zlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.embedded.server.harness import APPLY, JSON, JSON_PATCH, MERGE, STRATEGIC, Client, Served

from windlass.embedded.api.kinds import BUILT_IN_KINDS, Kind
from windlass.model.unstructured import Unstructured

STORED = [kind for kind in BUILT_IN_KINDS if "list" in kind.verbs]
PROTOBUF = "application/vnd.kubernetes.protobuf"
PODS = "/api/v1/namespaces/default/pods"
SETTINGS = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])

words = st.sampled_from(
    [
        "",
        "a",
        "default",
        "main",
        "x" * 300,
        "A_b",
        "é",
        "\0",
        "1",
        "-1",
        "nvidia.com/gpu",
        "100m",
        "1e99",
        "%00",
        "..",
        "true",
    ]
)
scalars = st.one_of(
    words,
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.just(2**63),
    st.just(-(2**64)),
    st.text(),
)
fields = st.sampled_from(
    [
        "apiVersion",
        "kind",
        "metadata",
        "name",
        "namespace",
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
        "managedFields",
        "resourceVersion",
        "uid",
        "generateName",
        "deletionTimestamp",
        "spec",
        "status",
        "containers",
        "resources",
        "limits",
        "requests",
        "template",
        "selector",
        "matchLabels",
        "replicas",
        "data",
        "stringData",
        "type",
        "rules",
        "versions",
        "names",
        "scope",
        "group",
        "plural",
        "schema",
        "openAPIV3Schema",
        "properties",
        "hard",
        "unhealthyPodEvictionPolicy",
        "minAvailable",
        "holderIdentity",
        "ports",
        "env",
        "tolerations",
        "affinity",
        "nodeName",
        "restartPolicy",
        "value",
    ]
)
trees: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.one_of(fields, words), inner, max_size=5)),
    max_leaves=20,
)
metadata = st.fixed_dictionaries(
    {},
    optional={
        "name": words,
        "namespace": words,
        "labels": trees,
        "finalizers": trees,
        "resourceVersion": words,
    },
)
bodies = st.one_of(
    st.binary(max_size=60),
    trees.map(lambda tree: json.dumps(tree).encode("utf-8", "surrogatepass")),
    st.builds(lambda tree, cut: json.dumps(tree).encode()[:cut], trees, st.integers(0, 60)),
)
types = st.sampled_from(
    [JSON, MERGE, STRATEGIC, JSON_PATCH, APPLY, PROTOBUF, "application/yaml", "text/plain", "", "a/b;c"]
)
queries = st.dictionaries(
    st.sampled_from(
        [
            "limit",
            "continue",
            "labelSelector",
            "fieldSelector",
            "resourceVersion",
            "resourceVersionMatch",
            "dryRun",
            "fieldManager",
            "force",
            "fieldValidation",
            "gracePeriodSeconds",
            "propagationPolicy",
            "pretty",
            "includeObject",
            "sendInitialEvents",
            "allowWatchBookmarks",
            "timeoutSeconds",
        ]
    ),
    st.one_of(
        words,
        st.sampled_from(["All", "Strict", "Foreground", "Exact", "a in (b)", "metadata.name=a", "0", "5"]),
    ),
    max_size=3,
)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("fuzz")).start()
    spec = {"containers": [{"name": "main", "image": "x"}]}
    served.client.post(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}).ok()
    served.client.post(
        "/api/v1/namespaces/default/configmaps",
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}},
    ).ok()
    yield served
    served.stop()


def state(served: Served) -> tuple[int, dict[str, list[bytes]]]:
    """Everything that is stored, byte for byte."""

    def look() -> tuple[int, dict[str, list[bytes]]]:
        store = served.verbs.registry.store
        return store.version, {
            storage.resource: [stored.raw for stored in storage.list_current()]
            for storage in store.storages()
            if len(storage)
        }

    return served.call(look)


def check(served: Served, method: str, path: str, body: bytes | None, media: str, query: dict[str, str]) -> None:
    before = state(served)
    answer = served.client.send(method, path, body, media, **query)
    assert 200 <= answer.code < 300 or 400 <= answer.code < 500, (answer.code, answer.data)
    if answer.code >= 400 and answer.data:
        status = answer.json
        assert (status["kind"], status["code"]) == ("Status", answer.code)
        assert status["message"]
    if answer.code >= 400 or "dryRun" in query or method in ("GET", "HEAD"):
        assert state(served) == before


def path_of(kind: Kind, name: str) -> str:
    space = "/namespaces/default" if kind.namespaced else ""
    return f"{kind.root}{space}/{kind.plural}" + (f"/{name}" if name else "")


kinds = st.sampled_from(STORED)


@SETTINGS
@given(
    kinds,
    st.sampled_from(["POST", "PUT", "PATCH", "DELETE", "GET"]),
    st.sampled_from(["", "a"]),
    bodies,
    types,
    queries,
)
def test_any_body(
    target: Served, kind: Kind, method: str, name: str, body: bytes, media: str, query: dict[str, str]
) -> None:
    if kind.resource in ("namespaces", "nodes") and method == "DELETE" and not name:
        return  # would empty the world that the next example needs
    check(target, method, path_of(kind, name), body, media, query)


@SETTINGS
@given(kinds, metadata, trees, st.sampled_from(["POST", "PUT", "APPLY", "STATUS"]))
def test_objects_that_look_right(target: Served, kind: Kind, meta: Unstructured, rest: Any, how: str) -> None:
    """Past the first checks: kind and version are right, and everything else is anything."""
    tree = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": meta,
        "spec": rest,
        "status": rest,
        "data": rest,
    }
    body = json.dumps(tree).encode("utf-8", "surrogatepass")
    name = meta.get("name") or "a"
    if "/" in name or "\0" in name or name in ("..", "%00"):
        name = "a"
    if how == "POST":
        check(target, "POST", path_of(kind, ""), body, JSON, {})
    elif how == "PUT":
        check(target, "PUT", path_of(kind, name), body, JSON, {})
    elif how == "APPLY":
        check(target, "PATCH", path_of(kind, name), body, APPLY, {"fieldManager": "fuzz", "force": "true"})
    else:
        check(target, "PATCH", path_of(kind, name) + "/status", body, MERGE, {})


@SETTINGS
@given(trees, st.sampled_from([MERGE, STRATEGIC, JSON_PATCH, APPLY]))
def test_patches_of_a_pod(target: Served, patch: Any, media: str) -> None:
    body = json.dumps({"metadata": {"labels": patch}, "spec": patch} if media != JSON_PATCH else patch)
    check(
        target,
        "PATCH",
        f"{PODS}/a",
        body.encode("utf-8", "surrogatepass"),
        media,
        {"dryRun": "All", "fieldManager": "f"},
    )


operations = st.lists(
    st.fixed_dictionaries(
        {
            "op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "none"]),
            "path": st.sampled_from(
                [
                    "",
                    "/",
                    "/spec",
                    "/spec/containers/0",
                    "/spec/containers/-",
                    "/metadata/labels/a~1b",
                    "x",
                    "/spec/containers/9",
                ]
            ),
        },
        optional={"value": trees, "from": st.sampled_from(["/metadata", "/spec", "", "/spec/containers"])},
    ),
    max_size=4,
)


@SETTINGS
@given(operations)
def test_json_patches(target: Served, patch: Any) -> None:
    check(
        target,
        "PATCH",
        f"{PODS}/a",
        json.dumps(patch).encode("utf-8", "surrogatepass"),
        JSON_PATCH,
        {"dryRun": "All"},
    )


@SETTINGS
@given(st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=40), queries, words)
def test_any_path(target: Served, rest: str, query: dict[str, str], accept: str) -> None:
    path = "/" + quote(rest)
    answer = target.client.send("GET", path, headers={"Accept": "application/json," + quote(accept)}, **query)
    assert 200 <= answer.code < 500, (path, answer.code, answer.data)


@SETTINGS
@given(st.binary(max_size=200))
def test_protobuf_that_is_none(target: Served, body: bytes) -> None:
    check(target, "POST", PODS, b"k8s\0" + body, PROTOBUF, {})


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"metadata":{"name":"\\ud800"}}',
        b'{"metadata":{"name":"deep"},"data":' + b'{"a":' * 900 + b"1" + b"}" * 900 + b"}",
        b'{"metadata":{"name":"n"},"data":{"a":' + b"9" * 5000 + b"}}",
        b"x" * (4 << 20),
        b"\xff\xfe\x00",
        b"---\na: &a [1]\nb: *a\n",
        b"a: !!python/object/apply:os.system [ls]\n",
    ],
    ids=["lists", "objects", "surrogate", "deep", "number", "large", "bytes", "alias", "tag"],
)
@pytest.mark.parametrize("media", [JSON, "application/yaml", MERGE, APPLY])
def test_bodies_that_break_parsers(target: Served, body: bytes, media: str) -> None:
    before = state(target)
    method, path = (
        ("POST", "/api/v1/namespaces/default/configmaps")
        if media != MERGE and media != APPLY
        else ("PATCH", f"{PODS}/a")
    )
    answer = target.client.send(method, path, body, media, fieldManager="f")
    assert 400 <= answer.code < 500
    assert state(target) == before
    assert Client(target.kubeconfig).get("/readyz").data == b"ok"


RAW = {
    "bytes": b"\x00\x01\x02\x03\r\n\r\n",
    "no version": b"GET /\r\n\r\n",
    "another version": b"GET / HTTP/9.9\r\nHost: 127.0.0.1\r\n\r\n",
    "negative length": b"POST /api/v1/namespaces HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "bad chunks": b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "long line": b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "long header": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"a" * 70_000 + b"\r\n\r\n",
    "many headers": b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 5000 + b"\r\n",
    "bad encoding": b"GET /%ff%fe/\xc3\x28 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "half": b"POST /api/v1/namespaces HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{",
    "upgrade": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
    "absolute": b"GET http://evil.example/api HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "asterisk": b"OPTIONS * HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
}


@pytest.mark.parametrize("sent", RAW.values(), ids=RAW)
def test_what_is_no_http_harms_nobody(target: Served, sent: bytes) -> None:
    before = state(target)
    where = urlsplit(target.client.url)
    context = ssl.create_default_context(cadata=target.identity.authority)
    with (
        socket.create_connection((where.hostname, where.port), timeout=60) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
    ):
        try:
            secure.sendall(sent)
            answer = secure.recv(1000) if sent is not RAW["half"] else b""
        except (ssl.SSLError, ConnectionError):
            answer = b""  # cut off before all of it was sent: that is an answer, too
        assert not answer or answer.startswith(b"HTTP/"), answer
        assert b" 200 " not in answer[:20]
        assert b" 500 " not in answer[:20]
    assert Client(target.kubeconfig).get("/readyz").data == b"ok"
    assert state(target) == before


def test_a_small_body_that_unpacks_to_a_large_one_is_refused(target: Served) -> None:
    packed = zlib.compress(b" " * (64 << 20), 9)
    answer = target.client.send(
        "POST", "/api/v1/namespaces/default/configmaps", packed, JSON, headers={"Content-Encoding": "deflate"}
    )
    assert answer.code == 413
    answer = target.client.send(
        "POST",
        "/api/v1/namespaces/default/configmaps",
        b"not packed",
        JSON,
        headers={"Content-Encoding": "gzip"},
    )
    assert 400 <= answer.code < 500
