//! Provisioning: how many servers, and whose?
//!
//! Policing holds a load off; more servers take it on. What this crate decides takes effect in seconds to minutes, so it looks
//! ahead (Cataclysm, section 4). Nothing here reads a clock or draws randomness of its own.
//!
//! | part | answers | from |
//! | --- | --- | --- |
//! | [`queueing`] | how many slots a load needs | section 4.1, Eq. 14 |
//! | [`forecast`] | what will arrive | section 4.1 |
//! | [`planner`] | how many servers an application should have now | section 4.1 |
//! | [`share`] | whose the servers of one pool are | section 4.1 |

pub mod forecast;
pub mod planner;
pub mod queueing;
pub mod share;
