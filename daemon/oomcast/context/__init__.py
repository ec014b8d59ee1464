"""Whether an input fits an engine or a model, and what breaks first. The daemon itself does without this package."""
