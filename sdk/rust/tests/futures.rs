//! Futures: a task goes with its future from thread to thread, a wait ends with it, and a request that is cancelled is dropped and answered.

mod common;

use std::future::pending;
use std::sync::Arc;
use std::task::Poll;

use common::{Agent, Place, until};
use http::{Request, Response, StatusCode};
use plimsoll_sdk::tokio::{Mutex, Pool, RwLock, Semaphore};
use plimsoll_sdk::tower::{Account, http as about};
use plimsoll_sdk::{App, Cancellation, Kind, current};
use tokio::sync::Notify;
use tower_layer::Layer;
use tower_service::Service;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrapped_locks_account_for_the_future_that_has_them() {
    let place = Place::new();
    let app = place.open("async-locks");
    let mutex = Arc::new(Mutex::new(app, "mutex", 0));
    let rwlock = Arc::new(RwLock::new(app, "rwlock", 0));
    let semaphore = Semaphore::new(app, "semaphore", 2);
    let pool = Arc::new(Pool::new(app, "pool", [1, 2]));
    let workers = (pool.get().await, pool.get().await);
    let spawned: Vec<_> = (0..40)
        .map(|key| {
            let (mutex, rwlock, semaphore, pool) =
                (Arc::clone(&mutex), Arc::clone(&rwlock), semaphore.clone(), Arc::clone(&pool));
            let task = app.task("t").key(key).begin();
            tokio::spawn(task.scope(async move {
                let _worker = pool.get().await;
                let _permit = semaphore.acquire().await.unwrap();
                tokio::task::yield_now().await;
                let _read = rwlock.read().await;
                *mutex.lock().await += 1;
                drop(_read);
                *rwlock.write().await += 1;
            }))
        })
        .collect();
    until(|| place.look(&app).resources.iter().any(|r| r.waiting == 40));
    drop(workers);
    for one in spawned {
        one.await.unwrap();
    }
    assert_eq!((*mutex.lock().await, *rwlock.read().await), (40, 40));
    let look = place.look(&app);
    assert!(
        look.tasks.is_empty() && look.resources.iter().all(|r| (r.held, r.waiting) == (0, 0)),
        "{look:?}"
    );
    let dump = place.dump(&app);
    let sum = |resource: &str, name: &str| -> u64 {
        let lines = dump.lines().filter(|line| line.starts_with("account ") && line.contains(resource));
        let words = lines.flat_map(str::split_whitespace).filter_map(|w| w.strip_prefix(name));
        words.map(|n| n.parse::<u64>().unwrap()).sum()
    };
    for (resource, times) in
        [("resource=0 ", 40), ("resource=1 ", 80), ("resource=2 ", 40), ("resource=3 ", 40)]
    {
        assert_eq!((sum(resource, "gets="), sum(resource, "frees=")), (times, times), "{resource}");
    }
    assert_eq!(sum("resource=3 ", "slows="), 40);
}

#[tokio::test]
async fn a_wait_that_is_dropped_has_ended() {
    let place = Place::new();
    let app = place.open("async-waits");
    let mutex = Arc::new(Mutex::new(app, "mutex", 0));
    let guard = mutex.lock().await;
    let other = Arc::clone(&mutex);
    let waiter = tokio::spawn(app.task("t").begin().scope(async move { *other.lock().await += 1 }));
    tokio::task::yield_now().await;
    assert_eq!(place.look(&app).uses[0].waiting, 1);
    waiter.abort();
    assert!(waiter.await.unwrap_err().is_cancelled());
    assert!(place.look(&app).tasks.is_empty());
    assert!(place.account(&app, 0).contains("task=- turn=0 resource=0 gets=0 frees=0 slows=1"));
    drop(guard);
}

/// A server whose requests say what they want.
#[derive(Clone)]
struct Server {
    app: App,
    mutex: Arc<Mutex<u64>>,
}

