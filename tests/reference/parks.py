"""Random clusters, and pods that request what they have. Small, so that resources run out."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from reference.park import A100, GPU, H100, T4, UNHEALTHY, bound, gpu_node, layout_node, mig_node, node, pod
from reference.strategies import nodes as labelled_nodes
from reference.strategies import pods as choosy_pods

MODELS = (H100, A100, T4)
sizes = {"cpu": st.sampled_from((2, 4, 8)), "memory": st.sampled_from(("8Gi", "16Gi"))}


@st.composite
def machines(draw, name):
    """One node: without GPUs, with equal ones, ill ones, time-sliced, mixed, or cut by MIG on demand or for good."""
    options = {key: draw(values) for key, values in sizes.items()}
    gpus = st.integers(1, 4)
    match draw(st.sampled_from(("cpu", "gpu", "gpu", "ill", "sliced", "mixed", "mig", "cut", "nic"))):
        case "cpu":
            return node(name, **options)
        case "gpu":
            return gpu_node(name, draw(gpus), model=draw(st.sampled_from(MODELS)), **options)
        case "ill":
            count = draw(gpus)
            ill = draw(st.integers(0, count))
            named = ",".join(map(str, draw(st.sets(st.integers(0, count - 1), max_size=ill))))
            return gpu_node(name, count, ill=ill, annotations={UNHEALTHY: named}, **options)
        case "sliced":
            return gpu_node(name, draw(st.integers(1, 2)), replicas=draw(st.sampled_from((2, 3, 20))), **options)
        case "mixed":
            return layout_node(name, *draw(st.lists(device_groups, min_size=2, max_size=3)), **options)
        case "mig":
            return mig_node(name, draw(st.integers(1, 2)), model=draw(st.sampled_from((H100, A100))), **options)
        case "cut":
            parts = {"nvidia.com/gpu.count": "2", "nvidia.com/mig.strategy": "mixed"}
            return gpu_node(name, 1, labels=parts, **options, **{CUT: 3})
    shared = {"nvidia.com/gpu.count": "2"}
    return node(name, labels=shared, **options, **{"example.com/nic": 2, "nvidia.com/gpu.shared": 4})


CUT = "nvidia.com/mig-1g.10gb"
device_groups = st.fixed_dictionaries(
    {
        "model": st.sampled_from(MODELS),
        "count": st.integers(1, 3),
        "island": st.integers(0, 1),
        "mig": st.sampled_from(("", "", "", "dynamic", "static")),
    }
)


@st.composite
def parks(draw, least=1, most=4, choosy=True):
    """Nodes n0, n1, …; some with labels, taints or a cordon of their own."""
    found = []
    for index in range(draw(st.integers(least, most))):
        made = draw(machines(f"n{index}"))
        if choosy and draw(st.booleans()):
            style = draw(labelled_nodes(index))
            meta = msgspec.structs.replace(made.metadata, labels={**style.metadata.labels, **made.metadata.labels})
            made = msgspec.structs.replace(made, metadata=meta, spec=style.spec)
        found.append(made)
    return found


@st.composite
def gpu_requests(draw):
    """Arguments of `park.pod`: its requests."""
    share = st.sampled_from(("0.1", "0.3", "0.5", "0.81"))
    match draw(st.sampled_from(("cpu", "whole", "whole", "share", "shares", "memory", "mig", "sliced", "other"))):
        case "whole":
            return {"gpus": draw(st.integers(1, 8) | st.integers(1, 2))}
        case "share":
            return {"share": draw(share)} | draw(model_requests)
        case "shares":
            return {"share": draw(share), "devices": draw(st.integers(2, 3))} | draw(model_requests)
        case "memory":
            return {"memory_mib": draw(st.sampled_from((2000, 20000, 60000, 90000)))}
        case "mig":
            profile = draw(st.sampled_from(("1g.10gb", "2g.20gb", "3g.40gb", "7g.80gb", "1g.5gb")))
            return {"mig": (profile, draw(st.sampled_from((1, 1, 2, 3, 9))))}
        case "sliced":
            return {"gpus": draw(st.sampled_from((1, 2, 16, 18)))}
        case "other":
            return {"asks": {draw(st.sampled_from(("example.com/nic", "nvidia.com/gpu.shared"))): "1"}}
    return {}


model_requests = st.one_of(
    st.just({}),
    st.lists(st.sampled_from((*MODELS, "none")), min_size=1, max_size=2, unique=True).map(
        lambda found: {"models": found}
    ),
)
cpus = st.sampled_from(("100m", "500m", "1", "2", "3"))


@st.composite
def plain_pods(draw, name, **options):
    """A pod that only node-local state decides on."""
    return pod(name, cpu=draw(cpus), **draw(gpu_requests()), **options)


@st.composite
def any_pods(draw, name, **options):
    """Plain pods, and some with rules about labels, taints, other pods, ports and preferences."""
    made = draw(plain_pods(name, **options))
    if draw(st.integers(0, 2)):
        return made
    choosy = draw(choosy_pods(name, with_claims=False))
    ports = choosy.spec.containers[0].ports
    spec = msgspec.structs.replace(
        choosy.spec,
        node_name="",
        priority=made.spec.priority,
        containers=(msgspec.structs.replace(made.spec.containers[0], ports=ports),),
    )
    meta = msgspec.structs.replace(
        made.metadata,
        namespace=choosy.metadata.namespace,
        labels={**made.metadata.labels, **choosy.metadata.labels},
    )
    return msgspec.structs.replace(made, metadata=meta, spec=spec)


@st.composite
def queues(draw, most=8, kinds=any_pods):
    """Pods in the order in which they come, some of them in gangs of equal members."""
    found = []
    for index in range(draw(st.integers(1, most))):
        priority = draw(st.sampled_from((0, 0, 0, 5)))
        if draw(st.integers(0, 4)):
            found.append(draw(kinds(f"p{index}", priority=priority)))
            continue
        total = draw(st.integers(2, 3))
        request = draw(st.sampled_from(({}, {"gpus": 1}, {"gpus": 2}, {"share": "0.5"}, {"memory_mib": 20000})))
        there = draw(st.sampled_from((total, total, total - 1)))
        cpu = draw(cpus)
        for member in range(there):
            group = (f"g{index}", total)
            found.append(pod(f"p{index}-{member}", cpu=cpu, priority=priority, group=group, **request))
    return found


@st.composite
def running(draw, nodes, most=4):
    """Pods bound outside of Windlass to any node: they may take more than there is."""
    names = st.sampled_from([node.metadata.name for node in nodes])
    count = draw(st.integers(0, most))
    return [bound(draw(any_pods(f"r{index}")), draw(names)) for index in range(count)]


def in_order(pods):
    """Units in the order of the engine: by priority, gangs before single pods, by name."""
    units = {}
    for member in sorted(pods, key=lambda pod: pod.key):
        group = member.metadata.labels.get("kueue.x-k8s.io/pod-group-name")
        key = f"{member.metadata.namespace}/{group}" if group else member.key
        units.setdefault((group is None, key), []).append(member)
    ranked = sorted(units.items(), key=lambda item: (-item[1][0].spec.priority, item[0]))
    return [unit for _, unit in ranked]


__all__ = ["GPU", "any_pods", "in_order", "machines", "parks", "plain_pods", "queues", "running"]
