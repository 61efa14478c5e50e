//! A stock search engine to overload, OpenSearch, Elasticsearch or Solr: one private node.

mod install;
pub mod server;

pub use install::{Product, there_is_none};
pub use server::Server;
