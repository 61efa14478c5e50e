"""What the checks share that run Plimsoll beside real servers."""

import random
import socket


def free_port():
    """A port that nobody listens on, below those that the kernel gives to outgoing connections."""
    while True:
        port = random.randrange(15_000, 32_000)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
