//! Runs against real servers in this process: hyper where it should behave, bare sockets where it should not.

mod connections;
mod outcomes;
mod server;
mod timing;
