//! What a job can be held back by, one file a means; which of them are used says [`crate::plan`].

pub mod autogroup;
pub mod group;
pub mod hierarchy;
pub mod scheduling;
pub mod stop;
