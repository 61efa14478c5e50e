//! Small real systems to overload: `pages`, a web service with a worker pool, and `graph`, a sharded graph
//! store.
//!
//! They are victims, not part of the defence: an overload must show in them as it does in any server, as a
//! queue that grows. Hence the one exception to "a limit on everything" in this workspace: their queue is
//! unbounded unless told otherwise, and holds at most one request for each open connection or stream.

pub mod cli;
pub mod clock;
pub mod graph;
pub mod http;
pub mod pages;
pub mod pool;
pub mod server;
pub mod work;
