//! Real nodes of all the products: `cargo test -p plimsoll-agent --lib search -- --ignored`, where there are any.

use std::marker::PhantomData;

use plimsoll_testbed::database::Database as _;
use plimsoll_testbed::database::fill::Fill;
use plimsoll_testbed::database::http::{Http, Steps};
use plimsoll_testbed::search::{Product, Server as Private, there_is_none};

use super::front::Front;
use super::*;
use crate::server::conformance::{CULPRIT, Ground, Work, conformance};

/// Queries that a Solr's sentry lets in at a time: fewer than it has threads.
const SLOTS: usize = 8;
const BOOKS: u32 = 20_000;
const SHELVES: u32 = 100;

/// A node with books on shelves, where few can be at work at a time; a Solr with a sentry before it, which knows who is.
struct Node<A> {
    server: Private,
    front: Option<Front>,
    kind: PhantomData<A>,
}

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

    // A Solr asks itself for its list.
    const QUESTIONS: f64 = if A::IS_SOLR { 3.5 } else { 2.5 };

    async fn raise() -> Option<Node<A>> {
        let settings = match A::IS_SOLR {
            // It is asked at an address that is not its own, too.
            true => &[("-Dsolr.disable.allowUrls", "true")],
            false => &[("thread_pool.search.size", "1")],
        };
        let settings: Vec<_> =
            settings.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        let server = match Private::start(A::PRODUCT, &settings, false).await {
            Ok(server) => server,
            Err(error) if there_is_none(&error) => return None,
            Err(error) => panic!("{error}"),
        };
        let (to, line) = match A::IS_SOLR {
            true => (
                "POST /solr/shelf/update/json/docs",
                "{\"id\":\"?0\",\"shelf_i\":?1,\"title_s\":\"a book\"}\n",
            ),
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
        // It is not to keep the load from whom it is to overload.
        let pool = format!("workers = {SLOTS}\nsolr = {{}}\nadmission = {{ policy = \"none\" }}");
        let before = || Front::before(server.http().address, &pool);
        let front = A::IS_SOLR.then(before);
        Some(Node { server, front, kind: PhantomData })
    }

    fn at(&self) -> String {
        self.server.http().address.to_string()
    }

    fn settings_at(&self, at: &str, _: &str, more: &str) -> config::Database {
        match &self.front {
            // It knows of no other way to the server.
            Some(front) if at == self.at() => {
                settings::<A>(at, &format!("pool = \"front\"\n{more}\n{}", front.config()))
            }
            _ => settings::<A>(at, more),
        }
    }

    fn kill(&mut self) {
        self.server.stop(true);
    }

    async fn revive(&mut self) {
        self.server.resume().await.unwrap();
    }
}

impl<A: Kind> Work for Node<A> {
    type Client = Steps;

    const CULPRITS: usize = if A::IS_SOLR { SLOTS } else { 1 };

    async fn client(&self, name: &str) -> Result<Steps, String> {
        let http = self.server.http();
        let address = self.front.as_ref().map_or(http.address, |front| front.address);
        Http { address, ..http }.begin(name).await
    }

    fn quick(n: usize) -> String {
        let shelf = n % SHELVES as usize;
        match A::IS_SOLR {
            true => format!("GET /solr/shelf/select?q=shelf_i:{shelf}"),
            false => format!("POST /shelf/_search {{\"query\":{{\"term\":{{\"shelf\":{shelf}}}}}}}"),
        }
    }

    fn usual() -> String {
        match A::IS_SOLR {
            true => compared("shelf_i:1", 400),
            false => computed("{\"term\":{\"shelf\":1}}", 60_000),
        }
    }

    fn endless() -> String {
        match A::IS_SOLR {
            true => compared("*:*", 3_000),
            false => computed("{\"match_all\":{}}", 900_000),
        }
    }

    fn names(told: &Value, _: i32) -> bool {
        match A::IS_SOLR {
            true => told["about"]["what"] == "query",
            // A statement is told without what is in it.
            false => {
                let is_masked = !told.to_string().contains("% 7");
                told["about"]["client"] == CULPRIT && told["resource"] == "search threads" && is_masked
            }
        }
    }
}

/// Computes so long for each book of a query, in fewer steps than a loop may have, and does not remember what it came to.
fn computed(query: &str, steps: u32) -> String {
    let script = format!("long n = 0; for (int i = 0; i < {steps}; ++i) {{ n += i % 7; }} return n % 2;");
    let counts = format!("{{\"a\":{{\"terms\":{{\"script\":{{\"source\":\"{script}\"}}}}}}}}");
    format!("POST /shelf/_search?request_cache=false {{\"size\":0,\"query\":{query},\"aggs\":{counts}}}")
}

/// Compares the title of each book of a query to so many words.
fn compared(query: &str, words: u32) -> String {
    let words: Vec<_> = (0..words).map(|word| format!("strdist(title_s,'w{word}',ngram)")).collect();
    let (most, sum) = (words.len(), words.join(","));
    let compares = format!("{{\"frange\":{{\"l\":0,\"u\":{most},\"query\":\"sum({sum})\"}}}}");
    let must = format!("[\"{query}\",{compares}]");
    format!("POST /solr/shelf/query {{\"query\":{{\"bool\":{{\"cache\":\"false\",\"must\":{must}}}}}}}")
}

type OpenSearchNode = Node<OpenSearch>;
type ElasticsearchNode = Node<Elasticsearch>;
type SolrNode = Node<Solr>;

conformance!(mod opensearch: OpenSearchNode #[ignore = "starts a node, which takes a gigabyte and half a minute"]);
conformance!(mod elasticsearch: ElasticsearchNode #[ignore = "starts a node, which takes a gigabyte and half a minute"]);
conformance!(mod solr: SolrNode #[ignore = "starts a node, which takes a gigabyte and half a minute"]);
