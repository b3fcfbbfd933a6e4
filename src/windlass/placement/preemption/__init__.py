"""Preemption by priority, for pods and gangs outside of queues.

    refused ─► FreedResources (by node) ─► CandidateFinder (a node and victims for one pod) ─► gang: pod by pod

The victims are those of kube-scheduler: pods of strictly lower priority, in any namespace, except mirror pods and pods
of a DaemonSet; a pod with preemptionPolicy Never preempts nothing. Different from kube-scheduler: victims are chosen
together with the placement; a gang is evicted whole, its members above the minimum first; disruption budgets are
respected; of several candidates the one with the lowest priorities wins, then the one that loses least work. The README
lists the files.
"""
