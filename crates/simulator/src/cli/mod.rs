//! The subcommands `simulate`, `suggest`, `fleet` and `reproduce`.

pub mod fleet;
mod loads;
pub mod reproduce;
pub mod simulate;
pub mod suggest;
