"""TLS contexts from PEM in memory, for `kube.client`."""

from __future__ import annotations

import os
import ssl
import tempfile

from windlass.kube.credentials import ClientCertificate
from windlass.model.errors import InputError


def tls_context(ca: bytes, insecure: bool, client_certificate: ClientCertificate) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cadata=ca.decode() if ca else None)
        if insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if client_certificate.certificate:
            _load_identity(context, client_certificate)
    except (ssl.SSLError, UnicodeDecodeError) as error:
        raise InputError(f"the certificates can't be used: {error}", remedy="check the kubeconfig") from None
    return context


def _load_identity(context: ssl.SSLContext, identity: ClientCertificate) -> None:
    """OpenSSL loads a client certificate only from a file: a temporary one with mode 0600."""
    handle, path = tempfile.mkstemp(prefix="windlass-", suffix=".pem")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(identity.certificate.rstrip() + b"\n" + identity.key)
        context.load_cert_chain(path)
    finally:
        os.unlink(path)
