"""Possible causes of a finding, and the one that the evidence supports: the deepest that nothing rules out.

`root_causes` and `pod_startup` collect hypotheses, `why` calls `conclude`. A hypothesis is asked of the engine where
it can answer: if the fault were mended, would a node take the pod (`would_run`)?
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass.diagnose.explanations import leads_to
from windlass.diagnose.finding import Finding, RuledOut


class Hypothesis(msgspec.Struct, frozen=True):
    finding: Finding
    subject: str = ""
    """The object at fault, such as `node g1`; empty if it is the pod itself or the cluster."""
    would_run: bool | None = None
    """The engine's answer to the question whether the pod would run without this fault; None if it can't say."""
    doubt: str = ""
    """Evidence against it that does not rule it out."""
    refuted_by: str = ""
    """Evidence that rules it out."""

    @property
    def code(self) -> str:
        return self.finding.code

    def leads_to(self, code: str) -> bool:
        """Whether it explains the code, by the table or in this cluster."""
        here = self.finding.explains
        return leads_to(self.code, code) or code in here or any(leads_to(link, code) for link in here)


class Conclusion(msgspec.Struct, frozen=True):
    """The cause, and the findings on the way from the symptom to it."""

    cause: Finding
    links: tuple[Finding, ...] = ()
    ruled_out: tuple[RuledOut, ...] = ()
    is_certain: bool = True


def conclude(symptom: Finding, hypotheses: Sequence[Hypothesis]) -> Conclusion:
    """The deepest hypothesis that explains the symptom and that nothing rules out; else the symptom itself."""
    ruled_out = tuple(
        RuledOut(hypothesis.code, hypothesis.finding.message, hypothesis.refuted_by)
        for hypothesis in hypotheses
        if hypothesis.refuted_by
    )
    shown = (
        "APP_ERROR" if symptom.code == "UNKNOWN" else symptom.code
    )  # what explains a failure explains it unsaid, too
    relevant = [
        hypothesis
        for hypothesis in hypotheses
        if not hypothesis.refuted_by and (hypothesis.would_run or hypothesis.leads_to(shown))
    ]
    deepest = [hypothesis for hypothesis in relevant if not _is_explained(hypothesis, relevant)]
    if not deepest:
        return Conclusion(symptom, ruled_out=ruled_out)
    best = min(deepest, key=_rank)
    below = [
        other
        for other in relevant
        if other.subject == best.subject and other.code != best.code and best.leads_to(other.code)
    ]
    between = sorted(below, key=lambda link: sum(link.leads_to(other.code) for other in below))
    others = [other.code for other in deepest if _rank(other) <= _rank(best)]
    known = [symptom.code] if symptom.code != "UNKNOWN" else []
    codes = (*known, *symptom.contributing, *(link.code for link in between), *others)
    cause = msgspec.structs.replace(best.finding, contributing=(*best.finding.contributing, *codes))
    return Conclusion(cause, tuple(link.finding for link in between), ruled_out, not best.doubt)


def _is_explained(hypothesis: Hypothesis, others: Sequence[Hypothesis]) -> bool:
    """Whether another hypothesis about the same object explains this one."""
    return any(
        other.leads_to(hypothesis.code)
        for other in others
        if other is not hypothesis and other.subject == hypothesis.subject and _rank(other) <= _rank(hypothesis)
    )


def _rank(hypothesis: Hypothesis) -> tuple[int, bool]:
    """What the engine confirms comes first, then what it can't judge."""
    confirmed = {True: 0, None: 1, False: 2}[hypothesis.would_run]
    return confirmed, bool(hypothesis.doubt)
