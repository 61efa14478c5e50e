//! Request classes: what an objective, a share and a refusal are counted by.

use std::fmt;

/// Index of a class in the order in which the config declares them. The last one is always `default`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub u16);

/// Most classes that one program may have, `default` included. More is an error in the config, never growth.
pub const MAX_CLASSES: usize = 256;

impl ClassId {
    /// As an index into arrays that hold one entry a class.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
impl fmt::Debug for ClassId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "class#{}", self.0)
    }
}
