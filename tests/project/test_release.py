"""What a release consists of: hashes everywhere, bills of materials, and a chart that agrees with what is supported."""

from __future__ import annotations

import hashlib
import importlib
import re
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from tools.release.archives import write_bundle, write_chart, write_sums

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "chart" / "windlass"
ROLE_NAMES = ("scheduler", "node")


@pytest.fixture
def bill(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """`deploy/image` is a folder that is run, not a package."""
    monkeypatch.syspath_prepend(str(ROOT / "deploy" / "image"))
    before = set(sys.modules)
    yield importlib.import_module("bill")
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize("role", ROLE_NAMES)
def test_every_library_of_an_image_has_a_hash(role: str) -> None:
    entries = re.split(r"\n(?=[A-Za-z])", (ROOT / "deploy" / f"requirements-{role}.lock").read_text())
    libraries = [entry for entry in entries if not entry.startswith("#")]
    assert len(libraries) > 10
    assert all("--hash=sha256:" in entry for entry in libraries)


@pytest.mark.parametrize("role", ROLE_NAMES)
def test_the_lock_of_a_role_has_the_versions_of_the_whole(role: str) -> None:
    pattern = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==(\S+)", re.MULTILINE)
    whole = dict(pattern.findall((ROOT / "requirements.lock").read_text()))
    part = dict(pattern.findall((ROOT / "deploy" / f"requirements-{role}.lock").read_text()))
    assert part.items() <= whole.items()
    assert not {"pytest", "mypy", "uv"} & part.keys()


def test_the_container_file_takes_nothing_without_a_hash_or_digest() -> None:
    lines = (ROOT / "deploy" / "Containerfile").read_text().replace("\\\n", " ").splitlines()
    assert [line.split()[1] for line in lines if line.startswith("FROM")] == ["${BASE}", "${BASE}"]
    assert "ARG BASE" in lines, "no default: a tag can change its content"
    installs = [line for line in lines if "pip install" in line]
    assert installs
    assert all("--require-hashes" in line or "--no-deps --no-build-isolation ." in line for line in installs)


@pytest.mark.parametrize("role", ROLE_NAMES)
def test_the_bill_of_materials_names_every_library_with_its_hash(role: str, bill: ModuleType) -> None:
    roles = importlib.import_module("roles")
    libraries = bill.libraries_of(roles.ROLES[role], ROOT)
    document = bill.bill_of_materials("windlass", "1", libraries)
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    named = {component["name"]: component for component in document["components"]}
    assert named.keys() == roles.distributions_of(roles.ROLES[role], ROOT)
    for component in named.values():
        assert component["purl"] == f"pkg:pypi/{component['name']}@{component['version']}"
        assert component["hashes"]
        assert component["licenses"]
        assert "NOASSERTION" not in str(component["licenses"]), component["name"]


def test_a_debian_package_is_read_as_apt_prints_it(bill: ModuleType) -> None:
    line = "'http://deb/x.deb' libssl3_1%3a3.0.1-1_amd64.deb 12 SHA256:" + "a" * 64
    package = importlib.import_module("layers")._package(line)
    assert (package.name, package.version, package.architecture) == ("libssl3", "1:3.0.1-1", "amd64")
    (component,) = bill.bill_of_materials("windlass", "1", [], [package])["components"]
    assert component["hashes"] == [{"alg": "SHA-256", "content": "a" * 64}]


def test_a_chart_is_the_same_when_it_is_made_again(tmp_path: Path) -> None:
    contents = []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        made = write_chart(CHART, folder)
        contents.append(made.read_bytes())
    assert contents[0] == contents[1]
    assert made.name == f"windlass-{yaml.safe_load((CHART / 'Chart.yaml').read_text())['version']}.tgz"
    with tarfile.open(made) as tar:
        assert {"windlass/Chart.yaml", "windlass/values.yaml"} <= set(tar.getnames())


def test_sums_are_those_of_the_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    write_bundle([tmp_path / "a"], "windlass-1", tmp_path / "b.tar")
    lines = write_sums(tmp_path).read_text().splitlines()
    assert lines[0] == f"{hashlib.sha256(b'1').hexdigest()}  a"
    assert [line.split()[1] for line in lines] == ["a", "b.tar"]
    with tarfile.open(tmp_path / "b.tar") as tar:
        assert tar.getnames() == ["windlass-1/a"]


def test_the_chart_takes_the_versions_of_kubernetes_that_tests_run_on() -> None:
    table = (ROOT / "docs" / "support.md").read_text().partition("## Kubernetes")[2].partition("\n## ")[0]
    tested = re.findall(r"^\| (1\.\d+) \| tests", table, re.MULTILINE)
    oldest = min(tested, key=lambda version: int(version.split(".")[1]))
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["kubeVersion"] == f">={oldest}.0-0"
    makefile = (ROOT / "Makefile").read_text()
    assert f"WINDLASS_TEST_KUBERNETES={oldest}" in makefile


def test_chart_and_package_have_one_version() -> None:
    from windlass import __version__

    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)
