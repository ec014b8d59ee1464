"""The metric table of the ebpf collector."""

from oomcast.metric import Metric

_OFF = "the probe is not attached"

PROBE_ATTACHED = Metric(
    "oomcast_ebpf_probe_attached",
    "gauge",
    "Whether a probe's programs are in the kernel, attached to their tracepoints. Where functions of a target could "
    "not be, the failures tell.",
    ("probe",),
)
PROBE_POINTS = Metric(
    "oomcast_ebpf_probe_points",
    "gauge",
    "In how many places a probe is attached: tracepoints, and functions of targets.",
    ("probe",),
)
PROBE_FAILURES = Metric(
    "oomcast_ebpf_probe_failures_total",
    "counter",
    "Times that a probe could not be loaded, or not be attached to a target.",
    ("probe",),
)
PROBE_LOST = Metric(
    "oomcast_ebpf_probe_lost_total",
    "counter",
    "Events and blocks that a probe saw and could not keep, as a table or a buffer was full.",
    ("probe", "table"),
    absent="the probe keeps nothing that could be full",
)
TARGETS = Metric(
    "oomcast_ebpf_targets",
    "gauge",
    "Processes that are followed now, by what they are called.",
    ("process",),
    max_series=200,
    absent="no process is followed",
)
CHILD_RESIDENT = Metric(
    "oomcast_ebpf_child_resident_bytes", "gauge", "Resident memory of the child process that holds the programs."
)
CHILD_CPU = Metric(
    "oomcast_ebpf_child_cpu_seconds_total", "counter", "CPU time of the child processes, user and system."
)
CHILD_STARTS = Metric("oomcast_ebpf_child_starts_total", "counter", "Child processes started; a crash takes another.")
COUNT = Metric(
    "oomcast_ebpf_hits_total",
    "counter",
    "What a probe counts that has no metric of its own: table is a table of its description, key the key in it.",
    ("probe", "table", "key"),
    absent="no probe with tables is loaded",
)
VALUE = Metric(
    "oomcast_ebpf_value",
    "gauge",
    "The same of tables that hold values that rise and fall.",
    ("probe", "table", "key"),
    absent="no probe with tables is loaded",
)
OF_PROBES = (PROBE_ATTACHED, PROBE_POINTS, PROBE_FAILURES, PROBE_LOST, TARGETS, COUNT, VALUE)
OF_CHILD = (CHILD_RESIDENT, CHILD_CPU, CHILD_STARTS)

_KIND = ("process", "kind")
_NO_ALLOCATIONS = "no target, or its allocations of this kind are not followed"
ALLOC_CALLS = Metric(
    "oomcast_alloc_calls_total",
    "counter",
    "Calls that gave memory. kind: brk and mmap (anonymous) are what the C library asks of the kernel, libc is malloc "
    "and its like, others are pairs of the settings.",
    _KIND,
    absent=_NO_ALLOCATIONS,
)
ALLOC_BYTES = Metric("oomcast_alloc_bytes_total", "counter", "Bytes they gave.", _KIND, absent=_NO_ALLOCATIONS)
ALLOC_FREES = Metric(
    "oomcast_alloc_frees_total", "counter", "Calls that gave memory back.", _KIND, absent=_NO_ALLOCATIONS
)
ALLOC_FREED_BYTES = Metric(
    "oomcast_alloc_freed_bytes_total",
    "counter",
    "Bytes they gave back, of those whose allocation was seen.",
    _KIND,
    absent=_NO_ALLOCATIONS,
)
ALLOC_FAILURES = Metric(
    "oomcast_alloc_failures_total", "counter", "Calls that gave no memory.", _KIND, absent=_NO_ALLOCATIONS
)
ALLOC_UNKNOWN_FREES = Metric(
    "oomcast_alloc_unknown_frees_total",
    "counter",
    "Calls that gave back what was allocated before the process was followed, or was not kept.",
    _KIND,
    absent=_NO_ALLOCATIONS,
)
_AGED = ("process", "kind", "older_than")
OUTSTANDING_BYTES = Metric(
    "oomcast_alloc_outstanding_bytes",
    "gauge",
    "Bytes that were given since the process is followed and not given back, by their age: older_than is the lower "
    "bound of a class in seconds. Add the classes up for all of it.",
    _AGED,
    absent=_NO_ALLOCATIONS,
)
OUTSTANDING_BLOCKS = Metric(
    "oomcast_alloc_outstanding_blocks", "gauge", "The number of their blocks.", _AGED, absent=_NO_ALLOCATIONS
)
GROWTH = Metric(
    "oomcast_alloc_growth_bytes_per_second",
    "gauge",
    "How fast outstanding bytes rose over the last minute.",
    _KIND,
    absent=f"{_NO_ALLOCATIONS}, or not for a minute",
)
FOLLOWED_SHARE = Metric(
    "oomcast_alloc_followed_ratio",
    "gauge",
    "Share of the time in which a kind is followed: below 1 its counters are estimates, scaled up by that, and there "
    "is no outstanding memory; 0 where the budget detached it.",
    ("kind",),
    absent=_OFF,
)
COST_SECONDS = Metric(
    "oomcast_ebpf_cost_seconds_total",
    "counter",
    "Time that probes took from the processes they are attached to, estimated: hits times what one costs here.",
    ("probe", "kind"),
    absent=_OFF,
)
COST_PER_CALL = Metric(
    "oomcast_ebpf_cost_per_call_seconds",
    "gauge",
    "What one probed call costs the process that makes it, measured on this machine when the child starts.",
    ("probe", "kind"),
    absent=_OFF,
)
COST_RATIO = Metric(
    "oomcast_ebpf_cost_ratio",
    "gauge",
    "The same as a share of one core, over the last ten seconds.",
    ("probe", "kind"),
    absent=_OFF,
)
ALLOCATIONS = (
    *(ALLOC_CALLS, ALLOC_BYTES, ALLOC_FREES, ALLOC_FREED_BYTES, ALLOC_FAILURES, ALLOC_UNKNOWN_FREES),
    *(OUTSTANDING_BYTES, OUTSTANDING_BLOCKS, GROWTH, FOLLOWED_SHARE, COST_SECONDS, COST_PER_CALL, COST_RATIO),
)

