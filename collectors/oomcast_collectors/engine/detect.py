"""What kind of engine serves a page, and where engines serve theirs."""

from collections.abc import Callable, Collection
from typing import NamedTuple
from urllib.parse import urlsplit

from oomcast_collectors.engine.reading import Kind

# trtllm-serve answers /metrics with JSON, in which nothing is found; Envoy's admin page does not know the path.
_PATHS = ("/metrics", "/prometheus/metrics", "/stats/prometheus")
# By the port of the requests, where by default another one has the metrics: of Triton, and of TGI.
_ELSEWHERE: dict[int, tuple[int, Kind]] = {8000: (8002, "triton"), 3000: (9000, "tgi"), 80: (9000, "tgi")}
_DEFAULT_PORTS = {"http": 80, "https": 443}


class Place(NamedTuple):
    """A page to ask for. only: what it may be for, where the port is guessed and may be some other engine's."""

    url: str
    only: Kind | None = None


def _starts(*prefixes: str) -> Callable[[str], bool]:
    return lambda name: name.startswith(prefixes)


_SIGNS: tuple[tuple[Kind, Callable[[str], bool]], ...] = (
    # Not by the prefix, which routers in front of vLLM use too; these are of every release.
    (
        "vllm",
        frozenset(
            {"vllm:cache_config_info", "vllm:num_preemptions_total", "vllm:generation_tokens_total"}
        ).__contains__,
    ),
    ("sglang", _starts("sglang:")),
    ("trtllm", _starts("trtllm_", "trtllm:")),
    ("triton", _starts("nv_trt_llm_", "nv_inference_")),
    ("lmdeploy", _starts("lmdeploy:")),
    ("tgi", _starts("tgi_")),
    ("llamacpp", _starts("llamacpp:")),
    ("dynamo", _starts("dynamo_frontend_", "dynamo_component_")),
    ("lmcache", _starts("lmcache:")),
    ("envoy", _starts("envoy_cluster_", "envoy_http_")),
)
"""Engines before what may be on their page beside them."""


def kinds_of(names: Collection[str]) -> tuple[Kind, ...]:
    """What a page with these metrics is of, the engine itself first: vLLM, LMCache. Of the names those in `kinds.NAMES`
    are enough."""
    return tuple(kind for kind, is_sign in _SIGNS if any(map(is_sign, names)))


def kind_of(names: Collection[str]) -> Kind | None:
    """The engine itself."""
    return next(iter(kinds_of(names)), None)


def places(url: str) -> tuple[Place, ...]:
    """The pages to try in turn, until one is of a known kind. url: of the server, or of the page itself.

    Raises ValueError if its port is no number.
    """
    parts = urlsplit(url)
    if parts.path.strip("/"):
        return (Place(url),)
    base = parts._replace(path="", query="", fragment="")
    found = [Place(base._replace(path=path).geturl()) for path in _PATHS]
    port, only = _ELSEWHERE.get(parts.port or _DEFAULT_PORTS.get(parts.scheme, 0), (0, None))
    if only is not None and parts.hostname:
        host = parts.netloc.rpartition("@")[2]
        bare = host.rpartition(":")[0] if parts.port is not None else host
        found.append(Place(base._replace(netloc=f"{bare}:{port}", path="/metrics").geturl(), only))
    return tuple(found)
