"""A small API client for the demo's checks, and for machines without kubectl.

Reads a kubeconfig as `windlass up` writes it (a token, the authority inline).
"""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from windlass.model.errors import ClusterUnreachable, InputError
from windlass.model.unstructured import Unstructured

REQUEST_SECONDS = 60.0
TABLE_MEDIA_TYPE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


class ApiError(Exception):
    """The API refused a request; `status` is its Status."""

    def __init__(self, code: int, status: Unstructured) -> None:
        super().__init__(str(status.get("message") or code))
        self.code, self.status = code, status


class ApiClient:
    def __init__(self, kubeconfig: Path) -> None:
        try:
            content = yaml.safe_load(kubeconfig.read_text())
            cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
            self._url, self._token = str(cluster["server"]), str(user["token"])
            authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        except (KeyError, TypeError, IndexError, ValueError, yaml.YAMLError):
            message = "is not a kubeconfig of `windlass up`"
            raise InputError(message, file=str(kubeconfig), remedy="start one with `windlass up`") from None
        self._context = ssl.create_default_context(cadata=authority)
        self._paths: dict[tuple[str, str], tuple[str, bool]] = {}

    def request(
        self, method: str, path: str, body: object = None, *, kind: str = "application/json", accept: str = ""
    ) -> Unstructured:
        headers = {
            "Authorization": f"Bearer {self._token}",
            "Accept": accept or "application/json",
            "Content-Type": kind,
        }
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(self._url + path, data=data, method=method, headers=headers)
        try:
            with urllib.request.urlopen(asked, timeout=REQUEST_SECONDS, context=self._context) as answer:
                return dict(json.loads(answer.read()))
        except urllib.error.HTTPError as error:
            raise ApiError(error.code, _status(error.read())) from None
        except OSError as error:
            raise ClusterUnreachable(f"{self._url}: {error}") from None

    def get(self, path: str) -> Unstructured:
        return self.request("GET", path)

    def items(self, path: str) -> list[Unstructured]:
        return list(self.get(path).get("items") or ())

    def find(self, path: str) -> Unstructured | None:
        try:
            return self.get(path)
        except ApiError as refused:
            if refused.code == 404:
                return None
            raise

    def collection(self, obj: Mapping[str, Any]) -> str:
        """The path under which objects of this one's kind and namespace are."""
        version, kind = obj["apiVersion"], obj["kind"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if (version, kind) not in self._paths:
            for found in self.get(root)["resources"]:
                if "/" not in found["name"]:
                    self._paths[version, found["kind"]] = (found["name"], bool(found["namespaced"]))
        resource, namespaced = self._paths[version, kind]
        namespace = obj["metadata"].get("namespace", "default")
        return f"{root}/namespaces/{namespace}/{resource}" if namespaced else f"{root}/{resource}"


def _status(data: bytes) -> Unstructured:
    try:
        return dict(json.loads(data))
    except ValueError:
        return {"message": data.decode(errors="replace")[:300]}
