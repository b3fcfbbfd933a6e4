"""Protobuf bodies: what a real API server writes in that form is read as the JSON that it writes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.embedded.api.samples import CLUSTER_WIDE, NAMESPACED
from tests.embedded.server.harness import Client
from tests.real_cluster.control_plane import ControlPlane

from windlass.embedded.api.kinds import Kinds
from windlass.embedded.api.machinery import Machinery
from windlass.embedded.server.protobuf import MAGIC, MEDIA_TYPE, Malformed, decode
from windlass.model.unstructured import Unstructured

POD = {"apiVersion": "v1", "kind": "Pod"}


def envelope(message: bytes, version: bytes = b"v1", kind: bytes = b"Pod") -> bytes:
    about = b"\x0a" + bytes([len(version)]) + version + b"\x12" + bytes([len(kind)]) + kind
    return MAGIC + b"\x0a" + bytes([len(about)]) + about + b"\x12" + bytes([len(message)]) + message


def test_every_kind_is_read_as_its_json(control_plane: ControlPlane) -> None:
    api, machinery = Client(control_plane.kubeconfig), Machinery()
    seen = set()
    for sample in (*NAMESPACED, *CLUSTER_WIDE):
        kind = machinery.kinds.by_kind(sample["apiVersion"], sample["kind"])
        if kind is None or kind.group == "apiextensions.k8s.io":
            continue
        space = "/namespaces/default" if kind.namespaced else ""
        made = api.post(f"{kind.root}{space}/{kind.plural}", sample).ok()
        path = f"{kind.root}{space}/{kind.plural}/{made['metadata']['name']}"
        if api.send("GET", path, headers={"Accept": MEDIA_TYPE}).headers["Content-Type"] != MEDIA_TYPE:
            continue
        decoded, told = _both(api, path)
        assert machinery.decode(kind, decoded)[0] == machinery.decode(kind, told)[0], path
        seen.add(kind.kind)
    assert {"Pod", "Deployment", "Job", "Service", "Node", "Secret", "ResourceQuota", "PriorityClass"} <= seen


def _both(api: Client, path: str) -> tuple[Unstructured, Unstructured]:
    """Both forms of one version; a controller may write to the object at the same time."""
    while True:
        told = api.get(path).ok()
        decoded = decode(api.send("GET", path, headers={"Accept": MEDIA_TYPE}).data, ("", ""))
        if decoded["metadata"]["resourceVersion"] != told["metadata"]["resourceVersion"]:
            continue
        for claim in told.get("spec", {}).get("volumeClaimTemplates", ()):
            del claim["apiVersion"], claim["kind"]  # protobuf names the kind of the outermost object only
        return decoded, told


def test_a_body_in_this_form_makes_the_object(client: Client) -> None:
    meta = b"\x0a\x02pb"
    box = b"\x0a\x04main\x12\x01x"
    spec = b"\x12" + bytes([len(box)]) + box
    message = b"\x0a" + bytes([len(meta)]) + meta + b"\x12" + bytes([len(spec)]) + spec
    answer = client.send("POST", "/api/v1/namespaces/default/pods", envelope(message), MEDIA_TYPE)
    assert answer.code == 201
    assert answer.json["metadata"]["name"] == "pb"
    assert answer.json["spec"]["containers"][0]["image"] == "x"
    assert client.send("POST", "/api/v1/namespaces/default/pods", b"no envelope", MEDIA_TYPE).code == 400


def test_times_quantities_and_negative_numbers() -> None:
    deleted = b"\x4a\x06\x08\x80\xd8\x8e\xfd\x04"  # field 9: seconds 1336126464
    tree = decode(envelope(b"\x0a" + bytes([len(deleted)]) + deleted), ("", ""))
    assert tree == {**POD, "metadata": {"deletionTimestamp": "2012-05-04T10:14:24Z"}}


@pytest.mark.parametrize(
    "message",
    [b"\x0a\x05ab", b"\x0a", b"\x0b", b"\xff" * 12, b"\x0a\x02\x0a\x05", b"\x08\x01\x0a\x03\x0a\x01\xff"],
    ids=["cut", "no length", "group", "varint", "cut inside", "not UTF-8"],
)
def test_what_is_cut_or_mixed_up_is_refused(message: bytes) -> None:
    with pytest.raises(Malformed):
        decode(envelope(message), ("", ""))


def test_a_kind_that_is_unknown_is_refused() -> None:
    with pytest.raises(Malformed, match='no kind "Pod" is registered for version "v7"'):
        decode(envelope(b"", b"v7"), ("", ""))
    assert Kinds().by_kind("v7", "Pod") is None


@given(st.binary(max_size=120))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        decode(MAGIC + data, ("v1", "Pod"))
    except Malformed:
        return
