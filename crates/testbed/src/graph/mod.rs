//! `plimsoll testbed graph`: an in-memory graph store of brokers and shards, the kind of system that Bouncer was made for.

pub mod broker;
pub mod cluster;
mod gate;
pub mod protocol;
pub mod queries;
pub mod shard;
pub mod shards;
mod stats;
pub mod store;

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
        let args = ["graph".to_owned()].into_iter().chain(options.to_args());
        assert_eq!(format!("{:?}", Parsed::parse_from(args).options), format!("{options:?}"));
    }
}
