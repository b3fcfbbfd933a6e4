"""Discovery documents: the served kinds, aggregated (one request) and plain (one request per group version).

`server.non_resource_paths` serves them; `kubectl api-resources` and every client's REST mapper read them.
"""

from __future__ import annotations

import base64
import hashlib

from windlass.embedded.api.kinds import Kind, Kinds, Subresource
from windlass.model.unstructured import Unstructured


def aggregated(kinds: Kinds, core: bool) -> Unstructured:
    """`/api` (core) or `/apis` in the aggregated form."""
    groups = [""] if core else kinds.groups()
    items = [_group_discovery(kinds, group) for group in groups]
    head = {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2"}
    return {**head, "metadata": {}, "items": items}


def _group_discovery(kinds: Kinds, group: str) -> Unstructured:
    metadata: Unstructured = {"name": group} if group else {}
    versions = [
        {
            "version": version,
            "resources": [_resource_discovery(kind) for kind in _served(kinds, group, version)],
            "freshness": "Current",
        }
        for version in kinds.versions(group)
    ]
    return {"metadata": metadata, "versions": versions}


def _served(kinds: Kinds, group: str, version: str) -> list[Kind]:
    found = [kind for kind in kinds if (kind.group, kind.version) == (group, version)]
    return sorted(found, key=lambda kind: kind.plural)


def _aliases(kind: Kind) -> Unstructured:
    names = {"shortNames": list(kind.short_names), "categories": list(kind.categories)}
    return {key: value for key, value in names.items() if value}


def _resource_discovery(kind: Kind) -> Unstructured:
    result: Unstructured = {
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular_name,
        "verbs": list(kind.verbs),
    }
    result |= _aliases(kind)
    if kind.subresources:
        result["subresources"] = [
            {
                "subresource": subresource.name,
                "responseKind": {
                    "group": subresource.group or kind.group,
                    "version": subresource.version or kind.version,
                    "kind": subresource.kind,
                },
                "verbs": list(subresource.verbs),
            }
            for subresource in kind.subresources
        ]
    return result


# ---- plain


def versions(address: str) -> Unstructured:
    """`/api`: the versions of the core group. `address` is where clients reach this server."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def groups(kinds: Kinds) -> Unstructured:
    """`/apis`: all groups but the core one."""
    found = [_group(kinds, name) for name in kinds.groups()]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": found}


def group(kinds: Kinds, name: str) -> Unstructured | None:
    """`/apis/GROUP`; None if there is no such group."""
    if name not in kinds.groups():
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(kinds, name)}


def _group(kinds: Kinds, name: str) -> Unstructured:
    versions = [{"groupVersion": f"{name}/{version}", "version": version} for version in kinds.versions(name)]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def resources(kinds: Kinds, group: str, version: str) -> Unstructured | None:
    """`/api/v1` or `/apis/GROUP/VERSION`; None if it is not served."""
    found = _served(kinds, group, version)
    if not found:
        return None
    head = {"kind": "APIResourceList", "apiVersion": "v1"}
    listed = [entry for kind in found for entry in _entries(kind)]
    return {**head, "groupVersion": f"{group}/{version}" if group else version, "resources": listed}


def _entries(kind: Kind) -> list[Unstructured]:
    entry: Unstructured = {
        "name": kind.plural,
        "singularName": kind.singular_name,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(kind.verbs),
    }
    entry |= _aliases(kind)
    if "create" in kind.verbs and "list" in kind.verbs:
        entry["storageVersionHash"] = _hash(kind)
    return [entry, *(_subresource_entry(kind, subresource) for subresource in kind.subresources)]


def _subresource_entry(kind: Kind, subresource: Subresource) -> Unstructured:
    entry: Unstructured = {
        "name": f"{kind.plural}/{subresource.name}",
        "singularName": "",
        "namespaced": kind.namespaced,
        "kind": subresource.kind,
        "verbs": list(subresource.verbs),
    }
    if subresource.group:
        entry |= {"group": subresource.group, "version": subresource.version}
    return entry


def _hash(kind: Kind) -> str:
    digest = hashlib.sha256(f"{kind.group}/{kind.version}/{kind.kind}".encode()).digest()
    return base64.b64encode(digest[:8]).decode()
