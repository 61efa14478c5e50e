//! The experiments of `plimsoll reproduce` that need a real system: Bouncer's study on a graph store (section 5.4), Cataclysm's on the
//! sentry itself and on servers that a controller starts, CPU Futures' on an Apache, TopFull's on whole fleets of services.

mod bouncer;
mod cpu_futures;
mod machine;
mod scaling;
mod sentries;
mod speed;
mod step;
mod topfull;

use plimsoll_simulator::reproduce::{Experiment, Settings};

pub use bouncer::bouncer;
pub use cpu_futures::experiments as cpu_futures;
pub use topfull::experiments as topfull;

/// Fig. 4 and 6, which are about live sentries' own CPU time, and a step of the load on real servers (section 6.7).
pub fn cataclysm(settings: Settings) -> Vec<Experiment> {
    vec![
        Experiment { id: "fig4", run: Box::new(move || scaling::fig4(settings)) },
        Experiment { id: "fig6", run: Box::new(move || sentries::fig6(settings)) },
        Experiment { id: "step", run: Box::new(move || step::step(settings)) },
    ]
}
