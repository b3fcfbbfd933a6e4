"""What an image's three layers are made of: Debian's Python, the role's libraries by the lock file, and Windlass.

Called in this order by `__main__`. Packages are resolved by `apt-get` as for an empty machine and verified by it;
wheels are verified by the lock file's hashes. No package's own scripts run: nothing here needs them.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from folders import BuildFailed, Layer, Workshop, digest, run, same_time
from roles import Role, distributions_of, plain

PACKAGES = ("python3-minimal", "libpython3-stdlib", "libstdc++6", "tzdata")
"""Python with its standard library, and what wheels with C++ in them link to."""
WHEEL_PLATFORMS = {"amd64": "x86_64-manylinux_2_28", "arm64": "aarch64-manylinux_2_28"}
"""Whose wheels run on that Debian."""
NOT_NEEDED = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "usr/share/lintian")
PEOPLE = {
    "etc/passwd": "root:x:0:0:root:/root:/usr/sbin/nologin\nwindlass:x:65532:65532::/tmp:/usr/sbin/nologin\n",
    "etc/group": "root:x:0:\nwindlass:x:65532:\n",
}
SITE = "opt/windlass"
KERNELS = f"{SITE}/windlass/placement/kernels/native"
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
COMMAND = """#!/usr/bin/python3
import sys
from windlass.cli.main import main
sys.exit(main())
"""


def debian_layer(workshop: Workshop) -> Layer:
    """Debian's Python, of the release that this machine runs."""
    try:
        return _debian_layer(workshop)
    except BuildFailed:  # the lists of packages are not there, or too old
        with workshop.scratch() as scratch:
            run([*_apt_for_an_empty_machine(workshop, scratch), "update"])
        return _debian_layer(workshop)


def _debian_layer(workshop: Workshop) -> Layer:
    with workshop.scratch() as scratch:
        apt = _apt_for_an_empty_machine(workshop, scratch)
        names = sorted(package.file for package in _resolved(apt))

        def make(tree: Path) -> None:
            run([*apt, "--yes", "--download-only", "install", *PACKAGES])
            for file in sorted((scratch / "archives").glob("*.deb")):
                run(["dpkg-deb", "--extract", str(file), str(tree)])
            for unneeded in NOT_NEEDED:
                shutil.rmtree(tree / unneeded, ignore_errors=True)
            for path, text in PEOPLE.items():
                (tree / path).parent.mkdir(exist_ok=True)
                (tree / path).write_text(text)
            (tree / "tmp").mkdir(exist_ok=True)
            (tree / "tmp").chmod(0o1777)
            _compile(workshop, tree, _asked(workshop, tree, "sysconfig.get_path('stdlib')"))

        # This file too: the other layers' keys have this one in them.
        return workshop.layer("debian", digest(*names, Path(__file__).read_bytes()), make)


class DebianPackage(NamedTuple):
    file: str
    name: str
    version: str
    architecture: str
    algorithm: str
    hash: str
    """By which `apt-get` verifies it."""


def debian_packages(workshop: Workshop) -> list[DebianPackage]:
    """What the lowest layer consists of, for the bill of materials."""
    with workshop.scratch() as scratch:
        return _resolved(_apt_for_an_empty_machine(workshop, scratch))


def _resolved(apt: Sequence[str]) -> list[DebianPackage]:
    listed = run([*apt, "--print-uris", "install", *PACKAGES])
    return [_package(line) for line in listed.splitlines() if line.startswith("'")]


def _package(line: str) -> DebianPackage:
    """`'URI' name_1%3a2.3_amd64.deb SIZE SHA256:…`"""
    file, checksum = line.split()[1], line.split()[3] if len(line.split()) > 3 else ":"
    name, version, architecture = file.removesuffix(".deb").split("_")
    algorithm, _, digits = checksum.partition(":")
    return DebianPackage(file, name, unquote(version), architecture, _ALGORITHMS.get(algorithm, algorithm), digits)


_ALGORITHMS = {"SHA256": "SHA-256", "SHA512": "SHA-512", "MD5Sum": "MD5"}


def dependency_layer(workshop: Workshop, debian: Layer, sources: Path, role: Role) -> Layer:
    """The wheels that the role needs at run time, as the lock file pins them."""
    with workshop.scratch() as scratch:
        wanted = scratch / "requirements.txt"
        lock = (sources / "requirements.lock").read_text()
        wanted.write_text(pinned(lock, distributions_of(role, sources)))
        python = _asked(workshop, debian.tree, "'%d.%d' % sys.version_info[:2]")
        uv = Path(sys.executable).with_name("uv")

        def make(tree: Path) -> None:
            command = [
                str(uv),
                "pip",
                "install",
                "--quiet",
                "--no-deps",
                "--require-hashes",
                "--only-binary=:all:",
            ]
            command += [
                f"--python-version={python}",
                f"--python={sys.executable}",
                "--link-mode=copy",
            ]
            if workshop.emulator is not None:
                command += [f"--python-platform={WHEEL_PLATFORMS[workshop.architecture]}"]
            run([*command, f"--target={tree / SITE}", f"--requirements={wanted}"])
            _forget_this_machine(tree / SITE)
            for tests in [*(tree / SITE).rglob("tests")]:
                shutil.rmtree(tests, ignore_errors=True)
            with workshop.root_of([debian.tree, tree]) as root:
                _compile(workshop, root, f"/{SITE}")
                shutil.copytree(root / SITE, tree / SITE, symlinks=True, dirs_exist_ok=True)

        return workshop.layer(f"{role.name}-wheels", digest(debian.key, wanted.read_text()), make)


