//! A real php-fpm whose workers are taken, and given back by the agent; and one, and an httpd, in trouble. Where there is none the tests say so and pass, but with
//! `PLIMSOLL_REQUIRE_APACHE=1` they fail.

use std::cell::{Cell, RefCell};
use std::fs;
use std::os::unix::fs::symlink;
use std::rc::Rc;

use plimsoll_core::config::{Config, Database, parse};
use plimsoll_testbed::apache::fpm::{Fpm as Private, Options};
use plimsoll_testbed::apache::httpd::{self, Httpd};
use plimsoll_testbed::apache::there_is_none;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::sleep;

use super::status::Stream;
use super::{Apache, PhpFpm, fastcgi};
use crate::server::conformance::{self, Ground, LOOK, conformance, on_one_thread};
use crate::server::lies::{are_borne, lied};

type Agent = conformance::Agent<PhpFpm>;

const WORKERS: usize = 4;
const PAGES: [(&str, &str); 3] = [
    ("quick.php", "<?php usleep(2000); echo 'ok';"),
    ("usual.php", "<?php usleep(30000); echo 'ok';"),
    ("slow.php", "<?php sleep(60); echo 'ok';"),
];

fn raise() -> Option<Private> {
    let pages = PAGES.map(|(name, text)| (name.to_owned(), text.to_owned())).to_vec();
    match Private::start(&Options { workers: WORKERS as u32, pages, ..Options::default() }) {
        Ok(fpm) => Some(fpm),
        Err(error) if there_is_none(&error) => None,
        Err(error) => panic!("{error}"),
    }
}

fn settings(fpm: &Private, more: &str) -> Database {
    settings_at("phpfpm", fpm.status(), more)
}

fn settings_at(kind: &str, at: &str, more: &str) -> Database {
    let text = format!("[{kind}.main]\nstatus = \"{at}\"\nslo = {{ p99 = \"100ms\" }}\n{more}");
    parse::<Config>(&text, "").unwrap_or_else(|e| panic!("{e}")).0.databases.remove(0)
}

/// Asks for a page, on a connection of its own.
async fn ask(fpm: &Private, page: &str) -> std::io::Result<Vec<u8>> {
    let mut stream: Stream = Box::new(UnixStream::connect(fpm.socket()).await?);
    let page = fpm.page(page).display().to_string();
    Ok(fastcgi::get(&mut stream, &page, "token=hush").await?.body)
}

/// Clients that ask again and again, with a pause; they must always be answered. How often they have been.
fn clients(fpm: &Rc<Private>, count: usize, page: &'static str, pause: bool) -> Rc<Cell<u64>> {
    let answered = Rc::new(Cell::new(0));
    for _ in 0..count {
        let (fpm, answered) = (Rc::clone(fpm), Rc::clone(&answered));
        tokio::task::spawn_local(async move {
            loop {
                assert_eq!(ask(&fpm, page).await.expect("a victim suffered"), b"ok");
                answered.set(answered.get() + 1);
                if pause {
                    sleep(LOOK).await;
                }
            }
        });
    }
    answered
}

#[test]
fn who_takes_all_workers_is_ended_and_nobody_else() {
    on_one_thread(async {
        let Some(fpm) = raise().map(Rc::new) else { return };
        let answered = clients(&fpm, 8, "quick.php", true);
        let agent = Agent::start(settings(&fpm, ""));
        agent.sees(|watched| watched.looks > 20 && watched.completed > 200).await;
        assert!(agent.events("").is_empty(), "{:#?}", agent.events(""));
        let hogs: Vec<_> = (0..WORKERS)
            .map(|_| {
                let fpm = Rc::clone(&fpm);
                tokio::task::spawn_local(async move { ask(&fpm, "slow.php").await })
            })
            .collect();
        let cancel = agent.told("cancel", |_| true).await;
        assert_eq!(cancel["resource"], "workers", "{cancel:#}");
        let is_slow = |cancel: &serde_json::Value| {
            cancel["about"]["what"].as_str().is_some_and(|what| what.ends_with("/slow.php?…"))
        };
        assert!(is_slow(&cancel), "{cancel:#}");
        assert_eq!(cancel["task"], format!("worker {}", cancel["pid"]));
        agent.told("released", |_| true).await;
        let before = answered.get();
        agent.sees(|_| answered.get() > before + 100).await;
        for cancel in agent.events("cancel") {
            assert!(is_slow(&cancel), "{cancel:#}");
        }
        let ended = hogs.iter().filter(|hog| hog.is_finished()).count();
        assert_eq!(ended, agent.events("cancel").len(), "{:#?}", agent.events(""));
    });
}

