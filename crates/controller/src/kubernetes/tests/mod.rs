//! The provider, and its actuator, with an API server in this process.

mod cluster;

use std::cell::Cell;
use std::collections::HashSet;
use std::rc::Rc;

use http::Method;
use kube::config::Kubeconfig;
use serde_json::json;
use tokio::sync::{Notify, watch};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, sleep};

use self::cluster::{Cluster, Fault, leaving, pod, ready, unready};
use super::*;
use crate::actuator::Actuator;

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, test);
}

/// The Deployment `shop` of a pool that may have five of its pods, with so many places for them.
fn shop(cluster: &Cluster, places: &Arc<Semaphore>) -> Deployment {
    shop_by(kube::Config::new(format!("http://{}", cluster.address).parse().unwrap()), places)
}

fn shop_by(mut config: kube::Config, places: &Arc<Semaphore>) -> Deployment {
    config.default_retry = false;
    let spec = Spec {
        name: "shop".to_owned(),
        namespace: Some("prod".to_owned()),
        deployment: "shop".to_owned(),
        port: 8080,
        most: 5,
    };
    Deployment::new(spec, kube::Client::try_from(config).unwrap(), Arc::clone(places))
}

fn places(count: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(count))
}

async fn step(deployment: &mut Deployment, wanted: u32, at_s: u64) -> Reality {
    deployment.step(wanted, &Traffic::default(), Nanos::from_secs(at_s)).await.unwrap()
}

fn hosts(reality: &Reality) -> Vec<&str> {
    reality.ready.iter().map(|server| server.host.as_str()).collect()
}

#[test]
fn it_follows_what_is_wanted_up_and_down_and_its_pods_as_they_come_and_go() {
    run(async {
        let cluster = Cluster::start(1, &[ready(1)]).await;
        let mut shop = shop(&cluster, &places(5));
        assert_eq!(shop.present().await, Ok(1));

        let reality = step(&mut shop, 3, 0).await;
        assert_eq!((hosts(&reality), reality.starting), (vec!["10.0.0.1"], 2));
        let (kind, query, patch) = cluster.state.borrow().patches[0].clone();
        assert_eq!(
            (kind.as_str(), query.as_str()),
            ("application/merge-patch+json", "&fieldManager=plimsoll")
        );
        assert_eq!(patch, json!({ "spec": { "replicas": 3 } }));

        // Whatever the order of the list, the oldest is the first.
        cluster.pods(&[ready(3), unready(2), ready(1)]);
        let reality = step(&mut shop, 3, 2).await;
        assert_eq!(
            (hosts(&reality), reality.starting, reality.leaving),
            (vec!["10.0.0.1", "10.0.0.3"], 1, 0)
        );
        assert_eq!(reality.ready[0].to_string(), "http://10.0.0.1:8080");
        // What is only a matter of time is no trouble.
        assert_eq!((reality.trouble, reality.failures), (None, 0));

        // One is ready no more, another is being deleted, and one is gone.
        cluster.pods(&[unready(1), leaving(3)]);
        let reality = step(&mut shop, 3, 4).await;
        assert_eq!((hosts(&reality), reality.starting, reality.leaving), (vec![], 3, 1));

        cluster.pods(&[ready(1), leaving(3), ready(4)]);
        step(&mut shop, 1, 6).await;
        cluster.pods(&[ready(1)]);
        let reality = step(&mut shop, 1, 8).await;
        assert_eq!((hosts(&reality), reality.starting, reality.leaving), (vec!["10.0.0.1"], 0, 0));
        assert_eq!(cluster.state.borrow().asked(), [3, 1], "nothing is asked for twice");
        assert_eq!(step(&mut shop, 0, 10).await.starting, 0);
        assert_eq!(shop.present().await, Ok(0));
    });
}

