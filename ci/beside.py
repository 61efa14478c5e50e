"""What the checks share that run Plimsoll beside real servers."""

import http.server
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


class Backend(http.server.BaseHTTPRequestHandler):
    """A server behind others: whatever it is asked, it answers with nothing."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_POST = do_GET

    def log_message(self, *_):
        pass
