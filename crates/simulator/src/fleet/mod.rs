//! The fleet simulator: services with workers and queues, APIs that run through many of them, and who decides how much may enter.
//!
//! | part | does |
//! | --- | --- |
//! | [`plan`] | a scenario made ready |
//! | [`engine`] | the discrete events; [`Fleet::advance`](engine::Fleet::advance) lets time go on |
//! | [`service`] | instances, workers, queues, and what instances decide for themselves |
//! | [`bucket`] | the token buckets where requests enter |
//! | [`autoscaler`] | the horizontal pod autoscaler |
//! | [`signals`] | what a controller is told |
//! | [`traces`] | and what it is told by traces, later |
//! | [`optimum`] | what could be had at best |
//! | [`overshoot`] | for how long services are asked for more than they can do |
//! | [`run`] | a scenario under a controller, and what came of it |
//! | [`random`] | seeded random fleets |
//! | [`study`] | controllers beside each other on many random fleets |
//! | [`convergence`] | how soon they follow a change of those |

pub mod account;
pub mod autoscaler;
pub mod bucket;
pub mod convergence;
pub mod engine;
pub mod events;
pub mod optimum;
pub mod overshoot;
pub mod plan;
pub mod random;
pub mod report;
pub mod request;
pub mod run;
pub mod service;
pub mod signals;
pub mod study;
pub mod traces;