def windlass_layer(workshop: Workshop, below: Sequence[Layer], sources: Path, role: Role) -> Layer:
    """Windlass as its wheel holds it, with bytecode and, where the role decides, the kernels of that architecture."""
    files = sorted(path for path in (sources / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    content = [part for path in files for part in (str(path.relative_to(sources)), path.read_bytes())]

    def make(tree: Path) -> None:
        with workshop.scratch() as scratch:
            build = [
                sys.executable,
                "-m",
                "build",
                "--wheel",
                "--no-isolation",
                f"--outdir={scratch}",
                str(sources),
            ]
            run(build)
            (wheel,) = scratch.glob("*.whl")
            uv = Path(sys.executable).with_name("uv")
            command = [str(uv), "pip", "install", "--quiet", "--no-deps", f"--python={sys.executable}"]
            run([*command, "--link-mode=copy", f"--target={tree / SITE}", str(wheel)])
        _forget_this_machine(tree / SITE)
        _keep_kernels(tree / KERNELS, MACHINES[workshop.architecture] if role.decides else None)
        program = tree / "usr/local/bin/windlass"
        program.parent.mkdir(parents=True)
        program.write_text(COMMAND)
        program.chmod(0o755)
        same_time(tree)
        with workshop.root_of([*(layer.tree for layer in below), tree]) as root:
            _fill_bytecode(workshop, root, tree)

    pyproject = (sources / "pyproject.toml").read_bytes()
    key = digest(*(layer.key for layer in below), pyproject, *content)
    return workshop.layer(f"{role.name}-windlass", key, make)


def _forget_this_machine(site: Path) -> None:
    """Scripts that name this machine's Python, and notes of where and when a wheel was installed from."""
    shutil.rmtree(site / "bin", ignore_errors=True)
    (site / ".lock").unlink(missing_ok=True)
    for note in [*site.glob("*.dist-info/direct_url.json"), *site.glob("*.dist-info/uv_cache.json")]:
        note.unlink()
        record = note.with_name("RECORD")
        kept = [line for line in record.read_text().splitlines() if f"/{note.name}," not in line]
        record.write_text("\n".join(kept) + "\n")


def _keep_kernels(folder: Path, machine: str | None) -> None:
    """Those of that machine alone; none where the role doesn't decide."""
    kept = {path.name for path in folder.glob(f"*-{machine}.*")}
    if machine is not None and not kept:
        raise BuildFailed(
            f"there are no compiled kernels for {machine}: run `python -m tools.kernel_library --machine {machine}`, "
            f"which needs a C compiler (gcc, or gcc-{machine.replace('_', '-')}-linux-gnu)"
        )
    for path in list(folder.glob("*")):
        if path.name not in kept:
            path.unlink()


def _fill_bytecode(workshop: Workshop, root: Path, tree: Path) -> None:
    _compile(workshop, root, f"/{SITE}/windlass")
    for folder in (root / SITE / "windlass").rglob("__pycache__"):
        for file in folder.glob("*.pyc"):
            target = tree / file.relative_to(root)
            target.parent.mkdir(exist_ok=True)
            shutil.copy2(file, target)


def _apt_for_an_empty_machine(workshop: Workshop, scratch: Path) -> list[str]:
    """`apt-get` that knows this machine's sources and believes that nothing is installed.

    For another architecture it keeps lists of its own, so that this machine's stay as they are.
    """
    (scratch / "archives" / "partial").mkdir(parents=True)
    (scratch / "status").touch()
    options: dict[str, object] = {
        "Dir::State::status": scratch / "status",
        "Dir::Cache::archives": scratch / "archives",
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "root",
        "Debug::NoLocking": "true",
    }
    if workshop.emulator is not None:
        lists = workshop.cache / f"lists-{workshop.architecture}"
        (lists / "partial").mkdir(parents=True, exist_ok=True)
        options |= {
            "Dir::State::lists": lists,
            "APT::Architecture": workshop.architecture,
            "APT::Architectures": workshop.architecture,
        }
    return ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in options.items())]


def _asked(workshop: Workshop, root: Path, expression: str) -> str:
    """What the Python in that root says to an expression."""
    program = f"import sys, sysconfig; print({expression})"
    return workshop.inside(root, "/usr/bin/python3", "-c", program).strip()


def _compile(workshop: Workshop, root: Path, folder: str) -> None:
    """Bytecode that is never looked at twice: the image's files don't change."""
    command = ["-m", "compileall", "-q", "--invalidation-mode=unchecked-hash", folder]
    workshop.inside(root, "/usr/bin/python3", *command)


def pinned(lock: str, names: set[str]) -> str:
    """The lock file's entries of those names, with their hashes."""
    entries = re.split(r"^(?=[A-Za-z0-9])", lock, flags=re.MULTILINE)
    return "".join(entry for entry in entries if plain(re.split(r"[=\s\[]", entry, maxsplit=1)[0]) in names)
