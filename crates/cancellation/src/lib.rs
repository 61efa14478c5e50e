//! Cancellation: which running task must yield?
//!
//! One dump, one forgotten transaction, one runaway report holds what everybody needs, and a whole service crawls. Refusing new
//! work does not help there: it refuses victims. What is decided here is which task holds up all others and would go on doing so,
//! so that it is cancelled, and nobody else (ATROPOS, sections 3.3 to 3.6 and 4). Nothing here reads a clock or cancels anything:
//! a host shows what there is to see, and carries out what is decided.
//!
//! | part | does | from |
//! | --- | --- | --- |
//! | [`scene`] | what there is to see | section 3.2 |
//! | [`controller`] | what can be ordered, by us and by those we are measured against | |
//! | [`reliever`] | all of it, for one application | Fig. 5 |
//! | [`detector`] | are objectives missed, while no more is being done? | section 3.3 |
//! | [`contention`] | how much time is lost to each resource | sections 3.4, 3.5 |
//! | [`rise`] | how much of that is new | |
//! | [`gain`], [`progress`] | what cancelling a task would free | section 3.4 |
//! | [`usual`] | what tasks usually take, so that no innocent is blamed | |
//! | [`choose`] | who is to blame, and whom to cancel | section 3.5, Alg. 1 |
//! | [`budget`] | how many may be cancelled | sections 4, 5.3 |
//! | [`again`] | what becomes of who was cancelled | section 4 |
//! | [`decision`] | what a look came to | |
//! | [`baseline`] | what it is measured against | section 5.2 |

pub mod again;
pub mod baseline;
pub mod budget;
pub mod choose;
pub mod contention;
pub mod controller;
pub mod decision;
pub mod detector;
mod fading;
pub mod gain;
pub mod progress;
pub mod reliever;
pub mod rise;
pub mod scene;
#[cfg(test)]
mod testing;
pub mod usual;

pub use controller::{Controller, NoControl, Order};
pub use decision::Decision;
pub use reliever::{Reliever, Terms};
pub use scene::{Kind, Resource, Scene, Task, Use};
