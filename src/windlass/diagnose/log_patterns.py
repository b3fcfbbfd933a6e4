"""Patterns of log lines, events and status messages, and the cause that each shows.

Called by `refusal`, `pod_startup`, `gpu_stack` and `doctor`. A pattern names the sources where it holds, since the same
text means different things in a container's log and in the device plugin's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from windlass.diagnose.evidence import LogLines
from windlass.diagnose.finding import Finding

API = "api"
"""Refusals of the API server: events and statuses of owners."""
KUBELET = "kubelet"
"""Events and statuses of a pod that has a node."""
CONTAINER = "container"
"""The program's own log."""
STACK = "stack"
"""Logs of drivers, plugins and operators."""
HOST = "host"
"""The kernel's and the host services' logs."""


LONG_LINE = 200
"""Longer lines are cut where they are quoted."""
SHORT_START = 40
"""How much of the beginning of a long line is quoted, where the words that matter come late in it."""


class LogPattern(msgspec.Struct, frozen=True):
    code: str
    pattern: re.Pattern[str]
    sources: frozenset[str]
    remedy: str = ""
    """If empty, that of the code."""
    explains: tuple[str, ...] = ()
    """Codes that such a line explains, beside those of `explanations`."""


class PatternMatch(msgspec.Struct, frozen=True):
    code: str
    origin: str
    line: str
    remedy: str = ""
    words: str = ""
    """The part of the line that the pattern is about."""
    explains: tuple[str, ...] = ()


def _pattern(code: str, pattern: str, *seen_in: str, remedy: str = "", explains: tuple[str, ...] = ()) -> LogPattern:
    return LogPattern(code, re.compile(pattern, re.IGNORECASE), frozenset(seen_in), remedy, explains)


FATAL_XIDS = "46|48|54|56|57|58|61|62|63|64|65|66|69|73|74|79|80|81|92|94|95|96|97|109|110|119|120|136|140|143|149"
"""Xid codes of hardware or driver faults; 13, 31, 43, 45 and 68 are faults of the program."""

DEVICE_FILES = r"/dev/(nvidia|kfd|dri/|accel|davinci|infiniband|neuron|vfio|hl)"
"""Device files of accelerators and of their network."""

