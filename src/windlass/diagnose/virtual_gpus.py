"""GPUs that a scheduler extender splits by itself (HAMi, Volcano's vGPU): cards are registered in annotations of nodes.

`waiting` calls it before the nodes are judged. The extender counts memory and cores of a card, which no node
advertises, and gives a container each of its virtual GPUs from another card.
"""

from __future__ import annotations

import re

import msgspec

from windlass.diagnose.evidence import Evidence, once_per_evidence
from windlass.diagnose.finding import Finding
from windlass.diagnose.unstructured import nested_bool, nested_int, nested_string
from windlass.model.digits import is_digits
from windlass.model.names.kubernetes import DEFAULT_SCHEDULER_NAME
from windlass.model.pod import Container, Pod, RawQuantity
from windlass.model.requests import is_extended_resource, parse_amount

REGISTER = re.compile(r"/node-[\w-]*register$")
"""Annotations of nodes that list the cards."""
CARD_PARTS = re.compile(r"/(v?gpu-?mem(ory)?(-percentage)?|v?gpu-?cores?|priority)$")
"""Resources that only the extender counts."""
CARD_MEMORY = re.compile(r"/v?gpu-?mem(ory)?$")
CARD_COUNT = re.compile(r"/(gpu|vgpu|vgpu-number)$")


class Card(msgspec.Struct, frozen=True):
    memory: int
    is_healthy: bool


@once_per_evidence
def registered_cards(evidence: Evidence) -> dict[str, list[Card]]:
    """Node → cards that an extender's plugin has registered there."""
    found: dict[str, list[Card]] = {}
    for node in evidence.nodes.values():
        texts = [value for key, value in node.metadata.annotations.items() if REGISTER.search(key) and value]
        if texts:
            found[node.name] = [card for text in texts for card in _cards(text)]
    return found


def _cards(text: str) -> list[Card]:
    """Newer releases write JSON, older ones `id,count,memory,cores,type,numa,health:` for each card."""
    if text.lstrip().startswith("["):
        try:
            rows = msgspec.json.decode(text)
        except msgspec.DecodeError:
            return []
        return [Card(nested_int(row, "devmem"), nested_bool(row, "health")) for row in rows if isinstance(row, dict)]
    cards = [row.split(",") for row in text.split(":") if row.count(",") >= 2]
    return [Card(int(card[2]) if is_digits(card[2]) else 0, card[-1].strip() != "false") for card in cards]


def foreign_parts(evidence: Evidence, pod: Pod, said: str) -> Finding | None:
    """The pod asks for parts of cards, and its scheduler looks for them on nodes, where no plugin advertises them."""
    scheduler = pod.spec.scheduler_name or DEFAULT_SCHEDULER_NAME
    names = {
        name for container in pod.spec.containers for name in container.resources.limits if CARD_PARTS.search(name)
    }
    unknown = sorted(name for name in names if f"Insufficient {name}" in said)
    if not unknown:
        return None
    message = (
        f"{scheduler} looks for {', '.join(unknown)} on nodes, and only the scheduler that splits the cards counts that"
    )
    others = {nested_string(other.data, "spec", "schedulerName") for other in evidence.of_kind("Pod")}
    known = next((name for name in sorted(others) if "hami" in name or "volcano" in name), "")
    remedy = f"set schedulerName: {known}" if known else "set schedulerName to that scheduler"
    remedy += ", or let its webhook see the pod's namespace (labels that its namespaceSelector leaves out)"
    return Finding("WRONG_SCHEDULER", message, (f"its scheduler says: {said}",), ("RESOURCE_NAME_MISMATCH",), remedy)


def without_card_parts(pod: Pod) -> Pod:
    """The pod without the resources that only the extender counts."""
    containers = tuple(_without_parts(container) for container in pod.spec.containers)
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, containers=containers))


def _without_parts(container: Container) -> Container:
    def kept(amounts: dict[str, RawQuantity]) -> dict[str, RawQuantity]:
        return {name: amount for name, amount in amounts.items() if not CARD_PARTS.search(name)}

    resources = container.resources
    replaced = msgspec.structs.replace(resources, requests=kept(resources.requests), limits=kept(resources.limits))
    return msgspec.structs.replace(container, resources=replaced)


def too_large_finding(cards: dict[str, list[Card]], pod: Pod) -> Finding | None:
    """A container that asks for more virtual GPUs than a node has cards, or for more memory than a card has."""
    most = max(map(len, cards.values()), default=0)
    largest = max((card.memory for row in cards.values() for card in row), default=0)
    for container in pod.spec.containers:
        asked = {
            name: parse_amount(name, str(amount))
            for name, amount in container.resources.limits.items()
            if is_extended_resource(name)
        }
        for name, amount in asked.items():
            if CARD_COUNT.search(name) and amount > most:
                message = f"container {container.name} asks for {amount} {name}, each from another card"
                return Finding("REQUEST_EXCEEDS_CLUSTER", f"{message}, and no node has more than {most} card(s)")
            if CARD_MEMORY.search(name) and amount > largest > 0:
                message = f"container {container.name} asks for {amount} {name}, and the largest card has {largest}"
                return Finding("REQUEST_EXCEEDS_CLUSTER", message)
    healthy = [node for node, row in cards.items() if any(card.is_healthy for card in row)]
    if cards and most and not healthy:
        return Finding("DEVICE_UNHEALTHY", f"all cards of {', '.join(sorted(cards)[:3])} are registered as unhealthy")
    return None
