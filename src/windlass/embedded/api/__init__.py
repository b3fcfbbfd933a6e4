"""The API's machinery, as pure functions: JSON trees and a kind's description in, JSON trees or an `ApiError` out.

The server and the in-process verbs (`embedded.in_process_client`) call it; nothing here does I/O, reads a clock or
keeps state, except `Machinery`, which holds the table of kinds with the custom ones. Results are new trees; inputs
are not changed unless a function says so.

    machinery.Machinery()                    the front door; `.kinds` is the table
      .decode(kind, obj, field_validation, *, patched=False) -> (obj, warnings)     built-in and custom kinds
      .prepare_create(kind, obj) -> obj      status dropped, generation, defaults (changes `obj`, which `decode` made)
      .prepare_update(kind, new, old, subresource="") -> obj      keeps what the request may not touch; generation
      .validate_create(kind, obj), .validate_update(kind, new, old, subresource="")   raise 422
      .patch(kind, obj, patch, content_type) -> obj       JSON, merge, strategic; then `decode(patched=True)`
      .table(kind, objs, now, *, list_meta=None, include="Metadata", headers=True) -> Table
      .node(kind) -> schema.Node
      .adopt(crd) / .forget(crd)             serve, or stop serving, what a CustomResourceDefinition says
      .selectable(kind) -> paths that field selectors may name besides the usual ones
    kinds.Kinds                              .at(group, version, plural), .named("jobs.batch"), .of(apiVersion, kind)
    errors.ApiError                          code, reason, message, details; .status()
    selectors.label_selector(text), selectors.field_selector(text, kind, selectable)   -> function on objects, or None
    selectors.matches_selector(selector, labels)       a LabelSelector inside a spec
    patches.merge_patch(obj, patch), patches.json_patch(obj, operations), strategic.strategic_merge(obj, patch, node)
    apply.apply(machinery, kind, live | None, applied, manager, now, *, force, subresource="") -> merged object
    apply.track(machinery, kind, live | None, new, manager, now, *, subresource="") -> new, with managedFields
    admission.admit(kind, obj, lookup)       changes `obj`: limit range, account, runtime class, priority, tolerations
    quota.charge(kind, obj, old | None, lookup) -> ResourceQuotas with their new status, to be stored with the write
    quota.usage(quota, lookup) -> used       what a quota controller writes
    crds.with_status(crd, kinds, now) -> crd, with accepted names and conditions, then `adopt` it
    discovery.aggregated(kinds, core) / .groups(kinds) / .resources(kinds, group, version)
    openapi.v2(machinery), openapi.v3_index(machinery), openapi.v3(machinery, group, version)
    events.as_core(obj), events.as_events(obj)         one store behind both Event kinds; stored as core/v1
    openapi_wire.v2(machinery) -> bytes      the same in protobuf, as kubectl asks for it
    names, quantities, moments, trees        smaller words
"""
