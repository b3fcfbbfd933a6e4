"""Validates the agent's options before any process starts: one line and exit code 2 instead of a crash loop.

Called by `windlass node run`; the child processes rely on it.
"""

from __future__ import annotations

import os
from pathlib import Path

from windlass.model.errors import InputError
from windlass.node.agent import (
    AgentOptions,
    listen_address,
    make_config,
    make_counters_file,
    make_named_configs,
    make_web_config,
)
from windlass.node.exporter.extra_labels import extra_labels_from_environment

MIN_INTERVAL, MAX_INTERVAL = 0.1, 86_400.0


def validate_options(options: AgentOptions) -> None:
    """Raises an `InputError` that names the option or the file."""
    if options.fleet is not None and options.root == Path("/"):
        raise InputError("a simulated node needs a folder of its own", remedy="give --root FOLDER")
    _check_config(options)
    _check_state(options.state)
    if "exporter" in options.parts:
        _check_exporter(options)
    if "mig" in options.parts and options.mig_config is not None:
        _check_mig_config(options.mig_config)


def _check_config(options: AgentOptions) -> None:
    named = make_named_configs(options)
    if named is None:
        make_config(options, lambda line: None)
    elif options.config_file is not None:
        message = "a config file and a folder of named configs exclude each other"
        raise InputError(message, path="--config-file, --config-file-srcdir", remedy="give one of them")
    else:
        named.names()


def _check_state(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"can't be made: {error.strerror}", file=str(folder), path="--state") from None
    if not os.access(folder, os.W_OK):
        remedy = "run as root; in a pod, securityContext.runAsUser: 0"
        raise InputError("can't be written to", file=str(folder), path="--state", remedy=remedy)


def _check_exporter(options: AgentOptions) -> None:
    listen_address(options.listen)
    make_web_config(options)
    # The double comparison also refuses NaN.
    if not MIN_INTERVAL <= options.interval <= MAX_INTERVAL:
        remedy = "write seconds, 0.1 to 86400"
        raise InputError(f"{options.interval:g} is out of range", path="--interval", remedy=remedy)
    make_counters_file(options.counters)
    extra_labels_from_environment({**os.environ, **options.extra_labels})


def _check_mig_config(file: Path) -> None:
    from windlass.node.config_source import read_yaml
    from windlass.sharing.mig_config import read_mig_configs

    read_mig_configs(read_yaml(file), str(file))
