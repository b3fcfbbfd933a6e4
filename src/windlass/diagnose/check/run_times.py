"""Rules about declared run times: what stops the work at their end, and what has no effect."""

from __future__ import annotations

from collections.abc import Iterator

from windlass.diagnose.check.manifest import Manifest
from windlass.diagnose.check.rule import INFO, WARNING, CheckContext, RuleFinding, rule
from windlass.diagnose.unstructured import nested_map
from windlass.model.annotation_checks import annotation_problems
from windlass.model.names.kueue import MAX_EXEC_TIME_LABEL, QUEUE_NAME_LABEL
from windlass.model.names.windlass import DECLARED_DURATION_ANNOTATION


@rule("declared-duration", INFO, "A declared duration is as long as the work can take")
def declared_duration(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    objects = {"metadata.annotations": manifest.data}
    objects |= {view.field_path("metadata.annotations"): view.template for view in manifest.pods}
    for path, tree in objects.items():
        declared = nested_map(tree, "metadata", "annotations").get(DECLARED_DURATION_ANNOTATION)
        # What can't be read has no effect, as `annotation-readable` says.
        if isinstance(declared, str) and not annotation_problems({DECLARED_DURATION_ANNOTATION: declared}):
            yield RuleFinding(
                f"Windlass stops it after {declared}, whether it is done or not, "
                "and starts it again only if it saved a checkpoint",
                f"{path}.{DECLARED_DURATION_ANNOTATION}",
                "declare the longest time that it can take, or remove the annotation",
            )


@rule("execution-time-in-queue", WARNING, "A maximum execution time is that of queued work")
def execution_time_in_queue(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    labels = nested_map(manifest.data, "metadata", "labels")
    if MAX_EXEC_TIME_LABEL in labels and QUEUE_NAME_LABEL not in labels:
        yield RuleFinding(
            f"{MAX_EXEC_TIME_LABEL} has no effect: the {manifest.kind} is in no queue",
            f"metadata.labels.{MAX_EXEC_TIME_LABEL}",
            f"name its queue ({QUEUE_NAME_LABEL}), or set activeDeadlineSeconds instead",
        )
