"""LMCache: a page of its own, or rows on that of the engine it works for. Hits are those of lookups; the counter of hit
tokens was seen to stay at 0 while lookups hit."""

from oomcast_collectors.engine.kinds.rows import Row, Table

_ROWS = (
    Row("queries", ("lmcache:num_lookup_tokens_total",)),
    Row("hits", ("lmcache:num_lookup_hits_total",)),
)

TABLE = Table("lmcache", _ROWS)
