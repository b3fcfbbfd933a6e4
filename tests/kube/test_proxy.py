"""Which proxy stands before an API server: the kubeconfig's, else the environment's, and none for what is exempt."""

from __future__ import annotations

import pytest

from windlass.kube.client import proxy_of_environment


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "HTTPS_PROXY",
        "https_proxy",
        "HTTP_PROXY",
        "http_proxy",
        "NO_PROXY",
        "no_proxy",
        "ALL_PROXY",
    ):
        monkeypatch.delenv(name, raising=False)


def test_none_is_named() -> None:
    assert proxy_of_environment("https://api.example.com:6443") == ""


def test_as_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example.com:3128")
    monkeypatch.setenv("NO_PROXY", "10.0.0.1,.internal.example.com")
    assert proxy_of_environment("https://api.example.com:6443") == "http://proxy.example.com:3128"
    assert proxy_of_environment("http://api.example.com:8080") == "", "that is another scheme"
    assert proxy_of_environment("https://10.0.0.1:6443") == ""
    assert proxy_of_environment("https://api.internal.example.com") == ""
