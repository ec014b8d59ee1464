"""The probes of CUDA: cuda_streams and unified_memory."""
