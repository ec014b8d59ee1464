"""The page at `/`: what a person sees who follows a link to the node at three in the morning. No script, no asset."""

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from typing import Literal, NamedTuple

State = Literal["success", "failure", "timeout", "absent", "disabled", "pending"]


class Row(NamedTuple):
    """One collector. state: the outcome of its last run, `pending` before the first one. detail: one line of plain
    text that says why or since when, may be empty. help: what it watches."""

    name: str
    state: State
    detail: str = ""
    help: str = ""


class Check(NamedTuple):
    """A health check. reason: one line of plain text."""

    name: str
    ok: bool
    reason: str


_STATES = {
    "success": ("ok", "ok"),
    "failure": ("failing", "bad"),
    "timeout": ("timed out", "bad"),
    "absent": ("not on this machine", "off"),
    "disabled": ("switched off", "off"),
    "pending": ("waiting for its first run", "off"),
}

_STYLE = """
:root { color-scheme: light dark; --ok: #1a7f37; --bad: #b3261e; --off: #5b6470; --line: #d5d9de; --link: #0b57d0 }
@media (prefers-color-scheme: dark) {
  :root { --ok: #6fdd8b; --bad: #ff9a92; --off: #a3acb8; --line: #3a4149; --link: #8ab4f8 }
}
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem }
h1 { font-size: 1.5rem; margin: 0 }
h2 { font-size: 1.1rem; margin: 1.5rem 0 .5rem }
p { margin: .25rem 0 }
a { color: var(--link) }
nav a { display: inline-block; padding: .4rem 1rem .4rem 0 }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; vertical-align: top; padding: .4rem .75rem .4rem 0; border-top: 1px solid var(--line);
  overflow-wrap: anywhere }
th { font-weight: 600 }
small { display: block; color: var(--off); font-size: .875rem; font-weight: 400 }
.ok { color: var(--ok) } .bad { color: var(--bad); font-weight: 600 } .off { color: var(--off) }
@media (max-width: 36rem) {
  thead { position: absolute; clip-path: inset(50%); width: 1px; height: 1px; overflow: hidden }
  tr { display: block; border-top: 1px solid var(--line); padding: .4rem 0 }
  tbody th, td { display: block; border: 0; padding: 0 }
}
"""


def security_policy() -> str:
    """The Content-Security-Policy under which the page works: its own style sheet and nothing else."""
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def render_page(node: str, version: str, checks: Sequence[Check], rows: Sequence[Row]) -> str:
    """The whole page as HTML; every argument is plain text and is escaped here."""
    title = f"oomcast on {node}" if node else "oomcast"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<header>
<h1>{escape(title)}</h1>
<p>Sees the out-of-memory crash of an LLM inference node before it happens. Version {escape(version)}.</p>
</header>
<nav aria-label="Endpoints">
<a href="metrics">Metrics</a> <a href="-/healthy">Health</a> <a href="-/ready">Readiness</a>
</nav>
<main>
<h2>State</h2>
{"".join(map(_check, checks))}<h2>Collectors</h2>
{_table(rows)}</main>
</body>
</html>
"""


def _check(check: Check) -> str:
    word, style = ("yes", "ok") if check.ok else ("no", "bad")
    return f'<p>{escape(check.name)}: <span class="{style}">{word}</span>, {escape(check.reason)}</p>\n'


def _table(rows: Sequence[Row]) -> str:
    if not rows:
        return "<p>None is configured.</p>\n"
    # Stable: what fails comes first, the rest stays in its order.
    body = "".join(map(_row, sorted(rows, key=lambda row: _look(row)[1] != "bad")))
    head = '<th scope="col">Collector</th><th scope="col">State</th><th scope="col">Detail</th>'
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>\n"


def _row(row: Row) -> str:
    word, style = _look(row)
    name = escape(row.name) + (f"<small>{escape(row.help)}</small>" if row.help else "")
    return (
        f'<tr><th scope="row">{name}</th><td><span class="{style}">{escape(word)}</span></td>'
        f"<td>{escape(row.detail)}</td></tr>\n"
    )


def _look(row: Row) -> tuple[str, str]:
    return _STATES.get(row.state, (row.state, "off"))
