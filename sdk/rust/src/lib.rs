#![doc = include_str!("../README.md")]

mod app;
mod cancel;
mod clock;
mod control;
pub mod current;
mod events;
mod fork;
mod handle;
mod held;
mod quiet;
mod task;
mod thread;

pub mod sync;
#[cfg(feature = "tokio")]
pub mod tokio;
#[cfg(feature = "tower")]
pub mod tower;

pub use app::{App, Options, Resource};
pub use cancel::{Again, Cancellation, Cancelled, Second, Token};
pub use events::Use;
pub use held::{Held, Waiting};
pub use plimsoll_ledger::layout::Kind;
pub use task::{Task, TaskBuilder};
