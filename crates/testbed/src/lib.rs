//! Small real systems to overload: `pages`, a web service with a worker pool, `graph`, a sharded graph store, and `postgres`, a stock
//! PostgreSQL with those who overload it; `mariadb`, a stock MariaDB, and `search`, a stock OpenSearch, Elasticsearch or Solr; `apache`, a stock Apache httpd and a stock php-fpm; `etcd`, a stock etcd; `envoy`, a stock Envoy in front of any of those that speak HTTP; `shop`, a whole fleet of services; and `cycle`, which wants a known part of a CPU. (`plimsoll testbed hogs` is the Rust SDK's own, `sdk/rust/testbed`.)
//!
//! They are victims, not part of the defence: an overload must show in them as it does in any server, as a
//! queue that grows. Hence the one exception to "a limit on everything" in this workspace: the queue of `pages`
//! is unbounded unless told otherwise. It holds at most one request for each open connection or stream.

pub mod agent;
pub mod apache;
mod child;
pub mod cli;
pub mod clock;
pub mod control_group;
pub mod cpu_cap;
pub mod cycle;
pub mod database;
pub mod disk_cap;
pub mod envoy;
pub mod etcd;
pub mod graph;
mod http;
pub mod installed;
pub mod mariadb;
pub mod orca;
pub mod pages;
mod pool;
pub mod ports;
pub mod postgres;
pub mod search;
pub mod server;
pub mod shop;
pub mod work;
