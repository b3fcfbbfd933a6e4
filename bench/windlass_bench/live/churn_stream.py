"""A stream of pods that come and go on a nearly full cluster, drawn from a seed; and FGD's replay of it.

`live.churn` plays the stream on a real API server. The replay is the engine with the policy `fgd` on the production
store: a decision twice a second of the stream's time, nothing takes time, and a pod that finds no room waits until it
leaves, as in the cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import msgspec

from windlass.cluster.delta import Assume, Deleted, Put
from windlass.cluster.store import Store
from windlass.engine import EngineCache, decide_without_explanations
from windlass.model.codec import decode_object
from windlass.model.configuration import Settings
from windlass.model.names.kueue import KUEUE_POD_GROUP_NAME, POD_GROUP_TOTAL_COUNT_ANNOTATION
from windlass.model.unstructured import Unstructured
from windlass.planner import engine_config
from windlass_bench.live.objects import GPUS, NAMESPACE, SHAPES, node, pod

GPUS_A_NODE = 8
DEMAND = 0.97
"""Share of the cluster's GPUs that the pods ask for, in the mean."""
GANG_SIZE, GANG_EVERY = 4, 40
"""Of every forty pods four are a gang."""
STEP_SECONDS = 0.5
EPOCH = 1_767_229_200


class StreamedPod(msgspec.Struct, frozen=True):
    number: int
    arrives: float
    """Seconds from the start; negative: it is there before."""
    leaves: float

    @property
    def name(self) -> str:
        return f"p-{self.number:06}"

    @property
    def gpus(self) -> int:
        return GPUS[self.number % SHAPES % len(GPUS)]

    def tree(self, scheduler: str) -> Unstructured:
        """Members of a gang have the same shape as other pods of their number, and the gang's labels."""
        made = pod(self.number, scheduler)
        if self.number % GANG_EVERY < GANG_SIZE:
            made["metadata"]["labels"][KUEUE_POD_GROUP_NAME] = f"gang-{self.number // GANG_EVERY}"
            made["metadata"]["annotations"] = {POD_GROUP_TOTAL_COUNT_ANNOTATION: str(GANG_SIZE)}
        return made


def draw_stream(nodes: int, rate: float, seconds: float, seed: int) -> list[StreamedPod]:
    """Pods that are there at the start, then `rate` a second. Members of a gang come and go together."""
    random = Random(seed)
    mean_gpus = sum(GPUS) / len(GPUS)
    present = int(DEMAND * GPUS_A_NODE * nodes / mean_gpus)
    life = present / rate
    pods: list[StreamedPod] = []
    for number in range(present + int(rate * seconds)):
        arrives = -1.0 if number < present else (number - present) / rate
        stays = random.uniform(0, life) if number < present else random.uniform(0.5, 1.5) * life
        leaves = arrives + stays
        if 0 < number % GANG_EVERY < GANG_SIZE:
            arrives, leaves = pods[-1].arrives, pods[-1].leaves
        pods.append(StreamedPod(number, arrives, leaves))
    return pods


def replay_fgd(stream: Sequence[StreamedPod], nodes: int, seconds: float) -> list[int]:
    """GPUs allocated after every step of the stream's time."""
    store, cache = Store(), EngineCache()
    store.apply([Put(decode_object(node(number))) for number in range(nodes)])
    config = msgspec.structs.replace(engine_config(Settings(placement="fgd")), max_explained_holds=None)
    by_key = {f"{NAMESPACE}/{each.name}": each for each in stream}
    arrivals = sorted(stream, key=lambda each: each.arrives, reverse=True)
    departures = sorted(stream, key=lambda each: each.leaves, reverse=True)
    placed: set[str] = set()
    allocated = []
    for step in range(int(seconds / STEP_SECONDS)):
        now = step * STEP_SECONDS
        while arrivals and arrivals[-1].arrives <= now:
            store.apply([Put(_object(arrivals.pop()))])
        while departures and departures[-1].leaves <= now:
            key = f"{NAMESPACE}/{departures.pop().name}"
            placed.discard(key)
            store.apply([Deleted("Pod", key)])
        plan, _ = decide_without_explanations(store.snapshot(EPOCH + int(now)), config, EPOCH + int(now), cache)
        store.apply([Assume(bind.pod, bind.node, bind.devices) for bind in plan.binds])
        placed.update(bind.pod for bind in plan.binds)
        allocated.append(sum(by_key[key].gpus for key in placed))
    return allocated


def _object(streamed: StreamedPod) -> object:
    return decode_object(streamed.tree("windlass"))