#[test]
fn of_requests_that_are_alike_none_is_ended() {
    on_one_thread(async {
        let Some(fpm) = raise().map(Rc::new) else { return };
        let _few = clients(&fpm, 2, "usual.php", false);
        let agent = Agent::start(settings(&fpm, ""));
        agent.sees(|watched| watched.completed > 100).await;
        // Each waits for five others.
        let _many = clients(&fpm, 6 * WORKERS, "usual.php", false);
        agent.told("regular_overload", |_| true).await;
        agent.sees(|watched| watched.completed > 1_000).await;
        assert!(agent.events("cancel").is_empty(), "{:#?}", agent.events("cancel"));
    });
}

#[test]
fn what_is_missing_is_named() {
    on_one_thread(async {
        let Some(fpm) = raise() else { return };
        let agent = Agent::start(settings(&fpm, "path = \"/elsewhere\""));
        let missing = |event: &serde_json::Value| {
            event["reason"].as_str().unwrap().contains("pm.status_path = /elsewhere")
        };
        agent.told("adapter_error", missing).await;
        let able = Agent::start(settings(&fpm, ""));
        able.sees(|watched| watched.looks > 20).await;
        assert!(able.events("").is_empty(), "{:#?}", able.events(""));
    });
}

impl Ground for Private {
    type Adapter = PhpFpm;

    async fn raise() -> Option<Private> {
        raise()
    }

    fn at(&self) -> String {
        self.status().to_owned()
    }

    fn settings_at(&self, at: &str, _: &str, more: &str) -> Database {
        settings_at("phpfpm", at, more)
    }

    fn kill(&mut self) {
        self.stop(true);
    }

    async fn revive(&mut self) {
        self.resume().unwrap();
    }
}

conformance!(mod fpm: Private);

/// An httpd with our module, and a name for the place where that tells of it, wherever it is now.
struct Web {
    httpd: Option<Httpd>,
    place: TempDir,
}

impl Web {
    fn start(&mut self) -> Result<(), String> {
        let options = httpd::Options { status: true, ..httpd::Options::new(httpd::Workers::Processes(2)) };
        let httpd = Httpd::start(&options)?;
        let _ = fs::remove_file(self.at());
        symlink(httpd.status(), self.at()).map_err(|e| e.to_string())?;
        self.httpd = Some(httpd);
        Ok(())
    }
}

impl Ground for Web {
    type Adapter = Apache;

    async fn raise() -> Option<Web> {
        let mut web = Web { httpd: None, place: tempfile::tempdir().unwrap() };
        match web.start() {
            Ok(()) => Some(web),
            Err(error) if there_is_none(&error) => None,
            Err(error) => panic!("{error}"),
        }
    }

    fn at(&self) -> String {
        self.place.path().join("status").display().to_string()
    }

    fn settings_at(&self, at: &str, _: &str, more: &str) -> Database {
        settings_at("httpd", at, more)
    }

    fn kill(&mut self) {
        self.httpd = None;
    }

    async fn revive(&mut self) {
        self.start().unwrap();
    }
}

conformance!(mod web: Web);

/// Whatever is asked on a connection is answered with a line, as our module does.
async fn answer(stream: UnixStream, line: &RefCell<String>) {
    let mut stream = BufReader::new(stream);
    let mut asked = String::new();
    while stream.read_line(&mut asked).await.is_ok_and(|read| read > 0) {
        let line = line.borrow().clone() + "\n";
        if stream.write_all(line.as_bytes()).await.is_err() {
            return;
        }
    }
}

#[test]
fn whatever_workers_say_is_borne() {
    on_one_thread(async {
        let place = tempfile::tempdir().unwrap();
        let at = place.path().join("status");
        let line = Rc::new(RefCell::new(String::new()));
        let (listener, told) = (UnixListener::bind(&at).unwrap(), Rc::clone(&line));
        tokio::task::spawn_local(async move {
            while let Ok((stream, _)) = listener.accept().await {
                answer(stream, &told).await;
            }
        });
        let mut looks = 0;
        are_borne::<Apache>(settings_at("httpd", at.to_str().unwrap(), ""), |rng| {
            looks += 1;
            let worker = |pid: u32, state: &str| {
                json!({ "pid": pid, "state": state, "start time": 1_700_000_000, "requests": looks,
                        "request duration": 1_500, "request method": "GET", "request uri": "/slow.php" })
            };
            let page = json!({ "pool": "httpd", "start time": 1_700_000_000, "accepted conn": 3 * looks, "listen queue": 2,
                               "processes": [worker(1, "Running"), worker(2, "Running"), worker(3, "Idle")] });
            *line.borrow_mut() = lied(&page, rng).to_string();
        })
        .await;
    });
}
