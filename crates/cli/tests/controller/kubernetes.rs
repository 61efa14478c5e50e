//! Servers that are pods, with an API server that makes them at once. What it does when it fails is tested beside the provider; that a build
//! without it says so, by `ci/lib.sh`.
#![cfg(feature = "kubernetes")]

use crate::harness::Place;
use crate::sentry::Sentry;

/// A pool that is a Deployment, in enforce mode or another.
fn place(sentry: &Sentry, mode: &str) -> Place {
    let settings = format!("sentries = [\"{}\"]\nmode = \"{mode}\"", sentry.address);
    let config = "[pool.shop]\nservers = [\"127.0.0.1:9001\"]\nworkers = 4\nprovision = { provider = \"kubernetes\", \
                  deployment = \"web\", port = 8080, min = 2, max = 4, pause = \"500ms\", period = \"1s\", season = \"0s\" }\n\
                  [class.default]\nslo = { mean = \"100ms\" }\n";
    Place::new(&settings, config)
}

mod with_cluster {
    use std::net::TcpListener;
    use std::sync::{Arc, Mutex, MutexGuard};
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::place;
    use crate::harness::{PATIENCE, Place, until};
    use crate::sentry::{Sentry, answer};

    /// A Deployment whose pods are ready at once and gone at once.
    #[derive(Default)]
    struct Cluster {
        replicas: u64,
        requests: usize,
        patched: Vec<u64>,
        /// Whether anybody asked without the token of the kubeconfig.
        is_stranger: bool,
    }

    const SCALE: &str = "/apis/apps/v1/namespaces/prod/deployments/web/scale";

    impl Cluster {
        fn respond(
            &mut self,
            method: &str,
            path: &str,
            body: &[u8],
            shown: Option<&str>,
        ) -> (&'static str, String) {
            self.requests += 1;
            self.is_stranger |= shown != Some("Bearer correct-horse");
            let path = path.split('?').next().unwrap();
            let answer = match (method, path) {
                ("PATCH" | "GET", SCALE) => {
                    if method == "PATCH" {
                        let patch: Value = serde_json::from_slice(body).unwrap();
                        self.replicas = patch["spec"]["replicas"].as_u64().unwrap();
                        self.patched.push(self.replicas);
                    }
                    json!({ "spec": { "replicas": self.replicas }, "status": { "selector": "app=web" } })
                }
                ("GET", "/api/v1/namespaces/prod/pods") => {
                    let pod = |i: u64| {
                        let conditions = [json!({ "type": "Ready", "status": "True" })];
                        let status = json!({ "podIP": format!("10.0.0.{i}"), "conditions": conditions });
                        json!({ "metadata": { "name": format!("web-{i}") }, "status": status })
                    };
                    json!({ "metadata": {}, "items": (0..self.replicas).map(pod).collect::<Vec<_>>() })
                }
                _ => return ("404 Not Found", String::new()),
            };
            ("200 OK", answer.to_string())
        }

        /// Starts one, and makes the controllers of `place` know it.
        fn start(place: &Place, replicas: u64) -> Arc<Mutex<Cluster>> {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let kubeconfig = json!({
                "apiVersion": "v1", "kind": "Config", "current-context": "a",
                "clusters": [{ "name": "a", "cluster": { "server": format!("http://{}", listener.local_addr().unwrap()) } }],
                "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a", "namespace": "prod" } }],
                "users": [{ "name": "a", "user": { "token": "correct-horse" } }],
            });
            std::fs::write(place.directory.path().join("kubeconfig"), kubeconfig.to_string()).unwrap();
            let cluster = Arc::new(Mutex::new(Cluster { replicas, ..Cluster::default() }));
            let shared = Arc::clone(&cluster);
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let _ = answer(stream, |method, path, body, shown| {
                        shared.lock().unwrap().respond(method, path, body, shown.as_deref())
                    });
                }
            });
            cluster
        }
    }

    fn look(cluster: &Mutex<Cluster>) -> MutexGuard<'_, Cluster> {
        cluster.lock().unwrap()
    }

    #[test]
    fn pods_come_with_the_load_and_go_with_it_and_the_sentries_are_told() {
        let sentry = Sentry::start(&["shop"]);
        let place = place(&sentry, "enforce");
        let cluster = Cluster::start(&place, 0);
        let mut controller = place.start("log", &["--stop-servers"]);
        assert_eq!(sentry.has("shop", 2), ["127.0.0.1:9001", "10.0.0.0:8080"]);

        // 80/s a server: more than four can do.
        sentry.load(1_280.0);
        assert_eq!(sentry.has("shop", 4).last().map(String::as_str), Some("10.0.0.2:8080"));
        sentry.load(10.0);
        sentry.has("shop", 2);
        let patched = look(&cluster).patched.clone();
        assert!(patched.iter().all(|&replicas| replicas <= 3), "{patched:?}");

        controller.signal("TERM");
        assert!(controller.ended().success());
        let Cluster { replicas, is_stranger, .. } = *look(&cluster);
        assert_eq!((replicas, is_stranger), (0, false));
        assert!(!place.log("log").contains("horse"), "{}", place.log("log"));
    }

    #[test]
    fn a_shadow_asks_nobody() {
        let sentry = Sentry::start(&["shop"]);
        let place = place(&sentry, "shadow");
        let cluster = Cluster::start(&place, 1);
        sentry.state().servers.insert("shop".to_owned(), vec!["127.0.0.1:9001".to_owned()]);
        sentry.load(1_280.0);
        let _controller = place.start("log", &[]);
        until(PATIENCE, "it would have more", || place.pool()["planned"] == 4);
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(look(&cluster).requests, 0);
        assert!(sentry.state().orders.is_empty());
    }

    #[test]
    fn without_credentials_it_does_not_begin() {
        let sentry = Sentry::start(&["shop"]);
        let place = place(&sentry, "enforce");
        assert_eq!(place.start("log", &[]).ended().code(), Some(1));
        let said = place.log("log");
        assert!(said.contains("kubeconfig") && said.contains("not a pod with a service account"), "{said}");
    }
}
