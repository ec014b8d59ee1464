"""The floor of an intake of messages: `receive.py SOCKET` receives each with its sender, and makes nothing of it.

It says so when it has the socket. Each line on stdin is answered with how many there were.
"""

import socket
import sys
import threading

counts = [0]


def main(path: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        receiver.bind(path)
        threading.Thread(target=_receive, args=(receiver,), daemon=True).start()
        print("ready", flush=True)
        for _ in sys.stdin:
            print(counts[0], flush=True)


def _receive(receiver: socket.socket) -> None:
    room = socket.CMSG_SPACE(12)
    while True:
        receiver.recvmsg(2048, room)
        counts[0] += 1


if __name__ == "__main__":
    main(sys.argv[1])
