//! Provisioning: how many servers, and whose?
//!
//! Policing holds a load off; more servers take it on. What this crate decides takes effect in seconds to minutes, so it looks
//! ahead (Cataclysm, section 4). Nothing here reads a clock or draws randomness of its own.
//!
//! | part | answers | from |
//! | --- | --- | --- |
//! | [`demand`] | what the classes of an application ask of its servers | section 4.1, Eq. 1 |
//! | [`queueing`] | how many slots a load needs | section 4.1, Eq. 14 |
//! | [`forecast`] | what will arrive | section 4.1 |
//! | [`planner`] | how many servers an application should have now | section 4.1 |
//! | [`share`] | whose the servers of one pool are | section 4.1 |
//! | [`sentries`] | how many sentries | section 4.2 |
//! | [`fleet`] | all of it, for the applications that share servers | section 4.1 |

pub mod demand;
pub mod fleet;
pub mod forecast;
pub mod planner;
pub mod queueing;
pub mod sentries;
pub mod share;