#[test]
fn there_are_never_more_than_there_may_be() {
    run(async {
        let cluster = Cluster::start(9, &[]).await;
        let mut shop = shop(&cluster, &places(100));
        step(&mut shop, 1_000, 0).await;
        assert_eq!(cluster.state.borrow().replicas, 5);
        for _ in 0..3 {
            step(&mut shop, 1_000, 2).await;
        }
        assert_eq!(cluster.state.borrow().asked(), [5]);
    });
}

#[test]
fn pools_share_their_places_and_one_is_free_only_when_its_pod_is_gone() {
    run(async {
        let (first, second) = (Cluster::start(0, &[]).await, Cluster::start(0, &[]).await);
        let places = places(3);
        let (mut one, mut other) = (shop(&first, &places), shop(&second, &places));
        step(&mut one, 3, 0).await;
        first.pods(&[ready(1), ready(2), ready(3)]);
        step(&mut one, 3, 2).await;
        step(&mut other, 2, 2).await;
        assert_eq!(second.state.borrow().asked(), [0_u64; 0]);

        first.pods(&[ready(1), leaving(2), leaving(3)]);
        step(&mut one, 1, 4).await;
        step(&mut other, 2, 4).await;
        assert_eq!(second.state.borrow().replicas, 0, "two are there still");
        first.pods(&[ready(1), leaving(3)]);
        step(&mut one, 1, 6).await;
        step(&mut other, 2, 6).await;
        assert_eq!(second.state.borrow().replicas, 1);

        // What an earlier controller left is kept, with or without a place for it.
        let third = Cluster::start(2, &[ready(1), ready(2)]).await;
        let mut adopted = shop(&third, &places);
        step(&mut adopted, 4, 0).await;
        assert!(third.state.borrow().patches.is_empty() && third.state.borrow().replicas == 2);
    });
}

#[test]
fn where_it_may_not_scale_it_says_so_ever_more_rarely_and_still_looks() {
    for (code, words) in [(403, "403 Forbidden"), (409, "409 Conflict"), (500, "500 InternalServerError")] {
        run(async {
            let cluster = Cluster::start(1, &[ready(1)]).await;
            let mut shop = shop(&cluster, &places(5));
            cluster.fault(Some((Method::PATCH, Fault::Status(code))));
            for at_s in (0..60).step_by(2) {
                let reality = step(&mut shop, 3, at_s).await;
                let trouble = reality.trouble.clone().unwrap();
                assert_eq!(trouble, format!("PATCH deployments/shop/scale: {words}: so it is"));
                assert_eq!((hosts(&reality), reality.starting), (vec!["10.0.0.1"], 2));
                cluster.pods(&[ready(1)]);
            }
            let attempts = cluster.state.borrow().patches.len();
            assert!((4..=7).contains(&attempts), "{attempts}");
            // A pod that goes meanwhile is noticed.
            cluster.pods(&[]);
            let reality = step(&mut shop, 3, 62).await;
            assert_eq!((hosts(&reality), reality.failures >= 4), (vec![], true));

            cluster.fault(None);
            step(&mut shop, 3, 200).await;
            assert_eq!(step(&mut shop, 3, 202).await.trouble, None);
            assert_eq!(cluster.state.borrow().replicas, 3);
        });
    }
}

#[test]
fn an_answer_that_does_not_come_is_given_up() {
    run(async {
        let (patches, all) = (Cluster::start(1, &[ready(1)]).await, Cluster::start(1, &[]).await);
        patches.fault(Some((Method::PATCH, Fault::Silence)));
        all.fault(Some((Method::GET, Fault::Silence)));
        let (mut one, mut other) = (shop(&patches, &places(5)), shop(&all, &places(5)));
        let traffic = Traffic::default();
        let (one, other) = tokio::join!(step(&mut one, 3, 0), other.step(3, &traffic, Nanos::ZERO));
        assert_eq!(hosts(&one), ["10.0.0.1"]);
        assert_eq!(one.trouble.as_deref(), Some("PATCH deployments/shop/scale: no answer within 5 s"));
        assert_eq!(other, Err("GET deployments/shop/scale: no answer within 5 s".to_owned()));
    });
}

