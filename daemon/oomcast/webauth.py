"""Who may speak to the server, as pure ASGI layers: basic authentication with bcrypt, and a rate limit."""

import asyncio
import base64
import binascii
import functools
import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Mapping

import bcrypt
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

_REMEMBERED = 100
_MAX_PENDING = 16
_BCRYPT_BYTES = 72


class BasicAuth:
    """Lets requests with a known name and password through to `app`; without users, all of them.

    A verdict is remembered, so that a scrape does not pay for a hash each time. Hashes are computed one at a time in
    a worker thread; when too many wait, further unknown credentials are answered 429 while known ones go on.
    """

    def __init__(self, app: ASGIApp, users: Mapping[str, str]) -> None:
        self._app = app
        self._secret = secrets.token_bytes(32)
        self._hashing = asyncio.Lock()
        self.set_users(users)

    def set_users(self, users: Mapping[str, str]) -> None:
        """Replaces the users (bcrypt hash by name) and forgets every verdict, those still being computed too."""
        self._users = {name.encode(): value.encode() for name, value in users.items()}
        # Somebody unknown costs as much as somebody known: otherwise the delay would tell which names exist.
        self._decoy = max(self._users.values(), key=lambda value: value[4:6], default=b"")
        self._verdicts = _Verdicts()
        self._pending: dict[bytes, asyncio.Task[bool]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._users:
            return await self._app(scope, receive, send)
        credentials = _credentials(scope)
        accepted = credentials is not None and await self._accepts(*credentials)
        if accepted:
            return await self._app(scope, receive, send)
        if accepted is None:
            response = PlainTextResponse("Too Many Requests\n", 429, {"retry-after": "1"})
        else:
            realm = {"www-authenticate": 'Basic realm="oomcast", charset="UTF-8"'}
            response = PlainTextResponse("Unauthorized\n", 401, realm)
        await response(scope, receive, send)

    async def _accepts(self, user: bytes, password: bytes) -> bool | None:
        """The verdict; None when too many are being worked out already."""
        text = len(user).to_bytes(4, "big") + user + password
        key = hmac.digest(self._secret, text, hashlib.sha256)
        verdict = self._verdicts.get(key)
        if verdict is not None:
            return verdict
        task = self._pending.get(key)
        if task is None:
            if len(self._pending) >= _MAX_PENDING:
                return None
            task = asyncio.create_task(self._check(user, password))
            self._pending[key] = task
            # Bound to where it was asked for: after a change of users nobody looks there any more.
            task.add_done_callback(functools.partial(_remember, key, self._pending, self._verdicts))
        # Shielded: several requests wait for one task, and the first to be given up must not take it along.
        return await asyncio.shield(task)

    async def _check(self, user: bytes, password: bytes) -> bool:
        expected = self._users.get(user)
        async with self._hashing:
            matches = await asyncio.to_thread(_matches, password, expected or self._decoy)
        return matches and expected is not None


class _Verdicts:
    """The last verdicts, bounded. Right and wrong ones apart: guessing must not push out who is known."""

    def __init__(self) -> None:
        self._known: dict[bool, OrderedDict[bytes, None]] = {True: OrderedDict(), False: OrderedDict()}

    def get(self, key: bytes) -> bool | None:
        for verdict, keys in self._known.items():
            if key in keys:
                keys.move_to_end(key)
                return verdict
        return None

    def put(self, key: bytes, verdict: bool) -> None:
        keys = self._known[verdict]
        keys[key] = None
        if len(keys) > _REMEMBERED:
            keys.popitem(last=False)


class TokenBucket:
    """One token each `interval` seconds, at most `burst` of them."""

    def __init__(self, interval: float, burst: int, now: float) -> None:
        self._interval = interval
        self._burst = burst
        self._tokens = float(burst)
        self._at = now

    def take(self, now: float) -> bool:
        """Whether there was a token. now: monotonic seconds."""
        self._tokens = min(self._burst, self._tokens + (now - self._at) / self._interval)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


def _remember(
    key: bytes, pending: dict[bytes, "asyncio.Task[bool]"], verdicts: _Verdicts, task: "asyncio.Task[bool]"
) -> None:
    pending.pop(key, None)
    if not task.cancelled() and task.exception() is None:
        verdicts.put(key, task.result())


def _credentials(scope: Scope) -> tuple[bytes, bytes] | None:
    values = [value for name, value in scope["headers"] if name == b"authorization"]
    if len(values) != 1:
        return None
    scheme, _, encoded = values[0].partition(b" ")
    if scheme.lower() != b"basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
    except binascii.Error:
        return None
    return (user, password) if colon else None


def _matches(password: bytes, hashed: bytes) -> bool:
    try:
        # bcrypt reads 72 bytes. What made the hash cut there silently; the library refuses more.
        return bcrypt.checkpw(password[:_BCRYPT_BYTES], hashed)
    except ValueError:
        return False
