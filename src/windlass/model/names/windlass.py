"""Names that Windlass defines: part of its interface, like the fields of its objects."""

WINDLASS_PREFIX = "windlass.dev/"
WINDLASS_API_VERSION = "windlass.dev/v1"
OPERATOR_API_VERSION = "windlass.dev/v1alpha1"
"""Of the operator's kinds, which may still change."""

# Annotations that users write on pods and their owners
DECLARED_DURATION_ANNOTATION = "windlass.dev/duration"
"""The declared run time. A workload that runs longer is stopped, and not started again with the same."""
LAST_CHECKPOINT_ANNOTATION = "windlass.dev/last-checkpoint"
PLACEMENT_ANNOTATION = "windlass.dev/placement"
RESTART_COST_ANNOTATION = "windlass.dev/restart-cost"
"""Time lost by a restart: pulling, loading, warming up."""

# Annotations that administrators write on ClusterQueues
ALLOW_NOT_PREEMPTABLE_ANNOTATION = "windlass.dev/allow-not-preemptable"
"""`false`: that a workload is not preemptable counts for nothing in this queue."""
MAX_DURATION_ANNOTATION = "windlass.dev/max-duration"
"""The longest declared run time that counts; longer work is stopped then."""
MAX_JOB_GPUS_ANNOTATION = "windlass.dev/max-gpus-per-job"
MAX_RESTART_COST_ANNOTATION = "windlass.dev/max-restart-cost"
"""The highest declared restart cost that counts."""
MAX_USER_GPUS_ANNOTATION = "windlass.dev/max-gpus-per-user"
MAX_USER_RUNNING_ANNOTATION = "windlass.dev/max-running-jobs-per-user"
MAX_USER_SUBMITTED_ANNOTATION = "windlass.dev/max-submitted-jobs-per-user"
"""Running and waiting together; later ones are not considered."""

# Labels that users write on pods and their owners, for the bill
TEAM_LABEL = "windlass.dev/team"
"""To which team the GPUs of a pod count; without it, to its namespace."""
USER_LABEL = "windlass.dev/user"
"""Who has submitted it; also read as an annotation, since names may have characters that labels must not have."""

# Annotations that the scheduler writes on what it stops
STOPPED_AT_DURATION_ANNOTATION = "windlass.dev/stopped-at-duration"
"""The declared run time, in seconds, at whose end the workload was stopped."""

# Annotations that the scheduler writes on pods, and the node agent's answer
ALLOCATED_DEVICES_ANNOTATION = "windlass.dev/allocated-devices"
"""The GPUs that the kubelet really handed out; the scheduler trusts it more than its own choice."""
DEVICES_ANNOTATION = "windlass.dev/devices"
"""The GPUs that the scheduler chose for the pod."""

# Annotations and labels of nodes
BENCH_LABEL = "windlass.dev/bench"
BLOCK_LABEL = "windlass.dev/block"
CONTAINER_GPUS_ANNOTATION = "windlass.dev/container-gpus"
"""How containers get their GPUs on this node, as its agent found it: runtime, strategy, driver, hooks."""
DEVICES_LAYOUT_ANNOTATION = "windlass.dev/devices-layout"
RACK_LABEL = "windlass.dev/rack"
TOPOLOGY_MANAGER_ANNOTATION = "windlass.dev/topology-manager"
"""The policy of the kubelet's topology manager, as its agent found it in the kubelet's configuration."""
UNHEALTHY_DEVICES_ANNOTATION = "windlass.dev/unhealthy-devices"

# Names of the operator, on nodes
CHANGE_TAINT = "windlass.dev/change"
"""The node is being changed by the FleetChange of that name; nothing new may start there."""
DEVICE_FAULTS_ANNOTATION = "windlass.dev/device-faults"
"""What is wrong with each unhealthy GPU now, as JSON (`node.device_faults`); written by the node agent."""
DRIVER_REVISION_LABEL = "windlass.dev/driver-revision"
"""Chooses the DaemonSet whose driver this node runs."""
AGENT_REVISION_LABEL = "windlass.dev/agent-revision"
"""The version of the node agent that the operator has chosen for the node; without it, the installed one runs."""
HELD_DEVICES_ANNOTATION = "windlass.dev/held-devices"
"""GPUs, by index, that the operator has taken out of service; the node agent doesn't hand them out."""
NODE_ANSWER_ANNOTATION = "windlass.dev/node-answer"
NODE_REQUEST_ANNOTATION = "windlass.dev/node-request"
"""What the operator asks of a node's agent (reset, reboot, validate), and its answer, as JSON with the same id."""
NOT_READY_GPU_TAINT = "windlass.dev/gpu-not-ready"
"""From the node's registration until its GPUs are validated."""
TAKEN_OVER_ANNOTATION = "windlass.dev/taken-over"
"""The labels of NVIDIA's operator that ours has changed on the node, as they were, as JSON."""
TAKEN_OVER_VALUE = "windlass"
"""Of a label `nvidia.com/gpu.deploy.…`: NVIDIA's operator runs that part only where it is `true`; ours does it here."""
REPAIR_TAINT = "windlass.dev/repair"
"""The node is being drained or rebooted by the GPURepair of that name."""

# Annotations that only the simulated kubelet obeys
SIMULATED_DURATION_ANNOTATION = "sandbox.windlass.dev/duration"
SIMULATED_MIG_INSTANCES_ANNOTATION = "sandbox.windlass.dev/mig-instances"
"""`GPU:profile` of every MIG instance of a simulated node; Kubernetes only has their number."""
SIMULATED_UTILIZATION_ANNOTATION = "sandbox.windlass.dev/gpu-utilization"
