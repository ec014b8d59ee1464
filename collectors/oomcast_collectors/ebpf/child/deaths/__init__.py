"""The probes of processes that end badly: crashes, panics, oom_kills."""
