"""The wheel: builds from what is checked in, installs into a clean environment, and runs there."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import time
import urllib.request
import zipfile
from pathlib import Path

import pytest

from windlass import __version__

ROOT = Path(__file__).resolve().parents[2]


def run(*command: str | Path) -> str:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_the_package_and_its_licence_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "windlass/cli/main.py" in names
    assert "windlass/py.typed" in names
    assert "windlass/web/static/index.html" in names, "the page comes built"
    assert any(name.startswith("windlass/web/static/assets/") and name.endswith(".js") for name in names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.split("/")[0] for name in names} == {"windlass", f"windlass-{__version__}.dist-info"}
    assert not [name for name in names if "__pycache__" in name]


def test_it_installs_into_a_clean_environment_and_runs(wheel: Path, tmp_path: Path) -> None:
    """The libraries are lent by the environment that runs the tests, so that nothing has to be fetched."""
    clean = tmp_path / "clean"
    run(sys.executable, "-m", "venv", "--without-pip", clean)
    python = clean / "bin" / "python"
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        wheel,
    )
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    lent = tmp_path / "lent"
    lent.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if "windlass" not in path.name.lower() and path.suffix != ".pth":
            (lent / path.name).symlink_to(path)
    (site / "lent.pth").write_text(f"{lent}\n")
    assert run(clean / "bin" / "windlass", "--version") == f"windlass {__version__}\n"
    assert run(clean / "bin" / "kubectl-windlass", "--version") == f"windlass {__version__}\n"
    where = run(python, "-c", "import windlass; print(windlass.__file__)")
    assert where.startswith(str(site))
    assert "synthetic/small" in run(clean / "bin" / "windlass", "simulate", "--list")
    assert_up_serves_the_page(clean / "bin" / "windlass", tmp_path)


def assert_up_serves_the_page(windlass: Path, folder: Path) -> None:
    """From the wheel, with nothing of the repository: the cluster starts, and its page is there."""
    log = folder / "log"
    command = [windlass, "up", "--port=0", "--page-port=0", f"--write-kubeconfig={folder / 'kubeconfig'}"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, stdout=output, stderr=output, stdin=subprocess.DEVNULL
        )
    try:
        deadline = time.monotonic() + 240
        while "nodes  " not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        (line,) = [line for line in log.read_text().splitlines() if line.startswith("page ")]
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with browser.open(line.split()[1], timeout=60) as answer:
            assert '<div id="racks"' in answer.read().decode()
    finally:
        process.terminate()
        assert process.wait(300) == 0
