"""Which extra of the distribution brings which library, and the one error about a library that is not installed.

A command that needs an extra calls `require_extra` before it starts anything; `cli.errors` asks `missing_module` about
every import that failed. pyproject.toml declares the extras; tests/project/test_dependencies.py compares the two with
what the rooms import.
"""

from __future__ import annotations

from windlass.model.errors import InputError

BASE = ("aiohttp", "click", "msgspec", "multidict", "numpy", "rich", "yaml", "yarl")
"""What comes without any extra; an image of one role may lack some of it."""
EXTRAS = {
    "scheduler": ("prometheus_client",),
    "node": ("bcrypt", "google.protobuf", "grpc", "pynvml"),
    "up": ("cryptography", "jsonschema_rs", "prometheus_client"),
    "simulate": ("matplotlib",),
    "numba": ("numba",),
    "exact": ("ortools",),
}
"""The modules that each extra brings."""
DISTRIBUTIONS = {"windlass_bench": "windlass-bench"}
"""Packages that are distributions of their own."""


def require_extra(extra: str, what: str, *modules: str) -> None:
    """Refuses to start `what` where a module of the extra is missing: those named, or all that are required."""
    needed = modules or EXTRAS[extra]
    missing = [name for name in needed if not is_installed(name)]
    if missing:
        raise _missing(what, missing, f"windlass[{extra}]")


def missing_module(error: ModuleNotFoundError) -> InputError | None:
    """The error for an import that failed; None if the module belongs to no extra, which is a bug of ours."""
    name = error.name or ""
    distribution = DISTRIBUTIONS.get(name)
    if distribution is not None:
        return InputError(
            "the benchmarks are a distribution of their own, which is not installed",
            remedy=f"pip install {distribution}",
        )
    if name in BASE:
        return _missing("this", [name], "windlass")
    for extra, modules in EXTRAS.items():
        for module in modules:
            if name == module or module.startswith(f"{name}.") or name.startswith(f"{module}."):
                return _missing("this", [module], f"windlass[{extra}]")
    return None


def is_installed(module: str) -> bool:
    """Whether the module can be imported; nothing is imported to find out but the packages that it lies in."""
    from importlib.util import find_spec

    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _missing(what: str, modules: list[str], distribution: str) -> InputError:
    verb = "is" if len(modules) == 1 else "are"
    return InputError(
        f"{what} needs {', '.join(modules)}, which {verb} not installed",
        remedy=f"pip install '{distribution}'",
    )
