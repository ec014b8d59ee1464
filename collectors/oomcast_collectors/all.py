"""The collectors that come with oomcast. One module or package each; this tuple is the only list of them."""

from oomcast.contract import CollectorSpec
from oomcast_collectors import cgroup, ebpf, engine, engine_log, gpu, host, kernel_log, requests

ALL: tuple[CollectorSpec, ...] = (
    *(cgroup.SPEC, ebpf.SPEC, engine.SPEC, engine_log.SPEC),
    *(gpu.SPEC, host.SPEC, kernel_log.SPEC, requests.SPEC),
)
