//! Real nodes of all the products: `cargo test -p plimsoll-agent --lib search -- --ignored`, where there are any.

use std::marker::PhantomData;

use plimsoll_testbed::database::Database as _;
use plimsoll_testbed::database::fill::Fill;
use plimsoll_testbed::database::http::Steps;
use plimsoll_testbed::search::{Product, Server as Private, there_is_none};

use super::*;
use crate::server::conformance::{CULPRIT, Ground, Work, conformance};

const BOOKS: u32 = 20_000;
const SHELVES: u32 = 100;

/// A node with books on shelves, where few can be at work at a time.
struct Node<A>(Private, PhantomData<A>);

/// Whom an adapter watches.
trait Kind: Adapter {
    const PRODUCT: Product;
    const IS_SOLR: bool = matches!(Self::PRODUCT, Product::Solr);
}

impl Kind for OpenSearch {
    const PRODUCT: Product = Product::OpenSearch;
}

impl Kind for Elasticsearch {
    const PRODUCT: Product = Product::Elasticsearch;
}

impl Kind for Solr {
    const PRODUCT: Product = Product::Solr;
}

impl<A: Kind> Ground for Node<A> {
    type Adapter = A;

    async fn raise() -> Option<Node<A>> {
        let (name, value) = match A::IS_SOLR {
            true => ("-Dsolr.jetty.threads.max", "20"),
            false => ("thread_pool.search.size", "1"),
        };
        let server = match Private::start(A::PRODUCT, &[(name.to_owned(), value.to_owned())]).await {
            Ok(server) => server,
            Err(error) if there_is_none(&error) => return None,
            Err(error) => panic!("{error}"),
        };
        let (to, line) = match A::IS_SOLR {
            true => ("POST /solr/shelf/update/json/docs", "{\"shelf_i\":?1,\"title_s\":\"a book\"}\n"),
            false => ("POST /shelf/_bulk", "{\"index\":{}}\n{\"shelf\":?1,\"title\":\"a book\"}\n"),
        };
        if A::IS_SOLR {
            let core = "POST /solr/admin/cores?action=CREATE&name=shelf&configSet=_default";
            server.http().call(&core.parse().unwrap()).await.unwrap();
        }
        let call = to.parse().unwrap();
        let fill = Fill { call: &call, line, count: BOOKS, parameters: &[(0, i64::from(SHELVES) - 1)] };
        fill.send(&server.http()).await.unwrap();
        server.settle().await.unwrap();
        Some(Node(server, PhantomData))
    }

    fn at(&self) -> String {
        self.0.http().address.to_string()
    }

    fn settings_at(&self, at: &str, _: &str, more: &str) -> config::Database {
        settings::<A>(at, more)
    }

    fn kill(&mut self) {
        self.0.stop(true);
    }

    async fn revive(&mut self) {
        self.0.resume().await.unwrap();
    }
}

impl<A: Kind> Work for Node<A> {
    type Client = Steps;

    const CULPRITS: usize = if A::IS_SOLR { 18 } else { 1 };

    async fn client(&self, name: &str) -> Result<Steps, String> {
        self.0.http().begin(name).await
    }

    fn quick(n: usize) -> String {
        let shelf = n % SHELVES as usize;
        match A::IS_SOLR {
            true => format!("GET /solr/shelf/select?q=shelf_i:{shelf}"),
            false => format!("POST /shelf/_search {{\"query\":{{\"term\":{{\"shelf\":{shelf}}}}}}}"),
        }
    }

    fn usual(n: usize) -> String {
        match A::IS_SOLR {
            true => compared("shelf_i:1", 100, &format!("usual-{n}")),
            false => computed("{\"term\":{\"shelf\":1}}", 15_000),
        }
    }

    fn endless(n: usize) -> String {
        match A::IS_SOLR {
            true => compared("*:*", 100, &format!("{CULPRIT}-{n}")),
            false => computed("{\"match_all\":{}}", 300_000),
        }
    }

    fn names(told: &Value, _: i32) -> bool {
        match A::IS_SOLR {
            true => told.to_string().contains(CULPRIT),
            // A statement is told without what is in it.
            false => {
                let is_masked = !told.to_string().contains("% 7");
                told["about"]["client"] == CULPRIT && told["resource"] == "search threads" && is_masked
            }
        }
    }
}

/// Computes so long for each book of a query, and does not remember what it came to.
fn computed(query: &str, steps: u32) -> String {
    let script = format!("long n = 0; for (int i = 0; i < {steps}; ++i) {{ n += i % 7; }} return n % 2;");
    let counts = format!("{{\"a\":{{\"terms\":{{\"script\":{{\"source\":\"{script}\"}}}}}}}}");
    format!("POST /shelf/_search?request_cache=false {{\"size\":0,\"query\":{query},\"aggs\":{counts}}}")
}

/// Compares the title of each book of a query to so many words; under a name, by which it can be cancelled.
fn compared(query: &str, words: u32, name: &str) -> String {
    let words: Vec<_> = (0..words).map(|word| format!("strdist(title_s,'w{word}',ngram)")).collect();
    let compares =
        format!("{{\"frange\":{{\"l\":0,\"u\":{},\"query\":\"sum({})\"}}}}", words.len(), words.join(","));
    format!(
        "POST /solr/shelf/query?canCancel=true&queryUUID={name} \
         {{\"query\":{{\"bool\":{{\"cache\":\"false\",\"must\":[\"{query}\",{compares}]}}}}}}"
    )
}

type OpenSearchNode = Node<OpenSearch>;
type ElasticsearchNode = Node<Elasticsearch>;
type SolrNode = Node<Solr>;

conformance!(mod opensearch: OpenSearchNode #[ignore = "starts a node, which takes a gigabyte and half a minute"]);
conformance!(mod elasticsearch: ElasticsearchNode #[ignore = "starts a node, which takes a gigabyte and half a minute"]);
conformance!(mod solr: SolrNode #[ignore = "starts a node, which takes a gigabyte and half a minute"]);
