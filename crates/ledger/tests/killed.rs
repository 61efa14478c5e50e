//! A writer is killed in the middle of anything: what it leaves behind can be read, and is known for what it is.
#![expect(clippy::disallowed_methods, reason = "another process is waited for, in real time")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use plimsoll_ledger::layout::{Kind, Shape};
use plimsoll_ledger::{Begin, Create, Ledger, Look, Refusal, Writer};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const SHAPE: Shape = Shape { resources: 4, lanes: 2, tasks: 64, accounts: 128 };
const THREADS: u32 = 3;
const KILLS: usize = 25;
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn who_is_killed_in_the_middle_of_anything_leaves_a_ledger_that_can_be_read() {
    let seed = env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(11);
    println!("SEED={seed}");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    for _ in 0..KILLS {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = start(directory.path());
        let path = made_by(&mut writer, directory.path());
        let mut ledger = open(&path);
        thread::sleep(Duration::from_micros(random.random_range(0..20_000)));
        let mut look = Look::default();
        ledger.look(1_000_000, &mut look).unwrap();
        writer.kill().unwrap();
        writer.wait().unwrap();
        assert!(!ledger.is_alive());
        for now_ns in [2_000_000, 3_000_000] {
            ledger.look(now_ns, &mut look).unwrap();
            assert!(look.tasks.len() <= SHAPE.tasks as usize && look.uses.len() <= SHAPE.accounts as usize);
            assert!(look.tasks.is_sorted_by_key(|task| task.index));
            // A task whose begin was cut off is not there, and one that is has all that it began with.
            for task in &look.tasks {
                assert_eq!((task.started_ns, &*task.label.show()), (task.key + 1, "a task with a label"));
            }
            let of_tasks: usize = look.tasks.iter().map(|task| look.uses_of(task).len()).sum();
            assert_eq!(of_tasks, look.uses.len());
            assert!(look.uses.iter().all(|used| used.held <= 3), "{:?}", look.uses);
        }
        // Nobody writes any more, so nothing happened between those two looks.
        assert!(look.resources.iter().all(|resource| resource.window.gets == 0));
    }
}

fn start(directory: &Path) -> Child {
    let mut writer = Command::new(env::current_exe().unwrap());
    writer.args(["--exact", "writes_until_it_is_killed", "--ignored"]).env("DIRECTORY", directory);
    writer.stdout(std::process::Stdio::null()).spawn().unwrap()
}

/// Waits for the ledger of a process.
fn made_by(writer: &mut Child, directory: &Path) -> PathBuf {
    let path = directory.join(format!("app.{}.ledger", writer.id()));
    let began = Instant::now();
    while !path.exists() {
        assert!(writer.try_wait().unwrap().is_none() && began.elapsed() < PATIENCE, "no ledger is made");
        thread::sleep(Duration::from_millis(1));
    }
    path
}

fn open(path: &Path) -> Ledger {
    let began = Instant::now();
    loop {
        match Ledger::open(path) {
            Err(Refusal::Magic) if began.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(1)),
            opened => return opened.unwrap_or_else(|why| panic!("{why}: {:?}", fs::metadata(path))),
        }
    }
}

#[test]
#[ignore = "a process of its own for the test above"]
fn writes_until_it_is_killed() {
    let Some(directory) = env::var_os("DIRECTORY") else { return };
    let create = Create { app: "app", shape: SHAPE, ..Create::in_directory(Path::new(&directory), 1) };
    let app = Writer::create(&create).unwrap();
    let table = app.resource(Kind::Lock, 1, "table").unwrap();
    let pages = app.resource(Kind::Memory, 100, "pages").unwrap();
    thread::scope(|scope| {
        for lane in 0..THREADS {
            let app = &app;
            scope.spawn(move || {
                for key in 0u64.. {
                    let label = "a task with a label";
                    let begin = Begin { key, flags: 1, started_ns: key + 1, label, ..Begin::default() };
                    let Some(task) = app.begin(&begin) else { continue };
                    for resource in [table, pages] {
                        let Some(account) = app.account(task, resource) else { continue };
                        account.wait(|| key + 1);
                        account.get(3, || key + 2);
                        account.free(1, || key + 3);
                        account.end(key + 4);
                    }
                    app.end(task);
                    app.complete(lane, 5, false);
                }
            });
        }
    });
}
