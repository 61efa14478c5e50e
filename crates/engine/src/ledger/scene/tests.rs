//! A ledger that is written here, looked into, and the scenes that come of it.

use std::rc::Rc;

use plimsoll_ledger::layout::{CANCELLABLE, Kind, RERUN, Shape};
use plimsoll_ledger::{Begin, Create, Ledger, Writer};

use super::*;
use plimsoll_core::Nanos;

const MS: u64 = 1_000_000;

struct Pair {
    writer: Rc<Writer>,
    ledger: Ledger,
    look: Look,
    books: Books,
    did: HashMap<Process, Did>,
    _dir: tempfile::TempDir,
}

impl Pair {
    fn new() -> Pair {
        let dir = tempfile::tempdir().unwrap();
        let shape = Shape { resources: 8, lanes: 2, tasks: 16, accounts: 16 };
        let create = Create { app: "shop", shape, ..Create::in_directory(dir.path(), MS) };
        let writer = Rc::new(Writer::create(&create).unwrap());
        let ledger = Ledger::open(writer.path()).unwrap();
        let (look, books, did) = Default::default();
        Pair { writer, ledger, look, books, did, _dir: dir }
    }

    fn scene(&mut self, now_ns: u64) -> Scene {
        self.ledger.look(now_ns, &mut self.look).unwrap();
        let mut scene = Scene::default();
        let threads = Threads { pid: 7, did: &self.did, cpus: 2 };
        self.books.scene(&self.look, &threads, &mut scene);
        scene
    }
}

#[test]
fn a_lock_that_is_held_and_waited_for() {
    let mut pair = Pair::new();
    let writer = Rc::clone(&pair.writer);
    let table = writer.resource(Kind::Lock, 1, "table").unwrap();
    pair.scene(10 * MS);
    let begin = |flags, started_ns| Begin { flags, started_ns, ..Begin::default() };
    let holder = writer.begin(&begin(CANCELLABLE, 10 * MS)).unwrap();
    let victim = writer.begin(&begin(CANCELLABLE | RERUN, 20 * MS)).unwrap();
    let has = writer.account(holder, table).unwrap();
    has.get(1, || 12 * MS);
    let waits = writer.account(victim, table).unwrap();
    waits.wait(|| 25 * MS);
    let scene = pair.scene(30 * MS);
    let lock = FIRST + u32::from(table);
    let cancellable: Vec<bool> = scene.tasks.iter().map(|task| task.cancellable).collect();
    assert_eq!(cancellable, [true, false], "what is run again is not cancelled again");
    assert_eq!(scene.tasks[0].id, id(holder.index(), holder.turn()));
    let held = scene.uses.iter().find(|used| used.task == 0).unwrap();
    assert_eq!((held.resource, held.held, held.held_ns, held.used), (lock, 1, 18 * MS, 18 * MS));
    let waiting = scene.uses.iter().find(|used| used.task == 1).unwrap();
    assert_eq!((waiting.resource, waiting.waiting_ns, waiting.held_ns), (lock, 5 * MS, 0));
    let resource = scene.resources[lock as usize];
    assert_eq!(
        (resource.delay_ns, resource.use_ns, resource.ended, resource.ended_ns),
        (5 * MS, 18 * MS, 0, 0)
    );
    // It is given back: the hold has ended, and how long it was is known.
    has.free(1, || 40 * MS);
    let resource = pair.scene(50 * MS).resources[lock as usize];
    assert_eq!((resource.ended, resource.ended_ns), (1, 28 * MS));
}

#[test]
fn of_several_holds_only_those_of_the_same_resource_go_on() {
    let mut pair = Pair::new();
    let writer = Rc::clone(&pair.writer);
    let table = writer.resource(Kind::Lock, 1, "table").unwrap();
    let workers = writer.resource(Kind::Queue, 8, "workers").unwrap();
    pair.scene(10 * MS);
    let begin = || writer.begin(&Begin { started_ns: 10 * MS, ..Begin::default() }).unwrap();
    let holds: Vec<_> = [(table, 10), (workers, 10), (workers, 20), (workers, 30)]
        .map(|(resource, at)| {
            let account = writer.account(begin(), resource).unwrap();
            account.get(1, || at * MS);
            account
        })
        .into();
    let ended = |scene: Scene| {
        [table, workers].map(|resource| {
            let resource = scene.resources[(FIRST + u32::from(resource)) as usize];
            (resource.ended, resource.ended_ns / MS)
        })
    };
    assert_eq!(ended(pair.scene(40 * MS)), [(0, 0), (0, 0)]);
    holds[1].free(1, || 45 * MS);
    holds[3].free(1, || 50 * MS);
    assert_eq!(ended(pair.scene(50 * MS)), [(0, 0), (2, 35 + 20)]);
    holds[0].free(1, || 60 * MS);
    holds[2].free(1, || 60 * MS);
    assert_eq!(ended(pair.scene(60 * MS)), [(1, 50), (1, 40)]);
}

