//! The ledger: a file in shared memory in which an application keeps account of what its running tasks hold and wait for,
//! and from which the agent reads it.
//!
//! `docs/ledger.md` is the format, byte by byte; `sdk/vectors/` holds ledgers that every implementation reads and writes.
//! This is the one in Rust, both sides of it: [`Writer`] is what an SDK is built on, [`Ledger`] what the agent
//! looks through, [`control`] the lines that they exchange. [`dump`] and [`script`] are what the vectors are made of.
//!
//! It leans on no other crate of Plimsoll: an application that takes the SDK takes this and nothing else of us. It reads no
//! clock either; every `now_ns` comes in as an argument, and is nanoseconds of `CLOCK_MONOTONIC`.
//!
//! The writer trusts the application that it is part of, and takes care not to disturb it: no lock, no
//! system call, no allocation once it is created. The reader trusts nothing. It never maps the file, has no `unsafe`, and holds what it
//! reads against what can have happened.

pub mod control;
pub mod dump;
pub mod layout;
pub mod place;
pub mod script;

mod look;
mod reader;
mod records;
mod refusal;
mod writer;

pub use look::{Activity, Lanes, Look, Resource, Task, Use};
pub use reader::{Ledger, TOLD_LATE_NS};
pub use records::Text;
pub use refusal::Refusal;
pub use writer::{Account, Begin, Create, Stamps, TaskRef, Writer};
