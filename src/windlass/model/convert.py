"""Plain data into a struct: quickly where it is as it should be, and with the field's path where it is not.

Called by `model.codec` for what has been parsed already (dumps, manifests). What it takes to say what is wrong with
an object (`model.decode_errors`, which looks into types) is loaded only for objects that need it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from windlass.model.errors import InputError
from windlass.model.kueue import queue_wire


def convert(tree: Mapping[str, Any], struct: type) -> object:
    """Most objects are as they should be; what it takes to say what is wrong with the others is loaded for them."""
    if not issubclass(struct, queue_wire.QueueObject) and not _has_null(tree):
        try:
            return msgspec.convert(tree, struct)
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
            pass  # read again below, slower and with the field's path
    return _convert_carefully(tree, struct)


def _has_null(value: object) -> bool:
    inside = (
        value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    )
    return value is None or any(map(_has_null, inside))


def describe_found(value: object) -> str:
    """What an object has in a wrong place, in words."""
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
