//! The eleven query types, by rising cost, and how a broker answers them in rounds of sub-queries.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use serde_json::{Value, json};

use super::protocol::SubQuery;
use super::shards::{Failure, Shards};
use super::store::{Kind, Vertex};

/// Edges that a shortest path may have; further apart counts as not connected.
pub const MAX_DISTANCE: u32 = 10;

/// A query type. The paper names them QT1 to QT11 and tells no more than their shares and that costs rise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryType {
    /// QT1: the kind of the edge between two vertices.
    Edge,
    /// QT2: the degree of a vertex.
    Degree,
    /// QT3: its number of edges of one kind.
    DegreeOfKind,
    /// QT4: its neighbours over edges of one kind.
    NeighboursOfKind,
    /// QT5: its neighbours.
    Neighbours,
    /// QT6: the neighbours of either of two vertices.
    EitherNeighbours,
    /// QT7: the common neighbours of two vertices, those with most edges first.
    CommonNeighbours,
    /// QT8: the neighbours of a vertex, those with most edges first.
    RankedNeighbours,
    /// QT9: the vertices within two edges of one kind.
    TwoHopsOfKind,
    /// QT10: the vertices within two edges.
    TwoHops,
    /// QT11: the shortest distance between two vertices.
    Distance,
}

impl QueryType {
    /// Every type, QT1 first.
    pub const ALL: [QueryType; 11] = [
        QueryType::Edge,
        QueryType::Degree,
        QueryType::DegreeOfKind,
        QueryType::NeighboursOfKind,
        QueryType::Neighbours,
        QueryType::EitherNeighbours,
        QueryType::CommonNeighbours,
        QueryType::RankedNeighbours,
        QueryType::TwoHopsOfKind,
        QueryType::TwoHops,
        QueryType::Distance,
    ];

    /// Each type's share of the paper's production traffic in per cent, QT1 first. As published they add up
    /// to 100.01.
    pub const MIX_PCT: [f64; 11] = [11.56, 0.04, 0.04, 2.34, 13.44, 13.44, 0.42, 0.09, 26.35, 4.49, 27.80];

    /// Position in [`QueryType::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// As the paper and the broker's paths write it: `QT7`.
impl fmt::Display for QueryType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QT{}", self.index() + 1)
    }
}

impl FromStr for QueryType {
    type Err = String;
    fn from_str(text: &str) -> Result<QueryType, String> {
        let found = QueryType::ALL.into_iter().find(|of| of.to_string() == text);
        found.ok_or_else(|| format!("no query type `{text}`; there are QT1 to QT11"))
    }
}

/// One query. Types ignore what they do not need.
#[derive(Clone, Copy, Debug)]
pub struct Query {
    /// Which question.
    pub of: QueryType,
    /// The vertex that it is about.
    pub src: Vertex,
    /// The other one, where there are two.
    pub dst: Vertex,
    /// The kind of edge, where it asks for one.
    pub kind: Kind,
    /// How many vertices the answer names at most; it counts all of them.
    pub k: usize,
}

/// What a query is answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The kind of an edge; `None` where there is no edge.
    Kind(Option<Kind>),
    /// A number of edges.
    Count(u64),
    /// How many vertices, and the first `k`.
    Vertices(u64, Vec<Vertex>),
    /// A number of edges on the shortest path; `None` above [`MAX_DISTANCE`].
    Distance(Option<u32>),
}

impl Answer {
    fn vertices(query: Query, found: Vec<Vertex>) -> Answer {
        Answer::Vertices(found.len() as u64, found.into_iter().take(query.k).collect())
    }

    /// As the broker sends it.
    pub fn to_json(&self, of: QueryType) -> Value {
        let of = of.to_string();
        match self {
            Answer::Kind(kind) => json!({ "type": of, "kind": kind }),
            Answer::Count(count) => json!({ "type": of, "count": count }),
            Answer::Vertices(count, first) => json!({ "type": of, "count": count, "vertices": first }),
            Answer::Distance(distance) => json!({ "type": of, "distance": distance }),
        }
    }
}

