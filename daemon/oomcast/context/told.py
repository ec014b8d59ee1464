"""What a running oomcast daemon tells at /metrics: the room of an engine, and what is left of framebuffers."""

from collections.abc import Mapping
from contextlib import closing
from typing import NamedTuple

from oomcast.context.fit import Limit, Name
from oomcast.context.room import APPROXIMATE, NoAnswer, Room, WrongUsage, known_limits, queue, whole_blocks
from oomcast.metric import Metric
from oomcast_collectors import exposition_text
from oomcast_collectors.engine import metrics
from oomcast_collectors.fetch import Fetcher, FetchError
from oomcast_collectors.gpu.metrics import FREE_MIN

_METRICS = (
    *(metrics.UP, metrics.INFO, metrics.CAPACITY, metrics.LARGEST, metrics.FITS),
    *(metrics.MAX_MODEL_LEN, metrics.BYTES_PER_TOKEN, metrics.WAITING),
)


_POOLS: tuple[Name, ...] = ("kv_pool_now", "kv_pool_empty")
_MOST_NAMES = 8


class Told(NamedTuple):
    """headroom: the smallest reading of free framebuffer of all GPUs, None without GPUs. engines: by name, the sum of
    the series of each metric; infos: by name, the labels of the engine's info."""

    name: str
    headroom: int | None
    engines: Mapping[str, Mapping[Metric, float]]
    infos: Mapping[str, Mapping[str, str]]


def ask(fetcher: Fetcher, path: str) -> Told:
    """Raises NoAnswer, WrongUsage."""
    with closing(fetcher):
        try:
            page = fetcher.get(path)
        except FetchError as error:
            raise (WrongUsage if error.kind == "config" else NoAnswer)(str(error)) from error
    wanted = {metric.name: metric for metric in (*_METRICS, FREE_MIN)}
    free: list[int] = []
    engines: dict[str, dict[Metric, float]] = {}
    infos: dict[str, Mapping[str, str]] = {}
    for line in exposition_text.read(page, wanted):
        if not 0 <= line.value < 1 << 60:
            continue
        engine = line.labels.get("engine", "")
        if line.name == FREE_MIN.name:
            free.append(int(line.value))
        else:
            values = engines.setdefault(engine, {})
            values[wanted[line.name]] = values.get(wanted[line.name], 0) + line.value
            if line.name == metrics.INFO.name:
                infos[engine] = line.labels
    return Told(fetcher.name, min(free, default=None), engines, infos)


def remembered(told: Told, engine: str, max_model_len: int | None) -> Room:
    """The room of an engine, "" for the only one. max_model_len: for one that does not tell.

    Raises NoAnswer, WrongUsage.
    """
    engine = _one(told, engine)
    values, info = told.engines[engine], told.infos.get(engine, {})
    target = f"{told.name}, engine {engine}"
    if not values.get(metrics.UP):
        raise NoAnswer(f"{target}: it does not answer the daemon")
    longest = _whole(values, metrics.MAX_MODEL_LEN)
    pools = _pools(values, longest)
    if not pools:
        raise NoAnswer(f"{target}: the daemon tells nothing of its KV memory")
    limits, unknown = known_limits(longest or max_model_len)
    names = {limit.name for limit in pools}
    untold: tuple[Name, ...] = tuple(name for name in _POOLS if name not in names)
    size = values.get(metrics.BYTES_PER_TOKEN)
    return Room(
        "daemon",
        target,
        " ".join(info[label] for label in ("kind", "version", "model") if info.get(label)),
        (*limits, *pools),
        (*unknown, *untold),
        size,
        None,
        whole_blocks(size, None),
        tuple(_notes(values, info, pools, endless=not limits)),
    )


def _one(told: Told, engine: str) -> str:
    """The name. Raises NoAnswer where the daemon watches none, WrongUsage where it is none of them, or not said."""
    if not told.engines:
        raise NoAnswer(f"{told.name}: the daemon watches no engine")
    if not engine and len(told.engines) == 1:
        return next(iter(told.engines))
    if engine not in told.engines:
        names = ", ".join(sorted(told.engines)[:_MOST_NAMES])
        raise WrongUsage(f"--name: should be an engine that the daemon watches, such as {names}")
    return engine


def _pools(values: Mapping[Metric, float], longest: int | None) -> tuple[Limit, ...]:
    """Where the pool has room for the longest request, more is not told and not needed."""
    now, capacity = _whole(values, metrics.LARGEST), _whole(values, metrics.CAPACITY)
    found: list[Limit] = []
    if now is not None:
        found.append(Limit("kv_pool_now", None if longest is not None and now >= longest else now, passing=True))
    if values.get(metrics.FITS) == 1:
        found.append(Limit("kv_pool_empty", None))
    elif capacity is not None:
        found.append(Limit("kv_pool_empty", max(capacity, now or 0)))
    return tuple(found)


def _notes(
    values: Mapping[Metric, float], info: Mapping[str, str], pools: tuple[Limit, ...], *, endless: bool
) -> list[str]:
    notes = []
    if endless:
        notes.append("max_model_len: the engine does not tell; give it by --max-model-len")
    if any(limit.name == "kv_pool_empty" and limit.tokens is not None for limit in pools):
        notes.append("KV pool when empty: of all data-parallel ranks together; a request lives on one of them")
    if info.get("capacity") == "approximate":
        notes.append(APPROXIMATE)
    return [*notes, *queue(values.get(metrics.WAITING, 0))]


def _whole(values: Mapping[Metric, float], metric: Metric) -> int | None:
    value = values.get(metric)
    return None if value is None else int(value)
