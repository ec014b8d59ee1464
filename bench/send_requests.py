"""Sends messages about requests: `send_requests.py SOCKET RATE SECONDS KEEP`.

KEEP: how many messages wait while the queue is full, of which those above are dropped; -1: a send waits instead.
RATE: messages a second, 0 for as many as there can be. Answers "SENT DROPPED SECONDS" to the first line on stdin.
"""

import json
import socket
import sys
import time
from collections import deque

ENGINES = 4
_VARIANTS = 256


def main(path: str, rate: float, seconds: float, keep: int) -> None:
    messages = [_message(number) for number in range(_VARIANTS)]
    waiting: deque[bytes] = deque()
    count = sent = dropped = 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(path)
        sender.setblocking(keep < 0)
        sys.stdin.readline()
        began = now = time.monotonic()
        while now - began < seconds:
            # Evenly, as requests of many clients end: bursts would measure the length of the queue.
            if not rate or now - began >= count / rate:
                waiting.append(messages[count % _VARIANTS])
                count += 1
            try:
                while waiting:
                    sender.send(waiting[0])
                    waiting.popleft()
                    sent += 1
            except BlockingIOError:
                while len(waiting) > keep:
                    waiting.popleft()
                    dropped += 1
            now = time.monotonic()
        print(sent, dropped + len(waiting), now - began, flush=True)


def _message(number: int) -> bytes:
    known = {"v": 1, "engine": f"engine-{number % ENGINES}", "prompt_tokens": number * 997, "output_tokens": 12}
    flags = {"status": 500 if number % 50 == 0 else 200, "empty": False, "user": True, "tenant": number % 3 == 0}
    rest = {"trace_id": f"{number + 1:032x}", "retries": 0, "breaker": "closed", "ttft_seconds": 1.2, "lost": 0}
    return json.dumps({**known, **flags, **rest, "cached_tokens": 0, "e2e_seconds": 30.5}).encode()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
