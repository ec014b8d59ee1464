"""The metric table of the gpu collector: memory, state, and how it was sampled. Fields and processes have their rows
beside their code (fields.py, processes.py). `gpu` is the UUID everywhere."""

from oomcast.metric import Kind, Metric

STATES = ("ok", "lost", "stuck", "reset_required", "not_permitted", "unreadable")

_GPUS = 64
_INSTANCES = 7 * 16
_NOT_READ = "while the GPU gives no memory readings (state other than ok), where its driver has none, on unified memory"
_NEVER_READ = "where memory was never read"
_NO_MIG = "without MIG"


def _per_gpu(name: str, kind: Kind, text: str, absent: str = _NOT_READ) -> Metric:
    return Metric(f"oomcast_gpu_{name}", kind, text, ("gpu",), _GPUS, absent=absent)


def _per_field(name: str, text: str) -> Metric:
    return Metric(f"oomcast_gpu_{name}", "counter", text, ("gpu", "field"), 8 * _GPUS, absent="until the first")


def _per_instance(name: str, text: str, absent: str = _NO_MIG) -> Metric:
    return Metric(
        f"oomcast_gpu_mig_memory_{name}_bytes", "gauge", text, ("gpu", "gpu_instance"), _INSTANCES, absent=absent
    )


UP = _per_gpu("up", "gauge", "1 if the GPU answers (state ok), 0 if it is known and does not.", "")
STATE = Metric(
    "oomcast_gpu_state",
    "stateset",
    "lost: off the bus. stuck: a call into the driver has not come back. reset_required: as the driver says."
    " not_permitted: the driver or the container's devices refuse us. unreadable: it answers with errors.",
    ("gpu",),
    _GPUS * len(STATES),
    STATES,
)
STUCK_SINCE = _per_gpu(
    "stuck_since_timestamp_seconds",
    "gauge",
    "When the call into the driver began that has not come back, in seconds since the epoch.",
    "unless the GPU is stuck in the driver",
)
INFO = Metric(
    "oomcast_gpu_info",
    "info",
    "What the GPU is. source: nvml or dcgm. memory_api: v2 tells used and reserved apart, v1 counts reserved as used."
    " memory_kind: dedicated, coherent (the host reaches it too, and may have page cache in it), unified (it is the"
    " host's memory, see oomcast_host_memory_available_bytes), or unknown.",
    (
        "gpu",
        "index",
        "name",
        "pci_bus_id",
        "driver",
        "source",
        "memory_api",
        "memory_kind",
        "addressing",
        "persistence",
        "mig",
    ),
    _GPUS,
    absent="labels are left out where the driver does not tell",
)
GPUS = Metric("oomcast_gpus", "gauge", "GPUs that the source counts, lost ones included.")
EXPECTED = Metric(
    "oomcast_gpus_expected",
    "gauge",
    "GPUs that should be here: the setting, else those that the kernel's driver has (/proc/driver/nvidia/gpus).",
    absent="without the setting, where the kernel does not tell",
)
INITS = Metric("oomcast_gpu_library_inits_total", "counter", "Initialisations of the driver's library that succeeded.")

