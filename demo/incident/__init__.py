"""The crash of an engine on long prompts, played in a minute: real oomcast, a simulated engine, a fake GPU driver."""
