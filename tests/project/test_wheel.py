"""The wheels: they build from what is checked in, install into clean environments, and run there with what their role
declares."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import time
import urllib.request
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from windlass import __version__, jit

ROOT = Path(__file__).resolve().parents[2]
STUCK = ROOT / "examples" / "stuck.yaml"
ALL_EXTRAS = ("scheduler", "node", "up", "simulate", "exact")
VARIABLES = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
"""A path to the sources would take the place of what is installed."""


def run(*command: str | Path) -> str:
    return subprocess.run(command, cwd=ROOT, env=VARIABLES, capture_output=True, text=True, check=True).stdout


def build(sources: Path, folder: Path) -> Path:
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, sources)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def bench_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT / "bench", tmp_path_factory.mktemp("bench-wheel"))


def required(distribution: str, extras: Iterable[str] = ()) -> Iterator[str]:
    """The names of what a distribution that is installed here needs with these extras."""
    for line in importlib.metadata.requires(distribution) or ():
        requirement, _, marker = line.partition(";")
        extra = re.search(r"extra == ['\"](\w+)['\"]", marker)
        if extra is None or extra[1] in extras:
            yield re.split(r"[^A-Za-z0-9._-]", requirement.strip(), maxsplit=1)[0]


def closure(names: Iterable[str]) -> set[str]:
    """These distributions and everything that they need, as far as it is installed here."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        try:
            importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if name not in found and name != "windlass":
            found.add(name)
            waiting += required(name)
    return found


def requirements_of(wheel: Path) -> list[str]:
    archive = zipfile.ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
    return re.findall(r"^Requires-Dist: (.+)$", archive.read(name).decode(), re.MULTILINE)


