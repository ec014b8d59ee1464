"""The collectors that come with oomcast; all.py lists them."""