#[test]
fn nonsense_is_an_error_and_changes_nothing() {
    run(async {
        let cluster = Cluster::start(1, &[ready(1)]).await;
        let mut shop = shop(&cluster, &places(5));
        let no_selector = "{\"spec\":{\"replicas\":1},\"status\":{\"replicas\":1}}";
        for text in ["", "<html>", "{}", "{\"spec\":{\"replicas\":-1}}", no_selector] {
            cluster.fault(Some((Method::GET, Fault::Text(text))));
            let error = shop.step(3, &Traffic::default(), Nanos::ZERO).await.unwrap_err();
            assert!(error.starts_with("GET deployments/shop/scale: "), "{error}");
        }
        assert!(cluster.state.borrow().patches.is_empty());

        // An address that is none, and a selector that finds what cannot all be the Deployment's.
        cluster.fault(None);
        let mut wrong = ready(1);
        wrong["status"]["podIP"] = json!("10.0.0.1/24 evil");
        cluster.pods(&[wrong]);
        assert_eq!(hosts(&step(&mut shop, 1, 0).await), Vec::<&str>::new());
        cluster.pods(&(0..21).map(ready).collect::<Vec<_>>());
        let error = shop.step(1, &Traffic::default(), Nanos::ZERO).await.unwrap_err();
        assert!(error.contains("more than 20 have the labels `app=shop`"), "{error}");
    });
}

