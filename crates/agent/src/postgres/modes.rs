//! Lock modes and which of them conflict: table 13.2 of PostgreSQL's manual, which is the same in all versions.

use crate::server::chains::Mode;

/// From the weakest.
const NAMES: [&str; 8] = [
    "AccessShareLock",
    "RowShareLock",
    "RowExclusiveLock",
    "ShareUpdateExclusiveLock",
    "ShareLock",
    "ShareRowExclusiveLock",
    "ExclusiveLock",
    "AccessExclusiveLock",
];
/// With which modes each conflicts: bit `i` is mode `i`.
const CONFLICTS: [u32; 8] =
    [0b1000_0000, 0b1100_0000, 0b1111_0000, 0b1111_1000, 0b1110_1100, 0b1111_1100, 0b1111_1110, 0b1111_1111];

/// As `pg_locks` calls it; nothing for those that conflict with nothing (`SIReadLock`).
pub fn mode(name: &str) -> Option<Mode> {
    NAMES.iter().position(|&known| known == name).map(|index| Mode::new(index, CONFLICTS[index]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conflicts_are_mutual_and_as_the_manual_says() {
        let modes: Vec<Mode> = NAMES.iter().map(|name| mode(name).unwrap()).collect();
        for &a in &modes {
            for &b in &modes {
                assert_eq!(a.conflicts(b), b.conflicts(a), "{a:?} {b:?}");
            }
        }
        let with = |name: &str| -> Vec<usize> {
            let mode = super::mode(name).unwrap();
            (0..8).filter(|&i| mode.conflicts(modes[i])).collect()
        };
        assert_eq!(with("AccessShareLock"), [7]);
        assert_eq!(with("RowShareLock"), [6, 7]);
        assert_eq!(with("RowExclusiveLock"), [4, 5, 6, 7]);
        assert_eq!(with("ShareUpdateExclusiveLock"), [3, 4, 5, 6, 7]);
        assert_eq!(with("ShareLock"), [2, 3, 5, 6, 7]);
        assert_eq!(with("ShareRowExclusiveLock"), [2, 3, 4, 5, 6, 7]);
        assert_eq!(with("ExclusiveLock"), [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(with("AccessExclusiveLock"), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(mode("SIReadLock"), None);
    }
}
