"""python -m simulator: an engine that lives through a trace, and serves its metrics meanwhile."""

import argparse
import signal
import sys
import threading
from collections.abc import Sequence

from simulator.config import Config
from simulator.engine import Engine
from simulator.replay import replay
from simulator.server import Server
from simulator.trace import Request, azure, mooncake


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 at the end of the trace or after SIGTERM, 1 if the trace or the port is of no use."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        config = Config(
            options.blocks,
            options.block_size,
            options.max_model_len,
            options.max_num_seqs,
            options.max_num_batched_tokens,
            options.model,
            max_queue=options.max_queue,
        )
    except ValueError as error:
        parser.error(str(error))
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    try:
        requests = _trace(options.trace)
        server = Server(Engine(config), options.port)
        server.start()
    except (OSError, ValueError) as error:
        sys.stderr.write(f"simulator: {error}\n")
        return 1
    sys.stderr.write(f"simulator: {server.url}/metrics, {len(requests)} requests\n")
    replay(server.engine, requests, options.speed, ended.wait)
    server.stop()
    return 0


def _trace(path: str) -> list[Request]:
    return azure(path) if path.endswith(".csv.gz") else mooncake(path)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m simulator",
        description="Lives through a trace of requests as a vLLM would, and serves the /metrics that it would have.",
        epilog="Ends at the end of the trace, or on SIGTERM. The times on the page are those of the simulated engine.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("trace", help="Mooncake's format (.jsonl.gz) or Azure's of 2023 (.csv.gz)")
    add("--port", type=int, default=8000, help="on 127.0.0.1; 0 for any that is free")
    add("--speed", type=_above_zero, default=1.0, help="seconds of the trace in one second")
    add("--blocks", type=int, default=24_000, help="of the KV cache, one of them never used")
    add("--block-size", type=int, default=16, help="tokens in a block")
    add("--max-model-len", type=int, default=131_072, help="tokens of prompt and answer; longer ones are refused")
    add("--max-num-seqs", type=int, default=256, help="requests that run at the same time")
    add("--max-num-batched-tokens", type=int, default=8192, help="tokens of one step")
    add("--max-queue", type=int, default=None, help="requests that may wait; others are turned away")
    add("--model", default="sim", help="its name")
    return parser


def _above_zero(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


if __name__ == "__main__":
    sys.exit(main())
