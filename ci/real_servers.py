#!/usr/bin/env python3
"""The sentry in front of servers that we did not write: nginx, Python's http.server, Go's net/http, Go's gRPC.

Every check talks to the sentry with somebody else's client where there is one (curl, grpcurl) and compares what comes
out with what the server gives without the sentry. Prints `N passed, N failed`; exit 1 if any failed.
"""

import atexit
import hashlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from beside import free_port

ROOT = pathlib.Path(__file__).resolve().parent.parent
PLIMSOLL = os.environ.get("PLIMSOLL", str(ROOT / "target/release/plimsoll"))
WORK = pathlib.Path(tempfile.mkdtemp(prefix="plimsoll-real-"))
CHILDREN = []


def clean_up():
    for child in reversed(CHILDREN):
        child.terminate()
    for child in CHILDREN:
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
    shutil.rmtree(WORK, ignore_errors=True)


atexit.register(clean_up)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))


def start(*command, **options):
    child = subprocess.Popen([str(c) for c in command], **options)
    CHILDREN.append(child)
    return child


def wait_for(port, seconds=10):
    until = time.monotonic() + seconds
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def run(*command, check=True, **options):
    done = subprocess.run([str(c) for c in command], capture_output=True, timeout=60, **options)
    if check and done.returncode != 0:
        raise AssertionError(f"{command} exited {done.returncode}: {done.stderr.decode()[-500:]}")
    return done


