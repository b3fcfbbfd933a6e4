"""Log formats on stderr: one JSON object per line, or plain text. `cli.scheduler` calls `set_up_logs`."""

from __future__ import annotations

import logging
import sys
from typing import Any

import msgspec

from windlass.kube.events import micro_time


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "ts": micro_time(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def set_up_logs(style: str, level: str) -> None:
    """`style` is json or text."""
    handler = logging.StreamHandler(sys.stderr)
    plain = logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")
    handler.setFormatter(JsonFormatter() if style == "json" else plain)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
