"""kubectl's part in the demo: the real one where it is on the PATH, else the API's own answers in the same form.

`demo.presenter` prints a command and hands it over here. The stand-in knows the few verbs that the story uses; it
asks the API for Tables, as kubectl does, so what it shows is what the server says.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

import yaml

from windlass.demo.api import TABLE_MEDIA_TYPE, ApiClient, ApiError
from windlass.model.errors import InputError
from windlass.model.unstructured import Unstructured

RESOURCES = {
    "pod": "/api/v1/{ns}pods",
    "pods": "/api/v1/{ns}pods",
    "node": "/api/v1/nodes",
    "nodes": "/api/v1/nodes",
    "job": "/apis/batch/v1/{ns}jobs",
    "jobs": "/apis/batch/v1/{ns}jobs",
    "workloads": "/apis/kueue.x-k8s.io/v1beta2/{ns}workloads",
    "deployment": "/apis/apps/v1/{ns}deployments",
    "deployments": "/apis/apps/v1/{ns}deployments",
}
WITH_VALUE = ("-f", "-l", "-o", "--patch-file")
PATCH_MEDIA_TYPES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}


class Kubectl(Protocol):
    name: str

    def run(self, arguments: list[str], stdin: str = "") -> tuple[int, str]:
        """`(exit code, what it printed)`."""


def find_kubectl(api: ApiClient, kubeconfig: Path) -> Kubectl:
    program = shutil.which("kubectl")
    return RealKubectl(program, kubeconfig) if program else BuiltInKubectl(api)


class RealKubectl:
    def __init__(self, program: str, kubeconfig: Path) -> None:
        self.name = program
        self._environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}

    def run(self, arguments: list[str], stdin: str = "") -> tuple[int, str]:
        done = subprocess.run(
            [self.name, *arguments],
            input=stdin,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout


class BuiltInKubectl:
    """A machine without kubectl: the same requests, by ourselves."""

    name = "the API's own answers (there is no kubectl on the PATH)"

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    def run(self, arguments: list[str], stdin: str = "") -> tuple[int, str]:
        options = {name: value for name, value in pairwise(arguments) if name in WITH_VALUE}
        arguments_left = [
            word
            for at, word in enumerate(arguments)
            if not word.startswith("-") and (not at or arguments[at - 1] not in WITH_VALUE)
        ]
        try:
            return self._verb(arguments_left, options, stdin)
        except ApiError as refused:
            return 1, f"Error from server ({refused.status.get('reason') or refused.code}): {refused}\n"

    def _verb(self, arguments: list[str], options: dict[str, str], stdin: str) -> tuple[int, str]:
        selector = options.get("-l", "")
        match arguments:
            case ["apply", *_]:
                return 0, "".join(self._apply(document) for document in yaml.safe_load_all(stdin) if document)
            case ["get", kind, *names]:
                return 0, self._get(kind, names, selector, wide=options.get("-o") == "wide")
            case ["delete", kinds, *names]:
                return 0, "".join(self._delete(kind, names, selector) for kind in kinds.split(","))
            case ["cordon" | "uncordon" as verb, *nodes]:
                return 0, "".join(self._cordon(node, verb) for node in nodes)
            case ["patch", kind, name, *_]:
                return 0, self._patch(kind, name, stdin)
            case _:
                raise InputError(f"the demo's stand-in for kubectl doesn't know {' '.join(arguments)!r}")

    def _apply(self, obj: Unstructured) -> str:
        collection = self._api.collection(obj)
        name, kind = obj["metadata"]["name"], obj["kind"].lower()
        group = obj["apiVersion"].partition("/")[0] if "/" in obj["apiVersion"] else ""
        label = f"{kind}.{group}/{name}" if group else f"{kind}/{name}"
        if self._api.find(f"{collection}/{name}") is None:
            self._api.request("POST", collection, obj)
            return f"{label} created\n"
        self._api.request("PATCH", f"{collection}/{name}", obj, kind=PATCH_MEDIA_TYPES["merge"])
        return f"{label} configured\n"

    def _get(self, kind: str, names: list[str], selector: str, wide: bool) -> str:
        path = _path(kind) + (f"/{names[0]}" if names else "")
        table = self._api.request("GET", path + _query(selector), accept=TABLE_MEDIA_TYPE)
        columns = [at for at, column in enumerate(table["columnDefinitions"]) if wide or not column.get("priority")]
        head = [str(table["columnDefinitions"][at]["name"]).upper() for at in columns]
        rows = [[str(row["cells"][at]) for at in columns] for row in table.get("rows") or ()]
        if not rows:
            return "No resources found in default namespace.\n"
        widths = [max(len(row[at]) for row in [head, *rows]) for at in range(len(head))]
        lines = [
            "   ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)) for row in [head, *rows]
        ]
        return "".join(f"{line.rstrip()}\n" for line in lines)

    def _delete(self, kind: str, names: list[str], selector: str) -> str:
        path = _path(kind)
        wanted = names or [obj["metadata"]["name"] for obj in self._api.items(path + _query(selector))]
        for name in wanted:
            body = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
            self._api.request("DELETE", f"{path}/{name}", body)
        return "".join(f'{kind} "{name}" deleted\n' for name in wanted)

    def _cordon(self, node: str, verb: str) -> str:
        change = {"spec": {"unschedulable": True if verb == "cordon" else None}}
        self._api.request("PATCH", f"{_path('nodes')}/{node}", change, kind=PATCH_MEDIA_TYPES["merge"])
        return f"node/{node} {verb}ed\n"

    def _patch(self, kind: str, name: str, stdin: str) -> str:
        change = yaml.safe_load(stdin)
        self._api.request("PATCH", f"{_path(kind)}/{name}", change, kind=PATCH_MEDIA_TYPES["strategic"])
        return f"{kind}/{name} patched\n"


def _path(kind: str) -> str:
    return RESOURCES[kind].format(ns="namespaces/default/")


def _query(selector: str) -> str:
    return f"?labelSelector={quote(selector)}" if selector else ""
