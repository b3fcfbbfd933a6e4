"""Random clusters and pods. Alphabets are tiny, so that selectors match, taints are tolerated and ports collide."""

from __future__ import annotations

from hypothesis import strategies as st

from reference.builders import HOST, ZONE, claim_volume, host_port, with_ports
from reference.cluster import Cluster
from windlass.model.meta import LabelSelector, LabelSelectorRequirement, ObjectMeta
from windlass.model.node import Node, NodeSpec, Taint
from windlass.model.pod import (
    Affinity,
    Container,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    PreferredSchedulingTerm,
    ResourceRequirements,
    Toleration,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from windlass.model.volume import (
    Namespace,
    ObjectReference,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeClaimStatus,
    PersistentVolumeSpec,
    PersistentVolumeStatus,
    StorageClass,
    TopologySelectorLabelRequirement,
    TopologySelectorTerm,
    VolumeNodeAffinity,
)

NAMESPACES = ("red", "blue", "unknown")
TOPOLOGY = (ZONE, HOST, "rack")
NODE_LABELS = (ZONE, HOST, "rack", "gpus")
VALUES = ("1", "2", "x")
CLAIMS = ("bound-a", "bound-b", "local", "local-too", "kept", "cloud", "picked", "alone")


def subsets(values, largest=2):
    return st.lists(st.sampled_from(values), min_size=1, max_size=largest, unique=True).map(tuple)


def labels(keys, values=VALUES):
    return st.dictionaries(st.sampled_from(keys), st.sampled_from(values), max_size=len(keys))


@st.composite
def tuples(draw, elements, largest=2):
    return tuple(draw(st.lists(elements, max_size=largest)))


# Nodes

effects = st.sampled_from(("NoSchedule", "NoExecute", "PreferNoSchedule"))
taints = st.builds(Taint, key=st.sampled_from(("a", "b")), value=st.sampled_from(("", "1", "5")), effect=effects)


@st.composite
def nodes(draw, index=0):
    found = draw(labels(NODE_LABELS))
    if draw(st.booleans()):
        found[HOST] = f"n{index}"
    spec = NodeSpec(taints=draw(tuples(taints)), unschedulable=draw(st.integers(0, 5)) == 0)
    return Node(metadata=ObjectMeta(name=f"n{index}", labels=found), spec=spec)


@st.composite
def node_requirements(draw):
    operator = draw(st.sampled_from(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")))
    if operator in ("In", "NotIn"):
        values = draw(subsets(VALUES))
    else:
        values = (draw(st.sampled_from(("-1", "1", "2"))),) if operator in ("Gt", "Lt") else ()
    return NodeSelectorRequirement(key=draw(st.sampled_from(NODE_LABELS)), operator=operator, values=values)


name_requirements = st.builds(
    NodeSelectorRequirement,
    key=st.just("metadata.name"),
    operator=st.sampled_from(("In", "NotIn")),
    values=subsets(("n0", "n1", "n9"), 1),
)
node_terms = st.builds(
    NodeSelectorTerm,
    match_expressions=tuples(node_requirements()),
    match_fields=st.one_of(st.just(()), st.just(()), tuples(name_requirements, 1)),
)
node_selectors = st.builds(NodeSelector, node_selector_terms=tuples(node_terms))
node_affinities = st.builds(
    NodeAffinity,
    required_during_scheduling_ignored_during_execution=st.none() | node_selectors,
    preferred_during_scheduling_ignored_during_execution=tuples(
        st.builds(PreferredSchedulingTerm, weight=st.integers(1, 100), preference=node_terms)
    ),
)

# Pods

tolerations = st.builds(
    Toleration,
    key=st.sampled_from(("", "a", "b", "node.kubernetes.io/unschedulable")),
    operator=st.sampled_from(("", "Equal", "Exists", "Exists", "Lt", "Gt")),
    value=st.sampled_from(("", "1", "3")),
    effect=st.sampled_from(("", "NoSchedule", "NoExecute", "PreferNoSchedule")),
)


@st.composite
def label_requirements(draw):
    operator = draw(st.sampled_from(("In", "NotIn", "Exists", "DoesNotExist")))
    values = draw(subsets(("1", "2"))) if operator in ("In", "NotIn") else ()
    return LabelSelectorRequirement(key=draw(st.sampled_from(("app", "job"))), operator=operator, values=values)


selectors = st.builds(
    LabelSelector,
    match_labels=labels(("app", "job"), ("1", "2")),
    match_expressions=st.one_of(st.just(()), tuples(label_requirements())),
)
pod_terms = st.builds(
    PodAffinityTerm,
    topology_key=st.sampled_from(TOPOLOGY),
    label_selector=st.one_of(st.none(), selectors, selectors, selectors),
    namespaces=st.one_of(st.just(()), st.just(()), subsets(NAMESPACES)),
    namespace_selector=st.one_of(
        st.none(),
        st.none(),
        st.builds(LabelSelector, match_labels=labels(("team",), ("1", "2"))),
        st.just(LabelSelector(match_labels={"kubernetes.io/metadata.name": "unknown"})),
    ),
    match_label_keys=st.one_of(st.just(()), st.just(("job",)), st.just(("absent",))),
    mismatch_label_keys=st.one_of(st.just(()), st.just(("app",))),
)
pod_rules = st.builds(
    PodAffinity,
    required_during_scheduling_ignored_during_execution=tuples(pod_terms),
    preferred_during_scheduling_ignored_during_execution=tuples(
        st.builds(WeightedPodAffinityTerm, weight=st.integers(1, 100), pod_affinity_term=pod_terms)
    ),
)
affinities = st.builds(
    Affinity,
    node_affinity=st.none() | node_affinities,
    pod_affinity=st.none() | pod_rules,
    pod_anti_affinity=st.none() | pod_rules,
)
spreads = st.builds(
    TopologySpreadConstraint,
    max_skew=st.integers(1, 2),
    topology_key=st.sampled_from(TOPOLOGY),
    when_unsatisfiable=st.sampled_from(("DoNotSchedule", "ScheduleAnyway")),
    label_selector=st.one_of(st.none(), selectors, selectors, selectors),
    min_domains=st.none() | st.integers(1, 3),
    node_affinity_policy=st.sampled_from(("Honor", "Ignore")),
    node_taints_policy=st.sampled_from(("Honor", "Ignore")),
    match_label_keys=st.sampled_from(((), ("job",), ("absent",))),
)
ports = st.builds(
    host_port,
    st.sampled_from((0, 80, 81)),
    ip=st.sampled_from(("", "10.0.0.1", "10.0.0.2")),
    protocol=st.sampled_from(("TCP", "UDP")),
)


@st.composite
def pods(draw, name="pod", with_claims=True):
    init = Container(ports=draw(tuples(ports, 1)), restart_policy=draw(st.sampled_from(("", "Always"))))
    spec = PodSpec(
        containers=with_ports(*draw(tuples(ports, 1))),
        init_containers=(init,),
        host_network=draw(st.booleans()),
        node_name=draw(st.sampled_from(("", "", "", "n0", "n9"))),
        node_selector=draw(st.one_of(st.just({}), labels(NODE_LABELS[:2]))),
        affinity=draw(st.none() | affinities),
        tolerations=draw(tuples(tolerations, 3)),
        topology_spread_constraints=draw(tuples(spreads)),
        volumes=tuple(claim_volume(c) for c in draw(st.just(()) | subsets(CLAIMS))) if with_claims else (),
    )
    meta = ObjectMeta(
        name=name,
        namespace=draw(st.sampled_from(NAMESPACES)),
        labels=draw(labels(("app", "job"), ("1", "2"))),
        deletion_timestamp=draw(st.sampled_from(("", "", "2025-01-01T00:00:00Z"))),
    )
    return Pod(metadata=meta, spec=spec)


# Volumes


@st.composite
def volumes(draw, name, *, storage_class="local", claim=None):
    zones = st.sampled_from(("1", "2", "1__2"))
    keys = (ZONE, "failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/region")
    return PersistentVolume(
        metadata=ObjectMeta(name=name, labels=draw(st.dictionaries(st.sampled_from(keys), zones, max_size=1))),
        spec=PersistentVolumeSpec(
            capacity={"storage": draw(st.sampled_from(("1Gi", "2Gi", "512Mi")))},
            access_modes=draw(st.sampled_from((("ReadWriteOnce",), ("ReadWriteOnce", "ReadOnlyMany")))),
            storage_class_name=storage_class,
            claim_ref=claim,
            node_affinity=draw(
                st.none() | st.builds(VolumeNodeAffinity, required=st.none() | node_selectors),
            ),
        ),
        status=PersistentVolumeStatus(phase=draw(st.sampled_from(("Available", "Available", "Released")))),
    )


@st.composite
def claims(draw, namespace, name, index):
    bound = name.startswith("bound")
    picked = {"volume.kubernetes.io/selected-node": draw(st.sampled_from(("n0", "n1")))}
    selects_nothing = LabelSelector(match_labels={ZONE: "1"})
    return PersistentVolumeClaim(
        metadata=ObjectMeta(name=name, namespace=namespace, annotations=picked if name == "picked" else {}),
        spec=PersistentVolumeClaimSpec(
            volume_name=f"v-{namespace}-{name}" if bound else "",
            storage_class_name="local" if name.startswith(("local", "kept")) else "cloud",
            access_modes=("ReadWriteOncePod",) if name == "alone" else ("ReadWriteOnce",),
            # Sizes differ, so that the order in which claims choose is well defined.
            resources=ResourceRequirements(requests={"storage": f"{512 * draw(st.integers(1, 3)) + index}Mi"}),
            selector=draw(st.sampled_from((None, None, selects_nothing))),
        ),
        status=PersistentVolumeClaimStatus(phase="Bound" if bound else "Pending"),
    )


@st.composite
def storage(draw):
    """All claims in every namespace, some volumes, and the two classes."""
    found_claims, found_volumes = {}, {}
    for namespace in NAMESPACES:
        for index, name in enumerate(CLAIMS):
            claim = found_claims[f"{namespace}/{name}"] = draw(claims(namespace, name, index))
            if claim.spec.volume_name:
                found_volumes[claim.spec.volume_name] = draw(volumes(claim.spec.volume_name))
    for index in range(draw(st.integers(0, 3))):
        found_volumes[f"free{index}"] = draw(volumes(f"free{index}"))
    if draw(st.booleans()):
        kept_for = ObjectReference(namespace="red", name="kept")
        found_volumes["kept"] = draw(volumes("kept", claim=kept_for))
    expressions = st.builds(
        TopologySelectorLabelRequirement, key=st.sampled_from((ZONE, "rack")), values=subsets(VALUES)
    )
    terms = st.builds(TopologySelectorTerm, match_label_expressions=tuples(expressions))
    classes = {
        "local": StorageClass(
            metadata=ObjectMeta(name="local"),
            provisioner="kubernetes.io/no-provisioner",
            volume_binding_mode="WaitForFirstConsumer",
        ),
        "cloud": StorageClass(
            metadata=ObjectMeta(name="cloud"),
            provisioner="disk.example.com",
            volume_binding_mode="WaitForFirstConsumer",
            allowed_topologies=draw(tuples(terms)),
        ),
    }
    return found_claims, found_volumes, classes


@st.composite
def clusters(draw, with_storage=False):
    """A cluster with placed pods, some of them terminating."""
    found = [draw(nodes(index)) for index in range(draw(st.integers(1, 5)))]
    rows = st.integers(0, len(found) - 1)
    cluster = Cluster(nodes=found)
    for index in range(draw(st.integers(0, 6))):
        cluster.placed.append((draw(pods(f"placed{index}", with_claims=with_storage)), draw(rows)))
    for name in NAMESPACES[:2]:
        meta = ObjectMeta(name=name, labels=draw(labels(("team",), ("1", "2"))))
        cluster.namespaces[name] = Namespace(metadata=meta)
    if with_storage:
        cluster.claims, cluster.volumes, cluster.storage_classes = draw(storage())
    return cluster


@st.composite
def crowds(draw):
    """A cluster full of equal pods, and one more with spread constraints, so that every count matters."""
    values = {ZONE: "abc", "rack": "pqrs"}
    found = []
    for index in range(draw(st.integers(2, 6))):
        labels_ = {key: draw(st.sampled_from(choice)) for key, choice in values.items()} | {HOST: f"n{index}"}
        labels_.pop(draw(st.sampled_from((*values, HOST, "", "", ""))), None)
        taint_ = (Taint(key="a", effect="NoSchedule"),) if draw(st.integers(0, 3)) == 0 else ()
        found.append(Node(metadata=ObjectMeta(name=f"n{index}", labels=labels_), spec=NodeSpec(taints=taint_)))
    one = Pod(metadata=ObjectMeta(name="one", namespace="red", labels={"app": "1"}))
    rows = draw(st.lists(st.integers(0, len(found) - 1), max_size=14))
    selected = st.builds(
        TopologySpreadConstraint,
        max_skew=st.integers(1, 4),
        topology_key=st.sampled_from(TOPOLOGY),
        when_unsatisfiable=st.sampled_from(("DoNotSchedule", "ScheduleAnyway", "ScheduleAnyway")),
        label_selector=st.just(LabelSelector(match_labels={"app": "1"})),
        min_domains=st.none() | st.integers(1, 4),
        node_taints_policy=st.sampled_from(("Honor", "Ignore")),
    )
    spec = PodSpec(topology_spread_constraints=draw(tuples(selected, 3)))
    return Cluster(nodes=found, placed=[(one, row) for row in rows]), Pod(metadata=one.metadata, spec=spec)
