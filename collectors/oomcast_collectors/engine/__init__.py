"""Inference engines and their KV cache, from what they serve to Prometheus."""
