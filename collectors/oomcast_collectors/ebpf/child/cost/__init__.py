"""What probes cost the processes they are in, and what is done about it."""
