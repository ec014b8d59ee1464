"""`oomcast kv`: what a model's KV cache takes, and what fits."""

import argparse
import re
import sys
from fractions import Fraction
from pathlib import Path

from oomcast.kv.config import read
from oomcast.kv.fields import KvError, load
from oomcast.kv.formats import FORMATS
from oomcast.kv.memory import memory
from oomcast.kv.serving import ENGINES, Serving
from oomcast.kv.table import as_json, as_text

_USAGE = 2
_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,9})?) ?(B|[kKMGT]B|[KMGT]iB)?", re.ASCII)
_POWERS = "BKMGT"
_MOST_SEQUENCES = 1 << 20


def define(command: argparse.ArgumentParser) -> None:
    """Gives the command its options."""
    types = f"auto, {', '.join(FORMATS)}; two with a slash between them are for keys and for values"
    command.add_argument("model", type=Path, metavar="CONFIG", help="a config.json, or a folder with one")
    command.add_argument("--dtype", default="auto", metavar="TYPE", help=f"type of the cache: {types} (default auto)")
    command.add_argument(
        "--state-dtype", default="auto", metavar="TYPE", help="type of recurrent states (default auto)"
    )
    command.add_argument("--engine", choices=ENGINES, help="count as this engine does")
    command.add_argument("--tp", type=int, default=1, metavar="N", help="ranks of tensor parallelism (default 1)")
    command.add_argument("--pp", type=int, default=1, metavar="N", help="stages of pipeline parallelism (default 1)")
    command.add_argument(
        "--block-size", type=int, default=0, metavar="TOKENS", help="block of the cache (default: the engine's, or 1)"
    )
    command.add_argument(
        "--prefill-chunk", type=int, default=0, metavar="TOKENS", help="what a windowed layer holds beyond its window"
    )
    command.add_argument(
        "--no-hybrid", dest="hybrid", action="store_false", help="count windowed layers as full attention"
    )
    command.add_argument("--encoder-tokens", type=int, default=0, metavar="N", help="tokens of the encoder, a sequence")
    command.add_argument("--mtp", action="store_true", help="with the layers that predict several tokens")
    command.add_argument("--draft", type=Path, metavar="CONFIG", help="config of a draft model served beside it")
    room = command.add_argument_group("what fits", "the room on each GPU, by --pool or by the three others")
    define_room(room)
    room.add_argument(
        "--sequences", type=_counts, default=(1, 2, 4, 8, 16), metavar="N,..", help="at once (default 1,2,4,8,16)"
    )
    command.add_argument("--format", choices=("text", "json"), default="text")
    command.set_defaults(command=run)


def define_room(options: argparse._ActionsContainer) -> None:
    """Adds what `pool` reads."""
    options.add_argument(
        "--pool", type=size, metavar="SIZE", help="memory of the cache on each GPU: 40GiB, 40GB, 1000000"
    )
    options.add_argument("--gpu-memory", type=size, metavar="SIZE", help="memory of each GPU")
    options.add_argument("--weights", type=size, metavar="SIZE", help="weights, and all else that stays, on each GPU")
    options.add_argument(
        "--utilization", type=_ratio, metavar="RATIO", help="part of the GPU that is used (default 0.9)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Prints it; returns the exit code."""
    try:
        text = _answer(arguments)
    except KvError as error:
        sys.stderr.write(f"oomcast kv: {error}\n")
        return _USAGE
    sys.stdout.buffer.write(text.encode())
    return 0


def size(text: str) -> int:
    """Bytes of 80GB, 37.5 GiB or 1000000. Raises ArgumentTypeError."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no size; write 80GB, 37.5GiB or a number of bytes")
    unit = (found[2] or "B").upper()
    base = 1024 if "I" in unit else 1000
    return int(Fraction(found[1]) * base ** _POWERS.index(unit[0]))


def _answer(arguments: argparse.Namespace) -> str:
    room = pool(arguments)
    serving = Serving(
        dtype=arguments.dtype,
        state_dtype=arguments.state_dtype,
        tp=arguments.tp,
        pp=arguments.pp,
        block=arguments.block_size,
        engine=arguments.engine,
        prefill_chunk=arguments.prefill_chunk,
        hybrid=arguments.hybrid,
        encoder_tokens=arguments.encoder_tokens,
        drafts=arguments.mtp,
    )
    draft = read(load(arguments.draft)) if arguments.draft else None
    found = memory(read(load(arguments.model)), serving, draft)
    show = as_json if arguments.format == "json" else as_text
    return show(found, room, arguments.sequences)


def pool(arguments: argparse.Namespace) -> int | None:
    """Bytes on each GPU, None where no room was given. Raises KvError."""
    by_parts = (arguments.gpu_memory, arguments.weights, arguments.utilization)
    if arguments.pool is not None:
        if any(part is not None for part in by_parts):
            raise KvError("--pool: says it all, without --gpu-memory, --weights and --utilization")
        return int(arguments.pool)
    if all(part is None for part in by_parts):
        return None
    if arguments.gpu_memory is None or arguments.weights is None:
        raise KvError("--gpu-memory and --weights: needed both, to tell what is left for the cache")
    used = Fraction("0.9") if arguments.utilization is None else arguments.utilization
    left = int(arguments.gpu_memory * used) - int(arguments.weights)
    if left <= 0:
        raise KvError(f"--weights: {arguments.weights} bytes leave nothing of {int(arguments.gpu_memory * used)}")
    return left


def _ratio(text: str) -> Fraction:
    found = Fraction(text) if re.fullmatch(r"\d\.?\d{0,9}", text, re.ASCII) else Fraction(0)
    if not 0 < found <= 1:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} should be above 0 and at most 1")
    return found


def _counts(text: str) -> tuple[int, ...]:
    counts = [int(word) for word in text.split(",")] if re.fullmatch(r"\d{1,7}(,\d{1,7}){0,31}", text, re.ASCII) else []
    if not counts or not all(1 <= count <= _MOST_SEQUENCES for count in counts):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} should be numbers from 1 to {_MOST_SEQUENCES}, with commas")
    return tuple(counts)
