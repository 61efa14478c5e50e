//! What all controllers of running tasks have in common, ours and those that it is measured against: they look, and give orders.

use plimsoll_core::Nanos;

use crate::scene::Scene;

/// What an application is told to do. Which orders it can carry out is the application's to say; it ignores the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Order {
    /// Cancel this task, which holds up what others need (ATROPOS).
    Cancel {
        /// Its number.
        task: u64,
        /// The resource that it holds up, as an index into the scene's.
        resource: u32,
    },
    /// Give this task up, because it waits in vain (Protego).
    Drop {
        /// Its number.
        task: u64,
    },
    /// Let this task pause before its next step (pBox).
    Delay {
        /// Its number.
        task: u64,
        /// For how long.
        pause: Nanos,
    },
    /// All tasks of a class together hold at most so much of a resource from now on (DARC, PARTIES).
    Cap {
        /// The resource, as an index into the scene's.
        resource: u32,
        /// The class.
        class: u32,
        /// Units of it; of CPU and IO, thousandths of what there is.
        units: u64,
    },
    /// Run again what was cancelled; it can not be cancelled a second time.
    Rerun {
        /// The number of the task that was cancelled.
        task: u64,
    },
    /// Do not run it again: its deadline has passed.
    Abandon {
        /// The number of the task that was cancelled.
        task: u64,
    },
}

/// Watches an application and says what is to be done.
pub trait Controller {
    /// The name in results.
    fn name(&self) -> &'static str;

    /// Looks at the application and appends its orders. To be called every [`Controller::interval`].
    fn look(&mut self, now: Nanos, scene: &Scene, orders: &mut Vec<Order>);

    /// How often it wants to look.
    fn interval(&self) -> Nanos {
        Nanos::from_millis(20)
    }
}

/// Leaves everything as it is.
pub struct NoControl;

impl Controller for NoControl {
    fn name(&self) -> &'static str {
        "none"
    }

    fn look(&mut self, _: Nanos, _: &Scene, _: &mut Vec<Order>) {}
}
