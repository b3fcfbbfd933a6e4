"""The API machinery as pure functions: JSON objects and a kind's description in, JSON objects or an `ApiError` out.

The registry and the server call it. Nothing here does I/O, reads a clock or keeps state, except `Machinery`, which
holds the table of kinds with the custom ones. Results are new objects; inputs are not changed unless a function
says so.

    machinery.Machinery()                    the entry point; `.kinds` is the table of kinds
      .decode(kind, obj, field_validation, *, patched=False) -> (obj, warnings)     built-in and custom kinds
      .prepare_create(kind, obj) -> obj      status, generation, defaults (changes `obj`, which `decode` made)
      .prepare_update(kind, new, old, subresource="") -> obj      keeps what the request may not change; generation
      .validate_create(kind, obj), .validate_update(kind, new, old, subresource="")   raise 422
      .patch(kind, obj, patch, content_type) -> obj       JSON, merge, strategic; then `decode(patched=True)`
      .table(kind, objs, now, *, list_meta=None, include="Metadata", headers=True) -> Table
      .schema(kind) -> schema.SchemaNode
      .serve_crd(crd) / .stop_serving_crd(crd)
      .selectable_fields(kind) -> paths for field selectors besides the usual ones
    kinds.Kinds                              .by_path(group, version, plural), .by_resource("jobs.batch"), .by_kind(…)
    errors.ApiError                          code, reason, message, details; .status()
    selectors.label_selector(text), selectors.field_selector(text, kind, selectable)   -> predicate on objects, or None
    selectors.matches_selector(selector, labels)       a LabelSelector inside a spec
    patches.merge_patch(obj, patch), patches.json_patch(obj, operations)
    strategic_merge.strategic_merge(obj, patch, node)
    server_side_apply.apply(machinery, kind, live | None, applied, manager, now, *, force, subresource="") -> object
    server_side_apply.track_managed_fields(machinery, kind, live | None, new, manager, now, *, subresource="") -> object
    admission.admit(kind, obj, lookup)       changes `obj`: limit range, account, runtime class, priority, tolerations
    resource_quota.charge(kind, obj, old | None, lookup) -> ResourceQuotas with their new status
    resource_quota.usage(quota, lookup) -> used, for the quota controller
    crds.with_status(crd, kinds, now) -> crd with accepted names and conditions
    discovery, openapi, openapi_protobuf     documents about the served kinds
    events.to_core_v1(obj), events.to_events_v1(obj)   both Event kinds are stored as core/v1
    names, quantities, timestamps, json_trees          helpers
"""
