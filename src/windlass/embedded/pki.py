"""The server's certificate and token, and the kubeconfig for clients.

`embedded_cluster` creates an `Identity` at the start, or loads the one in the state folder, so that a kubeconfig
stays valid across runs, and passes it to `server.server`. No file is readable by other users.
"""

from __future__ import annotations

import base64
import datetime
import ipaddress
import os
import secrets
import ssl
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from windlass.model.errors import InputError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

ORGANISATION = "windlass"
LIFETIME = datetime.timedelta(days=3650)
_NAMES = ("127.0.0.1", "::1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
_IDENTITY_FILE = "identity.json"
MIN_TOKEN_LENGTH = 32


class Identity(msgspec.Struct, frozen=True):
    """PEM texts and a token. The CA's private key is not kept."""

    authority: str
    certificate: str
    key: str
    token: str
    names: tuple[str, ...] = ()

    def ssl_context(self) -> ssl.SSLContext:
        """For the server's side of TLS."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        with tempfile.TemporaryDirectory(prefix="windlass-") as folder:  # mode 0700
            chain, key = Path(folder, "chain.pem"), Path(folder, "key.pem")
            chain.write_text(self.certificate + self.authority)
            write_private(key, self.key)
            context.load_cert_chain(chain, key)
        return context


def make_identity(names: Sequence[str] = ()) -> Identity:
    """A new CA, a certificate for loopback and these names, and a token."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    ca_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    all_names = tuple(dict.fromkeys((*_NAMES, *names)))
    authority = _authority(ca_key)
    certificate = _certificate(server_key, ca_key, authority.subject, all_names)
    pem = serialization.Encoding.PEM
    key = server_key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Identity(
        authority=authority.public_bytes(pem).decode(),
        certificate=certificate.public_bytes(pem).decode(),
        key=key.decode(),
        token=secrets.token_urlsafe(32),
        names=all_names,
    )


def _authority(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    name = _name(f"windlass-{secrets.token_hex(4)}")
    return (
        _builder(name, name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(_usage(sign=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def _certificate(
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    names: Sequence[str],
) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import ExtendedKeyUsageOID

    key_identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    return (
        _builder(_name("kube-apiserver"), issuer, key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(key_identifier, critical=False)
        .add_extension(_usage(sign=False), critical=True)
        .sign(signer, hashes.SHA256())
    )


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + LIFETIME)
    )


def _name(common: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANISATION),
            x509.NameAttribute(NameOID.COMMON_NAME, common),
        ]
    )


def _usage(sign: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=sign,
        crl_sign=sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def load_or_create_identity(folder: Path, names: Sequence[str] = ()) -> Identity:
    """The identity in a folder; a new one if there is none, or if it lacks one of these names.

    Raises an `InputError` if the file isn't this user's own, or can't be read: its author would know the token.
    """
    file = folder / _IDENTITY_FILE
    try:
        loaded = _load_identity(file)
        if set(names) <= set(loaded.names):
            return loaded
    except FileNotFoundError:
        pass
    identity = make_identity(names)
    write_private(file, msgspec.json.encode(identity).decode())
    return identity


def _load_identity(file: Path) -> Identity:
    check_private(file, 0o077)
    try:
        identity = msgspec.json.decode(file.read_bytes(), type=Identity)
        identity.ssl_context()
    except (msgspec.MsgspecError, ValueError, ssl.SSLError) as error:
        raise _unusable(file, str(error)) from None
    if len(identity.token) < MIN_TOKEN_LENGTH:
        raise _unusable(file, f"its token has fewer than {MIN_TOKEN_LENGTH} characters")
    return identity


def _unusable(file: Path, problem: str) -> InputError:
    return InputError(
        f"can't be used: {problem}",
        file=str(file),
        remedy="restore it, or delete it for a new certificate and token; kubeconfigs in use are then no longer valid",
    )


def check_private(path: Path, forbidden: int) -> None:
    """Raises an `InputError` unless the file or folder is this user's own and others lack these permissions."""
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        raise InputError("is a symbolic link", file=str(path), remedy="name the file or folder itself")
    if found.st_uid != os.geteuid():
        raise InputError(
            f"belongs to user {found.st_uid}, and this is user {os.geteuid()}",
            file=str(path),
            remedy="use a folder of your own with --state",
        )
    mode = stat.S_IMODE(found.st_mode)
    if mode & forbidden:
        wanted = mode & ~forbidden
        raise InputError(
            f"other users may read or change it (mode {mode:04o})",
            file=str(path),
            remedy=f"chmod {wanted:04o} {path}",
        )


def kubeconfig(server: str, identity: Identity, name: str = "windlass") -> str:
    """A kubeconfig for the cluster's administrator, as JSON (which is valid YAML)."""
    authority = base64.b64encode(identity.authority.encode()).decode()
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server, "certificate-authority-data": authority}}],
        "users": [{"name": name, "user": {"token": identity.token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}],
        "current-context": name,
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def write_kubeconfig(path: Path, server: str, identity: Identity) -> None:
    """Created readable by its owner only, and replaced in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_private(path, kubeconfig(server, identity))


def write_private(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    temporary.replace(path)