CRASHES = Metric(
    "oomcast_crashes_total",
    "counter",
    "Fatal signals (SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL) by the mapped file that was executing; without the label "
    "module it is not known.",
    ("process", "signal", "module"),
    max_series=300,
    absent="no process crashed since the daemon started",
)
HANDLED_SIGNALS = Metric(
    "oomcast_handled_fault_signals_total",
    "counter",
    "The same signals where the process has a handler for them, which may survive.",
    ("process", "signal"),
    max_series=200,
    absent="none was seen since the daemon started",
)
PANICS = Metric(
    "oomcast_rust_panics_total",
    "counter",
    "Panics of Rust code, whether they end the process or only a thread or task of it.",
    ("process",),
    max_series=200,
    absent="the probe panics is not loaded, or no target has Rust code",
)
CRASH = (CRASHES, HANDLED_SIGNALS, PANICS)

VICTIMS = Metric(
    "oomcast_ebpf_oom_victims_total",
    "counter",
    "Processes that the kernel's OOM killer marked, machine-wide; oomcast_oom_kills_total has them by owner.",
    absent=_OFF,
)

MAJOR_FAULTS = Metric(
    "oomcast_major_faults_total",
    "counter",
    "Major page faults of targets. file: weights, library, executable, other, or none (swap and anonymous memory); "
    "without the label this kernel does not tell.",
    ("process", "file"),
    absent="the probe major_faults is not loaded, or no target runs",
)
UVM_FAULTS = Metric(
    "oomcast_uvm_faults_total",
    "counter",
    "Faults of GPUs on unified memory, as the nvidia-uvm driver counts them.",
    ("gpu_uuid", "access"),
    absent="the driver does not tell: it takes a debug build or its parameter uvm_enable_debug_procfs=1",
)
UVM_PAGES = Metric(
    "oomcast_uvm_migrated_pages_total",
    "counter",
    "Pages of unified memory that moved for faults of a GPU.",
    ("gpu_uuid", "direction"),
    absent="as oomcast_uvm_faults_total",
)
PREFETCHES = Metric(
    "oomcast_uvm_prefetches_total",
    "counter",
    "Calls of cuMemPrefetchAsync by targets: memory they moved before a fault had to.",
    ("process",),
    absent="the probe unified_memory is not loaded, or no target has CUDA",
)
PREFETCHED_BYTES = Metric(
    "oomcast_uvm_prefetched_bytes_total", "counter", "Bytes they asked to move.", ("process",), absent="the same"
)
MANAGED_BYTES = Metric(
    "oomcast_uvm_managed_bytes_total",
    "counter",
    "Bytes of unified memory that targets allocated (cuMemAllocManaged).",
    ("process",),
    absent="the same",
)
FAULTS = (MAJOR_FAULTS, UVM_FAULTS, UVM_PAGES, PREFETCHES, PREFETCHED_BYTES, MANAGED_BYTES)

_NO_CUDA = "the probe cuda_streams is not loaded, or no target has CUDA"
CONTEXTS = Metric(
    "oomcast_cuda_contexts", "gauge", "CUDA contexts that targets made or retained.", ("process",), absent=_NO_CUDA
)
STREAMS = Metric("oomcast_cuda_streams", "gauge", "Streams in them.", ("process",), absent=_NO_CUDA)
CONFLICTS = Metric(
    "oomcast_cuda_stream_conflicts_total",
    "counter",
    "Asynchronous writes to one range of device memory by two streams of a process, with nothing between that orders "
    "them. Writes of kernels are not seen.",
    ("process",),
    absent=_NO_CUDA,
)
CUDA = (CONTEXTS, STREAMS, CONFLICTS)

METRICS = (*OF_CHILD, *OF_PROBES, *ALLOCATIONS, *CRASH, VICTIMS, *FAULTS, *CUDA)
