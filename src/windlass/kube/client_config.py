"""Address, credentials and TLS settings of an API server, from a kubeconfig as kubectl finds it or from inside a pod.

Called by the command line with its options; the `ClientConfig` goes to `kube.client`.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from windlass.kube.credentials import (
    ClientCertificate,
    Credentials,
    StaticCredentials,
    TokenFileCredentials,
    basic_auth_header,
    bearer_header,
    is_valid_header_value,
)
from windlass.kube.kubeconfig import (
    ClusterEntry,
    ResolvedContext,
    UserEntry,
    kubeconfig_files,
    load_kubeconfig,
    resolve_context,
)
from windlass.model.errors import ClusterUnreachable, InputError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class ClientConfig(msgspec.Struct, frozen=True):
    """Everything that `KubeClient` needs."""

    server: str
    """Base address, without a slash at its end."""
    credentials: Credentials
    ca: bytes = b""
    """PEM; empty: the machine's own list."""
    insecure: bool = False
    tls_server_name: str = ""
    proxy: str = ""
    namespace: str = "default"
    headers: tuple[tuple[str, str], ...] = ()
    """Impersonation; a name may come several times."""
    name: str = ""
    """The context, for messages."""


def load_client_config(
    kubeconfig: str = "", context: str = "", environment: Mapping[str, str] = os.environ
) -> ClientConfig:
    """As kubectl: `--kubeconfig`, then KUBECONFIG, then the home folder, then the pod's service account."""
    files = kubeconfig_files(kubeconfig, environment)
    merged = load_kubeconfig(files)
    if merged.files and (merged.contexts or merged.clusters):
        return client_config_of(resolve_context(merged, context))
    if context:
        raise InputError(f"there is no context {context!r}", remedy="no kubeconfig was found")
    if kubeconfig:
        raise InputError("names no cluster and no context", file=kubeconfig, remedy="check --kubeconfig")
    if environment.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster_config(environment)
    if environment.get("KUBECONFIG"):
        problem = "names no cluster and no context" if merged.files else "does not exist"
        raise ClusterUnreachable(f"KUBECONFIG: {', '.join(map(str, files))} {problem} (correct it or use --kubeconfig)")
    raise ClusterUnreachable("no kubeconfig was found (set KUBECONFIG or use --kubeconfig)")


def in_cluster_config(environment: Mapping[str, str], folder: Path = SERVICE_ACCOUNT) -> ClientConfig:
    """From inside a pod: its service account, whose token the kubelet renews."""
    host, port = environment["KUBERNETES_SERVICE_HOST"], environment.get("KUBERNETES_SERVICE_PORT", "443")
    try:
        ca = (folder / "ca.crt").read_bytes()
    except OSError as error:
        raise ClusterUnreachable(f"{folder / 'ca.crt'}: {error.strerror}") from None
    namespace = folder / "namespace"
    return ClientConfig(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        credentials=TokenFileCredentials(folder / "token"),
        ca=ca,
        namespace=namespace.read_text().strip() if namespace.is_file() else "default",
        name="in-cluster",
    )


def client_config_of(chosen: ResolvedContext) -> ClientConfig:
    cluster = chosen.cluster
    return ClientConfig(
        server=_server(chosen),
        credentials=_credentials(chosen),
        ca=_data(cluster.certificate_authority_data, cluster.certificate_authority, "certificate-authority"),
        insecure=cluster.insecure_skip_tls_verify,
        tls_server_name=cluster.tls_server_name,
        proxy=_proxy(chosen),
        namespace=chosen.namespace,
        headers=_impersonation(chosen.user),
        name=chosen.name,
    )


def _server(chosen: ResolvedContext) -> str:
    """The server's address; without a scheme it gets kubectl's default."""
    cluster, where = chosen.cluster, f"context {chosen.name}"
    if not cluster.server:
        raise InputError("the cluster has no server", object=where, path="server")
    server = cluster.server.strip().rstrip("/")
    if "://" not in server:
        ca = cluster.certificate_authority or cluster.certificate_authority_data
        own = chosen.user.client_certificate or chosen.user.client_certificate_data
        server = f"{'https' if ca or own or cluster.insecure_skip_tls_verify else 'http'}://{server}"
    _check_address(server, ("https", "http"), where, "server")
    return server


def _proxy(chosen: ResolvedContext) -> str:
    if chosen.cluster.proxy_url:
        _check_address(chosen.cluster.proxy_url, ("http", "https"), f"context {chosen.name}", "proxy-url")
    return chosen.cluster.proxy_url


def _check_address(address: str, schemes: tuple[str, ...], where: str, path: str) -> None:
    try:
        found = urlsplit(address)
        readable = bool(found.hostname) and (found.port is None or found.port > 0)
    except ValueError:
        readable = False
    if not readable or found.scheme not in schemes:
        remedy = f"an address such as {schemes[0]}://host:port"
        raise InputError(f"{address!r} can't be used", object=where, path=path, remedy=remedy)


def _credentials(chosen: ResolvedContext) -> Credentials:
    user = chosen.user
    identity = ClientCertificate(
        _data(user.client_certificate_data, user.client_certificate, "client-certificate"),
        _data(user.client_key_data, user.client_key, "client-key"),
    )
    if user.token_file:
        return TokenFileCredentials(Path(user.token_file), identity)
    if user.token:
        if not is_valid_header_value(user.token):
            where = f"context {chosen.name}"
            raise InputError("has characters that an HTTP header can't have", object=where, path="users[].user.token")
        return StaticCredentials(bearer_header(user.token), identity)
    if user.username:
        return StaticCredentials(basic_auth_header(user.username, user.password), identity)
    if user.exec is not None and not identity.certificate:
        from windlass.kube.exec_plugin import ExecCredentials  # with asyncio, which others do without

        return ExecCredentials(user.exec, cluster_info(chosen.cluster))
    if user.auth_provider is not None:
        raise InputError(
            f"auth provider {user.auth_provider.get('name', '')!r} is no longer part of Kubernetes",
            object=f"context {chosen.name}",
            path="users[].user.auth-provider",
            remedy="use an exec plugin",
        )
    return StaticCredentials({}, identity)


def cluster_info(cluster: ClusterEntry) -> dict[str, Any]:
    """The cluster as an exec plugin gets it (`KUBERNETES_EXEC_INFO`)."""
    ca = _data(cluster.certificate_authority_data, cluster.certificate_authority, "certificate-authority")
    info = {
        "server": cluster.server,
        "certificate-authority-data": base64.b64encode(ca).decode(),
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        "tls-server-name": cluster.tls_server_name,
        "proxy-url": cluster.proxy_url,
    }
    return {key: value for key, value in info.items() if value}


def _impersonation(user: UserEntry) -> tuple[tuple[str, str], ...]:
    headers = [("Impersonate-User", user.as_), ("Impersonate-Uid", user.as_uid)]
    headers += [("Impersonate-Group", group) for group in user.as_groups]
    headers += [(f"Impersonate-Extra-{key}", value) for key, values in user.as_user_extra.items() for value in values]
    return tuple((name, value) for name, value in headers if value)


def _data(inline: str, path: str, field: str) -> bytes:
    """Inline data wins over a path."""
    if inline:
        try:
            return base64.b64decode(inline, validate=True)
        except binascii.Error:
            raise InputError("is not base64", path=f"{field}-data") from None
    if not path:
        return b""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InputError(str(error.strerror), file=path, path=field) from None
