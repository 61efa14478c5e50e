//! What is said to whoever reads the application's log: one line for each cause, and no more than a few causes.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use crate::app::{Lock, lock};

/// Causes that are told from one another.
const MOST: usize = 64;

/// Says it, unless it was said.
pub fn once(line: String) {
    static SAID: OnceLock<Lock<BTreeSet<String>>> = OnceLock::new();
    let mut said = lock(SAID.get_or_init(Lock::default));
    if said.len() < MOST && !said.contains(&line) {
        log::warn!("plimsoll: {line}");
        said.insert(line);
    }
}
