"""Loads a cluster from files: a dump, and manifests as if they had just been submitted to it.

Called by the commands that ask the engine about a dump. An object of a manifest is treated as the API server treats
it: it has no status and no age yet. If the dump has it already, it is an update and keeps its age; pods can't be
updated, so the dump's pod stays.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from windlass.dump.configuration import Configuration, published_configurations
from windlass.dump.files import SourceObject, newest_timestamp, read_objects, read_objects_lenient
from windlass.dump.nim_manifests import nim_objects
from windlass.kube.freeze import frozen_in
from windlass.model.codec import PartialObject, Unreadable, decode_object
from windlass.model.errors import InputError
from windlass.model.fleet import expand_fleet
from windlass.model.fleet_spec import Fleet
from windlass.model.kueue import QueueObject, WorkloadObject
from windlass.model.kueue.queue_wire import LocalQueueObject
from windlass.model.meta import ObjectMeta
from windlass.model.owners import OwnerObject
from windlass.model.owners.unknown_kinds import makes_pods, not_implemented
from windlass.model.owners.wire import UnknownOwnerObject
from windlass.model.pod import Pod
from windlass.model.pod_group import PodGroupObject

Submittable = Pod | WorkloadObject | OwnerObject | PodGroupObject
NAMESPACED = (Pod, WorkloadObject, OwnerObject, PodGroupObject, LocalQueueObject)


@dataclass(frozen=True)
class LoadedCluster:
    """The objects of a cluster that the files contain."""

    objects: tuple[object, ...]
    """Decoded; an object that could not be read is an `Unreadable`."""
    problems: tuple[InputError, ...] = ()
    """What could not be read, with its place."""
    notes: tuple[str, ...] = ()
    newest_timestamp: int = 0
    """The newest time in the dump, in seconds; 0 if there is none."""
    published_configurations: tuple[Configuration, ...] = ()
    """The configurations that the cluster's schedulers have published."""
    frozen: str = ""
    """Since when, by whom and why Windlass is frozen; empty if it is not."""
    freeze_namespace: str = ""

    @property
    def freeze_notes(self) -> tuple[str, ...]:
        """What a plan has to say of a freeze."""
        undo = f"windlass freeze --off -n {self.freeze_namespace}"
        return (f"Windlass is {self.frozen}; nothing of it is carried out until `{undo}`",) if self.frozen else ()


@dataclass
class _ClusterBuilder:
    """Objects by kind, namespace and name while files are read, in order."""

    objects: dict[tuple[str, str, str], object] = field(default_factory=dict)
    nameless: list[object] = field(default_factory=list)
    problems: list[InputError] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def put(self, source: SourceObject) -> None:
        for obj in _expanded(source):
            obj = _named(self, source.kind, obj)
            key = _key(source.kind, obj)
            if isinstance(obj, Unreadable):
                self.problems.append(obj.error)
            if key is None:
                self.nameless.append(obj)
            else:
                self.objects[key] = obj


def load_cluster(
    dump: Path | None, manifests: Sequence[Path] = (), *, namespace: str = "default", keep_going: bool = False
) -> LoadedCluster:
    """The dump, with the manifests added as if they had just been submitted to `namespace`.

    An object that can't be read is an error, unless `keep_going`: then it is kept as `Unreadable` and reported.
    """
    builder = _ClusterBuilder()
    published: list[Mapping[str, Any]] = []
    for source in _sources([dump] if dump is not None else [], keep_going):
        builder.put(source)
        if source.kind in ("ConfigMap", "Lease") and isinstance(source.raw, dict):
            published.append({**source.raw, "kind": source.kind})
    for source in _sources(manifests, keep_going):
        _submit(builder, source, namespace)
    freeze_namespace, freeze = frozen_in(tree for tree in published if tree["kind"] == "ConfigMap")
    return LoadedCluster(
        objects=(*builder.objects.values(), *builder.nameless),
        problems=tuple(builder.problems),
        notes=tuple(builder.notes),
        newest_timestamp=newest_timestamp(dump) if dump is not None else 0,
        published_configurations=tuple(published_configurations(published)),
        frozen=str(freeze) if freeze is not None else "",
        freeze_namespace=freeze_namespace,
    )


def _sources(paths: Iterable[Path], keep_going: bool) -> Iterable[SourceObject]:
    for path in paths:
        yield from read_objects_lenient(path) if keep_going else read_objects(path)


def _expanded(source: SourceObject) -> list[object]:
    """A Fleet stands for its nodes."""
    if not isinstance(source.value, Fleet):
        return [source.value]
    try:
        return list(expand_fleet(source.value))
    except InputError as error:
        raise source.locate_error(error) from error


def _named(builder: _ClusterBuilder, kind: str, obj: object) -> object:
    """An object that has only a `generateName` gets a name, as by the API server: else two of them were one."""
    if not isinstance(obj, NAMESPACED) or obj.metadata.name or not obj.metadata.generate_name:
        return obj
    metadata = obj.metadata
    name = _generated_name(builder, kind, metadata.namespace or "default", metadata.generate_name)
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(metadata, name=name))


