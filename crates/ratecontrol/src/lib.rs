//! Rate control: how much of each API may enter the fleet?
//!
//! A request that is refused halfway was worked on for nothing. So the fleet is defended where requests enter it, API by API, by what
//! each API's whole path can carry (TopFull, section 4). Nothing here reads a clock or draws randomness of its own.
//!
//! | part | does | from |
//! | --- | --- | --- |
//! | [`topology`] | which services each API calls, what it is promised | section 4.1 |
//! | [`paths`] | learns that from traces | sections 4.1, 4.2 |
//! | [`observation`] | what was seen of services and APIs since the last step | section 5 |
//! | [`overload`] | which services are overloaded | section 4.2 |
//! | [`clusters`] | which APIs have to be decided together | section 4.2, Eq. 2 |
//! | [`control`] | all of it, once a step: what was seen in, rates out | section 4 |
//! | [`rates`] | the rates in force, and every change of one with its reason | |
//! | [`controller`] | what sets the rates of a cluster; one file each | |
//! | [`stepwise`] | the paper's way: whose rate is changed in a cluster | section 4.1, Algorithm 1 |
//! | [`mimd`] | by how much: fixed steps | section 6.2 |
//! | [`aimd`] | by how much: Breakwater's steps | section 6.3 |
//! | [`learned`] | by how much: as a network has learned, while the model looks on | section 4.3 |
//! | [`model`] | ours: learns what services can do and APIs cost, and solves for the best rates | section 3, Eq. 1 |

pub mod aimd;
pub mod baselines;
pub mod clusters;
pub mod control;
pub mod controller;
pub mod learned;
pub mod mimd;
pub mod model;
pub mod observation;
pub mod overload;
pub mod paths;
pub mod rates;
pub mod stepwise;
pub mod topology;

pub use control::{Controller, RateControl, Settings, Step};
pub use controller::{RateController, View};
pub use learned::Network;
pub use observation::{ApiSignal, Observation, ServiceSignal};
pub use rates::{Decision, Why};
pub use stepwise::{Actor, State, Stepwise};
pub use topology::{Api, ApiId, Branch, OwnTime, ServiceId, Topology};
