"""oomcast sees the out-of-memory crash of an LLM inference node before it happens."""

__version__ = "0.1.0"
