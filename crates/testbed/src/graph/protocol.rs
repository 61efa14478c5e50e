//! What a broker asks a shard, and how both write it down: little-endian 32-bit words, the body of a POST.

use bytes::{BufMut, Bytes, BytesMut};

use super::store::{Kind, Store, Vertex};

/// Where a shard takes sub-queries.
pub const PATH: &str = "/subquery";

/// Bytes of the longest body that a shard reads: a frontier of ten million vertices, the largest graph
/// there may be.
pub const MAX_BODY: usize = 4 * (2 + 10_000_000);

/// A question about vertices that one shard holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubQuery {
    /// The kind of the edge between two vertices: one word, or none where there is no edge.
    Edge(Vertex, Vertex),
    /// How many edges each vertex has, of one kind or of any, in the order asked.
    Degrees(Option<Kind>, Vec<Vertex>),
    /// The vertices at the other end of these vertices' edges, of one kind or of any: rising, each once.
    Neighbours(Option<Kind>, Vec<Vertex>),
}

const EDGE: u32 = 0;
const DEGREES: u32 = 1;
const NEIGHBOURS: u32 = 2;
const ANY_KIND: u32 = u32::MAX;

impl SubQuery {
    /// As a request body.
    pub fn encode(&self) -> Bytes {
        let edge;
        let (op, kind, vertices) = match self {
            SubQuery::Edge(src, dst) => {
                edge = [*src, *dst];
                (EDGE, None, &edge[..])
            }
            SubQuery::Degrees(kind, vertices) => (DEGREES, *kind, &vertices[..]),
            SubQuery::Neighbours(kind, vertices) => (NEIGHBOURS, *kind, &vertices[..]),
        };
        encode_words([op, kind.unwrap_or(ANY_KIND)].into_iter().chain(vertices.iter().copied()))
    }

    /// From a request body; `None` where it is not one of ours.
    pub fn decode(body: &[u8]) -> Option<SubQuery> {
        let words = decode_words(body)?;
        let (&[op, kind], vertices) = words.split_first_chunk()?;
        let kind = (kind != ANY_KIND).then_some(kind);
        match (op, vertices) {
            (EDGE, &[src, dst]) => Some(SubQuery::Edge(src, dst)),
            (DEGREES, vertices) => Some(SubQuery::Degrees(kind, vertices.to_vec())),
            (NEIGHBOURS, vertices) => Some(SubQuery::Neighbours(kind, vertices.to_vec())),
            _ => None,
        }
    }

    /// The answer, and how many edges had to be touched for it.
    pub fn answer(&self, store: &Store) -> (Vec<u32>, u64) {
        let wanted = |kind: &Option<Kind>, edge: &(Vertex, Kind)| kind.is_none_or(|kind| kind == edge.1);
        match self {
            SubQuery::Edge(src, dst) => {
                let edges = store.edges(*src);
                let found = edges.binary_search_by_key(dst, |&(to, _)| to);
                (found.map(|at| edges[at].1).into_iter().collect(), 1)
            }
            SubQuery::Degrees(None, vertices) => {
                (vertices.iter().map(|&v| store.edges(v).len() as u32).collect(), vertices.len() as u64)
            }
            SubQuery::Degrees(kind, vertices) => {
                let of_kind = |v: &Vertex| store.edges(*v).iter().filter(|edge| wanted(kind, edge)).count();
                (vertices.iter().map(|v| of_kind(v) as u32).collect(), touched(store, vertices))
            }
            SubQuery::Neighbours(kind, vertices) => {
                let edges = vertices.iter().flat_map(|&v| store.edges(v));
                let mut found: Vec<u32> =
                    edges.filter(|edge| wanted(kind, edge)).map(|&(to, _)| to).collect();
                found.sort_unstable();
                found.dedup();
                (found, touched(store, vertices))
            }
        }
    }
}

fn touched(store: &Store, vertices: &[Vertex]) -> u64 {
    vertices.iter().map(|&v| store.edges(v).len() as u64).sum()
}

/// Words as a body.
pub fn encode_words(words: impl IntoIterator<Item = u32>) -> Bytes {
    let words = words.into_iter();
    let mut body = BytesMut::with_capacity(4 * words.size_hint().0);
    words.for_each(|word| body.put_u32_le(word));
    body.freeze()
}

/// A body as words; `None` where it is not a whole number of them.
pub fn decode_words(body: &[u8]) -> Option<Vec<u32>> {
    let (words, rest) = body.as_chunks();
    rest.is_empty().then(|| words.iter().map(|&word| u32::from_le_bytes(word)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sub_queries_survive_the_wire() {
        for query in [
            SubQuery::Edge(3, 4),
            SubQuery::Degrees(None, vec![1, 2]),
            SubQuery::Degrees(Some(2), vec![]),
            SubQuery::Neighbours(None, vec![Vertex::MAX]),
            SubQuery::Neighbours(Some(0), vec![5, 6, 7]),
        ] {
            assert_eq!(SubQuery::decode(&query.encode()), Some(query));
        }
    }

    #[test]
    fn what_is_not_a_sub_query_is_refused() {
        for bad in [&[][..], &[0; 4], &[0; 7], &[0; 12], &[9; 8], &[0; 20]] {
            assert_eq!(SubQuery::decode(bad), None, "{bad:?}");
        }
    }
}
