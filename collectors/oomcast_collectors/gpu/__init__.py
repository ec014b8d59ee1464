"""GPU memory as the driver tells it, sampled fast enough to see a burst."""
