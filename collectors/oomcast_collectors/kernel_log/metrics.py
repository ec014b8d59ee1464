"""The metric table of the kernel_log collector."""

from oomcast.metric import Metric

_ABSENT = "the kernel's log cannot be read here"

OOM_KILLS = Metric(
    "oomcast_kernel_log_oom_kills_total",
    "counter",
    "Kills by the kernel's OOM killer, machine-wide, as its log states them (lines 'Killed process').",
    absent=_ABSENT,
)
SEGFAULTS = Metric(
    "oomcast_kernel_log_segfaults_total",
    "counter",
    "Processes that died of a fault, by the mapped file they were executing; aborts and bus errors are not logged.",
    ("module",),
    max_series=110,
    absent=_ABSENT,
)
XIDS = Metric(
    "oomcast_kernel_log_xids_total",
    "counter",
    "Xid messages of the NVIDIA driver in the kernel's log, by PCI address of the GPU.",
    ("pci", "xid"),
    max_series=1010,
    absent="the kernel's log cannot be read here, or none was seen",
)
RECORDS = Metric("oomcast_kernel_log_records_total", "counter", "Records read from the kernel's log.", absent=_ABSENT)
IGNORED = Metric(
    "oomcast_kernel_log_ignored_records_total",
    "counter",
    "Records that were not written by the kernel and therefore not believed.",
    absent=_ABSENT,
)
MALFORMED = Metric(
    "oomcast_kernel_log_malformed_records_total",
    "counter",
    "Records without a readable header, or too long.",
    absent=_ABSENT,
)
OVERRUNS = Metric(
    "oomcast_kernel_log_overruns_total",
    "counter",
    "Times that the kernel's log was overwritten before it was read.",
    absent=_ABSENT,
)
LOST = Metric(
    "oomcast_kernel_log_lost_records_total",
    "counter",
    "Records that were never read, from gaps in their sequence.",
    absent=_ABSENT,
)
METRICS = (OOM_KILLS, SEGFAULTS, XIDS, RECORDS, IGNORED, MALFORMED, OVERRUNS, LOST)
