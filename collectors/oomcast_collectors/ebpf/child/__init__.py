"""What runs in the child process: BCC, the programs in the kernel, and what reads them.

It is a process of its own because BCC brings a compiler along (some 120 MB), and so that a crash of it is not the
daemon's. The daemon imports nothing of it.
"""