USED = _per_gpu(
    "memory_used_bytes",
    "gauge",
    "Memory allocated on the GPU. Where oomcast_gpu_info says memory_api v1 it includes the reserved.",
)
FREE = _per_gpu("memory_free_bytes", "gauge", "Memory that can be allocated.")
RESERVED = _per_gpu(
    "memory_reserved_bytes",
    "gauge",
    "Memory that the driver keeps for itself. used + free + reserved = total.",
    f"{_NOT_READ}; with memory_api v1",
)
TOTAL = _per_gpu("memory_total_bytes", "gauge", "Memory of the GPU, reserved included.")
USED_PEAK = _per_gpu(
    "memory_used_peak_bytes",
    "gauge",
    "Largest reading of used memory over the last window seconds (a setting, 60), whoever scrapes it how often.",
)
FREE_MIN = _per_gpu(
    "memory_free_min_bytes",
    "gauge",
    "Smallest reading of free memory over the last window seconds: the headroom at the peak.",
)
LARGEST_STEP = _per_gpu(
    "memory_largest_step_bytes",
    "gauge",
    "Largest rise of used memory from one reading to the next over the last window seconds; 0 when it never rose.",
)
PLATEAU = _per_gpu(
    "memory_plateau_bytes",
    "gauge",
    "Used memory that the GPU returns to: the smallest reading of each ten seconds, once it stayed within 1 % of usable"
    " memory for a minute. It follows a ratchet up and stands through bursts. A pool that an engine reserves is one.",
    "until memory has stood still for a minute; after it fell below the plateau, until it stands again",
)
PLATEAU_HEADROOM = _per_gpu(
    "memory_plateau_headroom_bytes",
    "gauge",
    "What is left above the plateau for bursts: total - reserved - plateau.",
    "where there is no plateau",
)
EXHAUSTED_SECONDS = _per_gpu(
    "memory_exhausted_seconds_total",
    "counter",
    "Time for which used / (total - reserved) was at or above exhausted_ratio (a setting, 0.98). A pool that an engine"
    " reserves may be there all day; see oomcast_gpu_memory_plateau_headroom_bytes.",
    _NEVER_READ,
)
EXHAUSTIONS = _per_gpu(
    "memory_exhaustions_total",
    "counter",
    "Times that memory was exhausted for at least half a second on end.",
    _NEVER_READ,
)
COPY = _per_gpu(
    "memory_copy_utilization_ratio",
    "gauge",
    "Share of time in which device memory was read or written, averaged by the driver over its last 1/6 to 1 s. It is"
    " bandwidth, not occupancy.",
    "while the GPU is not read; with MIG",
)
UTILIZATION = _per_gpu(
    "utilization_ratio",
    "gauge",
    "Share of time in which a kernel ran, averaged by the driver over its last 1/6 to 1 s.",
    "while the GPU is not read; with MIG",
)

PERIOD = _per_gpu(
    "sampling_period_seconds",
    "gauge",
    "Mean distance between two readings of the GPU's memory over the last window seconds; shorter bursts may be"
    " missed. With source dcgm the exporter's own period comes on top.",
)
LARGEST_GAP = _per_gpu(
    "sampling_largest_gap_seconds",
    "gauge",
    "Largest distance between two readings of the GPU's memory over the last window seconds.",
)
CALL_SECONDS = _per_gpu(
    "memory_call_seconds_total",
    "counter",
    "Time spent in the driver reading the GPU's memory.",
    "with source dcgm; where memory was never read",
)
HANDOVERS = _per_gpu(
    "handovers_total",
    "counter",
    "Times that a call into the driver took so long that another thread went on with the other GPUs.",
    "with source dcgm",
)
READ_ERRORS = _per_field(
    "read_errors_total",
    "Calls into the driver that failed, by what was asked for; what is never supported is no error, see"
    " oomcast_gpu_unsupported_fields.",
)
INVALID = _per_field(
    "invalid_readings_total",
    "Readings that cannot be true and were dropped: out of range, parts that do not add up, a total that changed.",
)
UNSUPPORTED = _per_gpu(
    "unsupported_fields",
    "gauge",
    "How many of the things asked for this GPU or its driver does not have; they are not asked for again.",
    "with source dcgm",
)

MIG_INFO = Metric(
    "oomcast_gpu_mig_info",
    "info",
    "A MIG GPU instance of now. gpu: the whole GPU; mig: the UUID of its (first) MIG device.",
    ("gpu", "gpu_instance", "mig", "profile"),
    _INSTANCES,
    absent=_NO_MIG,
)
MIG_USED = _per_instance(
    "used",
    "Memory allocated in the GPU instance. Named apart from the whole GPU's, so that sum() counts nothing twice.",
)
MIG_FREE = _per_instance("free", "Memory that can be allocated in the GPU instance.")
MIG_RESERVED = _per_instance(
    "reserved", "Memory that the driver keeps for itself in the GPU instance.", f"{_NO_MIG}; with memory_api v1"
)
MIG_TOTAL = _per_instance("total", "Memory of the GPU instance.")
MIG_USED_PEAK = _per_instance("used_peak", "Largest reading of its used memory over the last window seconds.")

METRICS: tuple[Metric, ...] = (
    *(UP, STATE, STUCK_SINCE, INFO, GPUS, EXPECTED, INITS),
    *(USED, FREE, RESERVED, TOTAL, USED_PEAK, FREE_MIN, LARGEST_STEP, PLATEAU, PLATEAU_HEADROOM),
    *(EXHAUSTED_SECONDS, EXHAUSTIONS, COPY, UTILIZATION),
    *(PERIOD, LARGEST_GAP, CALL_SECONDS, HANDOVERS, READ_ERRORS, INVALID, UNSUPPORTED),
    *(MIG_INFO, MIG_USED, MIG_FREE, MIG_RESERVED, MIG_TOTAL, MIG_USED_PEAK),
)