#[test]
fn requests_that_ended_are_counted_by_how_long_they_took() {
    let mut pair = Pair::new();
    pair.scene(10 * MS);
    for lane in [0, 1, 1] {
        pair.writer.complete(lane, 5 * MS, false);
    }
    pair.writer.complete(0, 70 * MS, true);
    let scene = pair.scene(20 * MS);
    let [(latency_ns, 3)] = scene.finished[..] else { panic!("{:?}", scene.finished) };
    assert!(latency_ns.abs_diff(5 * MS) < MS / 2, "{latency_ns}");
    assert_eq!(scene.finished_ns, 85 * MS, "the cancelled one took its time, too");
}

#[test]
fn numbers_of_resources_stay_whatever_comes() {
    let mut pair = Pair::new();
    let first = pair.scene(10 * MS).resources.len();
    assert_eq!(first, FIRST as usize);
    pair.writer.resource(Kind::Memory, 100, "pages").unwrap();
    pair.writer.resource(Kind::Queue, 8, "workers").unwrap();
    let scene = pair.scene(20 * MS);
    let kinds: Vec<_> = scene.resources.iter().map(|resource| resource.kind).collect();
    use scene::Kind::{Cpu, Io, Memory, Queue};
    assert_eq!(kinds, [Cpu, Io, Memory, Queue]);
    assert_eq!(scene.resources[3].capacity, 8);
}

#[test]
fn a_thread_is_charged_to_the_task_that_it_runs() {
    let mut pair = Pair::new();
    pair.scene(10 * MS);
    let begin = Begin { tid: 42, started_ns: 60 * MS, ..Begin::default() };
    pair.writer.begin(&begin).unwrap();
    let counters = Counters { ran_ns: 50 * MS, queued_ns: 10 * MS, read: 1_000, written: 0 };
    let did = |tid| (Process { pid: 7, tid: Some(tid) }, Did { counters, over: Nanos(100 * MS) });
    pair.did = [did(42), did(43)].into();
    let scene = pair.scene(110 * MS);
    let cpu = scene.uses.iter().find(|used| used.resource == CPU).unwrap();
    // It has been there for half of the time; the other thread's work is nobody's.
    assert_eq!((cpu.used, cpu.recent), (25 * MS, 25 * MS));
    assert_eq!(scene.resources[CPU as usize].use_ns, 75 * MS);
    assert_eq!(scene.resources[CPU as usize].delay_ns, 5 * MS);
    assert_eq!(scene.resources[IO as usize].gets, 1_500);
}

#[test]
fn who_runs_on_no_thread_of_its_own_waits_for_a_processor_where_the_threads_do() {
    let mut pair = Pair::new();
    pair.scene(10 * MS);
    pair.writer.begin(&Begin { started_ns: 60 * MS, ..Begin::default() }).unwrap();
    let counters = Counters { ran_ns: 20 * MS, queued_ns: 60 * MS, ..Counters::default() };
    let did = |tid| (Process { pid: 7, tid: Some(tid) }, Did { counters, over: Nanos(200 * MS) });
    pair.did = [did(42), did(43)].into();
    // Of what they waited in 200 ms, half was since the last look.
    assert_eq!(pair.scene(110 * MS).resources[CPU as usize].delay_ns, 60 * MS);
}

#[test]
fn a_heap_that_is_collected_stops_who_is_there_and_who_comes() {
    let mut pair = Pair::new();
    let writer = Rc::clone(&pair.writer);
    writer.resource(Kind::Lock, 1, "heap").unwrap();
    pair.scene(10 * MS);
    assert_eq!(heap(&pair.look), None, "a lock of that name is none");
    let resource = writer.resource(Kind::Memory, 1 << 30, "heap of another").unwrap();
    let task = writer.begin(&Begin { flags: CANCELLABLE, started_ns: 10 * MS, ..Begin::default() }).unwrap();
    writer.account(task, resource).unwrap().get(1_000, || 11 * MS);
    let mut scene = pair.scene(30 * MS);
    assert_eq!(heap(&pair.look), None);
    let index = FIRST + u32::from(resource);
    let came = [(7, Nanos(18 * MS)), (8, Nanos(25 * MS))];
    let stopped_for = Stopped { now: Nanos(30 * MS), stood_ns: 15 * MS, came: &came, waited_ns: 3 };
    stopped(&mut scene, index, &stopped_for);
    let of_heap = scene.resources[index as usize];
    assert_eq!((of_heap.gets, of_heap.slows, of_heap.delay_ns), (1_150, 1_150, 45 * MS), "three of them");
    assert_eq!(scene.uses[0].recent, 1_150, "what it holds is gone through once in 100 ms");
    assert_eq!((scene.tasks.len(), scene.finished_ns), (3, 3));
    let [_, first, second] = &scene.tasks[..] else { panic!("{scene:?}") };
    assert!(first.request && !first.cancellable && first.id != second.id && first.started_ns == 18 * MS);
    let waits: Vec<_> = scene.uses.iter().map(|used| (used.task, used.waiting_ns)).collect();
    assert_eq!(waits, [(0, 0), (1, 12 * MS), (2, 5 * MS)]);
    let mut quiet = pair.scene(40 * MS);
    stopped(&mut quiet, index, &Stopped { stood_ns: 0, came: &[], waited_ns: 0, now: Nanos(40 * MS) });
    assert_eq!((quiet.resources[index as usize].delay_ns, quiet.resources[index as usize].gets), (0, 0));
}