impl Query {
    /// Asks the shards.
    ///
    /// # Errors
    /// Where a shard refuses or does not answer; the other shards' work is lost then.
    pub async fn run(self, shards: &Shards) -> Result<Answer, Failure> {
        let Query { of, src, dst, kind, .. } = self;
        Ok(match of {
            QueryType::Edge => {
                let found = shards.ask_holder(src, SubQuery::Edge(src, dst)).await?;
                Answer::Kind(found.first().copied())
            }
            QueryType::Degree | QueryType::DegreeOfKind => {
                let kind = (of == QueryType::DegreeOfKind).then_some(kind);
                let degrees = shards.ask_holder(src, SubQuery::Degrees(kind, vec![src])).await?;
                Answer::Count(degrees.iter().map(|&degree| u64::from(degree)).sum())
            }
            QueryType::NeighboursOfKind => {
                Answer::vertices(self, shards.neighbours(Some(kind), &[src]).await?)
            }
            QueryType::Neighbours => Answer::vertices(self, shards.neighbours(None, &[src]).await?),
            QueryType::EitherNeighbours => {
                Answer::vertices(self, shards.neighbours(None, &[src, dst]).await?)
            }
            QueryType::CommonNeighbours => {
                let (of_src, of_dst) = shards.neighbours_of_both(src, dst).await?;
                let common = of_src.into_iter().filter(|v| of_dst.binary_search(v).is_ok()).collect();
                Answer::vertices(self, ranked(shards, common).await?)
            }
            QueryType::RankedNeighbours => {
                let neighbours = shards.neighbours(None, &[src]).await?;
                Answer::vertices(self, ranked(shards, neighbours).await?)
            }
            QueryType::TwoHopsOfKind => Answer::vertices(self, two_hops(shards, src, Some(kind)).await?),
            QueryType::TwoHops => Answer::vertices(self, two_hops(shards, src, None).await?),
            QueryType::Distance => Answer::Distance(distance(shards, src, dst).await?),
        })
    }
}

/// By falling degree; equals by rising number.
async fn ranked(shards: &Shards, vertices: Vec<Vertex>) -> Result<Vec<Vertex>, Failure> {
    let mut by_degree = shards.degrees(&vertices).await?;
    by_degree.sort_unstable_by_key(|&(v, degree)| (Reverse(degree), v));
    Ok(by_degree.into_iter().map(|(v, _)| v).collect())
}

/// Vertices one or two edges away, without `src` itself.
async fn two_hops(shards: &Shards, src: Vertex, kind: Option<Kind>) -> Result<Vec<Vertex>, Failure> {
    let mut found = shards.neighbours(kind, &[src]).await?;
    found.extend(shards.neighbours(kind, &found).await?);
    found.retain(|&v| v != src);
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// Breadth-first search from both ends, a round of sub-queries a step: it reaches about twice the square
/// root of the vertices that a search from one end would. The side with the smaller frontier takes the next
/// step.
async fn distance(shards: &Shards, src: Vertex, dst: Vertex) -> Result<Option<u32>, Failure> {
    if src == dst {
        return Ok(Some(0));
    }
    let (mut near, mut far) = (Search::from(src), Search::from(dst));
    for steps in 1..=MAX_DISTANCE {
        if near.frontier.len() > far.frontier.len() {
            std::mem::swap(&mut near, &mut far);
        }
        if near.frontier.is_empty() {
            return Ok(None);
        }
        let mut next = shards.neighbours(None, &near.frontier).await?;
        // The first step that meets the other side closes a shortest path: before it, all that was reached is
        // within `steps - 1` edges of its own end, in sum over both sides.
        if next.iter().any(|v| far.reached.contains(v)) {
            return Ok(Some(steps));
        }
        next.retain(|&v| near.reached.insert(v));
        near.frontier = next;
    }
    Ok(None)
}

/// One side of a search.
struct Search {
    reached: HashSet<Vertex>,
    frontier: Vec<Vertex>,
}

impl Search {
    fn from(vertex: Vertex) -> Search {
        Search { reached: HashSet::from([vertex]), frontier: vec![vertex] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_and_print() {
        for (at, of) in QueryType::ALL.into_iter().enumerate() {
            assert_eq!((of.index(), of.to_string()), (at, format!("QT{}", at + 1)));
            assert_eq!(of.to_string().parse(), Ok(of));
        }
        assert!("QT12".parse::<QueryType>().is_err() && "QT01".parse::<QueryType>().is_err());
    }
}
