//! `plimsoll top`: how many times slower than on an idle machine every process and thread runs, what it will get in the next second, and
//! who takes the CPU from whom.
//!
//! ```text
//!  herald --> scene --> rows --> order --> state --> draw --> terminal
//!               |                            ^
//!               |--> record --> bill         '-- keys
//!               '--> once
//! ```
//!
//! The herald (`plimsoll-herald`) reads the host; all else here works on a [`scene::Scene`], so that tests draw hosts that never were.

pub mod bill;
pub mod cli;
pub mod draw;
pub mod history;
pub mod order;
pub mod record;
pub mod row;
pub mod scene;
pub mod state;
pub mod takers;
pub mod watch;

mod clock;
mod once;
mod run;
mod terminal;
