//! The order of rows.

use std::cmp::Ordering;

use plimsoll_cpufutures::Allocations;

use crate::row::{Key, Row, wants_enough};

/// What rows are sorted by, the greatest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Sort {
    /// The slowdown over the last second.
    #[default]
    Slowdown,
    /// The slowdown over the next second.
    Next,
    /// The CPU time that was got.
    Actual,
    /// The CPU time that was wanted.
    Desired,
    /// The time spent ready to run without running.
    Waited,
}

impl Sort {
    /// All of them, in the order in which they are gone through.
    pub const ALL: [Sort; 5] = [Sort::Slowdown, Sort::Next, Sort::Actual, Sort::Desired, Sort::Waited];

    /// The head of the column.
    pub const fn title(self) -> &'static str {
        match self {
            Sort::Slowdown => "SLOWER",
            Sort::Next => "NEXT",
            Sort::Actual => "ACTUAL",
            Sort::Desired => "DESIRED",
            Sort::Waited => "WAITED",
        }
    }

    /// The one after this.
    pub fn next(self) -> Sort {
        let at = Sort::ALL.iter().position(|&sort| sort == self).unwrap_or(0);
        Sort::ALL[(at + 1) % Sort::ALL.len()]
    }

    /// What is compared: first whether the row wants enough to be slowed at all, which only slowdowns ask.
    fn weight(self, of: &Allocations) -> (bool, f64) {
        match self {
            Sort::Slowdown => (wants_enough(of), of.slowdown()),
            Sort::Next => (wants_enough(of), of.predicted_slowdown()),
            Sort::Actual => (true, of.actual_ms_per_s),
            Sort::Desired => (true, of.desired_ms_per_s),
            Sort::Waited => (true, of.waited_ms_per_s),
        }
    }

    /// The greater one comes first; of equals the one that wants more, and then the one with the smaller key.
    pub fn compare(self, a: &Row, b: &Row) -> Ordering {
        let ((a_enough, a_weight), (b_enough, b_weight)) = (self.weight(&a.of), self.weight(&b.of));
        let by_weight = b_enough.cmp(&a_enough).then(b_weight.total_cmp(&a_weight));
        by_weight
            .then(b.of.desired_ms_per_s.total_cmp(&a.of.desired_ms_per_s))
            .then_with(|| a.key.cmp(&b.key))
    }
}

/// Sorts rows; cgroups among their siblings, each before what is below it. `rows` come in the order of their keys.
pub fn sort(rows: Vec<Row>, by: Sort) -> Vec<Row> {
    let is_tree = rows.iter().any(|row| matches!(row.key, Key::Group(_)));
    if !is_tree {
        let mut rows = rows;
        rows.sort_by(|a, b| by.compare(a, b));
        return rows;
    }
    // Every path leads back to the row's ancestors, which are compared from the root on: two rows differ by the first that they do not share.
    let path = |row: &Row| match &row.key {
        Key::Group(path) => path.clone(),
        _ => String::new(),
    };
    let index: std::collections::HashMap<String, usize> =
        rows.iter().enumerate().map(|(at, row)| (path(row), at)).collect();
    let mut lines: Vec<Vec<usize>> = rows
        .iter()
        .map(|row| crate::row::ancestry(&path(row)).filter_map(|above| index.get(above).copied()).collect())
        .collect();
    lines.sort_by(|a, b| {
        let differ = a.iter().zip(b).find(|(a, b)| a != b);
        differ.map_or(a.len().cmp(&b.len()), |(&a, &b)| by.compare(&rows[a], &rows[b]))
    });
    let mut rows: Vec<Option<Row>> = rows.into_iter().map(Some).collect();
    lines.iter().filter_map(|line| rows[*line.last()?].take()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{By, rows, tests::task};

    fn names(by: By, sort_by: Sort, tasks: &[crate::scene::Task]) -> Vec<String> {
        sort(rows(tasks.iter(), by), sort_by).into_iter().map(|row| row.name).collect()
    }

    #[test]
    fn the_greatest_comes_first_and_what_hardly_wants_anything_last() {
        let mut tasks = [
            task(1, 1, "slow", "/", 100.0, 20.0),
            task(2, 2, "big", "/", 900.0, 800.0),
            task(3, 3, "stuck", "/", 50.0, 0.0),
            task(4, 4, "tiny", "/", 0.2, 0.0),
            task(5, 5, "doomed", "/", 300.0, 300.0),
        ];
        tasks[4].of.predicted_ms_per_s = 10.0;
        assert_eq!(names(By::Thread, Sort::Slowdown, &tasks), ["stuck", "slow", "big", "doomed", "tiny"]);
        assert_eq!(names(By::Thread, Sort::Next, &tasks), ["stuck", "doomed", "slow", "big", "tiny"]);
        assert_eq!(names(By::Thread, Sort::Actual, &tasks)[..2], ["big", "doomed"]);
        assert_eq!(names(By::Thread, Sort::Desired, &tasks)[..3], ["big", "doomed", "slow"]);
        assert_eq!(names(By::Thread, Sort::Waited, &tasks)[..3], ["big", "slow", "stuck"]);
    }

    #[test]
    fn cgroups_are_sorted_among_their_siblings() {
        let tasks = [
            task(1, 1, "a", "/calm/one", 900.0, 900.0),
            task(2, 2, "b", "/slow/little", 200.0, 200.0),
            task(3, 3, "c", "/slow/much", 400.0, 100.0),
        ];
        assert_eq!(names(By::Group, Sort::Slowdown, &tasks), ["/", "slow", "much", "little", "calm", "one"]);
        assert_eq!(names(By::Group, Sort::Actual, &tasks), ["/", "calm", "one", "slow", "little", "much"]);
    }

    #[test]
    fn all_orders_are_gone_through() {
        let seen: Vec<Sort> =
            std::iter::successors(Some(Sort::Slowdown), |sort| Some(sort.next())).take(6).collect();
        assert_eq!((seen[..5].to_vec(), seen[5]), (Sort::ALL.to_vec(), Sort::Slowdown));
    }
}
