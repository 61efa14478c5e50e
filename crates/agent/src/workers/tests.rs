//! A real php-fpm whose workers are taken, and given back by the agent; and one, and an httpd, in trouble. Where there is none the tests say so and pass, but with
//! `PLIMSOLL_REQUIRE_APACHE=1` they fail.

use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::rc::Rc;

use plimsoll_core::config::{Config, Database, parse};
use plimsoll_testbed::apache::fpm::{Fpm as Private, Options};
use plimsoll_testbed::apache::httpd::{self, Httpd};
use plimsoll_testbed::apache::there_is_none;
use plimsoll_testbed::database::http::{Http, Steps};
use plimsoll_testbed::database::task::How;
use plimsoll_testbed::database::{Database as _, Session};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

use super::status::Stream;
use super::{Apache, PhpFpm, fastcgi};
use crate::server::conformance::{self, Ground, Work, conformance, on_one_thread};
use crate::server::lies::{are_borne, lied};

type Agent = conformance::Agent<PhpFpm>;

const WORKERS: u32 = 4;
const QUICK: &str = "quick.php";
const USUAL: &str = "usual.php";
const ENDLESS: &str = "endless.php";

fn pages() -> Vec<(String, String)> {
    let pages = [(QUICK, "usleep(2000)"), (USUAL, "usleep(30000)"), (ENDLESS, "sleep(600)")];
    pages.map(|(name, does)| (name.to_owned(), format!("<?php {does}; echo 'ok';"))).to_vec()
}

fn raise() -> Option<Private> {
    match Private::start(&Options { workers: WORKERS, pages: pages(), ..Options::default() }) {
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

/// Somebody who asks a php-fpm for pages, each on a connection of its own.
pub struct Visitor {
    socket: PathBuf,
    pages: PathBuf,
}

impl Session for Visitor {
    /// What it knows them by is a worker's number.
    fn id(&self) -> i32 {
        0
    }

    async fn run(&mut self, page: &str) -> Result<(), How> {
        let asked = async {
            let mut stream: Stream = Box::new(UnixStream::connect(&self.socket).await?);
            fastcgi::get(&mut stream, &self.pages.join(page).display().to_string(), "token=hush").await
        };
        match asked.await {
            Ok(answer) if answer.body == b"ok" => Ok(()),
            Ok(answer) => Err(How::Failed(format!("{answer:?}"))),
            // Who worked for it is gone.
            Err(_) => Err(How::Terminated),
        }
    }

    async fn closed(&mut self) -> How {
        std::future::pending().await
    }
}

/// Whether that is the page that is slow, and what it has are workers.
fn is_endless(told: &Value, end: &str) -> bool {
    let what = told["about"]["what"].as_str();
    let worker = told["task"] == format!("worker {}", told["pid"]);
    told["resource"] == "workers" && worker && what.is_some_and(|what| what.ends_with(end))
}

#[test]
fn what_is_missing_is_named() {
    on_one_thread(async {
        let Some(fpm) = raise() else { return };
        let agent = Agent::start(settings(&fpm, "path = \"/elsewhere\""));
        let missing =
            |event: &Value| event["reason"].as_str().unwrap().contains("pm.status_path = /elsewhere");
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

impl Work for Private {
    type Client = Visitor;

    const CULPRITS: usize = WORKERS as usize;

    async fn client(&self, _: &str) -> Result<Visitor, String> {
        Ok(Visitor { socket: self.socket(), pages: self.page("") })
    }

    fn quick(_: usize) -> String {
        QUICK.to_owned()
    }

    fn usual() -> String {
        USUAL.to_owned()
    }

    fn endless() -> String {
        ENDLESS.to_owned()
    }

    fn names(told: &Value, _: i32) -> bool {
        is_endless(told, "/endless.php?…")
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
        let options = httpd::Options {
            status: true,
            pages: pages(),
            // Who keeps a connection keeps a worker.
            settings: vec![("KeepAlive".to_owned(), "Off".to_owned())],
            ..httpd::Options::new(httpd::Workers::Processes(WORKERS))
        };
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

impl Work for Web {
    type Client = Steps;

    const CULPRITS: usize = WORKERS as usize;

    async fn client(&self, name: &str) -> Result<Steps, String> {
        let address = self.httpd.as_ref().expect("it is there").addr();
        Http { address, ended: &[], content_type: "text/plain" }.begin(name).await
    }

    fn quick(_: usize) -> String {
        format!("GET /{QUICK}")
    }

    fn usual() -> String {
        format!("GET /{USUAL}")
    }

    fn endless() -> String {
        format!("GET /{ENDLESS}")
    }

    fn names(told: &Value, _: i32) -> bool {
        is_endless(told, "GET /endless.php")
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