def get(port, path, method="GET", body=None, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request(method, path, body, headers or {})
    answer = connection.getresponse()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()


def sentry(server_port, *, workers=64, protocol="auto", slo='{ p50 = "10s", p90 = "20s" }'):
    listen, admin = free_port(), free_port()
    config = WORK / f"sentry-{listen}.toml"
    config.write_text(f"""
[sentry]
listen = "127.0.0.1:{listen}"
admin = "127.0.0.1:{admin}"
[pool.main]
servers = ["127.0.0.1:{server_port}"]
workers = {workers}
protocol = "{protocol}"
[class.all]
match = [{{ path = "/{{rest...}}" }}]
slo = {slo}
""")
    start(PLIMSOLL, "sentry", "--config", config, stderr=open(WORK / f"sentry-{listen}.log", "w"))
    wait_for(listen)
    wait_for(admin)
    until = time.monotonic() + 10
    while get(admin, "/readyz")[0] != 200:
        assert time.monotonic() < until, "not ready"
        time.sleep(0.1)
    return listen, admin


def curl(port, path, *arguments):
    return run("curl", "-sS", "--max-time", "20", *arguments, f"http://127.0.0.1:{port}{path}").stdout


# nginx: static files


def start_nginx():
    port = free_port()
    site = WORK / "site"
    site.mkdir()
    (site / "index.html").write_text("<h1>hello</h1>\n")
    (site / "big.bin").write_bytes(os.urandom(8 << 20))
    conf = WORK / "nginx.conf"
    conf.write_text(f"""
daemon off; pid {WORK}/nginx.pid; error_log {WORK}/nginx.log; worker_processes 1;
events {{ worker_connections 512; }}
http {{ access_log off; client_body_temp_path {WORK}/b; proxy_temp_path {WORK}/p; fastcgi_temp_path {WORK}/f;
  uwsgi_temp_path {WORK}/u; scgi_temp_path {WORK}/s; gzip on; gzip_types *; gzip_proxied any;
  server {{ listen 127.0.0.1:{port}; root {site}; }} }}
""")
    site.chmod(0o755)
    WORK.chmod(0o755)
    start("nginx", "-c", conf, "-p", WORK, stderr=subprocess.DEVNULL)
    wait_for(port)
    return port


def nginx_static_file(direct, via):
    assert curl(via, "/") == curl(direct, "/") == b"<h1>hello</h1>\n"


def nginx_large_file_arrives_whole(direct, via):
    digest = lambda data: hashlib.sha256(data).hexdigest()
    assert digest(curl(via, "/big.bin")) == digest((WORK / "site/big.bin").read_bytes())


def nginx_range_head_and_validators(direct, via):
    status, headers, body = get(via, "/big.bin", headers={"Range": "bytes=5-14"})
    assert (status, len(body), headers["content-range"]) == (206, 10, f"bytes 5-14/{8 << 20}")
    status, headers, body = get(via, "/", "HEAD")
    assert status == 200 and body == b"" and headers["content-length"] == "15"
    assert get(via, "/", headers={"If-None-Match": headers["etag"]})[0] == 304


def nginx_compression_passes_through(direct, via):
    (WORK / "site/long.txt").write_text("plimsoll " * 1000)
    assert curl(via, "/long.txt", "--compressed") == b"plimsoll " * 1000
    assert get(via, "/long.txt", headers={"Accept-Encoding": "gzip"})[1].get("content-encoding") == "gzip"


def nginx_errors_are_its_own(direct, via):
    status, headers, _ = get(via, "/nothing")
    assert status == 404 and "plimsoll-reason" not in headers


# Python's http.server


def start_python():
    port = free_port()
    code = """
import http.server, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.path.startswith("/slow"): time.sleep(0.05)
        self.answer(b"python " + self.path.encode())
    def do_POST(self):
        self.answer(self.rfile.read(int(self.headers["Content-Length"])))
    def answer(self, body):
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 256
Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
    start(sys.executable, "-c", code, port)
    wait_for(port)
    return port


def python_get_and_post(direct, via):
    assert get(via, "/a?b=c")[2] == b"python /a?b=c"
    body = os.urandom(300_000)
    assert get(via, "/", "POST", body)[2] == body


def python_overload_is_refused_with_a_reason(direct, via):
    listen, admin = sentry(direct, workers=4, slo='{ p50 = "120ms", p90 = "250ms" }')
    mix = WORK / "mix.toml"
    mix.write_text('[request.slow]\npath = "/slow"\n')
    done = run(PLIMSOLL, "load", "--target", f"http://127.0.0.1:{listen}", "--mix", mix,
               "--rate", "240", "--duration", "6s", "--json")
    total = json.loads(done.stdout)["total"]
    assert total["errors"] == 0 and total["refused_other"] == 0, total
    assert total["rejected"] > 300 and total["ok"] > 250, total
    metrics = get(admin, "/metrics")[2].decode()
    assert "bouncer" in metrics, "the metrics name the mechanism"


# Go: net/http and gRPC


def start_go():
    binary = WORK / "goserver"
    run("go", "build", "-o", binary, ".", cwd=ROOT / "ci/goserver")
    child = start(binary, stdout=subprocess.PIPE)
    ready = json.loads(child.stdout.readline())
    return [int(ready[name].rsplit(":", 1)[1]) for name in ("web", "grpc")]


def go_echo_with_trailers(direct, via):
    data = WORK / "body"
    data.write_bytes(os.urandom(1 << 20))
    echoed = curl(via, "/echo", "--data-binary", f"@{data}", "-H", "Transfer-Encoding: chunked", "-H", "TE: trailers")
    assert echoed == data.read_bytes()
    raw = socket.create_connection(("127.0.0.1", via), 10)
    raw.sendall(b"POST /echo HTTP/1.1\r\nHost: x\r\nTE: trailers\r\nConnection: TE, close\r\nContent-Length: 3\r\n\r\nabc")
    answer = b""
    while part := raw.recv(65536):
        answer += part
    assert b"abc" in answer and b"x-bytes: 3" in answer.lower(), answer


def go_sees_who_asks(direct, via):
    headers = get(via, "/echo", "POST", b"x")[1]
    assert "127.0.0.1" in headers["x-seen-forwarded-for"], headers


def go_events_stream(direct, via):
    connection = http.client.HTTPConnection("127.0.0.1", via, timeout=20)
    began = time.monotonic()
    connection.request("GET", "/events")
    answer = connection.getresponse()
    first = answer.readline()
    took = time.monotonic() - began
    assert first == b"data: 0\n" and answer.read().endswith(b"data: 4\n\n")
    assert time.monotonic() - began > took + 0.2, "the events came at once: they were buffered"


def go_by_http2(direct, via):
    answer = curl(via, "/echo", "--http2-prior-knowledge", "-d", "two", "-o", "-", "-w", "|%{http_version}")
    assert answer == b"two|2", answer


def grpc_unary(direct, via):
    for port in (direct, via):
        done = run("grpcurl", "-plaintext", f"127.0.0.1:{port}", "grpc.health.v1.Health/Check")
        assert json.loads(done.stdout) == {"status": "SERVING"}


def grpc_reflection_and_streaming(direct, via):
    assert b"grpc.health.v1.Health" in run("grpcurl", "-plaintext", f"127.0.0.1:{via}", "list").stdout
    began = time.monotonic()
    done = run("grpcurl", "-plaintext", "-max-time", "2", f"127.0.0.1:{via}", "grpc.health.v1.Health/Watch",
               check=False)
    # Who is first to find that time is over: grpcurl, or the server, which says it in its own words.
    over = b"DeadlineExceeded" in done.stderr or b"Stream has ended" in done.stderr
    assert b"SERVING" in done.stdout and over, (done.stdout, done.stderr)
    assert 1.5 < time.monotonic() - began < 5, "the stream did not end at its deadline"


def grpc_errors_are_the_servers(direct, via):
    ask = ("-plaintext", "-d", '{"service":"nobody"}')
    for port in (direct, via):
        done = run("grpcurl", *ask, f"127.0.0.1:{port}", "grpc.health.v1.Health/Check", check=False)
        assert b"NotFound" in done.stderr, done.stderr


def grpc_under_load(direct, via):
    mix = WORK / "grpc.toml"
    mix.write_text('[request.check]\nmethod = "POST"\npath = "/grpc.health.v1.Health/Check"\n'
                   'body = "\\u0000\\u0000\\u0000\\u0000\\u0000"\n'
                   'headers = { content-type = "application/grpc", te = "trailers" }\n')
    done = run(PLIMSOLL, "load", "--target", f"http://127.0.0.1:{via}", "--http", "2", "--mix", mix,
               "--rate", "500", "--duration", "4s", "--json")
    total = json.loads(done.stdout)["total"]
    assert total["ok"] == total["sent"] > 1500, total


def main():
    nginx_port, python_port, (go_port, grpc_port) = start_nginx(), start_python(), start_go()
    suites = [
        (nginx_port, "auto", "nginx_"),
        (python_port, "auto", "python_"),
        (go_port, "auto", "go_"),
        (grpc_port, "auto", "grpc_"),
    ]
    passed = failed = 0
    for port, protocol, prefix in suites:
        via, _ = sentry(port, protocol=protocol)
        for name, check in [(n, c) for n, c in globals().items() if n.startswith(prefix) and callable(c)]:
            try:
                check(port, via)
                passed += 1
                print(f"real-server {name} ok")
            except Exception as error:  # a check that breaks is a check that failed
                failed += 1
                print(f"real-server {name} FAILED: {type(error).__name__}: {error}")
    if failed:
        for log in WORK.glob("sentry-*.log"):
            print(f"--- {log.name}\n{log.read_text()[-2000:]}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


sys.exit(main())
