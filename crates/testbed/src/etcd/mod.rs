//! A stock etcd to overload: a private server, and its kind of clients.

mod messages;
pub mod operation;
pub mod server;
pub mod session;

pub use operation::Operation;
pub use server::{Options, Server};
pub use session::{Session, Target};
