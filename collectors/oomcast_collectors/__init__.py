"""The collectors that come with oomcast."""
