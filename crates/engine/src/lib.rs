//! The engine: looks at what runs, finds who holds up all others, cancels that one and says why.
//!
//! ```text
//!               .--> events, status
//!  source --Scene--> reliever --Decision--.
//!     ^                                   |
//!     '------------- cancel --------------'
//! ```
//!
//! The agent runs it beside applications and databases. [`Engine`] runs it within an application that wants no second process, over the
//! application's own ledger and on one thread; whoever uses that needs nothing else of this crate.

mod engine;
mod running;
mod sheepdog;
mod thread;

pub mod clock;
pub mod ease;
pub mod event;
pub mod events;
pub mod host;
mod incident;
pub mod ledger;
pub mod record;
mod retry;
pub mod source;
pub mod standstill;
pub mod status;
pub mod tape;
pub mod watch;

pub use engine::Engine;
pub use running::Running;
pub use sheepdog::{Herd, SheepDog};