LOG_PATTERNS = (
    # Hardware faults first: the first pattern that matches a line wins
    _pattern(
        "GPU_HW_FAULT",
        rf"xid\s*(\(|error|=|:)[^\n]{{0,40}}?\b({FATAL_XIDS})\b|fallen off the bus|gpu is lost|"
        r"unable to determine the device handle|uncorrectable ecc|double.bit ecc|row.?remap\w* fail|"
        r"gpu (requires|needs) reset|detected critical xid|rm_?init_?adapter failed"
        r"|AER: .{0,20}Uncorrect\w* \(Fatal\)|NVRM: No NVIDIA GPU found"
        r"|CUDA_ERROR_(ECC|NVLINK)_UNCORRECTABLE|cudaError(ECC|Nvlink)Uncorrectable|uncorrectable nvlink error",
        KUBELET,
        CONTAINER,
        STACK,
        HOST,
    ),
    # Refused by the API server
    _pattern("FRACTIONAL_GPU_REQUEST", r"must be an integer", API),
    _pattern("REQUESTS_NE_LIMITS", r"must be equal to \S+ limit of", API),
    _pattern("REQUESTS_NE_LIMITS", r"limit must be set for non overcommitable resources", API),
    _pattern(
        "KUEUE_QUOTA_INSUFFICIENT",
        r"\bqueue\b.{0,60}(quota|capability|deserved|limit|resources?)\b.{0,40}"
        r"(insufficient|exceed|not enough|overused)"
        r"|(insufficient|exceed\w*|not enough|over).{0,60}\bqueue(.s)?\b.{0,20}(quota|capability|deserved|limit)",
        API,
    ),
    _pattern(
        "KUEUE_QUEUE_MISSING",
        r"\b(local|cluster)?queues?(\.[\w.-]+)? \S{0,80} ?(not found|does not exist|doesn.t exist|is (closed|stopped))"
        r"|(can ?not|unable to|failed to) (find|get) .{0,20}\bqueue\b",
        API,
    ),
    _pattern(
        "RESOURCE_QUOTA_EXCEEDED",
        r"(exceeded|failed) quota: |insufficient quota to match|status unknown for quota",
        API,
    ),
    _pattern(
        "DRA_CLAIM_INVALID",
        r"must specify one of: .?resourceClaimName|unknown field .{0,40}resourceClaims"
        r"|resource ?claim ?(template)?s?(\.resource\.k8s\.io)? \S+ (not found|does not exist)",
        API,
    ),
    _pattern("DRA_CLAIM_INVALID", r"CEL (compile|compilation|runtime) error|selector #\d+: .{0,40}error", API),
    _pattern("DRA_CLAIM_INVALID", r"spec\.resourceClaims\[\d+\].{0,80}(invalid|required|unknown)", API),
    _pattern(
        "DRA_CLASS_MISSING",
        r"(device|resource) ?class(es)?(\.resource\.k8s\.io)? \S+ (does not exist|not found)",
        API,
        KUBELET,
    ),
    _pattern(
        "DRA_CLAIM_INVALID",
        r"resourceclaim\b.{0,160}could not find the requested resource",
        KUBELET,
        remedy="the kubelet asks in a version of resource.k8s.io that the API server does not serve: bring both to one "
        "release, and enable that version",
    ),
    _pattern(
        "DEVICE_PLUGIN_ABSENT",
        r"DRA driver \S+ is not registered|\S+ not found in the list of registered DRA (drivers|plugins)",
        KUBELET,
    ),
    _pattern("RUNTIME_NOT_CONFIGURED", r"runtimeclass(es)?(\.node\.k8s\.io)? \S+ not found", API, KUBELET),
    _pattern(
        "POLICY_DENIED",
        r"webhook .{0,120}denied|(denied|rejected|refused) (the request|by\b)|violates podsecurity"
        r"|admissionpolicy .* denied"
        r"|unable to validate against any security context constraint"
        r"|(denied|blocked|disallowed) (by|due to) .{0,60}polic"
        r"|is forbidden: ((maximum|minimum) \S+ usage per (container|pod)|no PriorityClass|error looking up)"
        r"|is forbidden: \S+ max limit to request ratio per (container|pod)"
        r"|is forbidden: the (string|integer) value of \w+ .{0,40}must not be provided"
        r"|is forbidden: User \S+ cannot (create|bind|patch|update) resource|cannot set blockOwnerDeletion"
        r"|is forbidden: unable to create new content in namespace"
        r"|(failed|error)( to)? call(ing)? .{0,20}webhook|\bis not (permitted|allowed) (in|by)\b",
        API,
    ),
    _pattern(
        "STORAGE_INSUFFICIENT",
        r"persistentvolumeclaims? \S+ not found|storageclass\S* \S+ not found|failed to provision volume"
        r"|binding volumes: |unbound immediate persistentvolumeclaims|volume node affinity conflict",
        API,
    ),
    _pattern(
        "WRONG_SCHEDULER",
        r"no matches for kind \W{0,2}PodGroup|could not find the requested resource.{0,60}podgroup",
        API,
        remedy="install the gang scheduler that the operator is told to use, or turn gang scheduling off in it",
    ),
    _pattern(
        "IMAGE_PULL_FAILED",
        r"unable to fetch image|failed to resolve image to digest|\b(ErrImagePull|ImagePullBackOff|InvalidImageName)\b",
        API,
    ),
    _pattern("INVALID_OBJECT", r"\b[A-Z]\w+ \S+ is invalid: (<nil>: )?[\w.\[\]]+", API),
    # HAMi's and Volcano's words for cards that they split
    _pattern(
        "GPU_FULL",
        r"Card(InsufficientMemory|InsufficientCore|TimeSlicingExhausted|ComputeUnitsExhausted)|ExclusiveDeviceAllocate",
        API,
    ),
    _pattern("SELECTOR_MISMATCH", r"Card(Type|Uuid)Mismatch", API),
    # Refused or killed by the kubelet
    _pattern(
        "TOPOLOGY_MANAGER_REFUSED",
        r"topologyaffinityerror|cannot be allocated with topology locality",
        KUBELET,
    ),
    _pattern("DEVICE_UNHEALTHY", r"no healthy devices present|no longer healthy", KUBELET),
    _pattern(
        "DEVICE_PLUGIN_FAILING",
        r"device plugin (GetPreferredAllocation|Allocate|PreStartContainer) rpc failed|endpoint .* not found in cache"
        r"|can't allocate unregistered device"
        r"|allocate failed due to rpc error: code = (Unavailable|Unimplemented|DeadlineExceeded)",
        KUBELET,
    ),
    _pattern(
        "INVALID_OBJECT",
        r"\b(configmap|secret|serviceaccount)s? \"?\S+?\"? not found|references non-existent (secret|config) key",
        KUBELET,
        remedy="create what the message names, or correct the name in the pod's template",
    ),
    _pattern("REQUEST_EXCEEDS_CLUSTER", r"maximum request size for shared resources is", KUBELET),
    _pattern(
        "STORAGE_INSUFFICIENT",
        r"multi-attach error|attachvolume.attach failed|unable to attach or mount volumes"
        r"|mountvolume\.\w+ failed|in the list of registered csi drivers",
        KUBELET,
    ),
    _pattern("CONTAINER_OOM", r"container init was OOM-?killed|memory limit too low", KUBELET),
    _pattern("KUBELET_ADMISSION_RACE", r"requested number of devices unavailable", KUBELET),
    _pattern(
        "EPHEMERAL_STORAGE",
        r"low on resource: ephemeral-storage|ephemeral(-| local )storage.*exceed|condition: \[[^\]]*DiskPressure"
        r"|usage of emptydir volume .{0,80}exceeds",
        KUBELET,
    ),
    _pattern("EPHEMERAL_STORAGE", r"no space left on device", KUBELET),
    _pattern(
        "IMAGE_PULL_FAILED",
        r"failed to (get|pull) (sandbox|pause|infra) image"
        r"|creat\w+ pod sandbox\b.{0,200}(initializing source|pulling image)",
        KUBELET,
        remedy="the image that the message names is the runtime's own, for every pod of the node: let the node reach "
        "its registry, or set a sandbox image that it can pull in the runtime's configuration",
    ),
    _pattern(
        "POD_COUNT_LIMIT",
        r"failed to (assign|allocate) .{0,30}\bip address|no (more |available |free )*(ips?\b|ip ?addresses|addresses)"
        r"|(ip|address) (range|pool|space|pools)\b.{0,40}(full|exhausted|empty)|InsufficientFreeAddresses"
        r"|(not enough|out of|ran out of) (ips?\b|(ip )?addresses)",
        KUBELET,
    ),
    # Between the runtime and the driver
    _pattern(
        "DRIVER_LIB_MISMATCH",
        r"driver/library version mismatch|API mismatch: the client has the version"
        r"|(error|code|status)\W{0,4}803\b|unsupported display driver|(SystemDriverMismatch|SYSTEM_DRIVER_MISMATCH)\b",
        KUBELET,
        CONTAINER,
        STACK,
        HOST,
    ),
    _pattern(
        "CUDA_DRIVER_TOO_OLD",
        r"unsatisfied condition: cuda|cuda driver version is insufficient|nvidia driver on your system is too old"
        r"|forward compatibility was attempted|cudaErrorInsufficientDriver|unsupported PTX version"
        r"|PTX was compiled with an unsupported toolchain|CUDA_ERROR_UNSUPPORTED_PTX_VERSION"
        r"|CompatNotSupportedOnDevice|COMPAT_NOT_SUPPORTED_ON_DEVICE"
        r"|unsatisfied condition: driver",
        KUBELET,
        CONTAINER,
    ),
    _pattern(
        "DEVICE_PLUGIN_FAILING",
        r"unknown device id: (?!GPU-|MIG-|\d)\w|device error: (?!unknown|GPU-|MIG-|\d)[\w-]+: unknown device",
        KUBELET,
        remedy="see the log of the plugin that handed out this name, which is that of no device, and of its scheduler",
    ),
    _pattern(
        "DEVICE_ID_STALE",
        r"unknown device id|device error: \d+: unknown device|device error: .*GPU-.* not found"
        r"|no such device: GPU-|GPU-[\w-]+\W{1,3}unknown device",
        KUBELET,
        CONTAINER,
        STACK,
    ),
    _pattern(
        "DEVICE_NODES_MISSING",
        r"failed to stat CDI host device|empty device edits|no dev(ice)? (directory|nodes?) (under|in|found)"
        r"|/dev/nvidia\S*:? (no such file|not found)"
        r"|\bCDI\b.{0,60}(unresolv\w*|unknown|not found|no such|missing)|unresolv\w+ CDI"
        r"|(no such|not found|missing|could not locate|cannot find|does not exist|skipping)\b.{0,60}/dev/nvidia"
        r"|error gathering device information .*/dev/nvidia",
        KUBELET,
        STACK,
        HOST,
        CONTAINER,
    ),
    _pattern(
        "RUNTIME_NOT_CONFIGURED",
        r"nvidia-(ctk|cdi-hook|container-(cli|toolkit|runtime\S*?))\"?:? (no such file|executable file not found)"
        r"|hook\b.{0,80}\bnvidia\S*?\"?: (no such file|executable file not found|permission denied)",
        KUBELET,
        remedy="install NVIDIA's container toolkit at the path that the message names, or write the CDI spec again "
        "with its path on this host (nvidia-ctk cdi generate)",
    ),
    _pattern(
        "RUNTIME_NOT_CONFIGURED",
        r"no runtime for .{0,3}\w+|unknown or invalid runtime name|could not select device driver"
        r"|runtime ?handler .{0,3}\w+.{0,20}(not|un)"
        r"|nvidia-container-runtime\S*: (no such file|executable file not found)"
        r"|runtimeclass.* not found",
        KUBELET,
        HOST,
        STACK,
    ),
    _pattern(
        "RUNTIME_NOT_CONFIGURED",
        r"unknown service runtime\.v1|failed to load plugin.{0,60}grpc\.v1\.cri|invalid (cri )?plugin config"
        r"|failed to load TOML|no corresponding runtime configured|crio: .{0,60}(invalid|can't parse) .{0,20}config",
        HOST,
        KUBELET,
        remedy="mend what was written into the runtime's configuration last (the toolkit's drop-in, such as "
        "/etc/containerd/conf.d/99-nvidia.toml), then restart the runtime and see its log",
        explains=("NODE_UNSCHEDULABLE",),
    ),
    _pattern(
        "FABRIC_NOT_READY",
        r"not ready in computedomain|computedomain\b.{0,40}\bnot ?ready|imex daemon.{0,40}(not ready|fail|exit)"
        r"|failed to (start|initialize) imex",
        KUBELET,
        STACK,
        remedy="repair the IMEX daemons of the ComputeDomain (its DaemonSet's pods, and their log) on every node of it",
    ),
    _pattern(
        "FABRIC_NOT_READY",
        r"(error|code|status)\W{0,4}802\b|system not yet initialized|cudaErrorSystemNotReady"
        r"|CUDA_ERROR_SYSTEM_NOT_READY"
        r"|fabric ?(manager|state)\W.{0,60}(in progress|not running|not started|failed|exited|not ready|mismatch)"
        r"|nvswitch.*(not ready|failed|fatal)",
        KUBELET,
        CONTAINER,
        STACK,
        HOST,
    ),
    _pattern(
        "DEVICE_PERMISSION",
        r"(?<!initialize nvml: )insufficient permissions",  # NVML is loaded, and refuses a call about a device
        CONTAINER,
        STACK,
        remedy="on a node with MIG, set NVIDIA_MIG_MONITOR_DEVICES=all in the container that asks, and add the "
        "capability SYS_ADMIN; elsewhere, run it privileged",
    ),
    _pattern(
        "DEVICE_PERMISSION",
        r"/proc/[\w/-]+/attr/\w+: (invalid argument|permission denied)",  # the kernel's interface to security modules
        KUBELET,
        remedy="the host's SELinux policy lacks the type that the pod asks for (seLinuxOptions): install it, or "
        "use another type",
    ),
    _pattern(
        "DEVICE_PERMISSION",
        r"avc:\s+denied|selinux context.{0,120}(permission denied|not permitted)"
        r"|failed to initialize nvml: insufficient permissions|/proc/driver/nvidia\S*: permission denied"
        rf"|{DEVICE_FILES}\S*:? (read-write: )?(permission denied|operation not permitted)"
        rf"|(permission denied|operation not permitted).{{0,40}}{DEVICE_FILES}|insufficient permissions"
        r"|(bpf_prog_query|device rules|device filters).{0,160}(not permitted|permission denied)",
        KUBELET,
        CONTAINER,
        STACK,
        HOST,
    ),
    _pattern("DRIVER_MISSING", r"(nvml error|initialization error|nvml): driver not loaded", KUBELET, CONTAINER),
    # MIG and sharing
    _pattern(
        "MIG_CONFIG_NOT_APPLIED",
        r"mode change pending|mig\.config\.state\W+failed|error (setting|applying) mig|failed to apply mig"
        r"|unable to apply mig|at least one mig (device|config)|mig (mode|geometry).{0,40}(fail|in use|not)"
        r"|migEnabled=true.{0,40}not configured|invalid mig configuration"
        r"|more than one .{0,20}mig|mig enabled .{0,40}no mig devices|does not match the mig strategy",
        STACK,
        HOST,
    ),
    _pattern(
        "MPS_NOT_READY",
        r"--mps-root|mps (control )?daemon|mps.{0,30}(not ready|not started|unsupported)|CUDA_ERROR_MPS|mps server",
        STACK,
        CONTAINER,
        KUBELET,
    ),
    _pattern(
        "SHARING_CONFIG_NOT_APPLIED",
        r"(unknown field|unable to parse|failed to parse|invalid).{0,80}(sharing|timeslicing|replicas|renameByDefault)",
        STACK,
    ),
    _pattern(
        "GFD_LABELS_MISSING",
        r"no gpu nodes? (can be found|in the cluster|found)|could not get any nodes to match",
        STACK,
    ),
    # The driver
    _pattern(
        "DRIVER_UPGRADE_BLOCKED",
        r"(could not|unable to|failed to) unload .{0,40}(driver|module)|driver is (currently )?in use",
        STACK,
        HOST,
    ),
    _pattern(
        "DEVICE_PERMISSION",
        r"(could not insert|insmod|init_module|modprobe).{0,80}permission denied",  # not EPERM: Secure Boot's refusal
        STACK,
        HOST,
        remedy="let the driver's container load kernel modules: see the denials in the host's audit log (SELinux), "
        "and use the vendor's policy",
        explains=("DRIVER_MISSING",),
    ),
    _pattern(
        "DRIVER_MISSING",
        r"could not resolve linux kernel version|(kernel headers|kernel-devel|linux-headers).{0,60}(not|unable|could)"
        r"|module nvidia not found|modprobe:.*nvidia|couldn.t communicate with the nvidia driver|driver not loaded"
        r"|nvidia driver (is not|was not|not) (installed|loaded|found|ready)"
        r"|failed to (install|build|compile).{0,30}(driver|kernel module)"
        r"|(?<!found )no nvidia driver|waiting for .{0,20}driver|precompiled .{0,40}not found"
        r"|/sys/module/(nvidia|amdgpu|i915|xe|habanalabs)\S*:? no such|(amdgpu|nvidia|i915) driver (is )?unavailable"
        r"|key was rejected by service|bound to nouveau|nouveau .{0,20}is (currently )?(loaded|in use)",
        STACK,
        HOST,
        CONTAINER,
    ),
    _pattern(
        "DRIVER_MISSING",
        r"nvidia-smi['\"]?: (command )?(not found|no such file)|error validating driver|driver validation failed",
        HOST,
        STACK,
    ),
    _pattern(
        "DRIVER_MISSING",
        r"\bnvidia\w*: (version magic|unknown symbol|disagrees about version)|unsigned module loading is restricted"
        r"|was loaded and obtained ownership of the nvidia|module is in use by another driver",
        HOST,
    ),
    _pattern(
        "RUNTIME_NOT_CONFIGURED",
        r"could not load nvml library|load library failed: libnvidia-ml|ERROR_LIBRARY_NOT_FOUND"
        r"|incompatible (platform|strategy) detected"
        r"|did you configure the nvidia container toolkit|libnvidia-ml\.so\S* .{0,40}(not found|cannot open|no such)",
        STACK,
        KUBELET,
    ),
    # Inside the program
    _pattern("CGROUP_DEVICE_ACCESS_LOST", r"failed to initialize nvml: unknown error", CONTAINER, KUBELET),
    _pattern(
        "SHM_TOO_SMALL",
        r"insufficient shared memory|killed by signal: bus error|unexpected bus error"
        r"|unable to (open|write to) (file|shared).{0,40}(shm|shared memory)"
        r"|/dev/shm.{0,60}(no space|too small|full)|no space left.{0,40}/dev/shm"
        r"|shm.{0,20}size.{0,30}(increase|insufficient)|bus error \(core dumped\)"
        r"|error while creating shared memory segment|unable to mmap \d+ bytes from file </torch",
        CONTAINER,
    ),
    _pattern(
        "CONTAINER_OOM",
        r"killed by signal: (killed|9)\b|(workers?|tasks?|actors?|process)\b.{0,60}killed .{0,30}\bmemory"
        r"|ray\.exceptions\.OutOfMemoryError|memory cgroup out of memory: killed process",
        CONTAINER,
    ),
    _pattern(
        "GPU_OOM",
        r"(cuda|hip|gpu|vram)\w*\b.{0,60}\bout of memory|CUDA_ERROR_OUT_OF_MEMORY|(cuda|hip)ErrorMemoryAllocation"
        r"|OutOfMemoryError: (CUDA|HIP)|RESOURCE_EXHAUSTED: Out of memory|CUBLAS_STATUS_ALLOC_FAILED"
        r"|OOM when allocating tensor|ran out of memory trying to allocate"
        r"|no available memory for the cache blocks|less than desired gpu memory utilization",
        CONTAINER,
    ),
    _pattern(
        "NCCL_TRANSPORT_FALLBACK",
        r"NCCL.*(via NET/Socket|using network socket|NET/IB : No device found|falling back to .{0,20}socket)",
        CONTAINER,
    ),
    _pattern(
        "RUNTIME_NOT_CONFIGURED",
        r"no (cuda|hip|xpu) gpus are available|found no nvidia driver on your system|CUDA_ERROR_NO_DEVICE"
        r"|no (nvidia |cuda |hip |amd )?(gpu|accelerator|cuda device|platform)s? (was |were )?"
        r"(found|detected|available|visible)|hipErrorNoDevice"
        r"|failed to infer device type|is_available\(\)( is|:| returned| ==)? false"
        r"|nvidia-smi[\"'`]?:? ?(command |executable file )?not found"
        r"|libcuda\.so\S* .{0,40}(not found|cannot open|no such)"
        r"|no (cuda|rocm)-capable device is detected",
        CONTAINER,
        KUBELET,
    ),
)


