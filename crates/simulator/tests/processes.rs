//! Processes that come and go while a run is under way: nobody is lost, and no more work than may.

mod common;

use common::{Checker, one_class, setup};
use plimsoll_core::Nanos;
use plimsoll_core::config::workload::{Engine, Service};
use plimsoll_core::rng::seeded;
use plimsoll_simulator::engine::{self, Deciders, Server};
use proptest::prelude::*;

const MOST: u32 = 12;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn whatever_their_number_everybody_is_served(
        changes in prop::collection::vec((1u64..400, 1u32..15), 1..12), load in 0.2..1.5f64, seed in any::<u64>(),
    ) {
        let engine = Engine { processes: MOST, max_queue: 100_000 };
        let scenario = one_class(engine, Service::Exponential { mean: Nanos::from_millis(20) });
        let setup = setup("none", load, seed, 0);
        let (gate, server) = (setup.gate(&scenario), Server { processes: MOST, stalls: Vec::new() });
        let deciders = Deciders { police: None, gate: &gate, sentry_busy: |_| 0.0 };
        let mut checker = Checker::new(&scenario.engine, &[]);
        let traffic = setup.traffic(&scenario).take(2_000);
        let mut run = engine::Engine::new(deciders, &server, traffic, seeded(seed, 3), &mut checker);
        let mut now = Nanos::ZERO;
        for (after_ms, processes) in changes {
            now += Nanos::from_millis(after_ms);
            run.advance(now);
            run.observer().may_work(processes.min(MOST) as usize, now);
            run.set_processes(processes, now);
            prop_assert_eq!(gate.slots(), processes.min(MOST));
        }
        run.advance(Nanos::MAX);
        checker.finish();
        prop_assert_eq!((checker.arrived, checker.served), (2_000, 2_000));
    }
}
