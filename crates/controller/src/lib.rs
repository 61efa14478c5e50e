//! The controller: reads the sentries, plans how many servers each pool and how many sentries there should be, and acts through a
//! `provider::Provider`.
//!
//! ```text
//!  sentries --GET /pools--> measure --> provisioning::fleet --> orders --> actuator, one a pool --> provider
//!     ^                         |                                                  |
//!     +------ PUT /pools/NAME/servers, PUT /share <----- which servers are ready --+
//!     |                         v
//!     +--RLQS-- rates <------ decide <-- telemetry <--spans, metrics-- the services behind
//! ```
//!
//! Nothing waits for it: a sentry goes on with what it was told last, and so do the servers.

pub mod cli;
pub mod telemetry;

mod actuator;
mod admin;
mod ask;
mod backoff;
mod decide;
mod entries;
#[cfg(feature = "kubernetes")]
mod kubernetes;
mod lead;
mod measure;
mod metrics;
mod more_sentries;
mod outcome;
mod pools;
mod process;
mod provider;
mod rates;
mod reading;
mod record;
mod recording;
mod rounds;
mod run;
mod sentries;
mod status;
mod wanted;
