"""One certificate authority per control plane, and kubeconfigs for whoever should come in.

Made by `control_plane`. A user is a client certificate: its common name is the user's name, its organisations are the
user's groups, as Kubernetes reads them.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME = datetime.timedelta(days=2)


@dataclass(frozen=True)
class Pair:
    """Files of a certificate and its key."""

    certificate: Path
    key: Path


class Authority:
    """Signs everything that one control plane trusts; keeps its files in one folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _subject("windlass-test-ca", ())
        signed = (
            _unsigned(self._name, self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate = folder / "ca.crt"
        self.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))

    def server(self, name: str, hosts: Sequence[str]) -> Pair:
        """A serving certificate for host names and addresses."""
        return self._pair(name, (), hosts)

    def client(self, name: str, groups: Sequence[str] = ()) -> Pair:
        """A client certificate: a user of that name in these groups."""
        return self._pair(name, groups, ())

    def signing_key(self, name: str) -> Path:
        """A private key alone: what service account tokens are signed with."""
        return self._write_key(name, ec.generate_private_key(ec.SECP256R1()))

    def _pair(self, name: str, groups: Sequence[str], hosts: Sequence[str]) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        usage = [ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = _unsigned(_subject(name, groups), self._name, key.public_key()).add_extension(
            x509.ExtendedKeyUsage(usage), critical=False
        )
        if hosts:
            alternatives = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            builder = builder.add_extension(alternatives, critical=False)
        stem = name.replace("/", "_").replace(":", "_")
        file = self.folder / f"{stem}.crt"
        file.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        return Pair(file, self._write_key(stem, key))

    def _write_key(self, name: str, key: ec.EllipticCurvePrivateKey) -> Path:
        file = self.folder / f"{name}.key"
        file.touch(mode=0o600)
        file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            )
        )
        return file


def write_kubeconfig(file: Path, url: str, authority: Path, user: Pair) -> Path:
    """A kubeconfig with one cluster, one user and one context, all named `windlass-test`."""
    name = "windlass-test"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": url, "certificate-authority": str(authority)}}],
        "users": [
            {
                "name": name,
                "user": {"client-certificate": str(user.certificate), "client-key": str(user.key)},
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}],
        "current-context": name,
    }
    file.write_text(yaml.safe_dump(content))
    return file


def _subject(name: str, groups: Sequence[str]) -> x509.Name:
    organisations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organisations, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _unsigned(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + _LIFETIME)
    )
