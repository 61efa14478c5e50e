"""The queue of paper/bouncer.toml in SimPy, as its manual would have it: a process a query, a resource with 100 slots,
nobody refused while fewer than 800 wait. What `plimsoll simulate --policy none` simulates, without a gate's estimates.

Prints one JSON object. Usage: simpy_queue.py WORKLOAD.toml LOAD QUERIES SEED
"""

import json
import math
import random
import statistics
import sys
import time
import tomllib
from pathlib import Path

import simpy


class Queue:
    """One run."""

    def __init__(self, workload, load, queries, seed):
        engine, classes = workload["engine"], workload["class"]
        self.env = simpy.Environment()
        self.server = simpy.Resource(self.env, capacity=engine["processes"])
        self.max_queue, self.queries = engine["max_queue"], queries
        self.random = random.Random(seed)
        self.names = list(classes)
        self.shares = [of["share"] for of in classes.values()]
        services = [of["service"] for of in classes.values()]
        means_ms = [float(of["mean"].removesuffix("ms")) for of in services]
        # The mean of a lognormal variable is not that of its logarithm.
        self.services = {
            name: (math.log(mean_ms) - of["sigma"] ** 2 / 2, of["sigma"])
            for name, mean_ms, of in zip(classes, means_ms, services)
        }
        mean_ms = sum(share * mean for share, mean in zip(self.shares, means_ms))
        self.rate_per_ms = load * engine["processes"] / mean_ms
        self.rejected, self.busy_ms, self.response_ms = 0, 0.0, {name: [] for name in classes}

    def arrivals(self):
        """Poisson."""
        for _ in range(self.queries):
            yield self.env.timeout(self.random.expovariate(self.rate_per_ms))
            name = self.random.choices(self.names, self.shares)[0]
            service_ms = self.random.lognormvariate(*self.services[name])
            if len(self.server.queue) < self.max_queue:
                self.env.process(self.query(name, service_ms))
            else:
                self.rejected += 1

    def query(self, name, service_ms):
        """Waits, is served, is gone."""
        came = self.env.now
        with self.server.request() as slot:
            yield slot
            yield self.env.timeout(service_ms)
        self.busy_ms += service_ms
        self.response_ms[name].append(self.env.now - came)

    def run(self):
        """Until the last query is served."""
        self.env.process(self.arrivals())
        self.env.run()


def main():
    file, load, queries, seed = sys.argv[1:]
    workload = tomllib.loads(Path(file).read_text())
    queue = Queue(workload, float(load), int(queries), int(seed))
    began = time.process_time()
    queue.run()
    cpu_s = time.process_time() - began
    found = {
        "queries": queue.queries,
        "cpu_s": cpu_s,
        "rejected_pct": 100 * queue.rejected / queue.queries,
        "utilization_pct": 100 * queue.busy_ms / (queue.env.now * queue.server.capacity),
        "slow_p50_ms": statistics.median(queue.response_ms["slow"]),
        "simpy": simpy.__version__,
        "python": sys.version.split()[0],
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
