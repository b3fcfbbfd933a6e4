"""Asks a Prometheus: `query` and `query_range` over its HTTP API.

`prometheus_samples`, `prometheus_usage` and `prometheus_trends` call it. Where a Prometheus exists it has the history
already, also of clusters without a single part of Windlass in them.
"""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.parse
import urllib.request
from typing import NamedTuple

import msgspec

from windlass.model.errors import ClusterUnreachable, InputError

TIMEOUT_SECONDS = 60.0


class PromSample(NamedTuple):
    labels: dict[str, str]
    at: float
    value: float


class PromSeries(NamedTuple):
    labels: dict[str, str]
    points: list[tuple[float, float]]


class _Result(msgspec.Struct):
    metric: dict[str, str] = {}
    value: tuple[float, str] = (0.0, "0")
    values: list[tuple[float, str]] = []


class _Data(msgspec.Struct, rename="camel"):
    result_type: str = ""
    result: list[_Result] = []


class _Answer(msgspec.Struct, rename="camel"):
    status: str = ""
    data: _Data | None = None
    error: str = ""


class Prometheus:
    def __init__(self, url: str, token: str = "", timeout: float = TIMEOUT_SECONDS) -> None:
        """`url` may contain user and password. Raises an `InputError` for what is no http(s) URL."""
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(
                f"'{url}' is no address of a Prometheus", path="--prometheus", remedy="write http://HOST:9090"
            )
        host = parts.hostname if ":" not in parts.hostname else f"[{parts.hostname}]"
        self.url = f"{parts.scheme}://{host}{f':{parts.port}' if parts.port else ''}{parts.path.rstrip('/')}"
        self._timeout = timeout
        self._headers = {"Accept": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        elif parts.username:
            secret = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(secret.encode()).decode()}"

    def query(self, expression: str, at: float | None = None) -> list[PromSample]:
        """The samples of an instant vector. Raises `ClusterUnreachable` where there is no answer."""
        fields = {"query": expression, **({"time": f"{at:.3f}"} if at is not None else {})}
        found = self._ask("query", fields, "vector")
        return [PromSample(result.metric, result.value[0], float(result.value[1])) for result in found]

    def query_range(self, expression: str, start: int, end: int, step: int) -> list[PromSeries]:
        """The series from `start` to `end`; steps without a value are left out."""
        fields = {"query": expression, "start": str(start), "end": str(end), "step": str(step)}
        found = self._ask("query_range", fields, "matrix")
        return [PromSeries(result.metric, [(at, float(text)) for at, text in result.values]) for result in found]

    def _ask(self, path: str, fields: dict[str, str], kind: str) -> list[_Result]:
        body = urllib.parse.urlencode(fields).encode()
        request = urllib.request.Request(f"{self.url}/api/v1/{path}", body, self._headers)
        try:
            with urllib.request.urlopen(request, timeout=self._timeout) as answer:
                return self._results(answer.read(), kind)
        except urllib.error.HTTPError as error:
            raise ClusterUnreachable(f"{self.url} refused a query: {_reason(error)}") from None
        except (OSError, ValueError) as error:
            raise ClusterUnreachable(f"{self.url} did not answer: {getattr(error, 'reason', error)}") from None

    def _results(self, body: bytes, kind: str) -> list[_Result]:
        try:
            answer = msgspec.json.decode(body, type=_Answer)
        except msgspec.MsgspecError:
            raise ClusterUnreachable(f"{self.url} is no Prometheus: its answer can't be read") from None
        if answer.status != "success" or answer.data is None:
            raise ClusterUnreachable(f"{self.url} refused a query: {answer.error or 'no reason given'}")
        if answer.data.result_type != kind:
            raise ClusterUnreachable(f"{self.url} answered with a {answer.data.result_type or 'nothing'}")
        return answer.data.result


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        found = str(json.loads(error.read()).get("error", ""))
    except (ValueError, AttributeError, OSError):
        found = ""
    return found or f"{error.code} {error.reason}"
