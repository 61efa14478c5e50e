//! Request classes: what an objective, a share and a refusal are counted by.

use std::fmt;

/// Index of a class in the order in which the config declares them. The last one is always `default`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub u16);

/// Most classes that one program may have, `default` included. More is an error in the config, never growth.
pub const MAX_CLASSES: usize = 256;

impl ClassId {
    /// As an index into arrays that hold one entry a class.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// How important classes are, from 0, the most important: by priority, and among those of one priority by revenue. Who is alike in
/// both has the same rank.
pub fn ranks(classes: impl IntoIterator<Item = (u32, f64)>) -> Vec<u16> {
    let classes: Vec<(u32, f64)> = classes.into_iter().collect();
    let by = |a: &(u32, f64), b: &(u32, f64)| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1));
    let mut levels = classes.clone();
    levels.sort_by(by);
    levels.dedup_by(|a, b| by(a, b).is_eq());
    classes.iter().map(|class| levels.partition_point(|level| by(level, class).is_lt()) as u16).collect()
}

impl fmt::Debug for ClassId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "class#{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priority_comes_before_revenue_and_equals_are_equal() {
        assert_eq!(ranks([(5, 1.0), (1, 0.1), (5, 9.0), (5, 1.0), (7, 100.0)]), [2, 0, 1, 2, 3]);
        assert!(ranks([]).is_empty());
    }
}
