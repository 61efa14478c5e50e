//! Resources that a server measures itself: its pools of workers, its memory, its processors.

use plimsoll_cancellation::scene::{Resource, Use};

use super::chains::Pid;

/// One of them, since the last look.
#[derive(Clone, Debug)]
pub struct Measured {
    /// What people call it.
    pub name: &'static str,
    /// What happened to it, all tasks together.
    pub resource: Resource,
    /// Who does what with it; tasks and resources get their numbers from the scene.
    pub uses: Vec<(Pid, Use)>,
}
