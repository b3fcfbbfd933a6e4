"""Validation of Services, Endpoints, EndpointSlices, Ingresses and NetworkPolicies.

Called by `validation` with decoded, defaulted objects. Messages are the Kubernetes API's (Apache-2.0).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any

from windlass.embedded.api.errors import FieldError, invalid, required, unsupported
from windlass.embedded.api.field_checks import (
    choice_errors,
    name_errors,
    optional_choice_errors,
    problem_errors,
    required_errors,
)
from windlass.embedded.api.names import dns_label_problems, dns_subdomain_problems, port_name_problems
from windlass.embedded.api.structural_schema import parses
from windlass.embedded.api.validate_metadata import label_errors, selector_errors
from windlass.model.unstructured import Unstructured

PORT_RANGE_MESSAGE = "must be between 1 and 65535, inclusive"
_ADDRESS = "must be a valid IP address"
ADDRESS_MESSAGE = f"{_ADDRESS}, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")


is_address = parses(ipaddress.ip_address)


def endpoints_errors(obj: Unstructured) -> Iterator[FieldError]:
    for index, subset in enumerate(obj.get("subsets") or ()):
        path = f"subsets[{index}]"
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            yield required(path, "must specify `addresses` or `notReadyAddresses`")
        for field in ("addresses", "notReadyAddresses"):
            for number, address in enumerate(subset.get(field) or ()):
                if not is_address(address.get("ip", "")):
                    yield invalid(f"{path}.{field}[{number}].ip", address.get("ip", ""), ADDRESS_MESSAGE)
                    yield invalid(f"{path}.{field}[{number}].ip", address.get("ip", ""), _ADDRESS)
        for number, port in enumerate(subset.get("ports") or ()):
            if not 1 <= port.get("port", 0) <= 65535:
                yield invalid(f"{path}.ports[{number}].port", port.get("port", 0), PORT_RANGE_MESSAGE)


def endpoint_slice_errors(obj: Unstructured) -> Iterator[FieldError]:
    kind = obj.get("addressType", "")
    if not kind:
        yield required("addressType")
    else:
        yield from choice_errors(obj, "addressType", "", ("FQDN", "IPv4", "IPv6"))
    for index, endpoint in enumerate(obj.get("endpoints") or ()):
        path = f"endpoints[{index}].addresses"
        if not endpoint.get("addresses"):
            yield required(path, "must contain at least 1 address")
        for number, address in enumerate(endpoint.get("addresses") or ()):
            if kind in ("IPv4", "IPv6") and not is_address(address):
                yield invalid(f"{path}[{number}]", address, ADDRESS_MESSAGE)


def network_policy_errors(obj: Unstructured) -> Iterator[FieldError]:
    spec = obj["spec"]
    yield from selector_errors(spec.get("podSelector"), "spec.podSelector")
    for direction in ("ingress", "egress"):
        for index, rule in enumerate(spec.get(direction) or ()):
            for number, port in enumerate(rule.get("ports") or ()):
                yield from _policy_port_errors(port, f"spec.{direction}[{index}].ports[{number}]")
    for index, kind in enumerate(spec.get("policyTypes") or ()):
        if kind not in ("Ingress", "Egress"):
            yield unsupported(f"spec.policyTypes[{index}]", kind, ("Ingress", "Egress"))


def _policy_port_errors(port: Unstructured, path: str) -> Iterator[FieldError]:
    number = port.get("port")
    yield from optional_choice_errors(port, "protocol", path, ("TCP", "UDP", "SCTP"))
    if isinstance(number, int):
        if not 1 <= number <= 65535:
            yield invalid(f"{path}.port", number, PORT_RANGE_MESSAGE)
    elif number is not None:
        yield from problem_errors(f"{path}.port", number, port_name_problems)


def ingress_errors(obj: Unstructured) -> Iterator[FieldError]:
    spec = obj["spec"]
    if not spec.get("rules") and spec.get("defaultBackend") is None:
        yield invalid("spec", spec, "either `defaultBackend` or `rules` must be specified")
    for index, rule in enumerate(spec.get("rules") or ()):
        host, http = rule.get("host", ""), rule.get("http")
        if host and not host.startswith("*."):
            yield from problem_errors(f"spec.rules[{index}].host", host, dns_subdomain_problems)
        paths_path = f"spec.rules[{index}].http.paths"
        if http is not None and not http.get("paths"):
            yield required(paths_path)
        for number, path in enumerate((http or {}).get("paths") or ()):
            yield from _ingress_path_errors(path, f"{paths_path}[{number}]")


def _ingress_path_errors(path: Unstructured, field_path: str) -> Iterator[FieldError]:
    kind = path.get("pathType")
    if not kind:
        yield required(f"{field_path}.pathType", "pathType must be specified")
    elif kind not in _PATH_TYPES:
        yield unsupported(f"{field_path}.pathType", kind, _PATH_TYPES)
    elif kind != "ImplementationSpecific" and not path.get("path", "").startswith("/"):
        yield invalid(f"{field_path}.path", path.get("path", ""), "must be an absolute path")
    yield from _backend_errors(path.get("backend") or {}, f"{field_path}.backend")


def _backend_errors(backend: Unstructured, path: str) -> Iterator[FieldError]:
    service: Any = backend.get("service")
    if service is None:
        if backend.get("resource") is None:
            yield invalid(path, "", "resource or service backend is required")
        return
    yield from required_errors(service, f"{path}.service", "name")
    port = service.get("port") or {}
    if not port.get("name") and not port.get("number"):
        yield required(path, "port name or number is required")


_SERVICE_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")


def service_errors(obj: Unstructured) -> Iterator[FieldError]:
    spec = obj["spec"]
    ports, kind = spec.get("ports") or [], spec.get("type")
    if not ports and kind != "ExternalName" and spec.get("clusterIP") != "None":
        yield required("spec.ports")
    if kind == "ExternalName" and not spec.get("externalName"):
        yield required("spec.externalName")
    for index, port in enumerate(ports):
        yield from _service_port_errors(port, f"spec.ports[{index}]", len(ports) > 1)
    yield from label_errors(spec.get("selector") or {}, "spec.selector")
    address = spec.get("clusterIP")
    if address and address != "None" and not is_address(address):
        yield invalid("spec.clusterIPs[0]", address, ADDRESS_MESSAGE)
    yield from choice_errors(spec, "type", "spec", _SERVICE_TYPES)
    yield from choice_errors(spec, "sessionAffinity", "spec", ("ClientIP", "None"))


def _service_port_errors(port: Unstructured, path: str, named: bool) -> Iterator[FieldError]:
    if named or port.get("name"):
        yield from name_errors(f"{path}.name", port.get("name", ""), dns_label_problems)
    if not 1 <= port.get("port", 0) <= 65535:
        yield invalid(f"{path}.port", port.get("port", 0), PORT_RANGE_MESSAGE)
    target = port.get("targetPort", 0)
    if isinstance(target, int) and not 1 <= target <= 65535:
        yield invalid(f"{path}.targetPort", target, PORT_RANGE_MESSAGE)
    yield from choice_errors(port, "protocol", path, ("SCTP", "TCP", "UDP"))
