"""Ports of the loopback address; run as a program, prints one."""
import random
import socket


def free_port():
    """One on which nobody listens, below those that the system gives to connections: one of these may be taken before the server that it is
    for has begun to listen."""
    while True:
        port = random.randrange(20000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


if __name__ == "__main__":
    print(free_port())
