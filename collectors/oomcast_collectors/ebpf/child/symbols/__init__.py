"""Names for addresses: of files that are held open, so that a process may be gone by then."""
