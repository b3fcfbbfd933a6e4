"""What all tests share: hypothesis profiles, and which tests this machine can run at all.

A test that needs files or hardware which are not at hand is deselected, never skipped: a green run says how many.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ("tests.real_cluster.fixtures",)

settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("thorough", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # So it is in a background job of a shell; the tests of Ctrl-C need the usual handler.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def traces_at_hand() -> Path | None:
    """The folder of the public trace files, if there is one."""
    named = os.environ.get("WINDLASS_TRACES", "")
    return Path(named) if named and Path(named).is_dir() else None


def cases_at_hand() -> Path | None:
    """The folder of the engine cases (the peers' own tests as plain objects), if there is one."""
    named = os.environ.get("WINDLASS_CASES", "")
    folder = Path(named) if named else Path(__file__).parents[2] / "shared" / "cases"
    return folder if (folder / "engine").is_dir() else None


AT_HAND: dict[str, Callable[[], bool]] = {
    "traces": lambda: traces_at_hand() is not None,
    "cases": lambda: cases_at_hand() is not None,
    "gpu": lambda: shutil.which("nvidia-smi") is not None,
}


def pytest_report_header() -> str:
    return "traces: " + ("at hand" if traces_at_hand() else "not at hand (set WINDLASS_TRACES, or use `make test`)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    missing = [marker for marker, present in AT_HAND.items() if not present()]
    beyond_reach = [item for item in items if any(item.get_closest_marker(marker) for marker in missing)]
    if beyond_reach:
        config.hook.pytest_deselected(items=beyond_reach)
        items[:] = [item for item in items if item not in beyond_reach]


@pytest.fixture(scope="session")
def traces_dir() -> Path:
    """The public trace files; for tests that are marked `traces`."""
    folder = traces_at_hand()
    assert folder is not None, "a test that uses traces_dir must be marked `traces`"
    return folder


@pytest.fixture(scope="session")
def cases_dir() -> Path:
    """The engine cases; for tests that are marked `cases`."""
    folder = cases_at_hand()
    assert folder is not None, "a test that uses cases_dir must be marked `cases`"
    return folder
