"""How much memory a model's KV cache takes, from its config.json alone. The daemon itself does without this package."""
