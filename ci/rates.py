#!/usr/bin/env python3
"""Rates over Envoy's rate limit quota service: a real controller, a real sentry, and a real Envoy whose own filter takes the rates.

Sends more of one class than may enter through both, and counts what gets in: together they keep the rate, each has its part, and when
the controller is stopped or killed nobody is held back for long. Prints `N passed, N failed`; exit 1 if any failed.

    [PLIMSOLL=FILE] [PLIMSOLL_SENTRY=FILE] ci/rates.py [--install]
"""

import http.client
import http.server
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benches/gateways"))
from beside import Backend, free_port  # noqa: E402
from bench import tools  # noqa: E402

PLIMSOLL = os.environ.get("PLIMSOLL", str(ROOT / "target/release/plimsoll"))
# One of another version, to see that they get on.
SENTRY = os.environ.get("PLIMSOLL_SENTRY", PLIMSOLL)
WORK = pathlib.Path(tempfile.mkdtemp(prefix="plimsoll-rates-"))
CHILDREN = []
# What may enter, and what comes at each of the two, a second: far less than a machine with other things to do can send.
RATE, COMES = 40, 80
# Nothing here takes this long, on any machine.
PATIENCE = 60


def start(name, *command):
    child = subprocess.Popen([str(c) for c in command], stdout=subprocess.DEVNULL, stderr=open(WORK / f"{name}.log", "a"))
    CHILDREN.append(child)
    return child


def end(child):
    child.send_signal(signal.SIGCONT)
    child.kill()
    child.wait()
    CHILDREN.remove(child)


def until(what, is_so):
    ends = time.monotonic() + PATIENCE
    while True:
        try:
            if is_so():
                return
        except (OSError, http.client.HTTPException, ValueError, KeyError, IndexError, TypeError):
            pass
        assert time.monotonic() < ends, f"not within {PATIENCE} s: {what}"
        time.sleep(0.05)


def get(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path)
    answer = connection.getresponse()
    return answer.status, dict(answer.getheaders()), answer.read()


class Load:
    """So many requests a second to one port, on one connection, for as long as it is wanted."""

    def __init__(self, port):
        self.port, self.sent, self.served, self.wanted = port, 0, 0, True
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        connection, due = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10), time.monotonic()
        while self.wanted:
            try:
                connection.request("GET", "/")
                answer = connection.getresponse()
                answer.read()
                self.served += answer.status == 200
            except (OSError, http.client.HTTPException):
                connection.close()
            self.sent += 1
            # One that was held up does not make up for it: what is measured is what gets in, not what comes.
            due = max(due + 1 / COMES, time.monotonic() - 1 / COMES)
            time.sleep(max(0.0, due - time.monotonic()))


def measure(loads, seconds):
    """What each got in, a second."""
    before, began = [load.served for load in loads], time.monotonic()
    time.sleep(seconds)
    span = time.monotonic() - began
    return [(load.served - served) / span for load, served in zip(loads, before)]


class Place:
    def __init__(self):
        self.listen, self.sentry_admin, self.admin, self.rates, self.envoy = (free_port() for _ in range(5))
        backend = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Backend)
        threading.Thread(target=backend.serve_forever, daemon=True).start()
        self.backend = backend.server_address[1]
        self.config, self.yaml = WORK / "plimsoll.toml", WORK / "envoy.yaml"
        self.config.write_text(f"""
[sentry]
listen = "127.0.0.1:{self.listen}"
admin = "127.0.0.1:{self.sentry_admin}"
rates = {{ controllers = ["127.0.0.1:{self.rates}"] }}
[controller]
admin = "127.0.0.1:{self.admin}"
state = "{WORK}/state"
interval = "1s"
rates = {{ listen = "127.0.0.1:{self.rates}" }}
[pool.main]
servers = ["127.0.0.1:{self.backend}"]
workers = 64
[class.shop]
match = [{{ path = "/*" }}]
max_rate = "{RATE}/s"
""")
        self.yaml.write_text(ENVOY % {"listen": self.envoy, "backend": self.backend, "rates": self.rates})
        self.controller = None

    def control(self):
        self.controller = start("controller", PLIMSOLL, "controller", "--config", self.config)

    def plan(self):
        return json.loads(get(self.admin, "/plan")[2])["rates"]

    def limit(self):
        """What the sentry holds the class to, or None."""
        shop = json.loads(get(self.sentry_admin, "/pools")[2])["pools"][0]["classes"][0]
        return shop["rate_limit_per_s"]


