"""Makes a release in a folder. Called by `make release`.

windlass-V-py3-none-any.whl, windlass_bench-V-py3-none-any.whl
windlass-scheduler-V-ARCH.tar, windlass-node-V-ARCH.tar    images, as OCI archives (root, on Debian)
*.cdx.json                                                  bill of materials of each image
windlass-V.tgz                                              the chart
windlass-V-airgap.tar                                       all of the above, and the wheels that they need
SHA256SUMS                                                  of every file
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from tools.release.archives import write_bundle, write_chart, write_sums

from windlass import __version__

ROOT = Path(__file__).resolve().parents[2]
IMAGE = ROOT / "deploy" / "image"


def run(*command: str | Path) -> None:
    subprocess.run([str(word) for word in command], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def write_wheels(folder: Path) -> None:
    """The same sources give the same wheels."""
    os.environ.setdefault("SOURCE_DATE_EPOCH", "1577836800")
    for sources in (ROOT, ROOT / "bench"):
        run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, sources)


def write_image(role: str, architecture: str, folder: Path) -> None:
    target = folder / f"windlass-{role}-{__version__}-{architecture}.tar"
    bill = target.with_suffix(".cdx.json")
    run(sys.executable, IMAGE, "--role", role, "--architecture", architecture, "-o", target, "--bill", bill)


def write_wheelhouse(folder: Path) -> list[Path]:
    """What `pip install --no-index --find-links FOLDER 'windlass[up]'` needs on this platform, by the lock's hashes."""
    folder.mkdir()
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes", "--only-binary=:all:"]
    run(*pip, "--dest", folder, "-r", ROOT / "requirements-up.lock")
    return sorted(folder.iterdir())


def main() -> int:
    parser = argparse.ArgumentParser(prog="make release", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "dist" / __version__)
    parser.add_argument("--roles", default="scheduler,node")
    parser.add_argument("--architectures", default="amd64", help="comma-separated: amd64, arm64")
    parser.add_argument("--without-images", action="store_true", help="for machines that can't build them")
    parser.add_argument("--without-wheelhouse", action="store_true", help="nothing is fetched")
    arguments = parser.parse_args()
    folder: Path = arguments.output
    if folder.exists() and any(folder.iterdir()):
        print(f"{folder} is not empty: a release is made once", file=sys.stderr)
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    write_wheels(folder)
    write_chart(ROOT / "deploy" / "chart" / "windlass", folder)
    if not arguments.without_images:
        for architecture in arguments.architectures.split(","):
            for role in arguments.roles.split(","):
                write_image(role, architecture, folder)
    files = sorted(folder.iterdir())
    if not arguments.without_wheelhouse:
        files += write_wheelhouse(folder / "wheelhouse")
    write_bundle(files, f"windlass-{__version__}", folder / f"windlass-{__version__}-airgap.tar")
    for path in (folder / "wheelhouse").glob("*"):
        path.unlink()
    if (folder / "wheelhouse").is_dir():
        (folder / "wheelhouse").rmdir()
    write_sums(folder)
    for path in sorted(folder.iterdir()):
        print(f"{path.stat().st_size:>12,}  {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
