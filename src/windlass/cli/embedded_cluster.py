"""Requests to the routes under `/windlass/` of the cluster that `windlass up` runs. Used by `sandbox` and `page`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from windlass.model.errors import ClusterUnreachable, InputError

Command = TypeVar("Command", bound=Callable[..., Any])


def embedded_cluster_options(command: Command) -> Command:
    """`--kubeconfig`, `--context`."""
    where = "The kubeconfig. [default: KUBECONFIG, else ~/.windlass/kubeconfig]"
    command = click.option("--context", "kube_context", default="", help="The kubeconfig's context.")(command)
    return click.option("--kubeconfig", default="", help=where)(command)


def request_embedded_cluster(
    kube_access: tuple[str, str],
    method: str,
    path: str,
    body: dict[str, Any] | None = None,
    *,
    not_found_message: str,
) -> dict[str, Any]:
    """`kube_access`: kubeconfig and context. `not_found_message`: the error if the server has no such path."""
    return asyncio.run(_ask(kube_access, method, path, body, not_found_message))


async def _ask(
    where: tuple[str, str], method: str, path: str, body: dict[str, Any] | None, absent: str
) -> dict[str, Any]:
    import aiohttp

    from windlass.kube.client_config import load_client_config
    from windlass.kube.tls import tls_context

    own = Path("~/.windlass/kubeconfig").expanduser()
    given = where[0] or ("" if os.environ.get("KUBECONFIG") or not own.is_file() else str(own))
    access = load_client_config(given, where[1])
    headers = await access.credentials.headers()
    secure = tls_context(access.ca, access.insecure, await access.credentials.client_certificate())
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(30)) as session,
            session.request(method, access.server + path, headers=headers, json=body, ssl=secure) as response,
        ):
            answer: dict[str, Any] = await response.json(content_type=None)
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise ClusterUnreachable(f"{access.server}: {error}") from None
    if response.status == 404:
        raise ClusterUnreachable(f"{access.server} {absent}")
    if response.status >= 400:
        raise InputError(str(answer.get("message") or f"HTTP {response.status}"))
    return answer
