//! The cases: real servers, as they come, that one client brings to its knees; and what becomes of everybody else if nobody does anything about
//! it, if the server's own means do, and if `plimsoll agent` does.
//!
//! Each case is a file of `cases/`. `run` starts its server, privately and anew for each remedy, fills its tables, sends the load, and lets the
//! tasks of the file begin; `judge` holds what came of that against an undisturbed run.

pub mod cli;

mod catalog;
mod cost;
mod front;
mod judge;
mod page;
mod protego;
mod report;
mod run;
mod show;
mod stand;
