//! A program that computes for so long, then sleeps for so long, over and over: what it wants of a CPU is known by its making.

use plimsoll_core::Nanos;

use crate::clock::{Clock, sleep_precisely, thread_cpu};
use crate::work::compute;

/// From one look at the clock to the next: some microseconds.
const ROUNDS: u64 = 2_000;

/// What it does.
#[derive(Clone, Copy, Debug, PartialEq, clap::Args)]
pub struct Options {
    /// For how long it computes, by its own CPU time: longer where others have the CPU meanwhile.
    #[arg(long, value_name = "TIME", default_value = "3ms")]
    pub compute: Nanos,
    /// For how long it sleeps then; 0s makes it a hog.
    #[arg(long, value_name = "TIME", default_value = "7ms")]
    pub sleep: Nanos,
}

/// Does so until the process is ended.
pub fn run(options: Options) -> ! {
    sleep_precisely();
    let clock = Clock::start();
    loop {
        once(options.compute);
        if options.sleep > Nanos::ZERO {
            clock.sleep_until(clock.now() + options.sleep);
        }
    }
}

/// Computes for so long.
fn once(span: Nanos) {
    let until = thread_cpu() + span;
    loop {
        compute(ROUNDS);
        if thread_cpu() >= until {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_computes_for_as_long_as_it_was_told() {
        let before = thread_cpu();
        once(Nanos::from_millis(3));
        let used = thread_cpu().since(before);
        assert!((Nanos::from_millis(3)..Nanos::from_millis(30)).contains(&used), "{used}");
    }
}
