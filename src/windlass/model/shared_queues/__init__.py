"""Queues of other schedulers, mapped onto the tree of `model.queue`: KAI's and Volcano's.

`kai` and `volcano` read one project's objects each, as a `SharedQueue`; `quota_tree` makes cohorts and queues of them.
`model.kueue.queue_system` calls both, so that the rest of Windlass knows one kind of tree. The mapping and its limits
are in docs/decisions/0039-queues-of-others.md.
"""
