"""Validation of pod specs, of pods and of templates: containers, volumes and resources.

Called by `validation` and `validate_workloads` with decoded, defaulted objects; scheduling fields are in
`validate_scheduling`. Messages are the Kubernetes API's (Apache-2.0), compared with a real API server's in
`tests/embedded/api/test_against_kubernetes.py`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from windlass.embedded.api.defaults_pod import PROBE_DEFAULTS
from windlass.embedded.api.errors import (
    FieldError,
    duplicate,
    forbidden_field,
    invalid,
    not_found_field,
    required,
)
from windlass.embedded.api.field_checks import (
    choice_errors,
    minimum_errors,
    name_errors,
    problem_errors,
    required_errors,
)
from windlass.embedded.api.names import (
    config_key_problems,
    dns_label_problems,
    dns_subdomain_problems,
    environment_problems,
    port_name_problems,
)
from windlass.embedded.api.validate_resources import requirement_errors
from windlass.embedded.api.validate_scheduling import placement_errors
from windlass.model.unstructured import Unstructured

_RESTART = ("Always", "OnFailure", "Never")
_DNS = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_PULL = ("Always", "IfNotPresent", "Never")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_ONE_SOURCE = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
_PORTS = "must be between 1 and 65535, inclusive"
_FIELD_PATHS = {
    *("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName"),
    *("status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"),
}
_MAP_PATHS = ("metadata.labels['", "metadata.annotations['")


def pod_spec_errors(spec: Unstructured, path: str = "spec") -> Iterator[FieldError]:
    volumes = yield from _volumes_errors(spec.get("volumes") or [], f"{path}.volumes")
    yield from _containers_errors(spec, path, volumes)
    yield from choice_errors(spec, "restartPolicy", path, _RESTART)
    yield from choice_errors(spec, "dnsPolicy", path, _DNS)
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= 2**31 - 1:
        detail = "must be between 1 and 2147483647, inclusive"
        yield invalid(f"{path}.activeDeadlineSeconds", deadline, detail)
    for name in ("serviceAccountName", "nodeName", "priorityClassName", "runtimeClassName"):
        if spec.get(name):
            yield from problem_errors(f"{path}.{name}", spec[name], dns_subdomain_problems)
    for name in ("hostname", "subdomain"):
        if spec.get(name):
            yield from problem_errors(f"{path}.{name}", spec[name], dns_label_problems)
    yield from placement_errors(spec, path)


def _containers_errors(spec: Unstructured, path: str, volumes: set[str]) -> Iterator[FieldError]:
    if not spec["containers"]:
        yield required(f"{path}.containers")
    seen: set[str] = set()
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field) or ()):
            container_path = f"{path}.{field}[{index}]"
            name = container.get("name")
            if not name:
                yield required(f"{container_path}.name")
            elif name in seen:
                yield duplicate(f"{container_path}.name", name)
            else:
                yield from problem_errors(f"{container_path}.name", name, dns_label_problems)
            seen.add(name)
            yield from _container_errors(container, container_path, volumes, bool(spec.get("hostNetwork")))


def _container_errors(
    container: Unstructured, path: str, volumes: set[str], host_network: bool
) -> Iterator[FieldError]:
    image = container.get("image", "")
    if not image:
        yield required(f"{path}.image")
    elif image != image.strip():
        yield invalid(f"{path}.image", image, "must not have leading or trailing whitespace")
    for name, known in (
        ("terminationMessagePolicy", ("File", "FallbackToLogsOnError")),
        ("imagePullPolicy", _PULL),
    ):
        yield from choice_errors(container, name, path, known)
    if "ports" in container:
        yield from _ports_errors(container["ports"], f"{path}.ports", host_network)
    for index, variable in enumerate(container.get("env", ())):
        yield from _variable_errors(variable, f"{path}.env[{index}]")
    mounts = container.get("volumeMounts")
    if mounts:
        yield from _mounts_errors(mounts, f"{path}.volumeMounts", volumes)
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if name in container:
            yield from _probe_errors(container[name], f"{path}.{name}", name)
    for name, hook in (container.get("lifecycle") or {}).items():
        if isinstance(hook, dict):
            yield from _hook_errors(hook, f"{path}.lifecycle.{name}")
    yield from requirement_errors(container["resources"], f"{path}.resources")


def _ports_errors(ports: list[Unstructured], path: str, host_network: bool) -> Iterator[FieldError]:
    names: set[str] = set()
    for index, port in enumerate(ports):
        where = f"{path}[{index}]"
        name = port.get("name")
        if name:
            yield from problem_errors(f"{where}.name", name, port_name_problems)
            if name in names:
                yield duplicate(f"{where}.name", name)
            names.add(name)
        number, outer = port.get("containerPort", 0), port.get("hostPort", 0)
        if number == 0:
            yield required(f"{where}.containerPort")
        elif not 1 <= number <= 65535:
            yield invalid(f"{where}.containerPort", number, _PORTS)
        if outer and not 1 <= outer <= 65535:
            yield invalid(f"{where}.hostPort", outer, _PORTS)
        elif host_network and outer and outer != number:
            yield invalid(f"{where}.hostPort", outer, "must match `containerPort` when `hostNetwork` is true")
        yield from choice_errors(port, "protocol", where, _PROTOCOLS)


def _variable_errors(variable: Unstructured, path: str) -> Iterator[FieldError]:
    name, source = variable.get("name", ""), variable.get("valueFrom")
    yield from name_errors(f"{path}.name", name, environment_problems)
    if source is None:
        return
    if variable.get("value"):
        yield invalid(f"{path}.valueFrom", "", "may not be specified when `value` is not empty")
        return
    sources = [field for field in source if source[field] is not None]
    if not sources:
        yield invalid(f"{path}.valueFrom", "", _ONE_SOURCE)
    elif len(sources) > 1:
        yield invalid(f"{path}.valueFrom", "", "may not have more than one field specified at a time")
    yield from _source_errors(source, f"{path}.valueFrom")


def _source_errors(source: Unstructured, path: str) -> Iterator[FieldError]:
    reference = source.get("fieldRef")
    if reference is not None:
        field = reference.get("fieldPath", "")
        if not field:
            yield required(f"{path}.fieldRef.fieldPath")
        elif field not in _FIELD_PATHS and not field.startswith(_MAP_PATHS):
            detail = f"error converting fieldPath: field label not supported: {field}"
            yield invalid(f"{path}.fieldRef.fieldPath", field, detail)
    for name in ("configMapKeyRef", "secretKeyRef"):
        if name in source:
            key = source[name].get("key", "")
            yield from name_errors(f"{path}.{name}.key", key, config_key_problems)


def _mounts_errors(mounts: list[Unstructured], path: str, volumes: set[str]) -> Iterator[FieldError]:
    mounted_paths: set[str] = set()
    for index, mount in enumerate(mounts):
        mount_path, name, target = f"{path}[{index}]", mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            yield required(f"{mount_path}.name")
        elif name not in volumes:
            yield not_found_field(f"{mount_path}.name", name)
        if not target:
            yield required(f"{mount_path}.mountPath")
        if target in mounted_paths:
            yield invalid(f"{mount_path}.mountPath", target, "must be unique")
        mounted_paths.add(target)


def _probe_errors(probe: Unstructured, path: str, which: str) -> Iterator[FieldError]:
    handlers = [name for name in ("exec", "httpGet", "tcpSocket", "grpc") if probe.get(name) is not None]
    if not handlers:
        yield required(path, "must specify a handler type")
    for extra in handlers[1:]:
        yield forbidden_field(f"{path}.{extra}", "may not specify more than 1 handler type")
    for name in handlers[:1]:
        yield from _handler_errors(probe[name], f"{path}.{name}", name)
    for name in ("initialDelaySeconds", *PROBE_DEFAULTS):
        yield from minimum_errors(probe, name, path)
    if which != "readinessProbe" and probe.get("successThreshold", 1) != 1:
        yield invalid(f"{path}.successThreshold", probe["successThreshold"], "must be 1")


def _hook_errors(hook: Unstructured, path: str) -> Iterator[FieldError]:
    handlers = [name for name in ("exec", "httpGet", "tcpSocket", "sleep") if hook.get(name) is not None]
    if not handlers:
        yield required(path, "must specify a handler type")
    for name in handlers[:1]:
        if name != "sleep":
            yield from _handler_errors(hook[name], f"{path}.{name}", name)


def _handler_errors(action: Unstructured, path: str, name: str) -> Iterator[FieldError]:
    if name == "exec":
        if not action.get("command"):
            yield required(f"{path}.command")
        return
    port = action.get("port", 0)
    if isinstance(port, int):
        if not 1 <= port <= 65535:
            yield invalid(f"{path}.port", port, _PORTS)
    else:
        yield from problem_errors(f"{path}.port", port, port_name_problems)


# ---- volumes

_REQUIRED_FIELDS = {
    "hostPath": ("path",),
    "persistentVolumeClaim": ("claimName",),
    "secret": ("secretName",),
    "csi": ("driver",),
    "nfs": ("server", "path"),
    "configMap": ("name",),
}


def _volumes_errors(volumes: list[Unstructured], path: str) -> Generator[FieldError, None, set[str]]:
    """Returns the names of the volumes, for the mounts."""
    names: set[str] = set()
    for index, volume in enumerate(volumes):
        volume_path, name = f"{path}[{index}]", volume.get("name", "")
        yield from _volume_source_errors(volume, volume_path)
        yield from name_errors(f"{volume_path}.name", name, dns_label_problems)
        if name in names:
            yield duplicate(f"{volume_path}.name", name)
        names.add(name)
    return names


def _volume_source_errors(volume: Unstructured, path: str) -> Iterator[FieldError]:
    sources = [name for name in volume if name != "name"]
    for extra in sources[1:]:
        yield forbidden_field(f"{path}.{extra}", "may not specify more than 1 volume type")
    for name in sources[:1]:
        yield from required_errors(volume[name], f"{path}.{name}", *_REQUIRED_FIELDS.get(name, ()))
        if name == "nfs" and not volume[name].get("path", "").startswith("/"):
            yield invalid(f"{path}.nfs.path", volume[name].get("path", ""), "must be an absolute path")
        if name == "downwardAPI":
            for item in volume[name].get("items") or ():
                yield from required_errors(item, f"{path}.downwardAPI", "path")
        if name in ("configMap", "secret"):
            for index, item in enumerate(volume[name].get("items") or ()):
                yield from required_errors(item, f"{path}.{name}.items[{index}]", "key", "path")
