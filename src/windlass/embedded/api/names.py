"""Validation of names, label keys and label values. Each function returns a list of problems.

Used by validation, selectors and CustomResourceDefinitions. Messages are the Kubernetes API's (Apache-2.0).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from windlass.embedded.api.bounded_cache import bounded_cache

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SERVICE = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_ENVIRONMENT = re.compile(r"[ -<>-~]+")
_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+")

_MUST_LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character"
)
_MUST_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character"
)
_MUST_SERVICE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character"
)
_MUST_QUALIFIED = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)
_MUST_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character"
)
_MUST_ENVIRONMENT = "a valid environment variable name must consist only of printable ASCII characters other than '='"
_MUST_CONFIG_KEY = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"


_MAX_CACHED_LENGTH = 320


def _cached(check: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """Caches the result for names of a usual length; longer ones could fill the memory."""
    return bounded_cache(1 << 14, _MAX_CACHED_LENGTH)(check)


def _examples(must: str, pattern: str, *examples: str) -> str:
    quoted_examples = "  or ".join(f"'{example}'," for example in examples)
    return f"{must} (e.g. {quoted_examples} regex used for validation is '{pattern}')"


def _too_long(max_bytes: int) -> str:
    return f"must be no more than {max_bytes} bytes"


@_cached
def dns_label_problems(value: str) -> list[str]:
    problems = [_too_long(63)] if len(value) > 63 else []
    if not _LABEL.fullmatch(value) and _SUBDOMAIN.fullmatch(value):
        problems.append("must not contain dots")
    elif not _LABEL.fullmatch(value):
        problems.append(_examples(_MUST_LABEL, _LABEL.pattern, "my-name", "123-abc"))
    return problems


@_cached
def dns_subdomain_problems(value: str) -> list[str]:
    problems = ["must be no more than 253 characters"] if len(value) > 253 else []
    if not _SUBDOMAIN.fullmatch(value):
        problems.append(_examples(_MUST_SUBDOMAIN, _SUBDOMAIN.pattern, "example.com"))
    return problems


@_cached
def dns_1035_problems(value: str) -> list[str]:
    problems = [_too_long(63)] if len(value) > 63 else []
    if not _SERVICE.fullmatch(value):
        problems.append(_examples(_MUST_SERVICE, _SERVICE.pattern, "my-name", "abc-123"))
    return problems


@_cached
def label_key_problems(key: str) -> list[str]:
    """Also for annotations, taints and resource names: an optional domain, a slash, a name."""
    prefix, slash, name = key.rpartition("/")
    if key.count("/") > 1:
        example = _qualified_examples("a valid label key")
        return [f"{example} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"]
    problems = []
    if slash and not prefix:
        problems.append("prefix part must be non-empty")
    elif slash:
        problems += [f"prefix part {problem}" for problem in dns_subdomain_problems(prefix)]
    if not name:
        problems.append("name part must be non-empty")
    elif len(name) > 63:
        problems.append("name part " + _too_long(63))
    if not _QUALIFIED.fullmatch(name):
        problems.append(_qualified_examples("name part"))
    return problems


def _qualified_examples(head: str) -> str:
    return _examples(f"{head} {_MUST_QUALIFIED}", _QUALIFIED.pattern, "MyName", "my.name", "123-abc")


@_cached
def label_value_problems(value: str) -> list[str]:
    problems = [_too_long(63)] if len(value) > 63 else []
    if not _VALUE.fullmatch(value):
        problems.append(_examples(_MUST_VALUE, _VALUE.pattern, "MyValue", "my_value", "12345"))
    return problems


@_cached
def environment_problems(name: str) -> list[str]:
    return [] if _ENVIRONMENT.fullmatch(name) else [_MUST_ENVIRONMENT]


@_cached
def config_key_problems(key: str) -> list[str]:
    problems = [_too_long(253)] if len(key) > 253 else []
    if not _CONFIG_KEY.fullmatch(key):
        problems.append(_examples(_MUST_CONFIG_KEY, _CONFIG_KEY.pattern, "key.name", "KEY_NAME", "key-name"))
    if key == ".":
        problems.append("must not be '.'")
    elif key.startswith(".."):
        problems.append("must not be '..'" if key == ".." else "must not start with '..'")
    return problems


@_cached
def path_segment_problems(name: str) -> list[str]:
    """For names of roles and the like: anything that fits into a path."""
    if name in (".", ".."):
        return [f"may not be '{name}'"]
    return [f"may not contain '{character}'" for character in "/%" if character in name]


@_cached
def port_name_problems(name: str) -> list[str]:
    problems = []
    if len(name) > 15:
        problems.append("must be no more than 15 characters")
    if not re.fullmatch(r"[-a-z0-9]+", name):
        problems.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search(r"[a-z]", name):
        problems.append("must contain at least one letter (a-z)")
    if "--" in name:
        problems.append("must not contain consecutive hyphens")
    if name.startswith("-") or name.endswith("-"):
        problems.append("must not begin or end with a hyphen")
    return problems