def _generated_name(builder: _ClusterBuilder, kind: str, namespace: str, prefix: str) -> str:
    """Like the API server: each object with a `generateName` gets a unique name."""
    numbers = itertools.count(2)
    name = f"{prefix}new"
    while (kind, namespace, name) in builder.objects:
        name = f"{prefix}new-{next(numbers)}"
    return name


def _submit(builder: _ClusterBuilder, source: SourceObject, namespace: str) -> None:
    obj = source.value
    if isinstance(obj, PartialObject) and isinstance(source.raw, dict) and (expanded := nim_objects(source.raw)):
        try:
            for made in expanded:
                _submit_namespaced(builder, decode_object(made), made["kind"], namespace)
        except InputError as error:
            raise source.locate_error(error) from error
        return
    if isinstance(obj, PartialObject):
        name = obj.metadata.name or obj.metadata.generate_name
        title = f"{source.kind} {obj.metadata.namespace or namespace}/{name} ({obj.api_version})"
        why_not = not_implemented(obj.api_version, obj.kind)
        if why_not:
            builder.notes.append(f"{title}: {why_not}")
        if (makes_pods(obj.api_version, obj.kind) or _has_pod_template(source.raw)) and name:
            builder.notes.append(
                f"{title} is of an unknown kind, so nothing is decided for it (give its pods instead, with the label "
                "kueue.x-k8s.io/pod-group-name if they form a gang)"
            )
            obj = UnknownOwnerObject(api_version=obj.api_version, metadata=obj.metadata, kind=obj.kind)
    if not isinstance(obj, NAMESPACED):
        builder.put(source)
        return
    _submit_namespaced(builder, obj, source.kind, namespace)


def _submit_namespaced(builder: _ClusterBuilder, obj: object, kind: str, namespace: str) -> None:
    assert isinstance(obj, NAMESPACED), obj
    metadata = obj.metadata
    namespace = metadata.namespace or namespace
    name = metadata.name or _generated_name(builder, kind, namespace, metadata.generate_name)
    fresh = ObjectMeta(
        name=name,
        namespace=namespace,
        labels=metadata.labels,
        annotations=metadata.annotations,
        owner_references=metadata.owner_references,
    )
    key = (_kind(kind, obj), fresh.namespace, name)
    before = builder.objects.get(key)
    if before is None:
        builder.objects[key] = _fresh(obj, fresh)
    elif isinstance(before, Pod):
        builder.notes.append(
            f"Pod {before.key} is in the dump already; the manifest is ignored, since a pod can't be updated"
        )
    elif isinstance(before, NAMESPACED):
        builder.objects[key] = _updated(obj, before, fresh)


def _has_pod_template(raw: object) -> bool:
    """Whether a pod template is somewhere in it."""
    if isinstance(raw, dict):
        return "containers" in raw or any(map(_has_pod_template, raw.values()))
    return isinstance(raw, list) and any(map(_has_pod_template, raw))


def _fresh(obj: Submittable | LocalQueueObject, metadata: ObjectMeta) -> object:
    """As the API server stores a new object: with the default status."""
    if isinstance(obj, PodGroupObject):
        return msgspec.structs.replace(obj, metadata=metadata)
    return msgspec.structs.replace(obj, metadata=metadata, status=type(obj)().status)


def _updated(obj: object, before: Submittable | LocalQueueObject, fresh: ObjectMeta) -> object:
    """The new spec, with the identity and the status that the object has in the cluster."""
    known = before.metadata
    metadata = msgspec.structs.replace(fresh, uid=known.uid, creation_timestamp=known.creation_timestamp)
    assert isinstance(obj, NAMESPACED), obj
    if isinstance(obj, PodGroupObject) or isinstance(before, PodGroupObject):
        return msgspec.structs.replace(obj, metadata=metadata)
    return msgspec.structs.replace(obj, metadata=metadata, status=before.status)


def _key(kind: str, obj: object) -> tuple[str, str, str] | None:
    """Kind, namespace and name; None for an object without a name."""
    if isinstance(obj, Unreadable):
        return None
    metadata = getattr(obj, "metadata", None)
    if not isinstance(metadata, ObjectMeta) or not metadata.name:
        return None
    namespace = metadata.namespace or ("default" if isinstance(obj, NAMESPACED) else "")
    return type(obj).__name__ if kind == "Fleet" else _kind(kind, obj), namespace, metadata.name


def _kind(kind: str, obj: object) -> str:
    """Kinds of the same name in two API groups are told apart."""
    if isinstance(obj, OwnerObject) and obj.KIND:
        return obj.KIND
    return type(obj).__name__ if isinstance(obj, PodGroupObject | QueueObject) else kind
