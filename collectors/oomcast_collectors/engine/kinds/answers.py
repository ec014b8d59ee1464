"""What engines say of themselves in JSON. Every answer may be of any type; what is not as expected adds nothing."""

from dataclasses import replace

from oomcast_collectors.engine.reading import Reading

MAX_TEXT = 256
_MAX_TOKENS = 1 << 40


def field(answer: object, *path: str) -> object:
    """The value below these keys, or None."""
    for key in path:
        answer = answer.get(key) if isinstance(answer, dict) else None
    return answer


def amount(value: object, most: int = _MAX_TOKENS) -> int | None:
    """A whole number from 1 to `most`, or None."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and isinstance(value, int) and 0 < value <= most else None


def text(value: object) -> str:
    """A text that is not too long, or ""."""
    return value if isinstance(value, str) and len(value) <= MAX_TEXT else ""


def models(answer: object, reading: Reading) -> Reading:
    """GET /v1/models of the OpenAI API: the name, and max_model_len where the engine adds it. Adapters are listed after
    their base model, which is the first."""
    data = field(answer, "data")
    first = data[0] if isinstance(data, list) and data else None
    return replace(
        reading,
        model=reading.model or text(field(first, "id")),
        max_model_len=reading.max_model_len or amount(field(first, "max_model_len")),
    )


def version(answer: object, reading: Reading) -> Reading:
    """{"version": ".."}"""
    return replace(reading, version=reading.version or text(field(answer, "version")))
