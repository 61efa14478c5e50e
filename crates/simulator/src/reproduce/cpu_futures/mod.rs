//! The experiments of the paper on CPU Futures that need no real system: two schedulers on virtual time, sampled ten times a second as a
//! herald does, with the models and the controllers that run in production.
//!
//! **Which scheduler.** Fig. 2 and 9 to 11 are about Linux' O(1) scheduler of old, which treats equals unequally: [`crate::scheduler::O1`]. Fig. 4, 5 and the
//! accuracy are about shares: [`crate::scheduler::Fair`]. Fig. 1 is about both. Fig. 6 to 8 need a real server and are not here.
//!
//! **What is judged.** Where the paper prints a number, that; where it shows a picture, a limit of ours, which says what the picture
//! says. Published numbers of the default configuration calibrated the server (`workload`), so that they are met says nothing; what is made of it does.

pub mod accuracy;
mod equals;
mod herald;
mod hunt;
pub mod load;
mod sheepdog;
mod workload;

use super::findings::Findings;
use super::{Experiment, Settings};

/// Its experiments, in the order of the paper, and then our own target.
pub fn experiments(settings: Settings) -> Vec<Experiment> {
    let of = |id, run: fn(Settings) -> Result<Findings, String>| Experiment {
        id,
        run: Box::new(move || run(settings)),
    };
    vec![
        of("fig1", load::fig1),
        of("fig2", equals::fig2),
        of("fig4", load::fig4),
        of("fig5", hunt::fig5),
        of("fig9", sheepdog::fig9),
        of("fig10", sheepdog::fig10),
        of("fig11", sheepdog::fig11),
        of("accuracy", accuracy::accuracy),
    ]
}
