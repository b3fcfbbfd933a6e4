"""The entry point of `embedded.api`: knows the served kinds, built-in and custom, and dispatches to the other
modules.

The registry holds one. Only this class has state: the table of kinds and the schemas of custom kinds.
"""

from __future__ import annotations

import json
from typing import Any

from windlass.embedded.api import strategy
from windlass.embedded.api.custom_kind import CustomKind
from windlass.embedded.api.decode import decode
from windlass.embedded.api.errors import ApiError, FieldError, quoted
from windlass.embedded.api.json_trees import exceeds_depth
from windlass.embedded.api.kinds import Kind, Kinds
from windlass.embedded.api.patches import check_merge_patch, json_patch, merge_patch
from windlass.embedded.api.schema import SchemaNode, kind_schema
from windlass.embedded.api.strategic_merge import strategic_merge
from windlass.embedded.api.tables import table
from windlass.embedded.api.validation import creation_errors, update_errors
from windlass.model.unstructured import Unstructured

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
PATCH_MEDIA_TYPES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)


class Machinery:
    """What an API server knows about objects."""

    def __init__(self, kinds: Kinds | None = None) -> None:
        self.kinds = kinds if kinds is not None else Kinds()
        self._custom: dict[tuple[str, str, str], CustomKind] = {}

    # ---- custom kinds

    def serve_crd(self, crd: Unstructured) -> list[Kind]:
        """Serves the kinds of an established CustomResourceDefinition, replacing its earlier ones."""
        self.stop_serving_crd(crd)
        versions = CustomKind.versions_of(crd)
        for version in versions:
            self._custom[version.kind.group, version.kind.version, version.kind.plural] = version
            self.kinds.add(version.kind)
        return [version.kind for version in versions]

    def stop_serving_crd(self, crd: Unstructured) -> None:
        group, plural = crd["spec"]["group"], crd["spec"]["names"]["plural"]
        for key in [key for key in self._custom if (key[0], key[2]) == (group, plural)]:
            del self._custom[key]
        self.kinds.remove(group, plural)

    def custom_kind(self, kind: Kind) -> CustomKind | None:
        """The CustomKind of a kind; None for a built-in one."""
        return self._custom.get((kind.group, kind.version, kind.plural)) if kind.custom else None

    def selectable_fields(self, kind: Kind) -> tuple[str, ...]:
        """Paths for field selectors besides the usual ones."""
        found = self.custom_kind(kind)
        return found.selectable_fields if found is not None else ()

    def schema(self, kind: Kind) -> SchemaNode:
        found = self.custom_kind(kind)
        return found.schema if found is not None else kind_schema(kind)

    # ---- one object on its way in

    def decode(
        self, kind: Kind, obj: object, field_validation: str = "Ignore", *, patched: bool = False
    ) -> tuple[Unstructured, list[str]]:
        """A new object in canonical form, with defaults of custom kinds, and warnings for the client."""
        found = self.custom_kind(kind)
        try:
            if found is not None:
                return found.decode(obj, field_validation)
            return decode(kind, obj, field_validation)
        except RecursionError:
            raise ApiError.bad_request("exceeded max depth") from None
        except ApiError as error:
            raise _patch_error(error, obj) if patched and error.code == 400 else error from None

    def prepare_create(self, kind: Kind, obj: Unstructured) -> Unstructured:
        """Sets status, generation and defaults of a new object, in place. `metadata.uid` and `.name` must be set."""
        if kind.custom:
            obj["metadata"]["generation"] = 1
            if kind.has_subresource("status"):
                obj.pop("status", None)
            return obj
        return strategy.prepare_create(kind, obj)

    def prepare_update(self, kind: Kind, new: Unstructured, old: Unstructured, subresource: str = "") -> Unstructured:
        """The object that replaces `old`; fields that this request may not change are `old`'s."""
        return strategy.prepare_update(kind, new, old, subresource)

    def validate_create(self, kind: Kind, obj: Unstructured) -> None:
        """Raises a 422 with all errors."""
        self._raise_if_any(kind, obj, [*creation_errors(kind, obj), *self._custom_errors(kind, obj)])

    def validate_update(self, kind: Kind, new: Unstructured, old: Unstructured, subresource: str = "") -> None:
        """Also checks that immutable fields are unchanged."""
        errors = [*update_errors(kind, new, old, subresource), *self._custom_errors(kind, new)]
        self._raise_if_any(kind, new, errors)

    def _custom_errors(self, kind: Kind, obj: Unstructured) -> list[FieldError]:
        found = self.custom_kind(kind)
        return found.errors(obj) if found is not None else []

    def _raise_if_any(self, kind: Kind, obj: Unstructured, errors: list[FieldError]) -> None:
        if errors:
            raise ApiError.invalid(kind, obj["metadata"].get("name") or "", errors)

    # ---- patches

    def patch(self, kind: Kind, obj: Unstructured, patch: Any, content_type: str) -> Unstructured:
        """The object after a patch; it has to be decoded again."""
        if isinstance(patch, dict | list) and exceeds_depth(patch):
            raise ApiError.bad_request("error decoding patch: exceeded max depth")
        if content_type == JSON_PATCH:
            return json_patch(obj, patch)
        if content_type == MERGE_PATCH:
            check_merge_patch(patch)
            merged: Unstructured = merge_patch(obj, patch)
            return merged
        if content_type == STRATEGIC_PATCH and not kind.custom:
            return strategic_merge(obj, patch, kind_schema(kind))
        supported = [media for media in PATCH_MEDIA_TYPES if media != STRATEGIC_PATCH or not kind.custom]
        raise ApiError.unsupported_media_type(supported)

    # ---- responses

    def table(
        self,
        kind: Kind,
        objs: list[Unstructured],
        now: float,
        *,
        list_meta: Unstructured | None = None,
        include: str = "Metadata",
        headers: bool = True,
    ) -> Unstructured:
        """A `meta.k8s.io/v1` Table with the columns of `kubectl get`."""
        found = self.custom_kind(kind)
        columns = found.columns if found is not None else None
        return table(kind, objs, now, columns, list_meta=list_meta, include=include, headers=headers)


def _patch_error(error: ApiError, obj: object) -> ApiError:
    """An object that a patch has made undecodable is a 422, as an error of the patch."""
    _, _, detail = error.message.partition(": ") if "cannot be handled as" in error.message else ("", "", "")
    body = f"Invalid value: {quoted(json.dumps(obj, separators=(',', ':'), sort_keys=True))}: "
    body += detail or error.message
    cause = {"reason": "FieldValueInvalid", "message": body, "field": "patch"}
    return ApiError(422, "Invalid", f' "" is invalid: patch: {body}', {"causes": [cause]})
