"""Converts parsed data into a struct; an error has the path of the field.

Called by `model.codec` for parsed objects (dumps, manifests). `model.decode_errors`, which finds the path, is imported
only for objects that can't be converted directly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from windlass.model.errors import InputError
from windlass.model.kueue import queue_wire


def convert(tree: Mapping[str, Any], struct: type) -> object:
    if not issubclass(struct, queue_wire.QueueObject) and not _has_null(tree):
        try:
            return msgspec.convert(tree, struct)
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
            pass  # converted again below, slower, with the path of the field
    return _convert_carefully(tree, struct)


def _has_null(value: object) -> bool:
    """Asked of every object that is read: nearly all values are text, for which no call is made."""
    inside: Iterable[object]
    if value.__class__ is dict or isinstance(value, Mapping):
        inside = value.values()
    elif isinstance(value, list | tuple):
        inside = value
    else:
        return value is None
    for item in inside:  # noqa: SIM110  # a third faster than `any`
        if item is None or (item.__class__ is not str and _has_null(item)):
            return True
    return False


def describe_found(value: object) -> str:
    """A short description of a wrong value, for a message."""
    from windlass.model.decode_errors import describe_value

    return describe_value(value)


def _convert_carefully(tree: Mapping[str, Any], struct: type) -> object:
    from windlass.model.decode_errors import find_decode_error, type_info, unknown_fields, without_nulls

    info = type_info(struct)
    cleaned = without_nulls(tree, info)
    try:
        obj: object = msgspec.convert(cleaned, struct)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
        fault = find_decode_error(cleaned, info)
        raise fault or InputError(str(error)) from None
    if isinstance(obj, queue_wire.QueueObject):
        spec = {"spec": tree.get("spec")}
        return msgspec.structs.replace(obj, unread_fields=tuple(unknown_fields(spec, info)))
    return obj
