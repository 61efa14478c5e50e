//! The simulation study of the paper on Bouncer (sections 5.3 and 5.5).

mod figures;
mod overhead;
mod sample;
mod study;
mod tables;

use std::rc::Rc;

use super::{Experiment, Settings};
use study::Study;

/// Its experiments, in the order of the paper. They share their runs.
pub fn experiments(settings: Settings) -> Vec<Experiment> {
    let study = Rc::new(Study::new(settings));
    let of = |id, run: fn(&Study) -> _| {
        let study = Rc::clone(&study);
        Experiment { id, run: Box::new(move || Ok(run(&study))) }
    };
    vec![
        of("table3", tables::table3),
        of("table4", tables::table4),
        of("table5", tables::table5),
        of("fig6", figures::fig6),
        of("fig7", figures::fig7),
        of("fig8", figures::fig8),
        of("fig9", figures::fig9),
        of("fig10", figures::fig10),
        of("fig14", figures::fig14),
        Experiment { id: "overhead", run: Box::new(|| Ok(overhead::overhead())) },
    ]
}
