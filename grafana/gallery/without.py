"""Metrics that have no series, or never move, in what the pictures show; and why."""

from collections.abc import Mapping

_NOT_HERE: Mapping[str, str] = {
    "oomcast_gpu_mig_": "the GPU is not split up",
    "oomcast_gateway_": "there is no gateway",
    "oomcast_uvm_": "no program has CUDA",
    "oomcast_cuda_": "no program has CUDA",
    "oomcast_rust_panics_total": "no program has Rust code",
    "oomcast_major_faults_total": "the probe is off by default",
    "oomcast_corrupted_responses_total": "the engine does not count them",
    "oomcast_kv_cache_capacity_bytes": "the engine does not tell",
    "oomcast_kv_cache_bytes_per_token": "the engine does not tell",
    "oomcast_kv_cache_evicted_tokens_total": "the engine does not tell",
    "oomcast_prompt_tokens_lognormal_": "the prompts are those of one conversation, which no log-normal fits",
    "oomcast_gpus_expected": "there is no driver in the kernel that would tell",
    "oomcast_gpu_process_memory_other_bytes": "each process has a series of its own",
    "oomcast_gpu_process_memory_peak_bytes": "accounting mode is off by default",
    "oomcast_gpu_ecc_errors_total": "the driver's stand-in does not tell",
    "oomcast_cgroup_pressure_seconds_total": "cgroups of version 1 have none",
    "oomcast_cgroup_memory_high": "version 1 has none, and nobody set it",
    "oomcast_cgroup_reclaim_pages_total": "version 1 does not tell",
    "oomcast_cgroup_page_charges_total": "version 2 does not tell",
    "oomcast_cgroup_dying_descendants": "version 1 does not tell",
    "oomcast_cgroup_swap_used_bytes": "the kernel does not account swap",
    "oomcast_cgroup_memory_max_bytes": "only cgroups with all series have it",
}
_NOTHING_HAPPENED: Mapping[str, str] = {
    "oomcast_engine_restarts_total": "no engine restarts",
    "process_start_time_seconds": "no daemon restarts",
    "oomcast_xid_errors_total": "no GPU fails",
    "oomcast_userspace_oom_kills_total": "no killer in user space",
    "oomcast_handled_fault_signals_total": "nobody handles faults",
    "oomcast_kernel_log_segfaults_total": "an abort is none",
    "oomcast_collector_runs_total": "every run succeeds",
    "oomcast_series_dropped": "no metric meets its cap",
    "oomcast_process_names_dropped": "there are few",
    "oomcast_chore_failures_total": "no defect",
    "oomcast_log_rules_disabled": "no rule is slow",
    "oomcast_ebpf_probe_failures_total": "all probes attach",
    "oomcast_ebpf_probe_lost_total": "nothing is lost",
    "oomcast_ebpf_child_starts_total": "it starts once",
    "_lost_": "nothing is lost",
    "_overruns_total": "nothing is lost",
    "_errors_total": "everything can be read",
    "_malformed_": "everything can be read",
    "_bytes_skipped_total": "everything can be read",
    "_cut_lines_total": "everything can be read",
    "_invalid_readings_total": "everything can be read",
    "_handovers_total": "no driver hangs",
    'node=""': "every target has its node",
}


def why_empty(title: str, query: str) -> str:
    """The reason for which a query has no data here, "" where there is none. title: of its panel."""
    reasons = {**_NOT_HERE, **_NOTHING_HAPPENED}
    return next((why for part, why in reasons.items() if part in query), "")
