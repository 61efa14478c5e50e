//! What cases lose when nobody intervenes, one line of JSON a case, to be held beside the same on a real server (`benches/postgres`):
//!
//! ```text
//! cargo run --release -p plimsoll-simulator --example uncontrolled -- paper/atropos/c6.toml > benches/postgres/runs/simulated.jsonl
//! ```

use plimsoll_simulator::application::{Case, run};
use serde_json::json;

fn main() {
    for file in std::env::args().skip(1) {
        let case = Case::parse(&std::fs::read_to_string(file).expect("the file")).expect("a case");
        let [calm, disturbed] = [false, true].map(|disturbed| run(&case, 1, disturbed, None));
        let line = json!({
            "case": case.id, "calm_per_s": calm.throughput_per_s(&case), "calm_p99_ms": calm.p99_ms(&case),
            "throughput": disturbed.throughput_per_s(&case) / calm.throughput_per_s(&case),
            "p99": disturbed.p99_ms(&case) / calm.p99_ms(&case),
        });
        println!("{line}");
    }
}
