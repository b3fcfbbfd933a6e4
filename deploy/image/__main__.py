"""A container image, built without a registry and without a container engine: `python deploy/image -o windlass.tar`.

    Debian packages ─► wheels of the lock file ─► Windlass and its compiled kernels ─► an OCI archive

`--role` says for what: the image of the scheduler, or that of the node agent, each with its own libraries only.
`--architecture` builds for another processor, under emulation (qemu-user-static).

Three layers, each a folder that is made once and kept in the user's cache under a digest of what it is made from, so
that a change of Windlass itself costs seconds. Runs on Debian as root (`apt-get` resolves and verifies packages, the
kernels are compiled inside the new root). `ctr images import`, `podman load` and `skopeo` read the archive;
`deploy/Containerfile` makes the same with a container engine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
from pathlib import Path

from archive import Image, write_archive
from bill import bill_of_materials, libraries_of
from folders import BuildFailed, Workshop
from layers import debian_layer, debian_packages, dependency_layer, windlass_layer
from roles import ROLES, Role

SOURCES = Path(__file__).resolve().parents[2]
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "PYTHONPATH": "/opt/windlass",
    "PYTHONDONTWRITEBYTECODE": "1",
    "HOME": "/tmp",
}
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
EMULATORS = {"amd64": "qemu-x86_64-static", "arm64": "qemu-aarch64-static"}


def cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "windlass" / "image"


def version() -> str:
    text = (SOURCES / "src/windlass/__init__.py").read_text()
    return next(line.split('"')[1] for line in text.splitlines() if line.startswith("__version__"))


def own_architecture() -> str:
    return MACHINES.get(platform.machine(), platform.machine())


def emulator_for(architecture: str) -> Path | None:
    """What runs programs of that architecture; None where this machine does by itself."""
    if architecture == own_architecture():
        return None
    found = shutil.which(EMULATORS[architecture])
    if found is None:
        raise BuildFailed(
            f"an image for {architecture} on {own_architecture()} needs {EMULATORS[architecture]} "
            "(apt-get install qemu-user-static)"
        )
    return Path(found)


def build(role: Role, architecture: str, name: str, output: Path, bill: Path | None = None) -> None:
    workshop = Workshop(cache(), ENVIRONMENT, architecture, emulator_for(architecture))
    debian = debian_layer(workshop)
    wheels = dependency_layer(workshop, debian, SOURCES, role)
    windlass = windlass_layer(workshop, [debian, wheels], SOURCES, role)
    image = Image(
        name=name,
        architecture=architecture,
        environment=ENVIRONMENT,
        entry=("windlass",),
        user="65532:65532",
    )
    write_archive(image, [debian.tar, wheels.tar, windlass.tar], output)
    if bill is not None:
        found = bill_of_materials(role.image, version(), libraries_of(role, SOURCES), debian_packages(workshop))
        bill.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python deploy/image", description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, default=Path("windlass.tar"), help="the OCI archive")
    parser.add_argument("--role", choices=sorted(ROLES), default="scheduler", help="what it is for")
    parser.add_argument(
        "--architecture",
        choices=sorted(EMULATORS),
        default=own_architecture(),
        help="default: this machine's",
    )
    parser.add_argument("--bill", type=Path, help="also write a bill of materials (CycloneDX) to this file")
    parser.add_argument("--name", help="the image's name; default: windlass:VERSION, windlass-node:VERSION")
    given = parser.parse_args()
    role = ROLES[given.role]
    if os.geteuid() != 0:
        print("the image is built in a root of its own, which needs root", file=sys.stderr)
        return 2
    try:
        name = given.name or f"docker.io/library/{role.image}:{version()}"
        build(role, given.architecture, name, given.output, given.bill)
    except BuildFailed as problem:
        print(f"the image can't be built: {problem}", file=sys.stderr)
        return 3
    print(given.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
