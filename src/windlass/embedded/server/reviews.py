"""Access reviews and token requests: what RBAC allows, for `kubectl auth can-i`, `whoami` and `create token`.

`subresources` calls it; `authorization` knows the answers.
"""

from __future__ import annotations

from typing import Any

from windlass.embedded.api.errors import ApiError, invalid
from windlass.embedded.api.kinds import Kind
from windlass.embedded.api.rbac import Attributes
from windlass.embedded.server.authentication import AUTHENTICATED, Authenticator, User, service_account_groups
from windlass.embedded.server.authorization import Authorizer
from windlass.model.unstructured import Unstructured

DEFAULT_TOKEN_SECONDS, MIN_TOKEN_SECONDS = 3600, 600
_TOKEN_REQUEST = Kind("TokenRequest", "", "authentication.k8s.io", "v1")
_REVIEW = Kind("", "", "authorization.k8s.io", "v1")
SELF_ACCESS, ACCESS, LOCAL_ACCESS = "SelfSubjectAccessReview", "SubjectAccessReview", "LocalSubjectAccessReview"
RULES, SELF, TOKEN = "SelfSubjectRulesReview", "SelfSubjectReview", "TokenReview"
REVIEWS = (SELF_ACCESS, ACCESS, LOCAL_ACCESS, RULES, SELF, TOKEN)


def service_account_user(namespace: str, name: str, uid: str) -> User:
    groups = (*service_account_groups(namespace), AUTHENTICATED)
    return User(f"system:serviceaccount:{namespace}:{name}", groups, uid)


def token_lifetime(token_request: Unstructured) -> int:
    """Seconds until a token expires; an hour by default."""
    spec = token_request.get("spec")
    wanted = spec.get("expirationSeconds") if isinstance(spec, dict) else None
    if wanted is None:
        return DEFAULT_TOKEN_SECONDS
    if not isinstance(wanted, int) or not MIN_TOKEN_SECONDS <= wanted < 1 << 32:
        error = invalid("spec.expirationSeconds", wanted, "may not specify a duration less than 10 minutes")
        raise ApiError.invalid(_TOKEN_REQUEST, "", [error])
    return wanted


class Reviewer:
    def __init__(self, authenticator: Authenticator, authorizer: Authorizer) -> None:
        self._authenticator, self._authorizer = authenticator, authorizer

    def review(self, kind: str, namespace: str, review: Unstructured, user: User) -> Unstructured:
        """The review with its status."""
        spec = review.get("spec")
        fields = spec if isinstance(spec, dict) else {}
        metadata = review.get("metadata")
        result: Unstructured = {"metadata": metadata if isinstance(metadata, dict) else {}}
        result["metadata"].setdefault("creationTimestamp", None)
        if isinstance(spec, dict):
            result["spec"] = spec
        if kind == SELF:
            status: Unstructured = {"userInfo": _user_info(user)}
        elif kind == TOKEN:
            status = self._token_status(fields)
        elif kind == RULES:
            status = self._rules_status(user, str(fields.get("namespace") or ""))
        else:
            subject = user if kind == SELF_ACCESS else _subject(fields)
            attributes = _attributes(fields)
            if kind == LOCAL_ACCESS and attributes.namespace != namespace:
                reason = "must match metadata.namespace"
                error = invalid("spec.resourceAttributes.namespace", attributes.namespace, reason)
                raise ApiError.invalid(_REVIEW, "", [error])
            status = {"allowed": self._authorizer.allows(subject, attributes)}
        return {**result, "status": status}

    def _rules_status(self, user: User, namespace: str) -> Unstructured:
        if not namespace:
            raise ApiError.bad_request("no namespace on request")
        rules = list(self._authorizer.rules(user, namespace))
        by_path = [rule for rule in rules if rule.get("nonResourceURLs")]
        by_resource = [rule for rule in rules if not rule.get("nonResourceURLs")]
        return {"resourceRules": by_resource, "nonResourceRules": by_path, "incomplete": False}

    def _token_status(self, fields: Unstructured) -> Unstructured:
        user = self._authenticator.user_of(str(fields.get("token") or ""))
        if user is None:
            return {"authenticated": False, "user": {}, "error": "invalid bearer token"}
        return {"authenticated": True, "user": _user_info(user)}


def _attributes(fields: Unstructured) -> Attributes:
    resource, path = fields.get("resourceAttributes"), fields.get("nonResourceAttributes")
    if bool(resource) == bool(path):
        reason = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        raise ApiError.invalid(_REVIEW, "", [invalid("spec.resourceAttributes", resource, reason)])
    chosen = resource or path
    found: dict[str, Any] = chosen if isinstance(chosen, dict) else {}
    names = ("verb", "group", "resource", "subresource", "namespace", "name") if resource else ("verb", "path")
    return Attributes(**{name: str(found.get(name) or "") for name in names})


def _subject(fields: Unstructured) -> User:
    name, groups = str(fields.get("user") or ""), fields.get("groups")
    if not name and not groups:
        reason = "at least one of user or group must be specified"
        raise ApiError.invalid(_REVIEW, "", [invalid("spec.user", name, reason)])
    return User(name, tuple(map(str, groups)) if isinstance(groups, list) else ())


def _user_info(user: User) -> Unstructured:
    info: Unstructured = {"username": user.name, "groups": list(user.groups)}
    return {**info, "uid": user.uid} if user.uid else info
