"""`windlass node runtime`: a runtime handler for containerd, by a drop-in; `node.containerd_handler` decides."""

from __future__ import annotations

import glob
import re
import shutil
import subprocess
from pathlib import Path

import click

from windlass.cli.node_options import FOLDER
from windlass.cli.output import print_note
from windlass.cli.parameters import default_option
from windlass.model.errors import InputError
from windlass.node.atomic_file import write_atomically
from windlass.node.containerd_handler import DROP_IN, MAIN_FILE, MARK, import_patterns, plan_handler

EXAMPLES = """\b
Examples:
  windlass node runtime --handler nvidia                 what would be written, or why nothing
  windlass node runtime --handler nvidia --write
  windlass node runtime --undo

Exit codes: 0 done, or nothing to do; 1 refused; 2 bad input.
"""
SHOWN_SETTINGS = 12


@click.command(epilog=EXAMPLES)
@default_option("--handler", default="nvidia", help="The name that a RuntimeClass has in `handler`.")
@default_option("--binary", default="/usr/bin/nvidia-container-runtime", help="What it runs in place of runc.")
@click.option("--containerd-version", default="", metavar="X.Y", help="[default: what `containerd --version` says]")
@default_option("--root", type=FOLDER, default="/", help="Where the host's file system is.")
@click.option("--write", is_flag=True, help="Write the drop-in. Nothing is restarted.")
@click.option("--undo", is_flag=True, help="Remove the drop-in.")
def runtime(handler: str, binary: str, containerd_version: str, root: Path, write: bool, undo: bool) -> int:
    """Add a runtime handler to containerd on this host. Its own files are read and not changed.

    Only for a RuntimeClass: GPUs reach containers by CDI, which containerd 2 and CRI-O need no configuration for.
    """
    target = _inside(root, DROP_IN)
    if undo:
        return _undo(target)
    main = _inside(root, MAIN_FILE)
    files = _files(root, main, target)
    plan = plan_handler(files, DROP_IN, _major(containerd_version), handler, binary)
    for line in plan.lost[:SHOWN_SETTINGS]:
        click.echo(f"  {line}")
    if plan.why:
        print_note(f"nothing was written: {plan.why}")
        return 1
    if not plan.text:
        print_note(f"containerd has the handler {handler}; nothing is to be written")
        return 0
    click.echo(plan.text, nl=False)
    if not write:
        print_note(f"{DROP_IN} would be this file; --write writes it")
        return 0
    if not _inside(root, binary).exists():
        raise InputError(f"there is no {binary}: every pod of that class would fail", remedy="install it first")
    write_atomically(target, plan.text.encode())
    print_note(f"{DROP_IN} is written; containerd reads it when it starts: systemctl restart containerd")
    return 0


def _undo(target: Path) -> int:
    if not target.exists():
        print_note(f"there is no {DROP_IN}")
        return 0
    if not target.read_text().startswith(MARK):
        print_note(f"{DROP_IN} was not written by Windlass, and stays")
        return 1
    target.unlink()
    print_note(f"{DROP_IN} is removed; restart containerd when no pod of that class runs")
    return 0


def _files(root: Path, main: Path, target: Path) -> list[tuple[str, str]]:
    """The main file and what it imports, without ours: a handler of ours that is there is written anew."""
    if not main.exists():
        return []
    text = main.read_text()
    found = [(MAIN_FILE, text)]
    for pattern in import_patterns(MAIN_FILE, text):
        for path in sorted(glob.glob(str(_inside(root, pattern)))):
            if Path(path) != target:
                found.append((f"/{Path(path).relative_to(root)}", Path(path).read_text()))
    return found


def _inside(root: Path, path: str) -> Path:
    return root / path.lstrip("/")


def _major(version: str) -> int:
    if not version and shutil.which("containerd"):
        done = subprocess.run(["containerd", "--version"], capture_output=True, text=True, check=False)
        version = done.stdout
    found = re.search(r"\bv?([0-9]+)\.[0-9]+", version)
    if found is None:
        raise InputError("the version of containerd is not known", remedy="give --containerd-version 2.1")
    return int(found[1])
