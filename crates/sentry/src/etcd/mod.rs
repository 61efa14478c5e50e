//! A pool whose servers are the members of an etcd: no API of etcd ends what another client asks for, so the sentry in front of it does.
//!
//! ```text
//!  client --- KV/Range, Put, Txn ---> call ------------------------------> etcd
//!                                      |  begun, what it asks, answered      |
//!                                      v                                     v  how many keys there are
//!                                   running --- look ---> account <---------'
//!                                      ^                     |
//!                                      '--- watch <--- Scene-'
//!                                          told to end
//! ```
//!
//! | file | does |
//! | --- | --- |
//! | `message` | what is read of requests and answers as they pass; nothing is held up for it |
//! | `cost` | how many keys a range reads, and how long that takes |
//! | `running` | what is under way, by thread |
//! | `account` | from what is under way to scenes |
//! | `watch` | has the engine look, and carries out what it decides |
//!
//! Only requests of the KV service are looked at, and only ranges are ever ended. Watches, leases and locks pass by, for as long as they like.

mod account;
mod cost;
pub mod message;
mod running;
mod watch;

pub use running::{Call, Counting, Guard, Listening};
pub use watch::watch_all;
