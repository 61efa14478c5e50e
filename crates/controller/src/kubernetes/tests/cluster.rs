//! An API server that knows one Deployment. Nobody makes its pods: a test says which there are.

use std::cell::RefCell;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet, spawn_local};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// What it says instead of an answer.
#[derive(Clone, Copy, PartialEq)]
pub enum Fault {
    Status(u16),
    /// The same, though it did what it was asked.
    Done(u16),
    Text(&'static str),
    Silence,
}

#[derive(Default)]
pub struct State {
    pub replicas: u32,
    pub pods: Vec<Value>,
    /// For requests with this method.
    pub fault: Option<(Method, Fault)>,
    /// What the last request showed.
    pub authorization: Option<String>,
    /// What was patched, successfully or not: the type of the patch, the query, and the body.
    pub patches: Vec<(String, String, Value)>,
}

impl State {
    /// The numbers of replicas that were asked for.
    pub fn asked(&self) -> Vec<u64> {
        self.patches.iter().map(|(.., patch)| patch["spec"]["replicas"].as_u64().unwrap()).collect()
    }
}

pub struct Cluster {
    pub address: SocketAddr,
    pub state: Rc<RefCell<State>>,
    serving: Option<JoinHandle<()>>,
    tls: Option<TlsAcceptor>,
}

impl Cluster {
    pub async fn start(replicas: u32, pods: &[Value]) -> Cluster {
        let state = State { replicas, pods: pods.to_vec(), ..State::default() };
        let state = Rc::new(RefCell::new(state));
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut cluster = Cluster { address, state, serving: None, tls: None };
        cluster.serve().await;
        cluster
    }

    /// Begins to listen, again at the same port.
    pub async fn serve(&mut self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        self.address = listener.local_addr().unwrap();
        let (state, tls) = (Rc::clone(&self.state), self.tls.clone());
        self.serving = Some(spawn_local(async move {
            // Connections end with whoever serves them.
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (state, tls) = (Rc::clone(&state), tls.clone());
                let service = service_fn(move |request| answer(Rc::clone(&state), request));
                connections.spawn_local(async move {
                    let server = http1::Builder::new();
                    // Whoever breaks off, or does not trust it, is the client.
                    let _ = match tls {
                        None => server.serve_connection(TokioIo::new(stream), service).await,
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => server.serve_connection(TokioIo::new(stream), service).await,
                            Err(_) => return,
                        },
                    };
                });
            }
        }));
    }

    /// From now on it speaks TLS, as `localhost`. Returns its certificate, in DER.
    pub async fn secure(&mut self) -> Vec<u8> {
        let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
        let config = ServerConfig::builder().with_no_client_auth();
        let config = config.with_single_cert(vec![certified.cert.der().clone()], key).unwrap();
        self.vanish().await;
        self.tls = Some(TlsAcceptor::from(Arc::new(config)));
        self.serve().await;
        certified.cert.der().to_vec()
    }

    /// From now on nobody listens there.
    pub async fn vanish(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.abort();
            let _ = serving.await;
        }
    }

    pub fn pods(&self, pods: &[Value]) {
        self.state.borrow_mut().pods = pods.to_vec();
    }

    pub fn fault(&self, fault: Option<(Method, Fault)>) {
        self.state.borrow_mut().fault = fault;
    }
}

/// A pod like those of the Deployment: its labels, and its status. The number is that of its age, and its address.
pub fn pod(number: u8, status: Value) -> Value {
    json!({
        "metadata": {
            "name": format!("shop-{}", 200 - number),
            "labels": { "app": "shop" },
            "creationTimestamp": format!("2026-01-01T00:00:{number:02}Z"),
            "managedFields": [{ "manager": "kubelet" }],
        },
        "spec": { "containers": [{ "env": [{ "name": "PASSWORD", "value": "hush" }] }] },
        "status": status,
    })
}

pub fn ready(number: u8) -> Value {
    let conditions =
        json!([{ "type": "PodScheduled", "status": "True" }, { "type": "Ready", "status": "True" }]);
    pod(number, json!({ "phase": "Running", "podIP": format!("10.0.0.{number}"), "conditions": conditions }))
}

