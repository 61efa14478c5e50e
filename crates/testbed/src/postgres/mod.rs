//! A stock PostgreSQL to overload: a private server, a load that comes whether or not it keeps up, and those who bring it to its knees.
//!
//! [`Stage::set`] makes all of it for one [`Case`], and [`Stage::run`] runs it. Whoever wants to do something about the culprit takes the
//! parts: [`Server`], [`Load`], [`Case::trigger`].

pub mod agent;
pub mod cases;
mod install;
pub mod server;
pub mod session;
pub mod stage;
pub mod tables;

pub use crate::agent::Agent;
pub use crate::database::{judge, load, loading, request, task};
pub use agent::Watch;
pub use cases::{Case, Dose};
pub use install::there_is_none;
pub use load::Load;
pub use loading::Loading;
pub use request::{Figures, Request};
pub use server::{Options, Server, Shutdown};
pub use session::Session;
pub use stage::{Plan, Stage};
pub use task::{Ending, How, Task};
