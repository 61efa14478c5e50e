//! `plimsoll testbed graph`: an in-memory graph store of brokers and shards, the kind of system that
//! Bouncer was made for.
//!
//! A graph is generated from a seed and divided over shard processes by a hash of the vertex. Clients ask a
//! broker one of eleven query types; the broker answers in rounds of sub-queries to the shards, over HTTP.
//! Broker and shards each have an engine behind one FIFO queue and a gate in front of it: any policy at the
//! broker, always AcceptFraction at the shards.
//!
//! | `GET /q/...?src=&dst=&kind=&k=` | answers | rounds |
//! | --- | --- | --- |
//! | QT1 | the kind of the edge between two vertices | 1 |
//! | QT2, QT3 | how many edges a vertex has, in all and of one kind | 1 |
//! | QT4, QT5 | its neighbours over edges of one kind, all of them | 1 |
//! | QT6 | the neighbours of either of two vertices | 1 |
//! | QT7, QT8 | common neighbours of two, neighbours of one; those with most edges first | 2 |
//! | QT9, QT10 | the vertices within two edges of one kind, of any | 2 |
//! | QT11 | the shortest distance between two vertices | 1 to 10 |
//!
//! # Sizes
//! The study needs a broker whose slots are all busy shortly before the shards are (theirs must not refuse
//! before its own do), processing times that rise when the shards' queues do, and a QT11 of 6 to 10 ms at
//! low load, so that the objectives of 18 and 50 ms are tight for it and loose for the rest. Six shards
//! with one engine thread each, five broker slots, 0.2 ms a sub-query and 10 us an edge touched give that:
//! about 950 queries a second of the paper's mix, shards at 70 % utilisation (AcceptFraction begins at
//! 80 %), QT11's median rising from 7 to 11 ms.
//!
//! # Why shards wait instead of computing
//! With `--work wait`, the default, an engine thread sleeps for what its sub-query costs. The paper's
//! shards are hosts of their own; here all of them, the broker and the load generator share a machine,
//! perhaps of two CPUs. If they computed, a busy shard would take CPU time from the broker, and the study
//! would measure the kernel's scheduler. Sleeping, shards are as independent as hosts are, and a run at
//! 1.67 times the capacity takes about half of two CPUs for HTTP itself. `--work cpu` is for machines with
//! CPUs to spare.

pub mod broker;
pub mod cluster;
mod gate;
pub mod protocol;
pub mod queries;
pub mod shard;
pub mod shards;
mod stats;
pub mod store;
pub mod study;

use plimsoll_core::Nanos;

use broker::BrokerOptions;
use shard::ShardOptions;
use store::GraphSpec;

/// How to run the store, whatever the role.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The graph.
    #[command(flatten)]
    pub graph: GraphSpec,
    /// Its shards.
    #[command(flatten)]
    pub shard: ShardOptions,
    /// The broker in front of them.
    #[command(flatten)]
    pub broker: BrokerOptions,
    /// Most queries that may wait at a broker, and sub-queries at a shard.
    #[arg(long, default_value_t = Options::default().max_queue)]
    pub max_queue: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            graph: GraphSpec::default(),
            shard: ShardOptions::default(),
            broker: BrokerOptions::default(),
            max_queue: 800,
        }
    }
}

impl Options {
    /// As arguments of `plimsoll testbed graph`.
    fn to_args(&self) -> Vec<String> {
        let Options { graph, shard, broker, max_queue } = self;
        [
            ("--vertices", graph.vertices.to_string()),
            ("--degree", graph.degree.to_string()),
            ("--seed", graph.seed.to_string()),
            ("--shards", shard.shards.to_string()),
            ("--engines", shard.engines.to_string()),
            ("--work", shard.work.as_str().to_owned()),
            ("--subquery-cost", nanos(shard.subquery_cost)),
            ("--edge-cost", nanos(shard.edge_cost)),
            ("--max-util", shard.max_util.to_string()),
            ("--policy", broker.policy.clone()),
            ("--slots", broker.slots.to_string()),
            ("--expire", nanos(broker.expire)),
            ("--orca", broker.orca.as_str().to_owned()),
            ("--max-queue", max_queue.to_string()),
        ]
        .into_iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect()
    }
}

/// Exactly; `Display` rounds.
fn nanos(time: Nanos) -> String {
    format!("{}ns", time.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Parsed {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn options_survive_the_command_line() {
        let graph = GraphSpec { vertices: 1_234, degree: 5, seed: 6 };
        let mut options = Options { graph, max_queue: 77, ..Options::default() };
        options.shard.shards = 3;
        options.shard.engines = 7;
        options.shard.work = crate::work::WorkKind::Cpu;
        options.shard.subquery_cost = Nanos(1_234_567);
        options.shard.edge_cost = Nanos(1_235);
        options.shard.max_util = 0.75;
        options.broker.policy = "bouncer,allowance=0.05".to_owned();
        options.broker.slots = 9;
        options.broker.expire = Nanos::from_secs(3);
        options.broker.orca = crate::orca::Form::Bin;
        let args = ["graph".to_owned()].into_iter().chain(options.to_args());
        assert_eq!(format!("{:?}", Parsed::parse_from(args).options), format!("{options:?}"));
    }
}
