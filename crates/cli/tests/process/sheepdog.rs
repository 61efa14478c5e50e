//! An agent beside the server sees its workers wait for a CPU, and the sentry lets in as many as it takes.

use std::hint::black_box;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::Value;

use crate::agent::Agent;
use crate::harness::{Load, Sentry, Upstream, get, wait_for};

/// Computes for some milliseconds, on the first CPU that there is.
fn compute(rounds: u64) {
    let mine = sched_getaffinity(None).unwrap();
    let mut one = CpuSet::new();
    one.set((0..CpuSet::MAX_CPU).find(|&cpu| mine.is_set(cpu)).unwrap());
    sched_setaffinity(None, &one).unwrap();
    for i in 0..rounds * 100_000 {
        black_box(i);
    }
}

#[test]
fn an_agent_beside_the_server_keeps_its_workers_within_their_slowdown() {
    let upstream = Upstream::working(compute);
    let pool = format!(
        "[pool.test]\nservers = [\"{}\"]\nworkers = \"adaptive\"\nmax_slowdown = 3.0\nadmission = {{ policy = \"none\" }}\n\
         [class.default]\nslo = {{ p50 = \"60s\" }}\n",
        upstream.address
    );
    let sentry = Sentry::start(&pool);
    let text = format!("[sentry]\nadmin = \"{}\"\n[agent]\nadmin = \"127.0.0.1:0\"\n{pool}", sentry.admin);
    let agent = Agent::start(&text);
    let shop = || -> Value {
        let pools: Value = serde_json::from_str(&get(sentry.admin, "/pools").unwrap().body).unwrap();
        pools["pools"][0].clone()
    };
    let load = Load::start(sentry.address, 24, "/20");
    // Three of them on one CPU are as slow as they may be. Others want the CPU too, and then there are fewer.
    wait_for("few requests at once", || {
        let shop = shop();
        shop["by_slowdown"] == true && shop["slots"].as_u64().unwrap() <= 4
    });
    drop(agent);
    wait_for("the sentry to be on its own", || shop()["by_slowdown"] == false);
    load.stop();
}
