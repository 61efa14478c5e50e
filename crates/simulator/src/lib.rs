//! A deterministic simulation of a queue behind a gate, on virtual time. The gate is the one that decides in
//! production, so what is tried here is what will happen there.

pub mod access_log;
pub mod application;
pub mod arrivals;
pub mod cli;
mod clock;
pub mod departures;
pub mod engine;
pub mod figures;
pub mod fleet;
pub mod parallel;
mod policed;
pub mod replay;
pub mod report;
pub mod reproduce;
pub mod run;
pub mod scenario;
pub mod scheduler;
pub mod service;
pub mod stats;
pub mod suggest;
pub mod traffic;
mod work;
