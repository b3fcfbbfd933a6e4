"""Reads AppWrappers: objects of any kind that start together, each with the pod sets that it declares or its kind has.

What is declared may be more than the component's kind makes, and not less. Called by `model.owners.normalise`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from windlass.model.convert import convert
from windlass.model.digits import is_digits
from windlass.model.errors import InputError
from windlass.model.kueue.workload_wire import PodTemplate
from windlass.model.meta import KubeStruct
from windlass.model.owners.owner import Owner, OwnerPodSet, checked_count, checked_template
from windlass.model.owners.wire import OwnerObject, OwnerStatus
from windlass.model.pod import Pod

_FINISHED_PHASES = ("Succeeded", "Failed")


class DeclaredPodSet(KubeStruct, frozen=True):
    replicas: int = 1
    path: str = ""
    """Of the pod template in the component, such as `template.spec.template`."""


class AppWrapperComponent(KubeStruct, frozen=True):
    pod_sets: tuple[DeclaredPodSet, ...] = ()
    template: dict[str, Any] = msgspec.field(default_factory=dict)


class AppWrapperSpec(KubeStruct, frozen=True):
    suspend: bool = False
    components: tuple[AppWrapperComponent, ...] = ()


class AppWrapperStatus(OwnerStatus, frozen=True):
    phase: str = ""

    @property
    def outcome(self) -> str:
        return self.phase if self.phase in _FINISHED_PHASES else ""


class AppWrapperObject(OwnerObject, frozen=True):
    KIND: ClassVar[str] = "AppWrapper"
    status: AppWrapperStatus = AppWrapperStatus()
    spec: AppWrapperSpec = AppWrapperSpec()


ReadOwner = Callable[[Mapping[str, Any]], Owner | Pod | None]
"""The owner or pod that a tree is, None for other kinds."""


def read_app_wrapper(wire: AppWrapperObject, read: ReadOwner) -> Owner:
    sets: list[OwnerPodSet] = []
    label = ""
    for index, component in enumerate(wire.spec.components):
        path = f"spec.components[{index}]"
        declared, (own, own_label) = _declared(component, path), _of_its_kind(component, path, read)
        found, label = (declared, "") if declared and _covers(declared, own) else (own, own_label)
        sets += [msgspec.structs.replace(pod_set, name=_name(sets, pod_set.name, index)) for pod_set in found]
    return Owner(
        wire.KIND,
        wire.metadata,
        tuple(sets),
        suspended=wire.spec.suspend,
        pod_set_label=label if len(wire.spec.components) == 1 else "",
        hold="" if sets else "spec.components: no component makes pods of a kind that Windlass knows",
    )


def _name(known: list[OwnerPodSet], name: str, component: int) -> str:
    return f"component-{component}-{name}" if any(pod_set.name == name for pod_set in known) else name


def _covers(declared: Sequence[OwnerPodSet], own: Sequence[OwnerPodSet]) -> bool:
    """Whether no pod that the component's kind makes is missing in what is declared: it would run without quota."""

    def count(sets: Sequence[OwnerPodSet], template: PodTemplate) -> int:
        return sum(pod_set.count for pod_set in sets if pod_set.template == template)

    return all(count(declared, made.template) >= count(own, made.template) for made in own)


def _declared(component: AppWrapperComponent, path: str) -> tuple[OwnerPodSet, ...]:
    sets = []
    for index, declared in enumerate(component.pod_sets):
        where = f"{path}.podSets[{index}]"
        tree = _at(component.template, declared.path.removeprefix("template."))
        if not isinstance(tree, Mapping):
            raise InputError(
                f"there is no pod template at {declared.path!r}",
                path=f"{where}.path",
                remedy="give the path of the template in the component, such as template.spec.template",
            )
        converted = convert(tree, PodTemplate)
        assert isinstance(converted, PodTemplate), converted
        template = checked_template(converted, f"{path}.{declared.path}")
        sets.append(OwnerPodSet(f"set-{index}", checked_count(declared.replicas, f"{where}.replicas"), template))
    return tuple(sets)


def _of_its_kind(component: AppWrapperComponent, path: str, read: ReadOwner) -> tuple[tuple[OwnerPodSet, ...], str]:
    try:
        found = read(component.template)
    except InputError as error:
        raise InputError(
            error.message, path=f"{path}.template.{error.path}", remedy=error.remedy, code=error.code
        ) from None
    if isinstance(found, Pod):
        return (OwnerPodSet("main", 1, PodTemplate(metadata=found.metadata, spec=found.spec)),), ""
    if found is None:
        return (), ""
    if found.gang_count == 1:
        return found.pod_sets, found.pod_set_label
    return tuple(
        msgspec.structs.replace(pod_set, count=pod_set.count * found.gang_count) for pod_set in found.pod_sets
    ), ""


def _at(tree: object, path: str) -> object:
    """The part of a tree at a path such as `spec.replicas[0].template`."""
    for step in path.replace("[", ".").replace("]", "").split("."):
        if isinstance(tree, Mapping):
            tree = tree.get(step)
        elif isinstance(tree, list) and is_digits(step) and int(step) < len(tree):
            tree = tree[int(step)]
        else:
            return None
    return tree