#[test]
fn what_keeps_pods_from_becoming_ready_is_said() {
    run(async {
        let cluster = Cluster::start(2, &[]).await;
        let mut shop = shop(&cluster, &places(5));
        let waiting = json!([{ "state": { "running": {} } }, { "state": { "waiting": { "reason": "ImagePullBackOff" } } }]);
        let unschedulable = json!([{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable" }]);
        for (status, expected) in [
            (json!({ "phase": "Pending", "containerStatuses": waiting }), "pod shop-199: ImagePullBackOff"),
            (json!({ "phase": "Pending", "conditions": unschedulable }), "pod shop-199: Unschedulable"),
        ] {
            // One that was evicted is none of them.
            cluster.pods(&[pod(1, status), ready(2), pod(3, json!({ "phase": "Failed" }))]);
            let reality = step(&mut shop, 2, 0).await;
            assert_eq!((reality.trouble.as_deref(), reality.starting), (Some(expected), 1));
        }
        cluster.pods(&[ready(1), ready(2)]);
        let down = step(&mut shop, 2, 0).await.ready[1].clone();
        let traffic = Traffic { down: HashSet::from([down]), ..Traffic::default() };
        let reality = shop.step(2, &traffic, Nanos::ZERO).await.unwrap();
        assert_eq!(reality.trouble.as_deref(), Some("http://10.0.0.2:8080: the sentries find it down"));
        assert_eq!(reality.ready.len(), 2, "whether it gets requests is for them to say");
    });
}

#[test]
fn somebody_else_who_scales_it_is_noticed_and_not_fought_for_long() {
    run(async {
        let cluster = Cluster::start(1, &[]).await;
        let mut shop = shop(&cluster, &places(5));
        let mut said = 0;
        for at_s in (0..60).step_by(2) {
            let reality = step(&mut shop, 3, at_s).await;
            said +=
                u32::from(reality.trouble.is_some_and(|trouble| trouble.contains("HorizontalPodAutoscaler")));
            cluster.state.borrow_mut().replicas = 4;
        }
        let attempts = cluster.state.borrow().patches.len();
        assert!((4..=8).contains(&attempts) && said > 20, "{attempts} {said}");
    });
}

#[test]
fn an_autoscaler_that_takes_its_time_is_not_fought_for_ever_either() {
    run(async {
        let cluster = Cluster::start(1, &[]).await;
        let mut shop = shop(&cluster, &places(5));
        let (mut said, mut last) = (0, 0);
        for at_s in 0..600 {
            if at_s % 15 == 14 {
                cluster.state.borrow_mut().replicas = 4;
            }
            if at_s % 2 == 0 {
                let trouble = step(&mut shop, 3, at_s).await.trouble;
                said += u32::from(trouble.is_some_and(|it| it.contains("HorizontalPodAutoscaler")));
            }
            if at_s == 300 {
                last = cluster.state.borrow().patches.len();
            }
        }
        let attempts = cluster.state.borrow().patches.len();
        assert!(attempts - last <= 5, "{attempts} {last}: one a minute");
        assert!(said > 280, "{said}: it is said all the time");

        // It is gone. A minute of agreement, and it is forgotten.
        step(&mut shop, 3, 700).await;
        step(&mut shop, 3, 702).await;
        assert!(step(&mut shop, 3, 760).await.trouble.is_some());
        assert_eq!(step(&mut shop, 3, 762).await.trouble, None);
        for at_s in [764, 766] {
            cluster.state.borrow_mut().replicas = 4;
            step(&mut shop, 3, at_s).await;
            assert_eq!(cluster.state.borrow().replicas, 3, "the first waits are short again");
        }
    });
}

#[test]
fn nobody_is_blamed_for_what_was_set_in_spite_of_an_error() {
    run(async {
        let cluster = Cluster::start(1, &[]).await;
        let mut shop = shop(&cluster, &places(5));
        assert_eq!(step(&mut shop, 3, 0).await.trouble, None);
        cluster.fault(Some((Method::PATCH, Fault::Done(504))));
        let trouble = step(&mut shop, 5, 2).await.trouble.unwrap();
        assert!(trouble.contains("504 GatewayTimeout") && cluster.state.borrow().replicas == 5, "{trouble}");

        cluster.fault(None);
        let reality = step(&mut shop, 3, 4).await;
        assert_eq!((reality.trouble, reality.failures), (None, 1));
        assert_eq!(cluster.state.borrow().asked(), [3, 5, 3]);

        // Nor is the error said for longer than it lasts.
        cluster.fault(Some((Method::PATCH, Fault::Done(504))));
        assert!(step(&mut shop, 5, 10).await.trouble.is_some());
        assert_eq!(step(&mut shop, 5, 12).await.trouble, None);
    });
}

#[test]
fn while_the_server_is_gone_what_was_known_stays() {
    run(async {
        let mut cluster = Cluster::start(2, &[ready(1), ready(2)]).await;
        let (_, traffic) = watch::channel(Traffic::default());
        let changed = Rc::new(Notify::new());
        let actuator = Actuator::start("shop".to_owned(), shop(&cluster, &places(5)), traffic, changed);
        let until = async |what: &str, is_so: &dyn Fn() -> bool| {
            let start = Instant::now();
            while !is_so() {
                assert!(start.elapsed() < Duration::from_secs(60), "{what}");
                sleep(Duration::from_millis(10)).await;
            }
        };
        until("it is known what there is", &|| actuator.present() == Some(2)).await;
        actuator.order(2);
        until("they are ready", &|| actuator.reality().ready.len() == 2).await;

        cluster.vanish().await;
        until("it is said", &|| actuator.reality().trouble.is_some()).await;
        actuator.order(3);
        let trouble = actuator.reality().trouble.unwrap();
        assert!(trouble.contains("Connection refused"), "{trouble}");
        assert_eq!(actuator.reality().ready.len(), 2);

        cluster.pods(&[ready(2), ready(3)]);
        cluster.serve().await;
        let servers = |hosts: [&str; 2]| {
            hosts.map(|host| Server { scheme: Scheme::Http, host: host.to_owned(), port: 8080 }).to_vec()
        };
        until("it goes on", &|| actuator.reality().ready == servers(["10.0.0.2", "10.0.0.3"])).await;
        assert_eq!(actuator.reality().trouble, None);
        assert!(actuator.reality().failures >= 1);
        assert_eq!(cluster.state.borrow().asked(), [3]);
    });
}

#[test]
fn the_server_must_have_the_certificate_that_is_expected_and_is_shown_the_token() {
    run(async {
        let (mut cluster, mut other) = (Cluster::start(1, &[]).await, Cluster::start(2, &[]).await);
        let (expected, unexpected) = (cluster.secure().await, other.secure().await);
        let shop = |authority: &[u8]| {
            let server = format!("https://localhost:{}", cluster.address.port());
            let mut config = kube::Config::new(server.parse().unwrap());
            config.root_cert = Some(vec![authority.to_vec()]);
            config.auth_info.token = Some("correct-horse".into());
            shop_by(config, &places(5))
        };
        assert_eq!(shop(&expected).present().await, Ok(1));
        assert_eq!(cluster.state.borrow().authorization.as_deref(), Some("Bearer correct-horse"));
        let error = shop(&unexpected).present().await.unwrap_err();
        assert!(error.contains("invalid peer certificate") && !error.contains("horse"), "{error}");
    });
}

/// A kubeconfig with this user.
fn config(user: serde_json::Value) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": [{ "name": "a", "cluster": { "server": "http://127.0.0.1:1" } }],
        "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a" } }],
        "users": [{ "name": "a", "user": user }],
    })
    .to_string()
}

