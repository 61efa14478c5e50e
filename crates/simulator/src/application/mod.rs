//! A deterministic simulation of an application: tasks that wait for locks and permits, push each other's pages out of caches, and
//! share processors and disks, on virtual time; and somebody who looks and has tasks cancelled, dropped, delayed or held to a part.
//!
//! | part | does |
//! | --- | --- |
//! | [`case`], [`text`], [`steps`], [`program`] | what is simulated, and how it is written down |
//! | [`engine`], `work`, `hold`, `memory`, [`fluid`], [`waiting`], [`pages`], [`resource`] | the events, and the resources |
//! | [`live`], [`account`], [`latencies`], `look` | the tasks, what they did, and what a controller is shown of it |
//! | `orders`, [`ran`] | what a controller has done, and what came of it |

pub mod account;
pub mod case;
pub mod engine;
pub mod fluid;
mod hold;
pub mod latencies;
pub mod live;
mod look;
mod memory;
mod orders;
pub mod pages;
pub mod program;
pub mod ran;
pub mod resource;
pub mod steps;
pub mod text;
pub mod waiting;
mod work;

pub use case::Case;
pub use engine::run;
pub use ran::{Fate, Ran, Record};
