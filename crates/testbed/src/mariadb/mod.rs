//! A stock MariaDB to overload: a private server, and its kind of clients.

mod install;
pub mod server;
pub mod session;

pub use install::there_is_none;
pub use server::{Options, Server};
pub use session::Session;
