//! The agent: watches applications, databases and other servers, finds the task that holds up all others, and cancels that one.
//!
//! ```text
//!  ledger ----.                                            .--> events, metrics, status
//!              >-- source --Scene--> reliever --Decision--<
//!  PostgreSQL,|      ^                                    '--> cancel: over the application's socket,
//!  MariaDB,   |      |                                                 with pg_cancel_backend, KILL,
//!  OpenSearch,|      |                                                 POST /_tasks/ID/_cancel,
//!  Solr,      |      |                                                 GET /solr/NAME/tasks/cancel,
//!  php-fpm ---'      '------------ outcome ---------------'            a signal to a worker
//! ```
//!
//! Nothing waits for it: if it ends, whatever it watched goes on as if it had never been there.

pub mod cli;
pub mod steer;

mod admin;
mod flocks;
mod herald;
mod ledger;
mod mariadb;
mod metrics;
mod postgres;
mod run;
mod search;
mod server;
mod targets;
mod verify;
mod workers;

// What watches, and what tells: the same here and within an application.
use plimsoll_engine::{clock, ease, event, events, host, record, source, status, watch};
