"""Reasons that depend on placed pods, as a set of reason names."""

from __future__ import annotations

from reference.matching import has_untolerated_hard_taint, pod_accepts_node_labels, selector_matches


def inter_pod_reasons(pod, index, cluster):
    why = set()
    if _port_taken(pod, index, cluster):
        why.add("PORTS")
    if _exclusive_claim_in_use(pod, cluster):
        why.add("EXCLUSIVE_CLAIM")
    if not _affinity_holds(pod, index, cluster):
        why.add("POD_AFFINITY")
    if not _anti_affinity_holds(pod, index, cluster):
        why.add("POD_ANTI_AFFINITY")
    if _repelled_by_placed_pod(pod, index, cluster):
        why.add("EXISTING_ANTI_AFFINITY")
    why |= _spread(pod, index, cluster)
    return why


# Ports and claims


def _wanted_ports(pod):
    ports = []
    for container in pod.spec.init_containers:
        if container.restart_policy == "Always":
            ports += container.ports
    for container in pod.spec.containers:
        ports += container.ports
    found = []
    for port in ports:
        number = port.host_port
        if number == 0 and pod.spec.host_network:
            number = port.container_port
        if number:
            found.append((port.host_ip or "0.0.0.0", port.protocol, number))
    return found


def _port_taken(pod, index, cluster):
    for ip, protocol, number in _wanted_ports(pod):
        for other in cluster.pods_on(index):
            for other_ip, other_protocol, other_number in _wanted_ports(other):
                if (protocol, number) != (other_protocol, other_number):
                    continue
                if ip == other_ip or ip == "0.0.0.0" or other_ip == "0.0.0.0":
                    return True
    return False


def _claim_keys(pod):
    keys = []
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim:
            keys.append(f"{pod.metadata.namespace}/{volume.persistent_volume_claim.claim_name}")
    return keys


def _exclusive_claim_in_use(pod, cluster):
    for key in _claim_keys(pod):
        if "ReadWriteOncePod" in cluster.claims[key].spec.access_modes:
            for other, _ in cluster.placed:
                if key in _claim_keys(other):
                    return True
    return False


# Inter-pod affinity


def terms(pod, kind, strength):
    """The pod's terms: kind is pod_affinity or pod_anti_affinity, strength required or preferred."""
    rules = getattr(pod.spec.affinity, kind) if pod.spec.affinity else None
    if rules is None:
        return ()
    return getattr(rules, f"{strength}_during_scheduling_ignored_during_execution")


def term_matches(term, owner, pod, cluster):
    """Whether the term of `owner` selects `pod`."""
    namespace = pod.metadata.namespace
    if not term.namespaces and term.namespace_selector is None:
        in_namespace = namespace == owner.metadata.namespace
    else:
        in_namespace = namespace in term.namespaces or selector_matches(
            term.namespace_selector, cluster.labels_of_namespace(namespace)
        )
    if not in_namespace or not selector_matches(term.label_selector, pod.metadata.labels):
        return False
    own_labels, labels = owner.metadata.labels, pod.metadata.labels
    for key in term.match_label_keys:
        if key in own_labels and labels.get(key) != own_labels[key]:
            return False
    return not any(key in own_labels and labels.get(key) == own_labels[key] for key in term.mismatch_label_keys)


def same_domain(key, a, b, cluster):
    labels_a, labels_b = cluster.nodes[a].metadata.labels, cluster.nodes[b].metadata.labels
    return key in labels_a and key in labels_b and labels_a[key] == labels_b[key]


def _affinity_holds(pod, index, cluster):
    wanted = terms(pod, "pod_affinity", "required")
    if not wanted:
        return True
    labels = cluster.nodes[index].metadata.labels
    if any(term.topology_key not in labels for term in wanted):
        return False
    matching_nodes = [
        where for other, where in cluster.placed if all(term_matches(t, pod, other, cluster) for t in wanted)
    ]
    if all(any(same_domain(t.topology_key, index, where, cluster) for where in matching_nodes) for t in wanted):
        return True
    anywhere = any(t.topology_key in cluster.nodes[where].metadata.labels for t in wanted for where in matching_nodes)
    return not anywhere and all(term_matches(t, pod, pod, cluster) for t in wanted)


def _anti_affinity_holds(pod, index, cluster):
    for term in terms(pod, "pod_anti_affinity", "required"):
        for other, where in cluster.placed:
            if term_matches(term, pod, other, cluster) and same_domain(term.topology_key, index, where, cluster):
                return False
    return True


def _repelled_by_placed_pod(pod, index, cluster):
    for other, where in cluster.placed:
        for term in terms(other, "pod_anti_affinity", "required"):
            if term_matches(term, other, pod, cluster) and same_domain(term.topology_key, index, where, cluster):
                return True
    return False


# Topology spread


def constraints(pod, when):
    return [c for c in pod.spec.topology_spread_constraints if c.when_unsatisfiable == when]


def spread_selects(constraint, owner, pod):
    if pod.metadata.namespace != owner.metadata.namespace:
        return False
    if not selector_matches(constraint.label_selector, pod.metadata.labels):
        return False
    for key in constraint.match_label_keys:
        own_labels = owner.metadata.labels
        if key in own_labels and pod.metadata.labels.get(key) != own_labels[key]:
            return False
    return True


def is_empty_selector(constraint, owner):
    """kube-scheduler counts no pods for an empty selector, though the pod itself still matches it."""
    selector = constraint.label_selector
    if selector is None or selector.match_labels or selector.match_expressions:
        return False
    return not any(key in owner.metadata.labels for key in constraint.match_label_keys)


def count_on(constraint, owner, index, cluster):
    if is_empty_selector(constraint, owner):
        return 0
    return sum(
        1
        for other in cluster.pods_on(index)
        if not other.metadata.deletion_timestamp and spread_selects(constraint, owner, other)
    )


def is_counted(constraint, all_constraints, pod, node):
    """Whether the node is counted for the constraint."""
    if any(c.topology_key not in node.metadata.labels for c in all_constraints):
        return False
    if constraint.node_affinity_policy == "Honor" and not pod_accepts_node_labels(pod, node):
        return False
    return not (constraint.node_taints_policy == "Honor" and has_untolerated_hard_taint(pod, node))


def _spread(pod, index, cluster):
    hard = constraints(pod, "DoNotSchedule")
    labels = cluster.nodes[index].metadata.labels
    for constraint in hard:
        if constraint.topology_key not in labels:
            return {"SPREAD_MISSING_LABEL"}
        domains = {}
        for other, node in enumerate(cluster.nodes):
            if is_counted(constraint, hard, pod, node):
                value = node.metadata.labels[constraint.topology_key]
                domains[value] = domains.get(value, 0) + count_on(constraint, pod, other, cluster)
        fewest = min(domains.values(), default=0)
        if len(domains) < (constraint.min_domains or 1):
            fewest = 0
        here = domains.get(labels[constraint.topology_key], 0)
        itself = 1 if spread_selects(constraint, pod, pod) else 0
        if here + itself - fewest > constraint.max_skew:
            return {"SPREAD"}
    return set()
