"""Metrics that have no series, or never move, in what the pictures show; and why."""

import re
from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatchcase

_OF_THE_PLAY: Mapping[str, str] = {
    "oomcast_gpu_mig_*": "the GPU is not split up",
    "oomcast_gateway_*": "there is no gateway",
    "oomcast_uvm_*": "no program has CUDA",
    "oomcast_cuda_*": "no program has CUDA",
    "oomcast_rust_panics_total": "no program has Rust code",
    "oomcast_major_faults_total": "the probe is off by default",
    "oomcast_corrupted_responses_total": "the engine does not count them",
    "oomcast_kv_cache_capacity_bytes": "the engine does not tell",
    "oomcast_kv_cache_bytes_per_token": "the engine does not tell",
    "oomcast_kv_cache_evicted_tokens_total": "the engine does not tell",
    "oomcast_prompt_tokens_lognormal_*": "the prompts are those of one conversation, which no log-normal fits",
    "oomcast_gpu_process_memory_other_bytes": "each process has a series of its own",
    "oomcast_gpu_process_memory_peak_bytes": "accounting mode is off by default",
    "oomcast_gpu_ecc_errors_total": "the driver's stand-in does not tell",
    "oomcast_engine_restarts_total": "no engine restarts",
    "process_start_time_seconds": "no daemon restarts",
    "oomcast_xid_errors_total": "no GPU fails",
    "oomcast_userspace_oom_kills_total": "no killer in user space",
    "oomcast_handled_fault_signals_total": "nobody handles faults",
    "oomcast_kernel_log_segfaults_total": "an abort is none",
    "oomcast_series_dropped": "no metric meets its cap",
    "oomcast_process_names_dropped": "there are few",
    "oomcast_chore_failures_total": "no defect",
    "oomcast_log_rules_disabled": "no rule is slow",
    "oomcast_ebpf_probe_failures_total": "all probes attach",
    "oomcast_ebpf_probe_lost_total": "nothing is lost",
    "oomcast_ebpf_child_starts_total": "it starts once",
    "*_lost_*": "nothing is lost",
    "*_errors_total": "everything can be read",
    "*_malformed_*": "everything can be read",
    "*_bytes_skipped_total": "everything can be read",
    "*_cut_lines_total": "everything can be read",
    "*_invalid_readings_total": "everything can be read",
    'node=""': "every target has its node",
}
"""Reasons by patterns of metrics' names. Wherever it is played they hold, so one that is not needed is a mistake."""

_OF_THE_MACHINE: Mapping[str, str] = {
    "oomcast_gpus_expected": "there is no driver in the kernel that would tell",
    "oomcast_cgroup_pressure_seconds_total": "cgroups of version 1 have none",
    "oomcast_cgroup_memory_high_*": "version 1 has none, and nobody set it",
    "oomcast_cgroup_reclaim_pages_total": "version 1 does not tell",
    "oomcast_cgroup_page_charges_total": "version 2 does not tell",
    "oomcast_cgroup_dying_descendants": "version 1 does not tell",
    "oomcast_cgroup_swap_used_bytes": "the kernel does not account swap",
    "oomcast_collector_runs_total": "every run succeeds",
    "*_overruns_total": "nothing is lost",
    "*_handovers_total": "no driver hangs",
}
"""What another kernel or driver may tell, and what a slow machine may bring about."""

_TOKENS = re.compile(r'\w+=""|[\w:]+')


def reason(query: str) -> str | None:
    """The pattern that says why a query has no data here; None where nothing does."""
    tokens = _TOKENS.findall(query)
    patterns = (*_OF_THE_PLAY, *_OF_THE_MACHINE)
    return next((one for one in patterns if any(fnmatchcase(token, one) for token in tokens)), None)


def unneeded(needed: Collection[str]) -> Iterator[tuple[str, str]]:
    """Patterns, with their reasons, that explained nothing."""
    return ((one, why) for one, why in _OF_THE_PLAY.items() if one not in needed)
