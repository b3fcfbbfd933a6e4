"""Host ports and ReadWriteOncePod claims: one pod at a time."""

from __future__ import annotations

import pytest

from reference.builders import claim_volume, host_port, make_node, make_pod, with_ports
from reference.scene import Scene
from windlass.model.meta import ObjectMeta
from windlass.model.pod import Container, ContainerPort
from windlass.model.volume import (
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeClaimStatus,
)
from windlass.placement.inter_pod import has_inter_pod_rules


def listens(*ports, **spec):
    return make_pod(containers=with_ports(*ports), **spec)


def nodes():
    return [make_node("a"), make_node("b")]


@pytest.mark.parametrize(
    ("held", "wanted", "collide"),
    [
        (host_port(80), host_port(80), True),
        (host_port(80), host_port(81), False),
        (host_port(80), host_port(80, protocol="UDP"), False),
        (host_port(80, ip="10.0.0.1"), host_port(80, ip="10.0.0.2"), False),
        (host_port(80, ip="10.0.0.1"), host_port(80, ip="10.0.0.1"), True),
        (host_port(80, ip="10.0.0.1"), host_port(80), True),
        (host_port(80, ip="0.0.0.0"), host_port(80, ip="10.0.0.1"), True),
        (ContainerPort(container_port=80), host_port(80), False),
    ],
)
def test_ports_collide_by_number_protocol_and_address(held, wanted, collide):
    scene = Scene(nodes(), {"a": [listens(held)]})
    assert scene.why(listens(wanted)) == {"a": ["PORTS"] if collide else [], "b": []}


def test_on_the_hosts_network_every_port_is_a_host_port():
    plain = ContainerPort(container_port=80)
    scene = Scene(nodes(), {"a": [listens(plain, host_network=True)]})
    assert scene.fits(listens(host_port(80))) == ["b"]
    assert scene.fits(listens(plain)) == ["a", "b"]


def test_sidecars_hold_ports_and_other_init_containers_do_not():
    def first(policy):
        return make_pod(init_containers=(Container(ports=(host_port(80),), restart_policy=policy),))

    assert Scene(nodes(), {"a": [first("Always")]}).fits(listens(host_port(80))) == ["b"]
    assert Scene(nodes(), {"a": [first("")]}).fits(listens(host_port(80))) == ["a", "b"]


def test_a_port_is_free_again_when_its_last_holder_leaves():
    scene = Scene(nodes())
    pod = listens(host_port(80))
    for _ in range(2):
        scene.place(pod, "a")
    scene.rules.remove(pod, 0)
    assert scene.fits(pod) == ["b"]
    scene.rules.remove(pod, 0)
    assert scene.fits(pod) == ["a", "b"]


def claim(name, mode):
    return PersistentVolumeClaim(
        metadata=ObjectMeta(name=name, namespace="default"),
        spec=PersistentVolumeClaimSpec(access_modes=(mode,), volume_name=f"pv-{name}"),
        status=PersistentVolumeClaimStatus(phase="Bound"),
    )


def test_a_read_write_once_pod_claim_in_use_refuses_every_node():
    claims = {
        f"default/{c.metadata.name}": c for c in (claim("alone", "ReadWriteOncePod"), claim("any", "ReadWriteMany"))
    }
    user, other = make_pod(volumes=(claim_volume("alone"),)), make_pod(volumes=(claim_volume("any"),))
    scene = Scene(nodes(), {"a": [other]}, claims=claims)
    assert scene.fits(user) == ["a", "b"]
    scene.place(user, "a")
    assert scene.why(user) == {"a": ["EXCLUSIVE_CLAIM"], "b": ["EXCLUSIVE_CLAIM"]}
    assert scene.fits(other) == ["a", "b"]
    scene.rules.remove(user, 0)
    assert scene.fits(user) == ["a", "b"]


def test_the_same_name_in_another_namespace_is_another_claim():
    claims = {"default/alone": claim("alone", "ReadWriteOncePod")}
    scene = Scene(nodes(), {"a": [make_pod(namespace="other", volumes=(claim_volume("alone"),))]}, claims=claims)
    assert scene.fits(make_pod(volumes=(claim_volume("alone"),))) == ["a", "b"]


def test_whoever_wants_a_port_or_a_claim_has_to_ask():
    assert has_inter_pod_rules(listens(host_port(80)))
    assert has_inter_pod_rules(make_pod(volumes=(claim_volume("alone"),)))
    assert not has_inter_pod_rules(listens(ContainerPort(container_port=80)))
