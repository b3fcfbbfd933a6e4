"""Archives with the same bytes for the same content: the chart, and the bundle for clusters without the internet."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterable
from pathlib import Path

SUMS_FILE = "SHA256SUMS"


def write_chart(chart: Path, output: Path) -> Path:
    """As `helm package` does it: `NAME-VERSION.tgz` with the folder NAME in it."""
    version = next(line for line in (chart / "Chart.yaml").read_text().splitlines() if line.startswith("version:"))
    target = output / f"{chart.name}-{version.split()[1]}.tgz"
    files = [(path, f"{chart.name}/{path.relative_to(chart)}") for path in sorted(chart.rglob("*")) if path.is_file()]
    plain = io.BytesIO()
    _write_tar(plain, files)
    with target.open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
        packed.write(plain.getvalue())
    return target


def write_bundle(files: Iterable[Path], name: str, target: Path) -> Path:
    """All files in one archive, not packed: images and wheels are already."""
    with target.open("wb") as file:
        _write_tar(file, [(path, f"{name}/{path.name}") for path in sorted(files)])
    return target


def write_sums(folder: Path) -> Path:
    """What `sha256sum --check` reads."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != SUMS_FILE)
    lines = [f"{_sha256(path)}  {path.name}\n" for path in files]
    target = folder / SUMS_FILE
    target.write_text("".join(lines))
    return target


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_tar(target: io.IOBase | io.BytesIO, files: Iterable[tuple[Path, str]]) -> None:
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as tar:  # type: ignore[arg-type]
        for path, name in files:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = path.stat().st_size, 0o644, 0
            with path.open("rb") as content:
                tar.addfile(entry, content)
