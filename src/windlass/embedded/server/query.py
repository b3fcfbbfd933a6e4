"""Parses query parameters into the options of `registry`; errors have Kubernetes' messages. Used by the handlers."""

from __future__ import annotations

from multidict import MultiMapping

from windlass.embedded.api.errors import ApiError, FieldError, invalid, unsupported
from windlass.embedded.api.kinds import Kind
from windlass.embedded.registry.listing import ListQuery
from windlass.embedded.registry.options import (
    BACKGROUND,
    FOREGROUND,
    IGNORE,
    ORPHAN,
    STRICT,
    WARN,
    DeleteOptions,
    WriteOptions,
)
from windlass.model.unstructured import Unstructured

Query = MultiMapping[str]

_POLICIES = (FOREGROUND, BACKGROUND, ORPHAN)
MAX_FIELD_MANAGER_LENGTH = 128


def write_options(
    query: Query, user_agent: str, subresource: str, options_kind: str, warnings: list[str]
) -> WriteOptions:
    """`options_kind` names the options in messages: CreateOptions and so on."""
    if not query:
        return WriteOptions(field_manager=field_manager_of(user_agent), subresource=subresource, warn=warnings.append)
    problems = _dry_run_problems(query)
    validation = query.get("fieldValidation") or WARN
    if validation not in (IGNORE, WARN, STRICT):
        problems.append(unsupported("fieldValidation", validation, ("", IGNORE, STRICT, WARN)))
    manager = query.get("fieldManager", "")
    if len(manager) > MAX_FIELD_MANAGER_LENGTH:
        body = f"Too long: may not be more than {MAX_FIELD_MANAGER_LENGTH} bytes"
        problems.append(FieldError("fieldManager", "FieldValueTooLong", body))
    elif not manager.isprintable():
        body = f"Invalid value: {manager!r}: should only contain printable characters"
        problems.append(FieldError("fieldManager", "FieldValueInvalid", body))
    if problems:
        raise ApiError.invalid(_options_kind(options_kind), "", problems)
    return WriteOptions(
        dry_run=bool(query.getall("dryRun", None)),
        field_manager=manager or field_manager_of(user_agent),
        field_validation=validation,
        subresource=subresource,
        force=bool_parameter(query, "force"),
        warn=warnings.append,
    )


def delete_options(query: Query, body: Unstructured | None) -> DeleteOptions:
    """From the body, else from the query."""
    options = body or {}
    problems = _dry_run_problems(query)
    wanted = options.get("dryRun") or []
    if not isinstance(wanted, list):
        raise ApiError.bad_request(_mismatch("dryRun", "[]string", wanted))
    if any(value != "All" for value in wanted):
        problems.append(unsupported("dryRun", wanted, ("All",)))
    grace = _grace(options["gracePeriodSeconds"]) if "gracePeriodSeconds" in options else None
    if grace is None:
        grace = int_parameter(query, "gracePeriodSeconds")
    policy = options.get("propagationPolicy", query.get("propagationPolicy")) or ""
    orphan = options.get("orphanDependents", query.get("orphanDependents"))
    if policy and policy not in _POLICIES:
        problems.append(unsupported("propagationPolicy", policy, (*_POLICIES, "nil")))
    if orphan is not None and policy:
        reason = "orphanDependents and deletionPropagation cannot be both set"
        problems.append(invalid("propagationPolicy", policy, reason))
    if problems:
        raise ApiError.invalid(_options_kind("DeleteOptions"), "", problems)
    if orphan is not None:
        policy = ORPHAN if orphan in (True, "true", "1") else BACKGROUND
    conditions = options.get("preconditions") or {}
    if not isinstance(conditions, dict):
        raise ApiError.bad_request(_mismatch("preconditions", "v1.Preconditions", conditions))
    return DeleteOptions(
        dry_run=bool(wanted or query.getall("dryRun", None)),
        grace_seconds=grace,
        propagation=policy,
        uid=_text(conditions, "uid"),
        resource_version=_text(conditions, "resourceVersion"),
    )


def list_query(query: Query, watch: bool = False) -> ListQuery:
    if not query:
        return ListQuery(watch=watch)
    result = ListQuery(
        label_selector=query.get("labelSelector", ""),
        field_selector=query.get("fieldSelector", ""),
        limit=max(0, int_parameter(query, "limit") or 0),
        continue_token=query.get("continue", ""),
        resource_version=query.get("resourceVersion", ""),
        resource_version_match=query.get("resourceVersionMatch", ""),
        watch=watch or bool_parameter(query, "watch"),
        allow_bookmarks=bool_parameter(query, "allowWatchBookmarks"),
        send_initial_events=bool_parameter(query, "sendInitialEvents") if "sendInitialEvents" in query else None,
        timeout=int_parameter(query, "timeoutSeconds"),
    )
    problems = list(result.problems())
    if problems:
        raise ApiError.invalid(_options_kind("ListOptions"), "", problems)
    return result


def field_manager_of(agent: str) -> str:
    """The user agent up to its first slash."""
    return agent.partition("/")[0][:MAX_FIELD_MANAGER_LENGTH] or "unknown"


def bool_parameter(query: Query, name: str) -> bool:
    """As in Kubernetes, every value but `false` and `0` is true."""
    text = query.get(name)
    return text is not None and text.lower() != "false" and text != "0"


def int_parameter(query: Query, name: str) -> int | None:
    text = query.get(name, "")
    if text == "":
        return None
    digits = text.removeprefix("-").removeprefix("+")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 18:
        raise ApiError.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text)


def _grace(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 31:
        return value
    raise ApiError.bad_request(_mismatch("gracePeriodSeconds", "int64", value))


def _text(tree: Unstructured, name: str) -> str:
    value = tree.get(name)
    if value is not None and not isinstance(value, str):
        raise ApiError.bad_request(_mismatch(f"preconditions.{name}", "string", value))
    return value or ""


def _mismatch(field: str, wanted: str, value: object = None) -> str:
    json_type = {str: "string", dict: "object", list: "array", bool: "bool"}.get(type(value), "number")
    return f"json: cannot unmarshal {json_type} into Go struct field DeleteOptions.{field} of type {wanted}"


def _dry_run_problems(query: Query) -> list[FieldError]:
    wanted = query.getall("dryRun", None) or ()
    return [unsupported("dryRun", list(wanted), ("All",))] if any(value != "All" for value in wanted) else []


def _options_kind(name: str) -> Kind:
    return Kind(name, "", "meta.k8s.io", "v1")
