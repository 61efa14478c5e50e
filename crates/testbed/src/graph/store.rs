//! The graph: generated from a seed, and the part of it that one shard holds.

use plimsoll_core::rng;
use rand::RngExt;

/// A vertex; the graph numbers them from zero.
pub type Vertex = u32;
/// What kind of relation an edge is.
pub type Kind = u32;

/// Kinds of relation in a generated graph, all equally frequent.
pub const KINDS: Kind = 4;
/// Mean degrees of vertex `v` fall as `(v + HUBS)^-EXPONENT`, so that degrees follow a power law with the
/// index 1 + 1/EXPONENT = 2.7, within the range of social networks. The offset cuts the tail of a few hubs
/// that would dominate a small graph.
const EXPONENT: f64 = 0.6;
const HUBS: f64 = 100.0;

/// Which graph.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct GraphSpec {
    /// Vertices of the graph.
    #[arg(long, default_value_t = GraphSpec::default().vertices)]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=10_000_000))]
    pub vertices: u32,
    /// Mean number of edges of a vertex.
    #[arg(long, default_value_t = GraphSpec::default().degree)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub degree: u32,
    /// Seed of the graph, and of the vertices that queries without any are about.
    #[arg(long, default_value_t = GraphSpec::default().seed)]
    pub seed: u64,
}

impl Default for GraphSpec {
    fn default() -> GraphSpec {
        GraphSpec { vertices: 50_000, degree: 16, seed: 1 }
    }
}

impl GraphSpec {
    /// The undirected edges, each once. The same edge may come again, also with another kind: the smallest
    /// kind counts.
    pub fn edges(self) -> impl Iterator<Item = (Vertex, Vertex, Kind)> {
        let mut rng = rng::seeded(self.seed, 0);
        let n = f64::from(self.vertices);
        // A vertex drawn by inverting the distribution function of the weights.
        let power = 1.0 - EXPONENT;
        let (low, high) = (HUBS.powf(power), (n + HUBS).powf(power));
        let vertex = move |u: f64| {
            let drawn = (low + u * (high - low)).powf(1.0 / power) - HUBS;
            (drawn.max(0.0) as Vertex).min(self.vertices - 1)
        };
        let count = u64::from(self.vertices) * u64::from(self.degree) / 2;
        (0..count)
            .map(move |_| (vertex(rng.random()), vertex(rng.random()), rng.random_range(0..KINDS)))
            .filter(|(a, b, _)| a != b)
    }
}

/// The shard out of `shards` that holds a vertex. Neighbouring numbers have similar degrees, so they are spread
/// by a multiplicative hash.
pub fn shard_of(vertex: Vertex, shards: usize) -> usize {
    let hash = vertex.wrapping_mul(0x9E37_79B1);
    ((u64::from(hash) * shards as u64) >> 32) as usize
}

/// The edges of the vertices that one shard holds, as one array sorted by source and target.
pub struct Store {
    /// Where the edges of a vertex begin; one entry more than there are vertices.
    starts: Vec<u32>,
    edges: Vec<(Vertex, Kind)>,
}

impl Store {
    /// The part of a graph that shard `index` of `shards` holds.
    pub fn generate(spec: GraphSpec, index: usize, shards: usize) -> Store {
        let mut edges = Vec::new();
        for (a, b, kind) in spec.edges() {
            for (from, to) in [(a, b), (b, a)] {
                if shard_of(from, shards) == index {
                    edges.push((from, to, kind));
                }
            }
        }
        edges.sort_unstable();
        edges.dedup_by_key(|&mut (from, to, _)| (from, to));
        let mut starts = vec![0; spec.vertices as usize + 1];
        for &(from, ..) in &edges {
            starts[from as usize + 1] += 1;
        }
        for v in 1..starts.len() {
            starts[v] += starts[v - 1];
        }
        Store { starts, edges: edges.into_iter().map(|(_, to, kind)| (to, kind)).collect() }
    }

    /// Edges of a vertex by rising target; none where another shard, or none, holds it.
    pub fn edges(&self, vertex: Vertex) -> &[(Vertex, Kind)] {
        let v = vertex as usize;
        match (self.starts.get(v), self.starts.get(v + 1)) {
            (Some(&start), Some(&end)) => &self.edges[start as usize..end as usize],
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: GraphSpec = GraphSpec { vertices: 5_000, degree: 10, seed: 7 };

    #[test]
    fn the_shards_partition_the_graph() {
        let whole = Store::generate(SPEC, 0, 1);
        let parts: Vec<Store> = (0..3).map(|index| Store::generate(SPEC, index, 3)).collect();
        for v in 0..SPEC.vertices {
            for (index, part) in parts.iter().enumerate() {
                let expected = if index == shard_of(v, 3) { whole.edges(v) } else { &[] };
                assert_eq!(part.edges(v), expected, "vertex {v} at shard {index}");
            }
        }
        let held: Vec<usize> = parts.iter().map(|part| part.edges.len()).collect();
        let mean = held.iter().sum::<usize>() as f64 / 3.0;
        assert!(held.iter().all(|&n| (n as f64 / mean - 1.0).abs() < 0.2), "{held:?}");
    }

    #[test]
    fn edges_are_undirected_sorted_and_single() {
        let store = Store::generate(SPEC, 0, 1);
        for v in 0..SPEC.vertices {
            let edges = store.edges(v);
            assert!(edges.windows(2).all(|pair| pair[0].0 < pair[1].0));
            for &(to, kind) in edges {
                assert!(to != v && store.edges(to).binary_search(&(v, kind)).is_ok(), "{v} - {to}");
            }
        }
        assert_eq!(store.edges(SPEC.vertices), &[]);
        assert_eq!(store.edges(Vertex::MAX), &[]);
    }

    #[test]
    fn degrees_follow_a_power_law() {
        let store = Store::generate(SPEC, 0, 1);
        let mut degrees: Vec<usize> = (0..SPEC.vertices).map(|v| store.edges(v).len()).collect();
        degrees.sort_unstable();
        let mean = degrees.iter().sum::<usize>() as f64 / degrees.len() as f64;
        let (median, highest) = (degrees[degrees.len() / 2] as f64, degrees[degrees.len() - 1] as f64);
        assert!((9.0..=10.0).contains(&mean), "{mean}");
        assert!(median < 0.9 * mean && highest > 5.0 * mean, "median {median}, highest {highest}");
    }
}
