//! The ledgers of this host's applications (`docs/ledger.md`), each watched.
//!
//! | file | does |
//! | --- | --- |
//! | `scan` | finds ledgers, has each watched |
//! | `control` | the socket over which applications are told to cancel |

mod control;
mod scan;

pub use self::scan::scan;

#[cfg(test)]
mod tests;
