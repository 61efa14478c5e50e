//! The subcommands `simulate`, `suggest` and `reproduce`.

mod loads;
pub mod reproduce;
pub mod simulate;
pub mod suggest;
