"""The front door of `embedded.api`: it knows the kinds served, built in and custom, and does what is asked.

The server's registry holds one. It is the only thing here with state: the table of kinds, and the schemas of the custom
ones. Everything it answers is worked out by the pure functions of its neighbours.
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
        """Serve the kinds of an established CustomResourceDefinition, in place of what it said before."""
        self.stop_serving_crd(crd)
        made = CustomKind.versions_of(crd)
        for each in made:
            self._custom[each.kind.group, each.kind.version, each.kind.plural] = each
            self.kinds.add(each.kind)
        return [each.kind for each in made]

    def stop_serving_crd(self, crd: Unstructured) -> None:
        """Stop serving them."""
        group, plural = crd["spec"]["group"], crd["spec"]["names"]["plural"]
        for key in [key for key in self._custom if (key[0], key[2]) == (group, plural)]:
            del self._custom[key]
        self.kinds.remove(group, plural)

    def custom_kind(self, kind: Kind) -> CustomKind | None:
        """What a CustomResourceDefinition says about a kind; none for a built-in one."""
        return self._custom.get((kind.group, kind.version, kind.plural)) if kind.custom else None

    def selectable_fields(self, kind: Kind) -> tuple[str, ...]:
        """Paths that field selectors may name besides the usual ones."""
        found = self.custom_kind(kind)
        return found.selectable_fields if found is not None else ()

    def schema(self, kind: Kind) -> SchemaNode:
        """The schema."""
        found = self.custom_kind(kind)
        return found.schema if found is not None else kind_schema(kind)

    # ---- one object on its way in

    def decode(
        self, kind: Kind, obj: object, field_validation: str = "Ignore", *, patched: bool = False
    ) -> tuple[Unstructured, list[str]]:
        """A tree of our own in canonical form, with defaults of custom kinds, and the warnings for the client."""
        found = self.custom_kind(kind)
        try:
            if found is not None:
                return found.decode(obj, field_validation)
            return decode(kind, obj, field_validation)
        except RecursionError:
            raise ApiError.bad_request("exceeded max depth") from None
        except ApiError as refusal:
            raise _about_patch(refusal, obj) if patched and refusal.code == 400 else refusal from None

    def prepare_create(self, kind: Kind, obj: Unstructured) -> Unstructured:
        """Status, generation and defaults of a new object, in place. `metadata.uid` and `.name` must be set."""
        if kind.custom:
            obj["metadata"]["generation"] = 1
            if kind.has_subresource("status"):
                obj.pop("status", None)
            return obj
        return strategy.prepare_create(kind, obj)

    def prepare_update(
        self, kind: Kind, new: Unstructured, old: Unstructured, subresource: str = ""
    ) -> Unstructured:
        """What takes the place of `old`; what this request may not touch is `old`'s."""
        return strategy.prepare_update(kind, new, old, subresource)

    def validate_create(self, kind: Kind, obj: Unstructured) -> None:
        """A 422 with every complaint."""
        self._raise(kind, obj, [*creation_errors(kind, obj), *self._custom_errors(kind, obj)])

    def validate_update(
        self, kind: Kind, new: Unstructured, old: Unstructured, subresource: str = ""
    ) -> None:
        """The same, and that nothing has changed that can't."""
        errors = [*update_errors(kind, new, old, subresource), *self._custom_errors(kind, new)]
        self._raise(kind, new, errors)

    def _custom_errors(self, kind: Kind, obj: Unstructured) -> list[FieldError]:
        found = self.custom_kind(kind)
        return found.errors(obj) if found is not None else []

    def _raise(self, kind: Kind, obj: Unstructured, errors: list[FieldError]) -> None:
        if errors:
            raise ApiError.invalid(kind, obj["metadata"].get("name") or "", errors)

    # ---- patches

    def patch(self, kind: Kind, obj: Unstructured, patch: Any, content_type: str) -> Unstructured:
        """The object after a patch, which must then be decoded again."""
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
        supported = [each for each in PATCH_MEDIA_TYPES if each != STRATEGIC_PATCH or not kind.custom]
        raise ApiError.unsupported_media_type(supported)

    # ---- answers

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
        """A `meta.k8s.io/v1` Table with the columns that kubectl users know."""
        found = self.custom_kind(kind)
        columns = found.columns if found is not None else None
        return table(kind, objs, now, columns, list_meta=list_meta, include=include, headers=headers)


def _about_patch(refusal: ApiError, obj: object) -> ApiError:
    """An object that a patch has made unreadable is the patch's fault, and a 422."""
    _, _, what = (
        refusal.message.partition(": ") if "cannot be handled as" in refusal.message else ("", "", "")
    )
    body = f"Invalid value: {quoted(json.dumps(obj, separators=(',', ':'), sort_keys=True))}: "
    body += what or refusal.message
    cause = {"reason": "FieldValueInvalid", "message": body, "field": "patch"}
    return ApiError(422, "Invalid", f' "" is invalid: patch: {body}', {"causes": [cause]})
