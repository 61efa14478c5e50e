//! The experiments of `plimsoll reproduce` that need a real system: Bouncer's study on a graph store (section 5.4), Cataclysm's on the
//! sentry itself.

mod bouncer;
mod scaling;

use plimsoll_simulator::reproduce::{Experiment, Settings};

pub use bouncer::bouncer;

/// Fig. 4, which is about a live sentry's own CPU time.
pub fn cataclysm(settings: Settings) -> Vec<Experiment> {
    vec![Experiment { id: "fig4", run: Box::new(move || scaling::fig4(settings)) }]
}
