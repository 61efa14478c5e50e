//! What the reliever sees and decides in a simulated application, look by look, where it cancels somebody or wants to:
//!
//! ```text
//! cargo run --release -p plimsoll-simulator --example culprits -- paper/atropos/c12.toml [SEED]
//! ```

use plimsoll_cancellation::decision::State;
use plimsoll_cancellation::{Controller, Order, Reliever, Scene, Terms};
use plimsoll_core::{Nanos, Percentile, Slo};
use plimsoll_simulator::application::{Case, run};

/// A reliever that says what it does.
struct Traced<'a> {
    reliever: Reliever,
    case: &'a Case,
    last: Option<State>,
}

impl Controller for Traced<'_> {
    fn name(&self) -> &'static str {
        "atropos"
    }

    fn look(&mut self, now: Nanos, scene: &Scene, orders: &mut Vec<Order>) {
        let had = orders.len();
        Controller::look(&mut self.reliever, now, scene, orders);
        let decision = self.reliever.decision();
        if orders.len() == had && self.last == Some(decision.state) {
            return;
        }
        self.last = Some(decision.state);
        let class = |id: u64| {
            let task = scene.tasks.iter().find(|task| task.id == id);
            task.map_or("?", |task| &*self.case.classes[task.class as usize].name)
        };
        let levels: Vec<_> = decision.contention.iter().map(|level| (level * 1e3).round() / 1e3).collect();
        println!(
            "{:8.3} s {:?} late {:?} contention {levels:?} {:?}",
            now.as_secs_f64(),
            decision.state,
            decision.late.map(|late| late.share),
            decision.restraint,
        );
        for order in &orders[had..] {
            println!("    {order:?}");
        }
        for candidate in decision.candidates.iter().take(3) {
            println!("    {} {:.3} {:?}", class(candidate.task), candidate.score, candidate.gains);
        }
    }
}

fn main() {
    let file = std::env::args().nth(1).expect("the file of a case");
    let case = Case::parse(&std::fs::read_to_string(file).expect("the file")).expect("a case");
    let seed = std::env::args().nth(2).map_or(1, |seed| seed.parse().expect("a seed"));
    let calm = run(&case, 1, false, None);
    let limit = Nanos((calm.p99_ms(&case) * 1.2 * 1e6) as u64);
    let terms = Terms::new(Slo::new([(Percentile::P99, limit)]).expect("an objective"));
    let mut traced = Traced { reliever: Reliever::new(terms), case: &case, last: None };
    let ran = run(&case, seed, true, Some(&mut traced));
    println!(
        "throughput {:.3}, p99 {:.3}, dropped {:.4} %",
        ran.throughput_per_s(&case) / calm.throughput_per_s(&case),
        ran.p99_ms(&case) / calm.p99_ms(&case),
        ran.dropped_pct()
    );
}
