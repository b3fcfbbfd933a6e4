"""`windlass up` with a record of its scheduler's decisions, which `windlass scheduler` writes for `--record`.

python -m tests.worlds.recorded_up FOLDER up --port=0 …

`live_up` starts it, so that worlds on `windlass up` are judged with the plans that were carried out.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import windlass.scheduler.options
from windlass.cli.main import main


def run() -> None:
    record = Path(sys.argv.pop(1))
    options = windlass.scheduler.options.SchedulerOptions
    windlass.scheduler.options.SchedulerOptions = functools.partial(options, record=record)  # type: ignore[misc, assignment]
    main()


if __name__ == "__main__":
    run()
