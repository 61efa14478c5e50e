//! The herald of the agent: on a thread of its own, since it blocks, it reads all threads of the host and answers questions about them.

mod page;
mod processes;
mod selection;
mod subscribers;

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use http::StatusCode;
use plimsoll_core::Nanos;
use plimsoll_core::config::{self, HeraldReader};
use plimsoll_herald::view::Report;
use plimsoll_herald::{Herald, Options, Reader};
use serde::Serialize;
use tokio::sync::{oneshot, watch};

pub use self::page::{Body, PATH, Page};
pub use self::processes::Process;
use self::processes::Processes;
use self::selection::{Ports, Selection};
use self::subscribers::{Subscriber, Subscribers};

/// For how long after a question it goes on reading as often as it is configured,
const KEEN: Nanos = Nanos::from_secs(10);
/// and from one reading to the next after that: enough for the metrics.
const IDLE_PERIOD: Duration = Duration::from_secs(1);
/// Questions that may be open at once.
const QUESTIONS: usize = 64;

/// Why a question has no answer.
#[derive(Debug, PartialEq)]
pub struct Refusal {
    status: StatusCode,
    words: String,
}

impl Refusal {
    fn new(status: StatusCode, words: impl Into<String>) -> Refusal {
        Refusal { status, words: words.into() }
    }
}

/// What somebody wants to know.
enum Question {
    /// How these threads are.
    Report(Selection, oneshot::Sender<Result<Report, Refusal>>),
    /// When one of them is about to be slowed too much.
    Subscribe(Box<Subscriber>, oneshot::Sender<Result<(), Refusal>>),
}

/// What the agent's status and metrics tell of the herald.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    /// Why it does not read, if it does not.
    pub trouble: Option<String>,
    /// How it reads.
    pub reader: &'static str,
    /// Why not by BPF, where that was left to it.
    pub note: Option<String>,
    /// Threads that it follows.
    pub tasks: usize,
    /// Threads that it leaves out, because they are too many.
    pub left_out: usize,
    /// Readings that it took.
    pub readings: u64,
    /// From one reading to the next.
    pub period_ms: f64,
    /// Its CPU time over the last ten seconds, in percent of one CPU.
    pub cpu_pct: f64,
    /// By name of the process.
    #[serde(skip)]
    pub processes: Vec<Process>,
}

/// Starts it, if it is wanted. It ends with the page that it returns, by which it is asked.
pub fn start(config: &config::Herald) -> (Page, watch::Receiver<Figures>) {
    let (figures, shown) = watch::channel(Figures::default());
    let reader = match config.reader {
        HeraldReader::Off => {
            let why = "the herald is off; write reader = \"auto\" in [herald], or remove the key";
            return (Page::closed(why), shown);
        }
        HeraldReader::Auto => Reader::Auto,
        HeraldReader::Bpf => Reader::Bpf,
        HeraldReader::Pread => Reader::Pread,
    };
    let options = Options { period: config.period.into(), budget: config.budget, reader };
    match spawn(options, figures.clone()) {
        Ok(questions) => (Page::open(questions), shown),
        Err(error) => {
            let why = format!("the herald has no thread: {error}");
            log::warn!("{why}");
            figures.send_modify(|figures| figures.trouble = Some(why.clone()));
            (Page::closed(&why), shown)
        }
    }
}

fn spawn(options: Options, figures: watch::Sender<Figures>) -> io::Result<SyncSender<Question>> {
    let (questions, asked) = sync_channel(QUESTIONS);
    std::thread::Builder::new().name("plimsoll-herald".to_owned()).spawn(move || {
        if let Err(why) = run(options, &asked, &figures) {
            log::warn!(why:%; "the herald does not read");
            figures.send_modify(|figures| figures.trouble = Some(why.clone()));
            refuse_all(&asked, &why);
        }
    })?;
    Ok(questions)
}