/// A user whose credentials a command prints.
fn command(script: &str) -> serde_json::Value {
    json!({ "exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
        "command": "sh", "args": ["-c", script],
    } })
}

/// The client of a kubeconfig.
async fn client(text: &str, patience: Duration) -> Result<kube::Client, String> {
    let config = Kubeconfig::from_yaml(text).map_err(|error| api::words(&error))?;
    let config = kube::Config::from_custom_kubeconfig(config, &Default::default()).await;
    api::client(config.map_err(|error| api::words(&error))?, patience).await
}

#[test]
fn errors_say_what_is_wrong_and_no_secret() {
    run(async {
        let failed = |text: String| async move {
            let client = client(&text, Duration::from_secs(60)).await?;
            Api::new(client, None, "shop", 1).scale().await.map(|_| ())
        };
        for (text, expected) in [
            (
                config(command("echo hush; echo hush >&2; exit 3 # hush")),
                "command for credentials failed: exit status: 3",
            ),
            (config(command("echo '{ hush: ['")), "the credentials cannot be used"),
            (
                "users: [{ name: a, user: { token: hush } }, { hush: [ }]".to_owned(),
                "the kubeconfig cannot be read",
            ),
            (config(json!({ "token": "hush" })), "Connection refused"),
        ] {
            let error = failed(text).await.unwrap_err();
            assert!(error.contains(expected) && !error.contains("hush"), "{error}");
        }
    });
}

#[test]
fn a_command_for_credentials_that_hangs_keeps_nobody_from_going_on_or_ending() {
    let directory = tempfile::tempdir().unwrap();
    let (there, ended) = (directory.path(), directory.path().join("ended"));
    // It waits for the directory to go, or where the test has failed for a minute.
    let script = format!(
        "for i in $(seq 600); do [ -d {} ] || exit; sleep 0.1; done; : > {} # hush",
        there.display(),
        ended.display()
    );
    let text = config(command(&script));
    run(async {
        let ticks = Rc::new(Cell::new(0));
        let ticking = Rc::clone(&ticks);
        spawn_local(async move {
            loop {
                sleep(Duration::from_millis(10)).await;
                ticking.set(ticking.get() + 1);
            }
        });
        let error = client(&text, Duration::from_millis(200)).await.err().unwrap();
        assert!(error.contains("no credentials within 200ms") && !error.contains("hush"), "{error}");
        assert!(ticks.get() > 0, "others go on meanwhile");
    });
    assert!(!ended.exists(), "who gives up need not wait for it");
}
