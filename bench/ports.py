"""Ports of the loopback address; run as a program, prints one, or so many as its argument says."""
import contextlib
import random
import socket
import sys


def free_ports(count):
    """So many on which nobody listens, below those that the system gives to connections: one of these may be taken before the server that it
    is for has begun to listen."""
    with contextlib.ExitStack() as held:
        ports = []
        while len(ports) < count:
            port, probe = random.randrange(20000, 32000), held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                ports.append(port)
        return ports


def free_port():
    return free_ports(1)[0]


if __name__ == "__main__":
    print(*free_ports(int(sys.argv[1]) if sys.argv[1:] else 1), sep="\n")
