"""TLS and passwords on the exporter's port, with certificates made here and clients of Python's own."""

from __future__ import annotations

import base64
import datetime
import http.client
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import bcrypt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from windlass.model.errors import InputError
from windlass.node.exporter.metrics_server import MetricsServer
from windlass.node.exporter.web_config import WebConfig

PAGE = b"DCGM_FI_DEV_GPU_TEMP 40\n"
SECRET = bcrypt.hashpw(b"open sesame", b"$2b$04$" + 22 * b".").decode()
TLS = "tls_server_config: {cert_file: one.crt, key_file: one.key}\n"
MUTUAL = (
    "tls_server_config: {cert_file: one.crt, key_file: one.key, client_ca_file: one.crt, "
    "client_auth_type: RequireAndVerifyClientCert}\n"
)


def certificate(folder: Path, name: str) -> None:
    """Signed by itself, for 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=30))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / f"{name}.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / f"{name}.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


class Scene:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "web.yaml"
        self.log: list[str] = []
        self.server: MetricsServer | None = None
        for name in ("one", "two"):
            certificate(folder, name)

    def serve(self, text: str) -> None:
        self.file.write_text(text)
        exporter = SimpleNamespace(metrics_text=PAGE)
        web = WebConfig(self.file, self.log.append)
        self.server = MetricsServer(exporter, "127.0.0.1", 0, web)  # type: ignore[arg-type]
        self.server.start()

    def ask(self, trusted: str = "", client: str = "", password: str | None = None) -> tuple[int, bytes]:
        assert self.server is not None
        connection: http.client.HTTPConnection
        if trusted:
            context = ssl.create_default_context(cafile=str(self.folder / f"{trusted}.crt"))
            if client:
                context.load_cert_chain(self.folder / f"{client}.crt", self.folder / f"{client}.key")
            connection = http.client.HTTPSConnection("localhost", self.server.port, timeout=60, context=context)
            connection.sock = context.wrap_socket(self.connect(), server_hostname="localhost")
        else:
            connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        headers = {}
        if password is not None:
            headers["Authorization"] = "Basic " + base64.b64encode(password.encode()).decode()
        try:
            connection.request("GET", "/metrics", headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def connect(self) -> socket.socket:
        assert self.server is not None
        return socket.create_connection(("127.0.0.1", self.server.port), timeout=60)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    if made.server is not None:
        made.server.stop()


class TestTls:
    def test_who_trusts_the_certificate_is_answered(self, scene: Scene) -> None:
        scene.serve(TLS)
        assert scene.ask("one") == (200, PAGE)
        with pytest.raises(ssl.SSLCertVerificationError):
            scene.ask("two")

    def test_plain_words_are_no_answer_and_no_news(self, scene: Scene, capfd: pytest.CaptureFixture[str]) -> None:
        scene.serve(TLS)
        with pytest.raises((OSError, http.client.HTTPException)):
            scene.ask()
        for words in (b"", b"\x16\x03\x01", b"GET / HTTP/1.0\r\n\r\n"):
            with scene.connect() as stranger:
                stranger.sendall(words)
        assert scene.ask("one") == (200, PAGE)
        assert capfd.readouterr().err == ""

    def test_clients_may_have_to_show_who_they_are(self, scene: Scene) -> None:
        scene.serve(MUTUAL)
        assert scene.ask("one", client="one") == (200, PAGE)
        for client in ("", "two"):
            with pytest.raises((OSError, http.client.HTTPException)):
                scene.ask("one", client=client)

    def test_a_new_certificate_is_taken_up_and_a_broken_one_is_not(self, scene: Scene) -> None:
        scene.serve(TLS)
        scene.file.write_text(TLS.replace("one", "two"))
        assert scene.ask("two") == (200, PAGE)
        assert scene.log == ["the web config has changed"]
        certificate(scene.folder, "three")
        (scene.folder / "two.key").write_bytes((scene.folder / "three.key").read_bytes())
        assert scene.ask("two") == (200, PAGE), "a key without its certificate"
        assert "the last good web config stays in force" in scene.log[-1]
        (scene.folder / "two.crt").write_bytes((scene.folder / "three.crt").read_bytes())
        assert scene.ask("three") == (200, PAGE)


class TestPasswords:
    @pytest.mark.parametrize(
        ("given", "status"),
        [
            ("ann:open sesame", 200),
            ("ann:open", 401),
            ("ann:", 401),
            ("bob:open sesame", 401),
            (":", 401),
            ("ann:open sesame\0x", 401),
            (None, 401),
        ],
    )
    def test_who_may_see_the_page(self, scene: Scene, given: str | None, status: int) -> None:
        scene.serve(f"basic_auth_users: {{ann: {SECRET}}}")
        for _ in range(2):
            found, body = scene.ask(password=given)
            assert found == status
            assert (body == PAGE) == (status == 200)

    @pytest.mark.parametrize("header", ["", "Basic", "Basic ???", "Bearer YW5uOm9wZW4gc2VzYW1l", "Basic /////w=="])
    def test_headers_that_say_nothing(self, scene: Scene, header: str) -> None:
        scene.file.write_text(f"basic_auth_users: {{ann: {SECRET}}}")
        assert not WebConfig(scene.file).allows(header)

    def test_a_changed_password_counts_at_once(self, scene: Scene) -> None:
        scene.serve(f"basic_auth_users: {{ann: {SECRET}}}")
        assert scene.ask(password="ann:open sesame")[0] == 200
        other = bcrypt.hashpw(b"other", b"$2b$04$" + 21 * b"a" + b"u").decode()
        scene.file.write_text(f"basic_auth_users: {{ann: {other}}}")
        assert scene.ask(password="ann:open sesame")[0] == 401
        assert scene.ask(password="ann:other")[0] == 200


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "must be a map"),
        ("tls_server_config: {cert_file: one.crt}", "key_file: is required"),
        ("tls_server_config: {cert_file: none.crt, key_file: one.key}", "can't be loaded"),
        ("tls_server_config: {cert_file: two.crt, key_file: one.key}", "can't be loaded"),
        ("tls_server_config: {cert_file: [one], key_file: one.key}", "cert_file: must be text"),
        (TLS.replace("}", ", min_version: SSL3}"), "min_version.*TLS12"),
        (TLS.replace("}", ", client_auth_type: RequireAnyClientCert}"), "client_auth_type"),
        (TLS.replace("}", ", client_auth_type: RequireAndVerifyClientCert}"), "need each other"),
        (TLS.replace("}", ", client_ca_file: one.crt}"), "need each other"),
        (TLS.replace("}", ", cipher_suites: []}"), "cipher_suites: is not supported"),
        ("http_server_config: {http2: false}", "http_server_config: is not supported"),
        ("basic_auth_users: {ann: secret}", "basic_auth_users.ann: is not a bcrypt hash"),
        ("basic_auth_users: {ann: $2b$31$" + 53 * "." + "}", "is not a bcrypt hash"),
        ("basic_auth_users: [ann]", "must be a map"),
    ],
)
def test_what_is_wrong_or_not_done_is_refused_by_name(scene: Scene, text: str, words: str) -> None:
    scene.file.write_text(text)
    with pytest.raises(InputError, match=words):
        WebConfig(scene.file)


def test_an_empty_file_changes_nothing(scene: Scene) -> None:
    scene.serve("")
    assert scene.ask() == (200, PAGE)
