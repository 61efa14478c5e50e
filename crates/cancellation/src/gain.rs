//! What cancelling a task would free of a resource: its future use (section 3.4), or its present use for the ablation of Fig. 13.

use crate::scene::{Kind, Use};

/// What a gain is measured by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gain {
    /// What the task will still take: what it took, times `(1 - progress) / progress`.
    #[default]
    Future,
    /// What the task has now (the second ablation of section 5.4).
    Current,
}

impl Gain {
    /// The gain in the resource's own measure: ns of holding or of CPU, pages, bytes. A task that neither holds any of it nor took
    /// any since the last look is done with it: nothing. `to_come` is the task's [`to_come`](crate::progress::to_come).
    #[inline]
    pub fn amount(self, kind: Kind, to_come: f64, used: &Use) -> f64 {
        if used.held == 0 && used.recent == 0 {
            return 0.0;
        }
        match self {
            Gain::Future if kind == Kind::Memory => used.held as f64 * to_come,
            Gain::Future => used.used as f64 * to_come,
            Gain::Current => match kind {
                Kind::Memory => used.held as f64,
                Kind::Lock | Kind::Queue => used.held_ns as f64,
                Kind::Cpu | Kind::Io => used.used as f64,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::to_come;
    use crate::scene::Task;
    use crate::testing::{holding, task};

    #[test]
    fn a_write_at_forty_per_cent_that_held_a_lock_for_a_second_gains_a_second_and_a_half() {
        let task = Task { done: 40, total: 100, ..task(1) };
        let held = holding(0, 0, 1_000_000_000);
        assert_eq!(Gain::Future.amount(Kind::Lock, to_come(&task), &held), 1.5e9);
        assert_eq!(Gain::Current.amount(Kind::Lock, to_come(&task), &held), 1e9);
    }

    #[test]
    fn of_two_that_hold_pages_the_one_that_has_just_begun_gains_more() {
        let pages = |held| Use { held, used: held, ..Use::default() };
        let (almost, begun) =
            (Task { done: 90, total: 100, ..task(1) }, Task { done: 10, total: 100, ..task(2) });
        let future = [(almost, 900), (begun, 100)]
            .map(|(t, n)| Gain::Future.amount(Kind::Memory, to_come(&t), &pages(n)));
        assert!(future[0] < future[1], "{future:?}");
        let current = [(almost, 900), (begun, 100)]
            .map(|(t, n)| Gain::Current.amount(Kind::Memory, to_come(&t), &pages(n)));
        assert!(current[0] > current[1], "{current:?}");
    }

    #[test]
    fn who_is_done_with_a_resource_gains_nothing() {
        let released = Use { used: 5_000_000_000, ..Use::default() };
        assert_eq!(Gain::Future.amount(Kind::Lock, 1.0, &released), 0.0);
    }
}
