"""The room that a running engine has, as it tells itself."""

from collections.abc import Callable

from oomcast.context.room import APPROXIMATE, NoAnswer, Room, WrongUsage, known_limits, queue, whole_blocks
from oomcast_collectors.engine.glance import Glance, glance, largest_empty, largest_now
from oomcast_collectors.engine.source import UnknownEngine
from oomcast_collectors.fetch import Fetcher, FetchError


def measured(url: str, fetcher: Callable[[str], Fetcher], max_model_len: int | None) -> Room:
    """fetcher: makes one for a URL. max_model_len: for an engine that does not tell. Raises NoAnswer, WrongUsage."""
    name = fetcher(url).name
    try:
        found = glance(url, fetcher)
    except FetchError as error:
        raise (WrongUsage if error.kind == "config" else NoAnswer)(str(error)) from error
    except UnknownEngine as error:
        raise NoAnswer(f"{name}: {error}") from error
    except ValueError as error:
        raise WrongUsage(f"{name}: {error}") from error
    reading = found.reading
    now, empty = largest_now(reading), largest_empty(reading)
    if now is None and empty is None:
        raise NoAnswer(f"{name}: {reading.kind} tells nothing of its KV memory")
    limits, unknown = known_limits(
        reading.max_model_len or max_model_len, ("kv_pool_now", now), ("kv_pool_empty", empty)
    )
    # Where ranks have blocks of different sizes, the smallest understates by less than one of the others.
    block = min((pool.block for pool in reading.pools if pool.block), default=None)
    return Room(
        "engine",
        name,
        " ".join(word for word in (reading.kind, reading.version, reading.model) if word),
        limits,
        unknown,
        reading.bytes_per_token,
        block,
        whole_blocks(reading.bytes_per_token, block),
        tuple(_notes(found, "max_model_len" in unknown)),
    )


def _notes(found: Glance, endless: bool) -> list[str]:
    reading = found.reading
    notes = [f"max_model_len: the engine does not tell; give it by --max-model-len{_why(found)}"] if endless else []
    if len(reading.pools) > 1:
        notes.append(f"{len(reading.pools)} pools: a request lives in one of them, the one with most room counts")
    if any(not pool.exact for pool in reading.pools):
        notes.append(APPROXIMATE)
    return [*notes, *queue(sum(reading.waiting.values()))]


def _why(found: Glance) -> str:
    silent = "; ".join(f"{path}: {reason}" for path, reason in found.silent.items())
    return f" ({silent})" if silent else ""