impl Service<&'static str> for Server {
    type Response = String;
    type Error = std::convert::Infallible;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<String, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: &'static str) -> Self::Future {
        let mutex = Arc::clone(&self.mutex);
        // What is asked for before the future is polled, is for the task as well.
        assert!(!current::is_cancelled());
        let branch = current::branch();
        let cpu = self.app.resource(Kind::Cpu, 0, "cpu");
        Box::pin(async move {
            branch.get(cpu, 1);
            let mut guard = mutex.lock().await;
            *guard += 1;
            if request == "hog" {
                pending::<()>().await;
            }
            Ok(format!("{request} is done"))
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_cancelled_is_dropped_and_answered() {
    let place = Place::new();
    let mut agent = Agent::listen(&place);
    let app = place.open("tower");
    agent.welcome();
    let mutex = Arc::new(Mutex::new(app, "mutex", 0));
    let layer = Account::new(
        app,
        |request: &&str| format!("GET /{request}"),
        |why: &Cancellation| format!("cancelled: {why}"),
    )
    .with(|task, request: &&str| if *request == "hog" { task.key(5) } else { task });
    let mut service = layer.layer(Server { app, mutex: Arc::clone(&mutex) });
    assert_eq!(service.call("item").await.unwrap(), "item is done");

    let hog = tokio::spawn(service.call("hog"));
    until(|| place.look(&app).resources.iter().any(|r| r.held == 1 && r.kind == Kind::Lock));
    let victim = tokio::spawn(service.call("victim"));
    until(|| place.look(&app).resources.iter().any(|r| r.waiting == 1));
    let look = place.look(&app);
    let culprit = look.tasks.iter().find(|task| &*task.label.show() == "GET /hog").unwrap();
    assert_eq!((culprit.key, culprit.cancellable()), (5, true));
    agent.say(&format!("cancel 1 {} {} 0 it holds mutex", culprit.index, culprit.turn));
    assert_eq!(agent.hear(), "acknowledge 1");
    assert_eq!(hog.await.unwrap().unwrap(), "cancelled: it holds mutex");
    assert_eq!(agent.hear(), "outcome 1 cancelled");
    assert_eq!(victim.await.unwrap().unwrap(), "victim is done");
    assert_eq!(*mutex.lock().await, 3);
    let dump = place.dump(&app);
    let cancelled = dump.split_whitespace().filter_map(|w| w.strip_prefix("cancelled="));
    assert_eq!(cancelled.map(|n| n.parse::<u64>().unwrap()).sum::<u64>(), 1);
}

/// One whose requests last until they are cancelled, or let go.
#[derive(Clone)]
struct Waits(Arc<Notify>);

impl Service<Request<()>> for Waits {
    type Response = Response<String>;
    type Error = std::convert::Infallible;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<Response<String>, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        let go = Arc::clone(&self.0);
        Box::pin(async move {
            go.notified().await;
            Ok(Response::new("the second time".to_owned()))
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_http_request_is_cancelled_once_and_says_so() {
    let place = Place::new();
    let mut agent = Agent::listen(&place);
    let app = place.open("http");
    agent.welcome();
    app.resource(Kind::Lock, 1, "täble");
    let go = Arc::new(Notify::new());
    let layer = Account::new(app, about::label, about::answer).with(about::again);
    let mut service = layer.layer(Waits(Arc::clone(&go)));
    let mut ask = |rerun: &str| {
        let request = Request::get("/report?all").header("plimsoll-rerun", rerun).body(()).unwrap();
        tokio::spawn(service.call(request))
    };

    let first = ask("0");
    until(|| place.look(&app).tasks.iter().any(|task| &*task.label.show() == "GET /report"));
    let (index, turn) = place.look(&app).tasks.first().map(|task| (task.index, task.turn)).unwrap();
    agent.say(&format!("cancel 1 {index} {turn} 0 it holds the table"));
    assert_eq!(agent.hear(), "acknowledge 1");
    let answer = first.await.unwrap().unwrap();
    assert_eq!(agent.hear(), "outcome 1 cancelled");
    assert_eq!(
        (answer.status(), answer.body().as_str()),
        (StatusCode::SERVICE_UNAVAILABLE, "cancelled: it holds the table\n")
    );
    assert_eq!(answer.headers()["plimsoll-cancelled"], "t?ble");

    let again = ask("1");
    until(|| place.look(&app).tasks.iter().any(|task| task.rerun() && !task.cancellable()));
    let (index, turn) = place.look(&app).tasks.first().map(|task| (task.index, task.turn)).unwrap();
    agent.say(&format!("cancel 2 {index} {turn} 0 again"));
    assert_eq!(agent.hear(), "outcome 2 failed it cannot be cancelled");
    go.notify_one();
    assert_eq!(again.await.unwrap().unwrap().body(), "the second time");
}
