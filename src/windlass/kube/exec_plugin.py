"""Credentials from a program, as cloud providers' kubeconfigs ask for: `client.authentication.k8s.io`.

Made by `kube.client_config`. The program runs when credentials are first needed, when they have expired, and when the
server has refused them; in between its answer is kept.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec

from windlass.kube.credentials import ClientCertificate, bearer_header, is_valid_header_value
from windlass.kube.kubeconfig import ExecSpec
from windlass.model.errors import ClusterUnreachable, InputError
from windlass.model.times import parse_timestamp

VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
MODES = ("Never", "IfAvailable", "Always")
REFRESH_BEFORE_EXPIRY_SECONDS = 10
"""Credentials that expire sooner than this are refreshed, so that none expires in flight."""
LONGEST_RUN = 60.0
MIN_REFRESH_INTERVAL_SECONDS = 5.0
"""Credentials younger than this are not the refused ones: another of many concurrent requests refreshed them."""


class ExecStatus(msgspec.Struct, frozen=True, rename="camel"):
    expiration_timestamp: str = ""
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""


class ExecCredential(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: ExecStatus | None = None


class ExecCredentials:
    def __init__(
        self,
        spec: ExecSpec,
        cluster_info: dict[str, Any] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if spec.api_version not in VERSIONS:
            message = f"exec plugin version {spec.api_version!r}"
            raise InputError(message, path="users[].user.exec.apiVersion", remedy=f"use {VERSIONS[0]}")
        if spec.interactive_mode not in MODES:
            message, remedy = f"unknown mode {spec.interactive_mode!r}", f"use one of {', '.join(MODES)}"
            raise InputError(message, path="users[].user.exec.interactiveMode", remedy=remedy)
        self._spec, self._info, self._clock = spec, cluster_info, clock
        self._known: ExecStatus | None = None
        self._known_at = 0.0
        self._lock = asyncio.Lock()

    async def headers(self) -> dict[str, str]:
        token = (await self._status()).token
        return bearer_header(token) if token else {}

    async def client_certificate(self) -> ClientCertificate:
        status = await self._status()
        return ClientCertificate(status.client_certificate_data.encode(), status.client_key_data.encode())

    def invalidate(self) -> bool:
        if not 0 <= self._clock() - self._known_at <= MIN_REFRESH_INTERVAL_SECONDS:
            self._known = None
        return True

    async def _status(self) -> ExecStatus:
        async with self._lock:
            if self._known is None or self._is_over(self._known):
                self._known = await self._run()
                self._known_at = self._clock()
            return self._known

    def _is_over(self, status: ExecStatus) -> bool:
        end = parse_timestamp(status.expiration_timestamp)
        return bool(end) and self._clock() > end - REFRESH_BEFORE_EXPIRY_SECONDS

    async def _run(self) -> ExecStatus:
        spec = self._spec
        interactive = spec.interactive_mode != "Never" and sys.stdin is not None and sys.stdin.isatty()
        if spec.interactive_mode == "Always" and not interactive:
            raise ClusterUnreachable(f"{spec.command}: needs a terminal, and there is none")
        fields = {"kind": "ExecCredential", "spec": self._request(interactive)}
        request = {"apiVersion": spec.api_version, **fields}
        environment = {
            **os.environ,
            **{variable.name: variable.value for variable in spec.env or ()},
            "KUBERNETES_EXEC_INFO": msgspec.json.encode(request).decode(),
        }
        try:
            process = await asyncio.create_subprocess_exec(
                spec.command,
                *(spec.args or ()),
                env=environment,
                stdin=None if interactive else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            hint = f" ({spec.install_hint.strip()})" if spec.install_hint else ""
            raise ClusterUnreachable(f"{spec.command}: {error.strerror}{hint}") from None
        return self._parse(*await _output(process, spec.command))

    def _request(self, interactive: bool) -> dict[str, Any]:
        asked: dict[str, Any] = {"interactive": interactive}
        if self._spec.provide_cluster_info and self._info is not None:
            asked["cluster"] = self._info
        return asked

    def _parse(self, code: int, output: bytes) -> ExecStatus:
        command = self._spec.command
        if code:
            raise ClusterUnreachable(f"{command}: failed with exit code {code}; its own words are above")
        try:
            answer = msgspec.json.decode(output, type=ExecCredential)
        except msgspec.MsgspecError as error:
            raise ClusterUnreachable(f"{command}: printed no ExecCredential: {error}") from None
        if answer.kind != "ExecCredential" or answer.api_version != self._spec.api_version:
            found = f"{answer.kind} {answer.api_version}"
            raise ClusterUnreachable(f"{command}: printed {found}, not ExecCredential {self._spec.api_version}")
        status = answer.status
        if status is None or not (status.token or status.client_certificate_data):
            raise ClusterUnreachable(f"{command}: printed neither a token nor a certificate")
        if not is_valid_header_value(status.token):
            raise ClusterUnreachable(f"{command}: printed a token with characters that an HTTP header can't have")
        if bool(status.client_certificate_data) != bool(status.client_key_data):
            raise ClusterUnreachable(f"{command}: printed a certificate without its key, or the other way round")
        return status


async def _output(process: asyncio.subprocess.Process, command: str) -> tuple[int, bytes]:
    try:
        output, _ = await asyncio.wait_for(process.communicate(), LONGEST_RUN)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise ClusterUnreachable(f"{command}: gave no answer within {LONGEST_RUN:.0f} s") from None
    return process.returncode or 0, output
