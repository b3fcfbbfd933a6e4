"""StatefulSets as a change of a workload's image reads them.

`operator.cache` keeps them, `decide.image_change` decides on them. Only these roll out up to a pod and stop there by
themselves (`partition`): a Deployment that is to stop has to be watched, and would go on while nobody does.
"""

from __future__ import annotations

import msgspec

from windlass.model.meta import KubeStruct, ObjectMeta
from windlass.model.pod import Container


class _Template(KubeStruct, frozen=True):
    spec: _TemplateSpec


class _TemplateSpec(KubeStruct, frozen=True):
    containers: tuple[Container, ...] = ()


class _RollingUpdate(KubeStruct, frozen=True):
    partition: int = 0


class _Strategy(KubeStruct, frozen=True):
    type: str = "RollingUpdate"
    rolling_update: _RollingUpdate | None = None


class _Spec(KubeStruct, frozen=True):
    template: _Template
    replicas: int = 1
    update_strategy: _Strategy = _Strategy()


class _Status(KubeStruct, frozen=True):
    observed_generation: int = 0
    ready_replicas: int = 0
    updated_replicas: int = 0
    update_revision: str = ""


class _Metadata(ObjectMeta, frozen=True):
    generation: int = 0


class StatefulSetWire(KubeStruct, frozen=True):
    spec: _Spec
    metadata: _Metadata = _Metadata()
    status: _Status = _Status()


class StatefulSetView(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    uid: str = ""
    version: str = ""
    replicas: int = 1
    partition: int = 0
    images: dict[str, str] = {}
    """By container."""
    is_on_delete: bool = False
    revision: str = ""
    """What its new pods have as the label `controller-revision-hash`."""
    updated: int = 0
    ready: int = 0
    is_seen: bool = True
    """Whether its controller has seen the last edit."""


def stateful_set(wire: StatefulSetWire) -> StatefulSetView:
    metadata, spec, status = wire.metadata, wire.spec, wire.status
    rolling = spec.update_strategy.rolling_update
    return StatefulSetView(
        key=f"{metadata.namespace}/{metadata.name}",
        uid=metadata.uid,
        version=metadata.resource_version,
        replicas=spec.replicas,
        partition=rolling.partition if rolling is not None else 0,
        images={container.name: container.image for container in spec.template.spec.containers},
        is_on_delete=spec.update_strategy.type == "OnDelete",
        revision=status.update_revision,
        updated=status.updated_replicas,
        ready=status.ready_replicas,
        is_seen=status.observed_generation >= metadata.generation,
    )