def find_matches(logs: Iterable[LogLines], source: str, *, wrapped: bool = False) -> list[PatternMatch]:
    """One match per code (its last line), in the order of `LOG_PATTERNS`.

    Of a line only the first pattern counts; `wrapped`: all of them, since an error may wrap the one that caused it.
    """
    found: dict[str, PatternMatch] = {}
    patterns = [pattern for pattern in LOG_PATTERNS if source in pattern.sources]
    for log in logs:
        for line in log.lines:
            for log_pattern in patterns:
                if shown := log_pattern.pattern.search(line):
                    seen = _match(log_pattern, log.origin, line.strip(), shown[0])
                    if not seen.remedy and seen.line == found.get(seen.code, seen).line:
                        found.setdefault(seen.code, seen)  # a narrower pattern may have matched the line
                    else:
                        found[seen.code] = seen
                    if not wrapped:
                        break
    order = {pattern.code: index for index, pattern in reversed(list(enumerate(patterns)))}
    return sorted(found.values(), key=lambda match: order[match.code])


def _match(pattern: LogPattern, origin: str, line: str, words: str) -> PatternMatch:
    return PatternMatch(pattern.code, origin, line, pattern.remedy, words, pattern.explains)


def match_finding(match: PatternMatch) -> Finding:
    """The cause that a line shows, with the line as its evidence."""
    headline = match.words if match.code == "INVALID_OBJECT" else ""  # it says more than the meaning of the code
    quote = f"{match.origin}: {_quote(match)}"
    return Finding(match.code, headline, (quote,), remedy=match.remedy, explains=match.explains)


def _quote(match: PatternMatch) -> str:
    """The line; if it is long, its beginning and the words that show the cause."""
    line, end = match.line, match.line.find(match.words) + len(match.words)
    if len(line) <= LONG_LINE:
        return line
    if end <= LONG_LINE - 3:
        return f"{line[: LONG_LINE - 3]}..."
    rest = line[max(SHORT_START, end - (LONG_LINE - SHORT_START - 6)) : end]
    return f"{line[:SHORT_START]}...{rest}{'...' if end < len(line) else ''}"


def matches_any_pattern(line: str) -> bool:
    """Whether a redacted dump keeps the line of a program's log."""
    return any(log_pattern.pattern.search(line) for log_pattern in LOG_PATTERNS)


def find_matches_in_text(text: str, origin: str, source: str) -> list[PatternMatch]:
    """As `find_matches`, for one message."""
    return find_matches([LogLines(origin, [text])], source) if text else []
