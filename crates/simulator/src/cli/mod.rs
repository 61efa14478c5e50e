//! The subcommands `simulate`, `suggest` and `reproduce`.

mod clock;
mod loads;
pub mod simulate;
pub mod suggest;
mod work;