def role_requires(wheel: Path, *extras: str) -> set[str]:
    """The distributions that the wheel needs with these extras, by its own metadata."""
    names = set()
    for line in requirements_of(wheel):
        extra = re.search(r"extra == ['\"](\w+)['\"]", line)
        if extra is None or extra[1] in extras:
            names.add(re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0])
    return closure(names - {"windlass"})


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes a clean environment with these wheels; its libraries are lent by the one that runs the tests, so that
    nothing has to be fetched."""

    def make(lent: set[str], *wheels: Path) -> Path:
        folder = tmp_path_factory.mktemp("environment")
        clean, libraries = folder / "clean", folder / "libraries"
        run(sys.executable, "-m", "venv", "--without-pip", clean)
        pip = [sys.executable, "-m", "pip", "--python", clean / "bin" / "python", "install", "--quiet"]
        run(*pip, "--no-deps", "--no-index", *wheels)
        libraries.mkdir()
        for name in lent:
            for file in importlib.metadata.files(name) or ():
                top = file.parts[0]
                if top != ".." and not (libraries / top).exists():
                    (libraries / top).symlink_to(Path(sysconfig.get_path("purelib")) / top)
        (site_of(clean) / "libraries.pth").write_text(f"{libraries}\n")
        return clean

    return make


def site_of(clean: Path) -> Path:
    program = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return Path(run(clean / "bin" / "python", "-c", program).strip())


@pytest.fixture(scope="module")
def everything(wheel: Path, environment: Callable[..., Path]) -> Path:
    return environment(role_requires(wheel, *ALL_EXTRAS), wheel)


@pytest.fixture(scope="module")
def base(wheel: Path, environment: Callable[..., Path]) -> Path:
    """What `pip install windlass` gives."""
    return environment(role_requires(wheel), wheel)


def test_the_wheel_holds_the_package_and_its_licence_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "windlass/cli/main.py" in names
    assert "windlass/py.typed" in names
    assert "windlass/web/static/index.html" in names, "the page comes built"
    assert f"windlass/placement/kernels/native/{jit.sources_digest()}-{platform.machine()}.so" in names
    assert any(name.startswith("windlass/web/static/assets/") and name.endswith(".js") for name in names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.split("/")[0] for name in names} == {"windlass", f"windlass-{__version__}.dist-info"}
    assert not [name for name in names if "__pycache__" in name or "bench" in name]


def test_the_benchmarks_have_a_wheel_of_their_own(bench_wheel: Path) -> None:
    names = zipfile.ZipFile(bench_wheel).namelist()
    assert {"windlass_bench/cli/__init__.py", "windlass_bench/published.csv"} <= set(names)
    assert {name.split("/")[0] for name in names} == {
        "windlass_bench",
        f"windlass_bench-{__version__}.dist-info",
    }


def test_it_installs_into_a_clean_environment_and_runs(everything: Path, tmp_path: Path) -> None:
    programs = everything / "bin"
    assert run(programs / "windlass", "--version") == f"windlass {__version__}\n"
    assert run(programs / "kubectl-windlass", "--version") == f"windlass {__version__}\n"
    where = run(programs / "python", "-c", "import windlass; print(windlass.__file__)")
    assert where.startswith(str(site_of(everything)))
    assert "synthetic/small" in run(programs / "windlass", "simulate", "--list")
    with cluster(programs / "windlass", tmp_path) as page, opened(page) as answer:
        assert '<div id="racks"' in answer


class TestBaseAlone:
    def test_has_none_of_the_heavy_libraries(self, base: Path) -> None:
        heavy = "numba matplotlib grpc google.protobuf pynvml cryptography jsonschema_rs ortools prometheus_client"
        program = "import sys; from windlass.cli.extras import is_installed; print(*filter(is_installed, sys.argv[1:]))"
        assert run(base / "bin" / "python", "-c", program, *heavy.split()) == "\n"

    def test_explains_checks_and_plans(self, base: Path) -> None:
        windlass = base / "bin" / "windlass"
        code, words = ask(windlass, "why", "pod/train-0", "--from", STUCK)
        assert (code, "train-0" in words) == (1, True), words
        code, words = ask(windlass, "check", STUCK)
        assert code in (0, 1), words
        code, words = ask(windlass, "plan", "schedule", "--from", STUCK)
        assert code in (0, 1), words
        assert "train-0" in words

    def test_dumps_and_examines_a_cluster(self, base: Path, everything: Path, tmp_path: Path) -> None:
        windlass, kubeconfig, dump = (
            base / "bin" / "windlass",
            tmp_path / "kubeconfig",
            tmp_path / "dump.tar.gz",
        )
        with cluster(everything / "bin" / "windlass", tmp_path):
            code, words = ask(windlass, "dump", dump, f"--kubeconfig={kubeconfig}")
            assert code == 0, words
        code, words = ask(windlass, "doctor", "cluster", "--from", dump)
        assert code in (0, 1), words
        assert "checks" in words

    def test_decides_on_many_nodes_by_the_kernels_of_the_wheel(self, base: Path) -> None:
        code, words = ask(base / "bin" / "windlass", "simulate", "synthetic/small", "--policy=best-fit")
        assert code == 0, words
        assert "numba" not in words
        assert "GPUs allocated" in words

    def test_decides_the_same_without_kernels_and_compiler_and_says_so_once(
        self, wheel: Path, environment: Callable[..., Path]
    ) -> None:
        clean = environment(role_requires(wheel), wheel)
        shutil.rmtree(site_of(clean) / "windlass" / "placement" / "kernels" / "native")
        code, words = ask(clean / "bin" / "windlass", "simulate", "synthetic/small", "--policy=best-fit")
        assert code == 0, words
        assert words.count("pip install 'windlass[numba]'") == 1
        assert "GPUs allocated" in words

    @pytest.mark.parametrize(
        ("arguments", "extra"),
        [
            (["up"], "windlass[up]"),
            (["demo"], "windlass[up]"),
            (["scheduler"], "windlass[scheduler]"),
            (["node", "run"], "windlass[node]"),
            (["node", "labels"], "windlass[node]"),
            (["simulate", "synthetic/small", "--plot", "x.png"], "windlass[simulate]"),
            (["plan", "defrag", "--exact", "--from", STUCK], "windlass[exact]"),
        ],
    )
    def test_names_the_extra_that_is_missing(self, base: Path, arguments: list[str], extra: str) -> None:
        code, words = ask(base / "bin" / "windlass", *arguments)
        assert code == 2, words
        assert f"pip install '{extra}'" in words
        assert words.count("error:") == 1
        assert "Traceback" not in words

    @pytest.mark.parametrize("arguments", [["up"], ["scheduler"], ["node", "run"], ["simulate"]])
    def test_helps_all_the_same(self, base: Path, arguments: list[str]) -> None:
        code, words = ask(base / "bin" / "windlass", *arguments, "--help")
        assert (code, words.startswith("Usage:")) == (0, True), words

    def test_says_what_the_benchmarks_are(self, base: Path) -> None:
        for arguments in (["bench"], ["bench", "simulate", "--quick"], ["bench", "--help"]):
            code, words = ask(base / "bin" / "windlass", *arguments)
            assert (code, words.count("\n")) == (2, 1)
            assert "pip install windlass-bench" in words


def test_the_benchmarks_are_there_once_they_are_installed(
    wheel: Path, bench_wheel: Path, environment: Callable[..., Path]
) -> None:
    clean = environment(role_requires(wheel, *ALL_EXTRAS), wheel, bench_wheel)
    assert "claims" in run(clean / "bin" / "windlass", "bench", "--help")
    assert "--quick" in run(clean / "bin" / "windlass", "bench", "engine", "--help")


def ask(windlass: Path, *arguments: str | Path) -> tuple[int, str]:
    """The exit code, and everything that was printed."""
    done = subprocess.run(
        [windlass, *arguments],
        env=VARIABLES,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


@contextmanager
def cluster(windlass: Path, folder: Path) -> Iterator[str]:
    """A cluster from the wheel, with nothing of the repository; the link to its page."""
    log = folder / "log"
    command = [windlass, "up", "--port=0", "--page-port=0", f"--write-kubeconfig={folder / 'kubeconfig'}"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=VARIABLES, stdout=output, stderr=output, stdin=subprocess.DEVNULL
        )
    try:
        deadline = time.monotonic() + 240
        while "nodes  " not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        (line,) = [line for line in log.read_text().splitlines() if line.startswith("page ")]
        yield line.split()[1]
    finally:
        process.terminate()
        assert process.wait(300) == 0


@contextmanager
def opened(page: str) -> Iterator[str]:
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with browser.open(page, timeout=60) as answer:
        yield answer.read().decode()
