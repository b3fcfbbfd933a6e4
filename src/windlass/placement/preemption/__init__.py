"""Preemption by priority, for pods and gangs outside of queues.

    refused ─► FreedResources (by node) ─► CandidateFinder (a node and victims for one pod) ─► gang: pod by pod

The victims are those of kube-scheduler: pods of strictly lower priority, in any namespace, except mirror pods and pods
of a DaemonSet; a pod with preemptionPolicy Never preempts nothing. Different from kube-scheduler: victims are chosen
together with the placement; a gang is evicted whole, its members above the minimum first; disruption budgets are
respected; of several candidates the one with the lowest priorities wins, then the one that loses least work.

| file | what is in it |
| --- | --- |
| `victim_units.py` | what is evicted as one unit, and what that loses |
| `freed_resources.py` | what each unit frees on each node, and which nodes could suffice |
| `victim_selection.py` | the cheapest units of one node that free enough |
| `candidates.py` | a node with victims for one pod, checked on the overlay |
| `single_pods.py` | a queue of single pods, of which the refused ones may preempt |
| `gang.py` | victims for a gang, within the domains that it may use |
| `context.py` | the state of one decision: which units may be evicted, which are evicted already, for which preemptor |
"""