/// Reads and answers until nobody can ask any more.
fn run(options: Options, asked: &Receiver<Question>, figures: &watch::Sender<Figures>) -> Result<(), String> {
    let mut herald = Herald::new(options)?;
    let mut subscribers = Subscribers::default();
    let mut processes = Processes::default();
    let mut ports = Ports::default();
    let mut asked_at = herald.now();
    log::info!(reader = herald.cost().reader; "herald ready");
    if let Some(note) = herald.note() {
        log::info!(note:%; "herald");
    }
    loop {
        if herald.next_in().is_zero() {
            herald.sample();
            subscribers.tell(&herald, &mut ports);
            if let Some(processes) = processes.count(&herald) {
                figures.send_replace(counted(&herald, processes));
            }
        }
        let keen = !subscribers.is_empty() || herald.now().since(asked_at) < KEEN;
        herald.set_period(if keen { options.period } else { options.period.max(IDLE_PERIOD) });
        let question = asked.recv_timeout(herald.next_in());
        if question.is_ok() {
            asked_at = herald.now();
        }
        // An answer that nobody waits for any more is dropped.
        match question {
            Ok(Question::Report(selection, answer)) => {
                let report = selection.among(&herald, &mut ports).map(|wanted| wanted.report(&herald));
                let _ = answer.send(report);
            }
            Ok(Question::Subscribe(subscriber, answer)) => {
                let _ = answer.send(subscribers.add(*subscriber, &herald, &mut ports));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

fn refuse_all(asked: &Receiver<Question>, why: &str) {
    let refusal = || Refusal::new(StatusCode::SERVICE_UNAVAILABLE, why);
    for question in asked {
        match question {
            Question::Report(_, answer) => drop(answer.send(Err(refusal()))),
            Question::Subscribe(_, answer) => drop(answer.send(Err(refusal()))),
        }
    }
}

fn counted(herald: &Herald, processes: Vec<Process>) -> Figures {
    let cost = herald.cost();
    Figures {
        trouble: None,
        reader: cost.reader,
        note: herald.note().map(str::to_owned),
        tasks: herald.futures().len(),
        left_out: herald.futures().left_out(),
        readings: cost.readings,
        period_ms: cost.period.as_secs_f64() * 1e3,
        cpu_pct: cost.cpu * 100.0,
        processes,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use http_body_util::BodyExt;
    use plimsoll_core::config::{Config, parse};
    use serde_json::Value;

    use super::*;

    fn page() -> Page {
        let text = "[herald]\nperiod = \"50ms\"\nbudget = 1.0\nreader = \"pread\"";
        start(&parse::<Config>(text, "").unwrap().0.herald).0
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    async fn ask(page: &Page, query: &str) -> (StatusCode, String) {
        let response = page.answer(&format!("{PATH}{query}").parse().unwrap()).await;
        let (status, body) = (response.status(), response.into_body().collect().await.unwrap().to_bytes());
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[test]
    fn this_process_is_told_by_number_name_and_port() {
        block_on(async {
            let page = page();
            let pid = std::process::id();
            let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            for query in [format!("?pid={pid}"), format!("?comm={}", comm.trim()), format!("?port={port}")] {
                let (status, text) = ask(&page, &query).await;
                assert_eq!(status, StatusCode::OK, "{query}: {text}");
                let report: Report = serde_json::from_str(&text).unwrap();
                assert!(report.tasks.iter().any(|task| task.pid == pid), "{query}: {text}");
            }
            drop(listener);
            let (status, text) = ask(&page, &format!("?pid={}", i32::MAX)).await;
            assert!(status == StatusCode::NOT_FOUND && text.contains("no process"), "{text}");
        });
    }

    #[test]
    fn a_subscriber_is_told_of_a_thread_that_is_about_to_be_slowed_and_of_its_end() {
        let stop = Arc::new(AtomicBool::new(false));
        let hog = || {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                let own = rustix::thread::gettid();
                rustix::process::setpriority_process(Some(own), 19).unwrap();
                let mut one = rustix::thread::CpuSet::new();
                one.set(rustix::thread::sched_getcpu());
                rustix::thread::sched_setaffinity(None, &one).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        // So many that each must wait for others on any host, wherever they were bound.
        let cpus = std::thread::available_parallelism().unwrap().get();
        let hogs: Vec<_> = (0..4 * cpus).map(|_| hog()).collect();
        let told = block_on(async {
            let page = page();
            let query = format!("{PATH}?pid={}&bound=1.5", std::process::id());
            let mut body = page.answer(&query.parse().unwrap()).await.into_body();
            let mut told: Vec<Value> = Vec::new();
            while !told.iter().any(|line| line["event"] == "gone" || line["event"] == "below") {
                let line = body.frame().await.expect("it goes on").unwrap().into_data().unwrap();
                told.push(serde_json::from_slice(&line).unwrap());
                if told.last().unwrap()["event"] == "above" {
                    stop.store(true, Ordering::Relaxed);
                }
            }
            told
        });
        for hog in hogs {
            hog.join().unwrap();
        }
        assert_eq!(told[0]["event"], "watching");
        let above = told.iter().find(|line| line["event"] == "above").expect("nobody was about to be slowed");
        assert!(above["task"]["predicted_slowdown"].as_f64().unwrap() > 1.5, "{above}");
        assert_eq!((&above["task"]["pid"], &above["bound"]), (&std::process::id().into(), &1.5.into()));
    }
}
