"""The closed list of reasons: why a step, a change or a repair is where it is, and what ends it.

`decide` uses these alone, the CRDs allow no others, and the reference is written from them. `remedy` says who must do
what; `after` is the state that follows when the deadline passes.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Reason(StrEnum):
    """CamelCase, as reasons of conditions are."""

    AgentSilent = "AgentSilent"
    Aborted = "Aborted"
    AskingForRoom = "AskingForRoom"
    AwaitingPerson = "AwaitingPerson"
    AwaitingTicket = "AwaitingTicket"
    AwaitsGpuOperator = "AwaitsGpuOperator"
    AwaitsStep = "AwaitsStep"
    Baking = "Baking"
    BreakerOpen = "BreakerOpen"
    BudgetFull = "BudgetFull"
    CanaryWork = "CanaryWork"
    ChangeRunning = "ChangeRunning"
    Changing = "Changing"
    CloudManaged = "CloudManaged"
    Contained = "Contained"
    Done = "Done"
    DrainBlocked = "DrainBlocked"
    Draining = "Draining"
    DriverCompiling = "DriverCompiling"
    DriverFailed = "DriverFailed"
    DriverInUse = "DriverInUse"
    DriverMissing = "DriverMissing"
    DriverVersionMismatch = "DriverVersionMismatch"
    ExporterMissing = "ExporterMissing"
    FaultGone = "FaultGone"
    Frozen = "Frozen"
    GateFailing = "GateFailing"
    GateInconclusive = "GateInconclusive"
    GateNoData = "GateNoData"
    HandlerMissing = "HandlerMissing"
    ImagePullFailed = "ImagePullFailed"
    ImagePulling = "ImagePulling"
    InvalidSpec = "InvalidSpec"
    KernelHeadersMissing = "KernelHeadersMissing"
    LabelsMissing = "LabelsMissing"
    MigBlocked = "MigBlocked"
    MigPending = "MigPending"
    ModuleRejected = "ModuleRejected"
    NoRoom = "NoRoom"
    NodeNotReady = "NodeNotReady"
    NodeReplaced = "NodeReplaced"
    NodesFailed = "NodesFailed"
    NothingAdvertised = "NothingAdvertised"
    NotValidated = "NotValidated"
    NouveauLoaded = "NouveauLoaded"
    OtherOwner = "OtherOwner"
    OutsideWindow = "OutsideWindow"
    Paused = "Paused"
    PluginNotRegistered = "PluginNotRegistered"
    Rebooting = "Rebooting"
    RepairsOff = "RepairsOff"
    RequestedByPerson = "RequestedByPerson"
    Resetting = "Resetting"
    Returned = "Returned"
    RollingOut = "RollingOut"
    RuntimeUnsupported = "RuntimeUnsupported"
    StackConflict = "StackConflict"
    StackMissing = "StackMissing"
    Suspected = "Suspected"
    TakingOver = "TakingOver"
    UnderChange = "UnderChange"
    Validating = "Validating"
    WaitingForCompletion = "WaitingForCompletion"
    WorkloadMissing = "WorkloadMissing"
    WrongHardware = "WrongHardware"


class ReasonInfo(msgspec.Struct, frozen=True):
    meaning: str
    remedy: str
    after: str = ""
    """What follows when the deadline passes; empty where there is none, since nothing is waited for."""
    is_under_way: bool = False
    """It goes on by itself; the remedy is for when it does not."""

    @property
    def only_needs_time(self) -> bool:
        """Nobody has to do anything for it to go on."""
        return self.is_under_way or self.remedy.startswith(("wait", "nothing"))


_RETRY = "Failed, and tried again with growing pauses"
_BACK = "the node goes back to what it ran before"
REASONS: dict[Reason, ReasonInfo] = {
    Reason.AgentSilent: ReasonInfo("the node's agent does not answer", "look at the windlass-node pod", "next rung"),
    Reason.Aborted: ReasonInfo("a person stopped the change where it was", "roll it back, or start another"),
    Reason.AskingForRoom: ReasonInfo(
        "it is looked up where the work of a node would go", "wait, or set drain.room to Ignore", "asked again"
    ),
    Reason.AwaitingPerson: ReasonInfo("a person holds it", "windlass repair retry, or change promote"),
    Reason.AwaitingTicket: ReasonInfo("the GPU needs hands", "repair it, then: windlass repair return"),
    Reason.AwaitsGpuOperator: ReasonInfo(
        "NVIDIA's operator has not done its part yet", "see its log and the NVIDIADriver's status", _RETRY
    ),
    Reason.AwaitsStep: ReasonInfo("an earlier step is not done", "see that step", "Failed with the earlier step"),
    Reason.Baking: ReasonInfo("the wave is watched", "wait, or: windlass change promote", "the gates are judged"),
    Reason.BreakerOpen: ReasonInfo("too many nodes are ill at once", "look for a common cause", "asked again"),
    Reason.BudgetFull: ReasonInfo("maxUnavailable nodes are out of service", "wait, or raise it", "asked again"),
    Reason.CanaryWork: ReasonInfo(
        "the Job of the canary runs on the node", "see its pod's log", _BACK, is_under_way=True
    ),
    Reason.ChangeRunning: ReasonInfo("another change of the stack is unfinished", "windlass change retry, later"),
    Reason.Changing: ReasonInfo("the node loads what it shall run", "wait", _BACK),
    Reason.CloudManaged: ReasonInfo("the cloud does this step", "nothing"),
    Reason.Contained: ReasonInfo("the device is out of service", "wait", "it is drained"),
    Reason.Done: ReasonInfo("done", "nothing"),
    Reason.DrainBlocked: ReasonInfo("pods can't be evicted", "see the named budget", "the node is given back"),
    Reason.Draining: ReasonInfo("pods are being evicted", "wait", "the node is given back"),
    Reason.DriverCompiling: ReasonInfo("the driver container is loading the driver", "wait", _RETRY),
    Reason.DriverFailed: ReasonInfo("the driver container ended", "see its log", _RETRY),
    Reason.DriverInUse: ReasonInfo("processes keep the old driver loaded", "end them", _RETRY),
    Reason.DriverMissing: ReasonInfo("no driver was found", "install one, or set driver.source", _RETRY),
    Reason.DriverVersionMismatch: ReasonInfo("another driver version is loaded", "see its log", _RETRY),
    Reason.ExporterMissing: ReasonInfo("nothing exports GPU metrics", "windlass install node"),
    Reason.FaultGone: ReasonInfo("the fault ended by itself", "nothing"),
    Reason.Frozen: ReasonInfo("a freeze is in force", "wait for its end", "asked again"),
    Reason.GateFailing: ReasonInfo("a gate failed", "see the values", "rolled back, or held"),
    Reason.GateInconclusive: ReasonInfo("too little data to tell", "more nodes or a longer bake", "rolled back"),
    Reason.GateNoData: ReasonInfo("a gate has no data", "see the query and the exporter", "rolled back"),
    Reason.HandlerMissing: ReasonInfo("the container runtime lacks the handler", "windlass node runtime there", _RETRY),
    Reason.ImagePullFailed: ReasonInfo("the image can't be pulled", "see name, tag and pull secret", _RETRY),
    Reason.ImagePulling: ReasonInfo("the image is being pulled", "wait", _RETRY),
    Reason.InvalidSpec: ReasonInfo("the spec can't be understood", "mend the named field"),
    Reason.KernelHeadersMissing: ReasonInfo("no kernel headers for this kernel", "install them", _RETRY),
    Reason.LabelsMissing: ReasonInfo("GPU labels are missing", "windlass install node", _RETRY),
    Reason.MigBlocked: ReasonInfo("the MIG layout can't be applied", "see the node's MIG annotation", _RETRY),
    Reason.MigPending: ReasonInfo("the MIG layout is being applied", "wait", _RETRY),
    Reason.ModuleRejected: ReasonInfo("the kernel refuses the module", "sign it, or enrol the key", _RETRY),
    Reason.NoRoom: ReasonInfo(
        "the work of no node would start elsewhere", "wait, or set drain.room to Prefer", "asked again"
    ),
    Reason.NodeNotReady: ReasonInfo("the kubelet is not ready", "see the node's conditions", _RETRY),
    Reason.NodeReplaced: ReasonInfo("the node was replaced by another of its name", "nothing"),
    Reason.NodesFailed: ReasonInfo("more nodes failed than maxFailed", "see the nodes", "rolled back, or held"),
    Reason.NothingAdvertised: ReasonInfo("the plugin advertises no GPU", "see the agent's log", _RETRY),
    Reason.NotValidated: ReasonInfo("no GPU is validated", "see the agent's log", _RETRY),
    Reason.NouveauLoaded: ReasonInfo("the nouveau driver holds the GPUs", "blacklist it on the host", _RETRY),
    Reason.OtherOwner: ReasonInfo("another product does this step", "nothing"),
    Reason.OutsideWindow: ReasonInfo("no window is open", "wait for the next one", "asked again"),
    Reason.Paused: ReasonInfo("a person paused it", "windlass change resume", "asked again"),
    Reason.PluginNotRegistered: ReasonInfo("no device plugin is registered", "windlass install node", _RETRY),
    Reason.Rebooting: ReasonInfo("the node is rebooting", "wait", "Ticket"),
    Reason.RepairsOff: ReasonInfo("repair.policy says so", "windlass repair retry, or set the policy"),
    Reason.RequestedByPerson: ReasonInfo("a person took it out", "windlass repair return"),
    Reason.Resetting: ReasonInfo("the GPU is being reset", "wait", "the node is rebooted"),
    Reason.Returned: ReasonInfo("it is back in service", "nothing"),
    Reason.RollingOut: ReasonInfo(
        "pods get the new image", "see the pods of the StatefulSet", "rolled back, or held", is_under_way=True
    ),
    Reason.RuntimeUnsupported: ReasonInfo("the container runtime has no CDI", "see the guide", _RETRY),
    Reason.StackConflict: ReasonInfo("two stacks select the node", "narrow one of them"),
    Reason.StackMissing: ReasonInfo("there is no such stack", "create it, or mend spec.stack"),
    Reason.Suspected: ReasonInfo("a fault was seen", "wait", "the device is contained"),
    Reason.TakingOver: ReasonInfo("parts pass between NVIDIA's operator and the agent", "wait", _RETRY),
    Reason.UnderChange: ReasonInfo("the node is being changed", "wait", "asked again"),
    Reason.Validating: ReasonInfo("the validator runs", "wait", "next rung"),
    Reason.WaitingForCompletion: ReasonInfo("pods may end by themselves", "wait", "they are evicted"),
    Reason.WorkloadMissing: ReasonInfo("the StatefulSet is gone", "start another change, once it is there"),
    Reason.WrongHardware: ReasonInfo("the GPUs are not those of the stack", "mend the node, or the stack", _RETRY),
}
