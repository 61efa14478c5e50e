//! What TopFull is measured against: overload control that each instance of each service does by itself, with no view of whole paths.
//!
//! An instance asks its policy about each request that comes, and tells it how long requests waited. What one instance refuses may have
//! been worked on at three others; that is their weakness (TopFull, section 2), and theirs alone: both are whole.

pub mod breakwater;
pub mod dagor;

pub use breakwater::Breakwater;
pub use dagor::{Dagor, Priority};
