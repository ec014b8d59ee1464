"""`oomcast context`: does this input fit, what breaks first, and where.

Exit codes are an answer for scripts: 0 it fits now; 1 it does not, or may not, but may without other requests; 4 it
never fits; 2 wrong usage; 3 who was asked does not answer, or tells nothing of its memory.
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from oomcast.context.fit import NOT_KNOWN, USAGE, Request, exit_code, fit
from oomcast.context.plan import planned
from oomcast.context.room import NoAnswer, Room, WrongUsage
from oomcast.context.show import Answer, as_json, as_text
from oomcast.context.tokens import Tokens, TokensError, by_size, by_tokenizer
from oomcast.kv.command import define_room, pool, size
from oomcast.kv.fields import KvError
from oomcast.kv.formats import FORMATS
from oomcast.kv.serving import Serving

if TYPE_CHECKING:
    from oomcast.context.told import Told
    from oomcast_collectors.fetch import Fetcher

_DAEMON = "http://127.0.0.1:19128"
_PAGE = "/metrics"
_DIGITS = 12
_MOST_SECONDS = 600.0
_CODES = (
    "exit codes: 0 fits now, 1 does not or may not fit now but may when the engine is empty, 2 wrong usage,"
    " 3 the engine or daemon does not answer or tells nothing of its memory, 4 never fits"
)
_OF_CONFIG = ("pool", "gpu_memory", "weights", "utilization", "dtype", "tp", "block_size")
_OF_ENGINE = ("bearer_token_file",)


def define(command: argparse.ArgumentParser) -> None:
    """Gives the command its options."""
    command.epilog = _CODES
    given = command.add_mutually_exclusive_group(required=True)
    given.add_argument("--tokens", type=_from_1, metavar="N", help="tokens of the input")
    given.add_argument("--input-file", type=Path, metavar="FILE", help="the input, text in UTF-8")
    command.add_argument("--tokenizer", type=Path, metavar="PATH", help="a tokenizer.json, or a folder with one")
    command.add_argument(
        "--output-tokens", type=_from_1, default=1, metavar="M", help="tokens of the answer (default 1, the least)"
    )
    where = command.add_argument_group("into what", "by default an engine that a running oomcast daemon watches")
    one = where.add_mutually_exclusive_group()
    one.add_argument("--engine", metavar="URL", help="a running engine: http://127.0.0.1:8000")
    one.add_argument("--config", type=Path, metavar="CONFIG", help="a model's config.json, or a folder with one")
    where.add_argument("--daemon", metavar="URL", help=f"a running oomcast daemon (default {_DAEMON})")
    where.add_argument("--name", default="", metavar="NAME", help="what the daemon calls the engine")
    where.add_argument(
        "--max-model-len", type=_from_1, metavar="N", help="longest request, where the engine or config does not tell"
    )
    plan = command.add_argument_group("with --config", "the room on each GPU, by --pool or by the three others")
    define_room(plan)
    plan.add_argument("--dtype", metavar="TYPE", help=f"type of the cache: auto, {', '.join(FORMATS)}")
    plan.add_argument("--tp", type=int, metavar="N", help="ranks of tensor parallelism (default 1)")
    plan.add_argument("--block-size", type=int, metavar="TOKENS", help="block of the cache (default 1)")
    prefill = command.add_argument_group("prefill's own memory", "beside the KV pool, in the free framebuffer")
    prefill.add_argument(
        "--activation-bytes-per-token", type=size, metavar="SIZE", help="memory of each token that is computed at once"
    )
    prefill.add_argument(
        "--prefill-chunk", type=_from_1, default=0, metavar="TOKENS", help="tokens computed at once at most"
    )
    prefill.add_argument(
        "--headroom", type=size, metavar="SIZE", help="free framebuffer of the fullest GPU (default: as the daemon saw)"
    )
    access = command.add_argument_group("access")
    access.add_argument("--bearer-token-file", type=Path, metavar="FILE", help="token for the engine")
    access.add_argument("--ca-file", type=Path, metavar="FILE", help="certificates in place of the system's")
    access.add_argument("--insecure", action="store_true", help="accept any certificate")
    access.add_argument("--timeout", type=_timeout, default=10.0, metavar="SECONDS", help="for each page (default 10)")
    command.add_argument("--format", choices=("text", "json"), default="text")
    command.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints it; returns the exit code."""
    try:
        _check(arguments)
        answer = _answer(arguments)
    except (KvError, TokensError, WrongUsage) as error:
        sys.stderr.write(f"oomcast context: {error}\n")
        return USAGE
    except NoAnswer as error:
        sys.stderr.write(f"oomcast context: {error}\n")
        return NOT_KNOWN
    show = as_json if arguments.format == "json" else as_text
    sys.stdout.buffer.write(show(answer).encode())
    return exit_code([found for _, found in answer.cases])


