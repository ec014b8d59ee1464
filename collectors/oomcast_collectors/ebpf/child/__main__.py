"""The child process: `python -m oomcast_collectors.ebpf.child`, started by the collector and by nobody else."""

import logging
import os
import resource
import signal
import sys

from oomcast.contract import NotPresent
from oomcast_collectors.ebpf.child.bcc import EbpfError
from oomcast_collectors.ebpf.child.check import check
from oomcast_collectors.ebpf.child.loop import Loop
from oomcast_collectors.ebpf.child.outlet import Outlet, Stop, die_with_parent
from oomcast_collectors.ebpf.wire import LONGEST, Absent, Failed, decode_order


def main() -> int:
    die_with_parent()
    # Each uprobe of each target is a descriptor.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # Whatever else is printed by libraries must not get between the messages.
    out = os.dup(1)
    os.dup2(2, 1)
    outlet = Outlet(out)
    logging.basicConfig(handlers=[outlet.handler()], format="%(message)s", level=logging.INFO, force=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stop = Stop(sys.stdin.buffer)
    order = decode_order(sys.stdin.buffer.readline(LONGEST))
    try:
        if order.check:
            check(order, outlet)
        elif order.stacks:
            Loop(order, outlet, stop).observe(order.stacks)
        else:
            Loop(order, outlet, stop).run()
    except NotPresent as absence:
        outlet.send(Absent(str(absence)))
    except EbpfError as error:
        outlet.send(Failed(str(error)))
    except BrokenPipeError:  # the daemon is gone
        pass
    return 0


if __name__ == "__main__":
    # Nothing is left to be closed at exit, and BCC's handlers would try.
    code = main()
    sys.stdout.flush()
    os._exit(code)
