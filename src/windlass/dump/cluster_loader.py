"""A cluster out of files: what is there (a dump) and what is about to be submitted (manifests), as one list of objects.

The commands that ask the engine about a dump load it here. A manifest's object is taken as the API server would take
it: it has no status and no age yet. One that the dump already has is an update, which keeps its age; a pod can't be
updated, so the dump's stands.
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
from windlass.model.codec import PartialObject, Unreadable
from windlass.model.errors import InputError
from windlass.model.fleet import expand_fleet
from windlass.model.fleet_spec import Fleet
from windlass.model.kueue import WorkloadObject
from windlass.model.kueue.queue_wire import LocalQueueObject
from windlass.model.meta import ObjectMeta
from windlass.model.owners import OwnerObject
from windlass.model.pod import Pod
from windlass.model.pod_group import PodGroupObject

Submittable = Pod | WorkloadObject | OwnerObject | PodGroupObject
NAMESPACED = (Pod, WorkloadObject, OwnerObject, PodGroupObject, LocalQueueObject)


@dataclass(frozen=True)
class LoadedCluster:
    """All objects of a cluster as far as the files tell."""

    objects: tuple[object, ...]
    """Decoded; an object that could not be read is an `Unreadable`."""
    problems: tuple[InputError, ...] = ()
    """What could not be read, with its place."""
    notes: tuple[str, ...] = ()
    newest_timestamp: int = 0
    """The newest moment that the dump tells of, in seconds; 0 where it tells none."""
    published_configurations: tuple[Configuration, ...] = ()
    """What the cluster's schedulers have published of their configuration."""


@dataclass
class _Book:
    """Objects by kind and name while they are loaded, in order."""

    things: dict[tuple[str, str, str], object] = field(default_factory=dict)
    nameless: list[object] = field(default_factory=list)
    problems: list[InputError] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def put(self, source: SourceObject) -> None:
        for thing in _expanded(source):
            key = _key(source.kind, thing)
            if isinstance(thing, Unreadable):
                self.problems.append(thing.error)
            if key is None:
                self.nameless.append(thing)
            else:
                self.things[key] = thing


def load_cluster(
    dump: Path | None, manifests: Sequence[Path] = (), *, namespace: str = "default", keep_going: bool = False
) -> LoadedCluster:
    """What is in the dump, with the manifests added as if they had just been submitted to `namespace`.

    An object that can't be read is an error, unless `keep_going`: then it is kept as `Unreadable` and reported.
    """
    book = _Book()
    published: list[Mapping[str, Any]] = []
    for source in _sources([dump] if dump is not None else [], keep_going):
        book.put(source)
        if source.kind in ("ConfigMap", "Lease") and isinstance(source.raw, dict):
            published.append({**source.raw, "kind": source.kind})
    for source in _sources(manifests, keep_going):
        _submit(book, source, namespace)
    return LoadedCluster(
        objects=(*book.things.values(), *book.nameless),
        problems=tuple(book.problems),
        notes=tuple(book.notes),
        newest_timestamp=newest_timestamp(dump) if dump is not None else 0,
        published_configurations=tuple(published_configurations(published)),
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


def _generated_name(book: _Book, kind: str, namespace: str, prefix: str) -> str:
    """Like the API server: each object with a `generateName` gets a name of its own."""
    numbers = itertools.count(2)
    name = f"{prefix}new"
    while (kind, namespace, name) in book.things:
        name = f"{prefix}new-{next(numbers)}"
    return name


def _submit(book: _Book, source: SourceObject, namespace: str) -> None:
    thing = source.value
    if isinstance(thing, PartialObject) and _makes_pods(source.raw):
        book.notes.append(
            f"{source.kind} {thing.metadata.namespace or namespace}/{thing.metadata.name} ({thing.api_version}) "
            "is of a kind that is not known: which of its pods start together is not guessed, and nothing is decided "
            "for it (hand in its pods, with the label kueue.x-k8s.io/pod-group-name if they start together)"
        )
    if not isinstance(thing, NAMESPACED):
        book.put(source)
        return
    metadata = thing.metadata
    namespace = metadata.namespace or namespace
    name = metadata.name or _generated_name(book, source.kind, namespace, metadata.generate_name)
    fresh = ObjectMeta(
        name=name,
        namespace=namespace,
        labels=metadata.labels,
        annotations=metadata.annotations,
        owner_references=metadata.owner_references,
    )
    key = (source.kind, fresh.namespace, name)
    before = book.things.get(key)
    if before is None:
        book.things[key] = _fresh(thing, fresh)
    elif isinstance(before, Pod):
        book.notes.append(f"Pod {before.key} is in the dump already, and stays as it is there")
    elif isinstance(before, NAMESPACED):
        book.things[key] = _updated(thing, before, fresh)


def _makes_pods(raw: object) -> bool:
    """Whether a pod template stands somewhere in it."""
    if isinstance(raw, dict):
        return "containers" in raw or any(map(_makes_pods, raw.values()))
    return isinstance(raw, list) and any(map(_makes_pods, raw))


def _fresh(thing: Submittable | LocalQueueObject, metadata: ObjectMeta) -> object:
    """As the API server stores it at first: the status is not the submitter's to write."""
    if isinstance(thing, PodGroupObject):
        return msgspec.structs.replace(thing, metadata=metadata)
    return msgspec.structs.replace(thing, metadata=metadata, status=type(thing)().status)


def _updated(thing: object, before: Submittable | LocalQueueObject, fresh: ObjectMeta) -> object:
    """The new spec, with the identity and the status that the object has in the cluster."""
    known = before.metadata
    metadata = msgspec.structs.replace(fresh, uid=known.uid, creation_timestamp=known.creation_timestamp)
    assert isinstance(thing, NAMESPACED), thing
    if isinstance(thing, PodGroupObject) or isinstance(before, PodGroupObject):
        return msgspec.structs.replace(thing, metadata=metadata)
    return msgspec.structs.replace(thing, metadata=metadata, status=before.status)


def _key(kind: str, thing: object) -> tuple[str, str, str] | None:
    """Kind, namespace and name; None for what has no name of its own."""
    if isinstance(thing, Unreadable):
        return None
    metadata = getattr(thing, "metadata", None)
    if not isinstance(metadata, ObjectMeta) or not metadata.name:
        return None
    namespace = metadata.namespace or ("default" if isinstance(thing, NAMESPACED) else "")
    return type(thing).__name__ if kind == "Fleet" else kind, namespace, metadata.name
