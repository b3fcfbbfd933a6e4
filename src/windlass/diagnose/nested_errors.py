"""Errors that wrap one another, as Go programs print them (`outer: middle: inner`): what went wrong first."""

from __future__ import annotations


def innermost(message: str) -> str:
    """The innermost of the errors that wrap one another in a message: what went wrong first."""
    first = message.strip().splitlines()[-1] if message.strip() else ""
    parts = first.split(": ")
    tail = parts[-1]
    for part in reversed(parts[:-1]):
        if len(tail) >= SHORT_ERROR and " " in tail:
            break
        tail = f"{part}: {tail}"
    return tail.rstrip(".")


SHORT_ERROR = 36
"""An error of fewer characters says too little without the one around it."""