pub fn unready(number: u8) -> Value {
    let conditions = json!([{ "type": "Ready", "status": "False", "reason": "ContainersNotReady" }]);
    let containers = json!([{ "state": { "waiting": { "reason": "ContainerCreating" } } }]);
    let status = json!({
        "phase": "Running", "podIP": format!("10.0.0.{number}"),
        "conditions": conditions, "containerStatuses": containers,
    });
    pod(number, status)
}

/// One that is ready still, and told to end.
pub fn leaving(number: u8) -> Value {
    let mut pod = ready(number);
    pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T01:00:00Z");
    pod
}

async fn answer(
    state: Rc<RefCell<State>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let (path, query) = (parts.uri.path().to_owned(), parts.uri.query().unwrap_or("").to_owned());
    let fault = {
        let mut state = state.borrow_mut();
        let shown = parts.headers.get("authorization");
        state.authorization = shown.map(|shown| shown.to_str().unwrap().to_owned());
        if parts.method == Method::PATCH {
            let kind = parts.headers["content-type"].to_str().unwrap().to_owned();
            state.patches.push((kind, query.clone(), serde_json::from_slice(&body).unwrap()));
        }
        state.fault.as_ref().filter(|(method, _)| *method == parts.method).map(|(_, fault)| *fault)
    };
    let (code, text) = match fault {
        Some(Fault::Silence) => std::future::pending().await,
        Some(Fault::Status(code)) => (code, failure(code, "so it is")),
        Some(Fault::Done(code)) => {
            known(&mut state.borrow_mut(), &parts.method, &path, &query, &body);
            (code, failure(code, "so it is"))
        }
        Some(Fault::Text(text)) => (200, text.to_owned()),
        None => known(&mut state.borrow_mut(), &parts.method, &path, &query, &body),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    Ok(response)
}

fn known(state: &mut State, method: &Method, path: &str, query: &str, body: &[u8]) -> (u16, String) {
    let scale = |state: &State| {
        // As Go writes it: what is 0 is left out.
        let spec = if state.replicas == 0 { json!({}) } else { json!({ "replicas": state.replicas }) };
        json!({ "kind": "Scale", "spec": spec, "status": { "replicas": 0, "selector": "app=shop" } })
            .to_string()
    };
    match (method.as_str(), path) {
        ("GET", "/apis/apps/v1/namespaces/prod/deployments/shop/scale") => (200, scale(state)),
        ("PATCH", "/apis/apps/v1/namespaces/prod/deployments/shop/scale") => {
            let patch: Value = serde_json::from_slice(body).unwrap();
            state.replicas = patch["spec"]["replicas"].as_u64().unwrap() as u32;
            (200, scale(state))
        }
        ("GET", "/api/v1/namespaces/prod/pods") => {
            let query: Vec<(String, String)> =
                form_urlencoded::parse(query.as_bytes()).into_owned().collect();
            let of = |key: &str| query.iter().find(|(k, _)| k == key).map(|(_, value)| value.as_str());
            assert_eq!(of("labelSelector"), Some("app=shop"));
            assert_eq!(of("fieldSelector"), Some("status.phase!=Failed,status.phase!=Succeeded"));
            let limit: usize = of("limit").unwrap().parse().unwrap();
            let living =
                |pod: &&Value| !["Failed", "Succeeded"].contains(&pod["status"]["phase"].as_str().unwrap());
            let living: Vec<&Value> = state.pods.iter().filter(living).collect();
            let more = if living.len() > limit { json!({ "continue": "x" }) } else { json!({}) };
            (200, json!({ "metadata": more, "items": living[..living.len().min(limit)] }).to_string())
        }
        _ => (404, failure(404, &format!("{method} {path}"))),
    }
}

fn failure(code: u16, message: &str) -> String {
    let reason = StatusCode::from_u16(code).unwrap().canonical_reason().unwrap().replace(' ', "");
    json!({ "kind": "Status", "status": "Failure", "message": message, "reason": reason, "code": code })
        .to_string()
}
