"""Where layers are made and kept: a folder under the digest of its ingredients, finished or not there at all.

Used by `layers`. Every file gets the same time, so that equal ingredients give equal layers, and so that the kernels,
which remember when their source was written, are still good after they were packed and unpacked.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

WRITTEN = 1_767_225_600
"""The time of every file: 2026-01-01T00:00:00Z."""


class BuildFailed(Exception):
    """A step that ended badly; the message has its last lines."""


@dataclass(frozen=True)
class Layer:
    key: str
    tree: Path
    tar: Path


def digest(*ingredients: str | bytes) -> str:
    whole = hashlib.sha256()
    for ingredient in ingredients:
        whole.update(ingredient.encode() if isinstance(ingredient, str) else ingredient)
        whole.update(b"\0")
    return whole.hexdigest()[:24]


def run(command: Sequence[str]) -> str:
    done = subprocess.run(["nice", *command], capture_output=True, text=True)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()[-8:]
        raise BuildFailed(f"{' '.join(command[:6])} …:\n" + "\n".join(lines))
    return done.stdout


class Workshop:
    def __init__(self, cache: Path, environment: Mapping[str, str], architecture: str, emulator: Path | None) -> None:
        """`emulator` runs the programs of another architecture than this machine's."""
        self.cache, self.environment = cache, environment
        self.architecture, self.emulator = architecture, emulator
        cache.mkdir(parents=True, exist_ok=True)

    def layer(self, name: str, key: str, make: Callable[[Path], None]) -> Layer:
        """The layer of that key; `make` fills its tree where there is none yet."""
        name = f"{self.architecture}-{name}"
        home = self.cache / f"{name}-{key}"
        with self._alone(name):
            if not home.is_dir():
                started = time.monotonic()
                with self.scratch() as scratch:
                    tree = scratch / "tree"
                    tree.mkdir(mode=0o755)
                    make(tree)
                    same_time(tree)
                    pack(tree, scratch / "layer.tar")
                    self._forget(name)
                    scratch.rename(home)
                print(f"  {name}: made in {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
        os.utime(home)
        return Layer(key, home / "tree", home / "layer.tar")

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        folder = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=self.cache))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @contextlib.contextmanager
    def root_of(self, trees: Sequence[Path]) -> Iterator[Path]:
        """The trees one over the other, in a folder that can be changed and is gone afterwards."""
        with self.scratch() as folder:
            root = folder / "root"
            for tree in trees:
                shutil.copytree(tree, root, symlinks=True, dirs_exist_ok=True)
            yield root

    def inside(self, root: Path, *command: str) -> str:
        """Run a command in that root, with the image's own environment."""
        program = shutil.which("chroot", path="/usr/sbin:/sbin:/usr/bin:/bin") or "chroot"
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        with self._emulated(root) as prefix:
            return run(["env", "-i", *variables, program, str(root), *prefix, *command])

    @contextlib.contextmanager
    def _emulated(self, root: Path) -> Iterator[list[str]]:
        """What stands before a command there; the emulator is in the root meanwhile."""
        if self.emulator is None:
            yield []
            return
        inside = root / ".emulator"
        shutil.copy2(self.emulator, inside)
        try:
            yield [f"/{inside.name}"]
        finally:
            inside.unlink()

    @contextlib.contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        """One builder at a time: parallel ones wait for the first and take what it made."""
        with (self.cache / f".{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _forget(self, name: str, kept: int = 2) -> None:
        """Older layers of the name, but for the last ones."""
        found = [folder for folder in self.cache.glob(f"{name}-*") if folder.is_dir()]
        for folder in sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)[kept:]:
            shutil.rmtree(folder, ignore_errors=True)


def same_time(tree: Path) -> None:
    for folder, folders, files in os.walk(tree, topdown=False):
        for name in (*files, *folders):
            os.utime(Path(folder, name), (WRITTEN, WRITTEN), follow_symlinks=False)
    os.utime(tree, (WRITTEN, WRITTEN))


def pack(tree: Path, file: Path) -> None:
    """The tree as a layer: sorted, everything root's."""
    with tarfile.open(file, "w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(tree.rglob("*")):
            tar.add(path, str(path.relative_to(tree)), recursive=False, filter=_as_root)


def _as_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry
