"""The project itself: what is checked in holds together, and says nothing that it shouldn't."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tools.reference import __main__ as reference

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent


def project_files() -> list[Path]:
    """What is, or is about to be, checked in."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    return [ROOT / name for name in listed if (ROOT / name).is_file()]


def words(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def locked_versions(file: str = "requirements.lock") -> dict[str, str]:
    pinned = re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", words(ROOT / file), re.MULTILINE)
    return {name.lower().replace("_", "-"): version for name, version in pinned}


def distribution_name(requirement: str) -> str:
    return re.split(r"[<>=!~\[; ]", requirement, maxsplit=1)[0].lower().replace("_", "-")


class TestLockFile:
    def test_pins_everything_that_the_project_asks_for(self) -> None:
        project = tomllib.loads(words(ROOT / "pyproject.toml"))
        extras = project["project"]["optional-dependencies"].values()
        groups = project["dependency-groups"]["dev"] + project["dependency-groups"]["build"]
        asked = [*project["project"]["dependencies"], *groups, *(line for extra in extras for line in extra)]
        names = {distribution_name(line) for line in asked if isinstance(line, str)}
        assert names - {"windlass"} <= set(locked_versions())

    def test_what_running_takes_is_part_of_it(self) -> None:
        everything, running = locked_versions(), locked_versions("requirements-up.lock")
        assert running.items() <= everything.items()
        assert {"numba", "cryptography", "jsonschema-rs"} <= set(running)
        assert not {"pytest", "mypy", "uv", "matplotlib", "ortools", "grpcio"} & set(running)

    def test_pins_every_version_by_hash(self) -> None:
        text = re.sub(r"^\s*#.*$", "", words(ROOT / "requirements.lock"), flags=re.MULTILINE)
        entries = re.split(r"\n(?=[A-Za-z])", text.strip())
        assert entries
        assert all("--hash=sha256:" in entry for entry in entries)

    def test_names_no_host(self) -> None:
        assert not re.search(r"https?://|--index-url|--find-links", words(ROOT / "requirements.lock"))


class TestWhatIsCheckedIn:
    def test_names_no_place_of_the_machine_it_was_made_on(self) -> None:
        # Put together here, so that this file doesn't contain what it looks for. GKE's driver lies in such a folder.
        secret = re.compile("|".join(["/" + "root/", "/" + "work/", "/" + "home/(?!kubernetes/)[a-z]"]))
        found = [
            f"{path.relative_to(ROOT)}: {match.group()}"
            for path in project_files()
            if path.suffix not in (".png", ".gz")
            for match in secret.finditer(words(path))
        ]
        assert found == []

    def test_names_no_package_registry(self) -> None:
        hosts = re.compile("|".join(["index" + "-url", "simple" + "/pypi", "arti" + "factory", "dev" + "pi"]))
        configured = [path for path in project_files() if path.suffix in (".toml", ".lock", ".txt", ".cfg", "")]
        assert not [str(path) for path in configured if "--no-emit-" not in words(path) and hosts.search(words(path))]

    def test_holds_no_trace_files(self) -> None:
        assert not [path for path in project_files() if path.name.startswith("openb_")]

    def test_every_room_says_what_it_is(self) -> None:
        for path in (*(ROOT / "src").rglob("*.py"), *(ROOT / "bench").rglob("*.py")):
            assert words(path).lstrip().startswith('"""'), f"{path} has no docstring"


@pytest.fixture(scope="module")
def made_reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In a process of its own: a command that another test has called alone remembers a help option of its own."""
    folder = tmp_path_factory.mktemp("reference")
    subprocess.run([sys.executable, "-m", "tools.reference", folder], cwd=ROOT, check=True)
    return folder


class TestDocumentation:
    @pytest.mark.parametrize("page", sorted(reference.PAGES))
    def test_the_reference_is_what_the_code_says(self, page: str, made_reference: Path) -> None:
        assert words(ROOT / "docs" / "reference" / page) == words(made_reference / page), "run `make docs`"

    def test_every_link_leads_somewhere(self) -> None:
        done = subprocess.run(
            [sys.executable, ROOT / "tools" / "check_links.py"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout

    def test_every_decision_is_listed(self) -> None:
        decisions = ROOT / "docs" / "decisions"
        index = words(decisions / "README.md")
        for record in decisions.glob("0*.md"):
            assert record.name in index


class TestMakefile:
    def test_help_names_every_target(self) -> None:
        makefile = words(ROOT / "Makefile")
        targets = set(re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[0].split())
        shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        assert {line.split()[0] for line in shown.splitlines() if line.startswith("  ")} == targets

    def test_every_target_that_needs_the_environment_makes_it_first(self) -> None:
        makefile = words(ROOT / "Makefile")
        needs = dict(re.findall(r"^([a-z]+):\s*(\S*)\s*##", makefile, re.MULTILINE))
        for target in set(needs) - {"help", "clean", "env", "stranger"}:
            assert needs[target] in ("env", "lint", "$(RUNNING)"), target

    def test_up_starts_the_cluster(self) -> None:
        stamps = (".venv/.made-from-lock", ".venv/.made-for-running")
        made = [
            "-n",
            *(option for stamp in stamps for option in ("-o", stamp)),
        ]  # only asked what it would do
        asked = ["make", "--no-print-directory", *made, "up", "ARGS=--no-page"]
        done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "exec .venv/bin/windlass up --no-page"

    def test_a_failed_test_is_not_run_again(self) -> None:
        makefile = words(ROOT / "Makefile")
        assert "--last-failed" not in makefile
        assert "reruns" not in makefile

    def test_ci_runs_what_developers_run(self) -> None:
        assert words(ROOT / ".ci" / "run").splitlines()[-1] == "exec make test"


class TestSelection:
    def test_tests_that_need_files_are_deselected_and_not_skipped(self) -> None:
        without = {name: value for name, value in os.environ.items() if name != "WINDLASS_TRACES"}
        done = subprocess.run(
            [BIN / "pytest", "--collect-only", "-p", "no:cacheprovider", "tests/project/test_readme.py"],
            cwd=ROOT,
            env=without,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "2 deselected" in done.stdout
        assert "test_commands_with_trace_files" not in done.stdout
        assert "skipped" not in done.stdout


class TestLayers:
    def test_the_contract_names_every_room(self) -> None:
        contract = words(ROOT / ".importlinter")
        rooms = [path for path in (ROOT / "src" / "windlass").iterdir() if (path / "__init__.py").exists()]
        assert rooms
        for room in rooms:
            assert re.search(rf"^\s+(cli : .*)?\(?{room.name}\)?", contract, re.MULTILINE), room.name

    def test_a_deciding_room_that_looks_at_the_clock_breaks_it(self, tmp_path: Path) -> None:
        """The contract can fail: on a copy with one forbidden import it does."""
        for name in ("src", "bench", ".importlinter"):
            subprocess.run(["cp", "-r", ROOT / name, tmp_path / name], check=True)
        guilty = tmp_path / "src" / "windlass" / "model" / "meta.py"
        guilty.write_text(words(guilty).replace("import msgspec\n", "import time\n\nimport msgspec\n", 1))
        done = subprocess.run(
            [BIN / "lint-imports", "--config", ".importlinter", "--no-cache"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env={"PYTHONPATH": f"{tmp_path / 'src'}:{tmp_path / 'bench'}", "PATH": str(BIN)},
        )
        assert done.returncode == 1
        assert "windlass.model.meta -> time" in done.stdout
