"""An inference engine, simulated block by block from a trace of requests, with the metrics page of vLLM."""

from simulator.config import Config
from simulator.cost import Cost
from simulator.engine import Engine, Finished
from simulator.replay import replay
from simulator.server import Server
from simulator.trace import Request, TraceError, azure, mooncake

__all__ = ["Config", "Cost", "Engine", "Finished", "Request", "Server", "TraceError", "azure", "mooncake", "replay"]