def _check(arguments: argparse.Namespace) -> None:
    """Raises WrongUsage for options that would be ignored."""
    if arguments.tokenizer and not arguments.input_file:
        raise WrongUsage("--tokenizer: only with --input-file")
    for names, mode, chosen in ((_OF_CONFIG, "--config", arguments.config), (_OF_ENGINE, "--engine", arguments.engine)):
        for name in names:
            if not chosen and getattr(arguments, name) is not None:
                raise WrongUsage(f"--{name.replace('_', '-')}: only with {mode}")
    if arguments.name and (arguments.engine or arguments.config):
        raise WrongUsage("--name: only for an engine that a daemon tells of")
    if arguments.activation_bytes_per_token == 0:
        raise WrongUsage("--activation-bytes-per-token: should be above 0")
    if arguments.activation_bytes_per_token is None and arguments.headroom is not None:
        raise WrongUsage("--headroom: only with --activation-bytes-per-token")
    if arguments.activation_bytes_per_token is None and arguments.prefill_chunk and not arguments.config:
        raise WrongUsage("--prefill-chunk: only with --activation-bytes-per-token or --config")


def _answer(arguments: argparse.Namespace) -> Answer:
    tokens = _tokens(arguments)
    room = _room(arguments)
    requests = [Request(count, arguments.output_tokens) for count in sorted({tokens.least, tokens.most})]
    return Answer(tokens, room, tuple((request, fit(request, room.limits, room.unknown)) for request in requests))


def _tokens(arguments: argparse.Namespace) -> Tokens:
    if arguments.input_file is None:
        return Tokens("given", arguments.tokens, arguments.tokens)
    if arguments.tokenizer is None:
        return by_size(arguments.input_file)
    return by_tokenizer(arguments.input_file, arguments.tokenizer)


def _room(arguments: argparse.Namespace) -> Room:
    """Raises KvError, NoAnswer, WrongUsage."""
    if arguments.config:
        return _with_headroom(arguments, _planned(arguments))
    if arguments.engine:
        from oomcast.context.live import measured

        def fetcher(url: str) -> "Fetcher":
            return _fetcher(arguments, url, arguments.bearer_token_file)

        return _with_headroom(arguments, measured(arguments.engine, fetcher, arguments.max_model_len))
    from oomcast.context.told import remembered

    told = _told(arguments)
    return _with_headroom(arguments, remembered(told, arguments.name, arguments.max_model_len), told)


def _planned(arguments: argparse.Namespace) -> Room:
    serving = Serving(
        dtype=arguments.dtype or "auto",
        tp=1 if arguments.tp is None else arguments.tp,
        block=arguments.block_size or 0,
        prefill_chunk=arguments.prefill_chunk,
    )
    return planned(arguments.config, serving, pool(arguments), arguments.max_model_len)


def _with_headroom(arguments: argparse.Namespace, room: Room, told: "Told | None" = None) -> Room:
    """told: by the daemon, where that was asked already."""
    per_token, chunk = arguments.activation_bytes_per_token, arguments.prefill_chunk
    if per_token is None:
        return room.without_headroom("give it by --activation-bytes-per-token")
    if arguments.headroom is not None:
        return room.with_headroom(arguments.headroom, per_token, chunk, passing=False)
    if arguments.config and not arguments.daemon:
        return room.without_headroom("give what is free for it by --headroom, or --daemon")
    try:
        told = told or _told(arguments)
    except NoAnswer as error:
        return room.without_headroom(f"what is free for it is not known: {error}")
    if told.headroom is None:
        return room.without_headroom(f"what is free for it is not known: {told.name} tells of no GPU")
    return room.with_headroom(told.headroom, per_token, chunk, passing=True)


def _told(arguments: argparse.Namespace) -> "Told":
    from oomcast.context.told import ask

    url = arguments.daemon or _DAEMON
    return ask(_fetcher(arguments, url), "" if url.rstrip("/").endswith(_PAGE) else _PAGE)


def _fetcher(arguments: argparse.Namespace, url: str, bearer_file: Path | None = None) -> "Fetcher":
    from oomcast_collectors.fetch import Fetcher

    return Fetcher(
        url,
        timeout=arguments.timeout,
        bearer_file=bearer_file,
        ca_file=arguments.ca_file,
        insecure=arguments.insecure,
    )


def _from_1(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} should be a whole number from 1, of {_DIGITS} digits at most")
    return int(text)


def _timeout(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds <= _MOST_SECONDS:
        raise argparse.ArgumentTypeError(f"should be above 0 and at most {_MOST_SECONDS:g} seconds")
    return seconds
