"""`kind: Reservation`: what it means, and what is refused with which path."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from windlass.model.codec import decode_object, encode_object
from windlass.model.errors import InputError
from windlass.model.requests import pod_requests
from windlass.model.reservation import ReservationObject, ReservationSubjects, reservation_from_object

LAUNCH: dict[str, Any] = {
    "apiVersion": "windlass.dev/v1",
    "kind": "Reservation",
    "metadata": {"name": "launch"},
    "spec": {
        "count": 2,
        "resources": {"nvidia.com/gpu": 8, "cpu": "16"},
        "topology": "windlass.dev/rack",
        "nodeSelector": {"pool": "h100"},
        "from": "2026-01-01T08:00:00Z",
        "until": "2026-01-01T12:00:00Z",
        "who": {"namespaces": ["research"], "queues": ["ops/urgent"], "labels": {"user": "ada"}},
    },
}


def _decoded(tree: dict[str, Any]) -> ReservationObject:
    thing = decode_object(tree)
    assert isinstance(thing, ReservationObject)
    return thing


def _changed(**spec: Any) -> dict[str, Any]:
    tree = copy.deepcopy(LAUNCH)
    tree["spec"] |= spec
    return tree


def test_a_reservation_is_units_like_a_pod_for_a_time() -> None:
    one = reservation_from_object(_decoded(LAUNCH))
    assert (one.key, one.count, one.until - one.start) == ("reservation/launch", 2, 4 * 3600)
    assert pod_requests(one.template) == {"nvidia.com/gpu": 8, "cpu": 16_000, "pods": 1}
    assert one.template.spec.node_selector == {"pool": "h100"}
    assert one.topology == "windlass.dev/rack"


def test_gpus_are_short_for_units_of_one() -> None:
    tree = _changed(gpus=16)
    del tree["spec"]["count"], tree["spec"]["resources"]
    one = reservation_from_object(_decoded(tree))
    assert (one.count, pod_requests(one.template)["nvidia.com/gpu"]) == (16, 1)


def test_what_is_written_out_reads_back_the_same() -> None:
    thing = _decoded(LAUNCH)
    assert decode_object(encode_object(thing)) == thing


def test_any_of_the_ways_to_name_the_holder_will_do() -> None:
    who = ReservationSubjects(("research",), ("ops/urgent",), {"user": "ada", "team": "x"})
    assert who.matches("research", "", {})
    assert who.matches("ops", "urgent", {})
    assert who.matches("other", "", {"user": "ada", "team": "x", "more": "y"})
    assert not who.matches("other", "urgent", {"user": "ada"})
    assert not ReservationSubjects(("research",)).matches("other", "", {"user": "ada"})


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"from": "tomorrow"}, "spec.from"),
        ({"until": ""}, "spec.until"),
        ({"until": "2026-01-01T08:00:00Z"}, "spec.until"),
        ({"who": {}}, "spec.who"),
        ({"who": {"queues": ["urgent"]}}, "spec.who.queues[0]"),
        ({"gpus": 4}, "spec.gpus"),
        ({"resources": {}}, "spec.resources"),
        ({"resources": {"nvidia.com/gpu": "0.5"}}, "spec.resources.nvidia.com/gpu"),
        ({"resources": {"cpu": "much"}}, "spec.resources.cpu"),
        ({"count": 0}, "spec.count"),
        ({"count": "two"}, "spec.count"),
        ({"nodes": 2}, "spec.nodes"),
        ({"who": {"users": ["ada"]}}, "spec.who.users"),
    ],
)
def test_what_can_not_be_meant_is_refused_with_its_path(spec: dict[str, Any], path: str) -> None:
    with pytest.raises(InputError) as caught:
        decode_object(_changed(**spec))
    assert caught.value.path == path
    assert caught.value.object == "Reservation launch"