ENVOY = """
static_resources:
  listeners:
  - address: { socket_address: { address: 127.0.0.1, port_value: %(listen)d } }
    filter_chains:
    - filters:
      - name: http
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: http
          route_config:
            virtual_hosts: [{ name: all, domains: ["*"], routes: [{ match: { prefix: "/" }, route: { cluster: backend } }] }]
          http_filters:
          - name: envoy.filters.http.rate_limit_quota
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaFilterConfig
              domain: shop
              rlqs_server: { envoy_grpc: { cluster_name: controller } }
              bucket_matchers:
                on_no_match:
                  action:
                    name: shop
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaBucketSettings
                      bucket_id_builder: { bucket_id_builder: { class: { string_value: shop } } }
                      reporting_interval: 0.5s
          - name: envoy.filters.http.router
            typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
  clusters:
  - name: backend
    load_assignment: { cluster_name: backend, endpoints: [{ lb_endpoints: [{ endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: %(backend)d } } } }] }] }
  - name: controller
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: { http2_protocol_options: {} }
    load_assignment: { cluster_name: controller, endpoints: [{ lb_endpoints: [{ endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: %(rates)d } } } }] }] }
"""


def is_kept(loads, seconds=3):
    """Whether what gets in is the rate, or a little less, while far more comes. A machine that could not send that much proves nothing."""
    sent, began = sum(load.sent for load in loads), time.monotonic()
    served = sum(measure(loads, seconds))
    came = (sum(load.sent for load in loads) - sent) / (time.monotonic() - began)
    return came > 1.5 * RATE and 0.6 * RATE < served < 1.25 * RATE


# In this order: each goes on from where the one before it left things. Who waits for something does so until it is so: on a machine that
# has other things to do a step may take seconds.


def an_envoy_alone_keeps_the_rate(place, loads):
    loads.append(Load(place.envoy))
    until("the Envoy keeps the rate", lambda: is_kept(loads))
    until("it says so itself", lambda: any(get(place.envoy, "/")[0] == 429 for _ in range(50)))


def envoy_and_sentry_share_the_rate(place, loads):
    loads.append(Load(place.listen))
    until("together they keep the rate", lambda: is_kept(loads))
    until("each has its part", lambda: min(measure(loads, 3)) > 0.15 * RATE and 0.2 * RATE < place.limit() < 0.8 * RATE)

    def refused():
        return next((headers for status, headers, _ in (get(place.listen, "/") for _ in range(50)) if status == 503), None)
    until("who is refused is told why", lambda: refused()["plimsoll-reason"].startswith("rate; limit=rate; estimate="))


def the_plan_says_what_comes_and_what_enters(place, loads):
    def is_told():
        rates = place.plan()
        shop = rates["classes"][0]
        return (rates["streams"] == 2 and rates["nonsense"] == rates["unknown"] == 0 and shop["may_enter_per_s"] == RATE
                and shop["offered_per_s"] > 1.2 * RATE and shop["admitted_per_s"] < 1.5 * RATE
                and shop["goodput_per_s"] > 0 and shop["p95_ms"] > 0)
    until("all of it", is_told)


def a_controller_that_is_stopped_holds_nobody_back_and_goes_on(place, loads):
    revision = place.plan()["revision"]
    place.controller.send_signal(signal.SIGSTOP)
    until("the sentry relaxes", lambda: place.limit() is None or place.limit() > 2 * RATE)
    # Its assignment has run out, too: Envoy's own answer to that is to let everything in.
    until("the Envoy lets all in", lambda: measure(loads, 1)[0] > 1.2 * RATE)
    place.controller.send_signal(signal.SIGCONT)
    until("both are limited again", lambda: place.limit() < RATE and is_kept(loads))
    assert place.plan()["revision"] == revision


def a_controller_that_is_killed_is_followed_by_the_next(place, loads):
    revision = place.plan()["revision"]
    end(place.controller)
    until("the sentry relaxes", lambda: place.limit() is None or place.limit() > 2 * RATE)
    place.control()
    until("both are limited again", lambda: place.limit() < RATE and is_kept(loads))
    assert place.plan()["revision"] > revision


CHECKS = [
    an_envoy_alone_keeps_the_rate,
    envoy_and_sentry_share_the_rate,
    the_plan_says_what_comes_and_what_enters,
    a_controller_that_is_stopped_holds_nobody_back_and_goes_on,
    a_controller_that_is_killed_is_followed_by_the_next,
]


def main():
    tools.need(["envoy"], "--install" in sys.argv)
    place, loads = Place(), []
    place.control()
    start("sentry", SENTRY, "sentry", "--config", place.config)
    start("envoy", tools.path("envoy"), "-c", place.yaml, "--concurrency", "1", "--disable-hot-restart", "--log-level", "info")
    passed = failed = 0
    try:
        until("all are there", lambda: get(place.listen, "/")[0] == 200 and get(place.envoy, "/")[0] == 200 and place.plan())
        for check in CHECKS:
            try:
                check(place, loads)
                passed += 1
                print(f"rates {check.__name__} ok", flush=True)
            except Exception as error:  # a check that breaks is a check that failed
                failed += 1
                print(f"rates {check.__name__} FAILED: {type(error).__name__}: {error}", flush=True)
    finally:
        for load in loads:
            load.wanted = False
        for child in list(CHILDREN):
            end(child)
        if failed or not passed:
            for log in WORK.glob("*.log"):
                print(f"--- {log.name}\n{log.read_text()[-3000:]}")
        shutil.rmtree(WORK, ignore_errors=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.exit(main())
