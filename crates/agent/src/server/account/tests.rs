//! Looks at a server that is not there, and the scenes that they make.

use plimsoll_cancellation::Kind;

use super::super::backend::Waits;
use super::super::chains::Object;
use super::*;

const MS: i64 = 1_000;
const ROWS: Object = Object::Rows(1, 100);

fn client(pid: Pid, state: State, began_ms: i64) -> Backend {
    let at = Some(Stamp(began_ms * MS));
    Backend {
        pid,
        process: Some(Process::whole(pid as u32)),
        database: 1,
        user: 1,
        state,
        waits: None,
        xact: (state != State::Idle).then_some(Stamp(began_ms * MS)),
        query: at,
        began: Stamp(1),
        changed: at,
        kind: None,
        replays: false,
        leader: None,
        writes: false,
        keeps: false,
    }
}

fn waits(backend: Backend) -> Backend {
    Backend { waits: Some(Waits::Lock), ..backend }
}

fn blame(victim: Pid, culprit: Pid, since_ms: i64) -> Blame {
    let since = Some(Stamp(since_ms * MS));
    Blame { victim, since, culprit, object: ROWS, queues: None, chain: vec![victim, culprit] }
}

#[derive(Default)]
struct Server {
    account: Account,
    did: HashMap<Process, Did>,
    measured: Vec<Measured>,
    on_host: bool,
    terminate: bool,
}

impl Server {
    /// It is known already what is usual.
    fn on_host() -> Server {
        let mut server = Server { on_host: true, ..Server::default() };
        (0..=KNOWN as i64).for_each(|ms| drop(server.look(ms, &[], &[])));
        server
    }

    fn look(&mut self, at_ms: i64, backends: &[Backend], blames: &[Blame]) -> Scene {
        let mut scene = Scene::default();
        let look = Look {
            now: Nanos(at_ms as u64 * 1_000_000),
            server: Stamp(at_ms * MS),
            backends,
            blames,
            transactions: 0,
            moved: 0,
            paused: Pauses::default(),
            mean_ns: None,
            progress: &HashMap::from([(9, (25, 100))]),
            expected_ns: &|backend| (backend.pid == 7).then_some(400_000_000),
            did: &self.did,
            measured: &self.measured,
            on_host: self.on_host,
            may_signal: &|backend| backend.is_client(),
            may_terminate: self.terminate,
        };
        self.account.look(&look, &mut scene);
        for pair in scene.uses.windows(2) {
            assert!(
                (pair[0].task, pair[0].resource) < (pair[1].task, pair[1].resource),
                "in order, and once"
            );
        }
        scene
    }
}

fn used(scene: &Scene, task: usize, resource: u32) -> Option<Use> {
    scene.uses.iter().copied().find(|used| used.task as usize == task && used.resource == resource)
}

#[test]
fn who_holds_up_others_holds_what_they_wait_for() {
    let mut server = Server::default();
    let holder = client(1, State::Active, 0);
    server.look(1_000, std::slice::from_ref(&holder), &[]);
    let victims = [2, 3].map(|pid| waits(client(pid, State::Active, 1_020)));
    let backends = [vec![holder], victims.to_vec()].concat();
    let scene = server.look(1_100, &backends, &[blame(2, 1, 1_020), blame(3, 1, 1_030)]);
    assert_eq!(scene.tasks.len(), 3);
    let lock = scene.uses.iter().find(|used| used.held > 0).unwrap();
    assert_eq!((lock.task, lock.held_ns, lock.recent), (0, 1_100_000_000, 100_000_000));
    let resource = scene.resources[lock.resource as usize];
    // Two were seen to wait, each for the time since the last look.
    assert_eq!((resource.kind, resource.delay_ns, resource.slows), (Kind::Lock, 200_000_000, 2));
    assert_eq!(used(&scene, 1, lock.resource).unwrap().waiting_ns, 80_000_000);
    let known = server.account.known(scene.tasks[0].id).unwrap();
    assert_eq!((known.holds_up, known.chain.as_slice()), (2, &[2, 1][..]));
    // Nobody waits any more: it may have it still. Then its transaction ends.
    let scene = server.look(1_200, &backends[..1], &[]);
    assert_eq!(scene.resources[lock.resource as usize].ended, 0);
    server.look(1_300, &backends, &[blame(2, 1, 1_020), blame(3, 1, 1_030)]);
    let scene = server.look(1_400, &[client(1, State::Idle, 0)], &[]);
    assert!(scene.uses.iter().all(|used| used.held == 0));
    let resource = scene.resources[lock.resource as usize];
    assert_eq!((resource.ended, resource.ended_ns), (1, 1_300_000_000));
}

#[test]
fn who_waited_for_it_has_not_had_it_meanwhile() {
    let mut server = Server::default();
    let hog = client(1, State::Active, 0);
    let next = client(2, State::Active, 800);
    let last = waits(client(3, State::Active, 900));
    let held_ns = |scene: &Scene| scene.uses.iter().map(|used| used.held_ns).max();
    let ahead = [hog, waits(next.clone()), last.clone()];
    server.look(1_000, &ahead, &[blame(2, 1, 820), blame(3, 1, 900)]);
    server.look(1_050, &ahead, &[blame(2, 1, 820), blame(3, 1, 900)]);
    // It has had it for 20 ms, or not at all: it was not seen getting it.
    let backends = [next.clone(), last.clone()];
    let scene = server.look(1_070, &backends, &[blame(3, 2, 900)]);
    assert_eq!(held_ns(&scene), Some(20_000_000), "what it did before it waited is its own");
    let scene = server.look(1_370, &backends, &[blame(3, 2, 900)]);
    assert_eq!(held_ns(&scene), Some(320_000_000));
    // Its next transaction is another.
    let again = client(2, State::Active, 1_380);
    let scene = server.look(1_400, &[again, last], &[blame(3, 2, 900)]);
    assert_eq!(held_ns(&scene), Some(20_000_000));
}

#[test]
fn an_idle_session_is_a_task_only_where_it_holds_up_somebody() {
    let mut server = Server::default();
    let idle = client(1, State::InTransaction, 0);
    let victim = waits(client(2, State::Active, 990));
    assert!(server.look(900, std::slice::from_ref(&idle), &[]).tasks.is_empty());
    for may in [false, true] {
        server.terminate = may;
        let scene = server.look(1_000, &[idle.clone(), victim.clone()], &[blame(2, 1, 990)]);
        let tasks: Vec<_> = scene.tasks.iter().map(|task| (task.request, task.cancellable)).collect();
        assert_eq!(tasks, [(false, may), (true, true)]);
    }
}

#[test]
fn a_transaction_is_one_task_and_so_is_a_statement_of_many_transactions() {
    let mut server = Server::default();
    let mut id = |at_ms, backend: Backend| server.look(at_ms, &[backend], &[]).tasks[0].id;
    let first = client(1, State::Active, 0);
    let one = id(1_000, first.clone());
    let second = Backend { query: Some(Stamp(1_500 * MS)), ..first.clone() };
    assert_eq!(id(1_600, second), one, "another statement of the transaction");
    let other = client(1, State::Active, 1_700);
    let two = id(1_800, other.clone());
    assert_ne!(two, one);
    let vacuum = Backend { xact: Some(Stamp(1_850 * MS)), ..other.clone() };
    assert_eq!(id(1_900, vacuum), two, "another transaction of the statement");
    let reused = Backend { began: Stamp(2), ..other };
    assert_ne!(id(2_000, reused), two, "another process with the number");
}

#[test]
fn parallel_workers_are_their_leader() {
    let mut server = Server::on_host();
    let leader = client(1, State::Active, 0);
    let worker =
        Backend { leader: Some(1), kind: Some("parallel worker".to_owned()), ..client(5, State::Active, 0) };
    let counters = Counters { ran_ns: 50_000_000, read: 4_096, ..Counters::default() };
    let over = Nanos::from_millis(100);
    server.did = [1, 5].map(|pid| (Process::whole(pid), Did { counters, over })).into();
    server.look(1_000, &[leader.clone(), worker.clone()], &[]);
    let scene = server.look(1_100, &[leader, worker], &[]);
    assert_eq!(scene.tasks.len(), 1);
    let cpu = used(&scene, 0, slots::CPU).unwrap();
    assert_eq!((cpu.recent, cpu.used), (100_000_000, 200_000_000));
    assert_eq!(scene.resources[slots::DATA as usize].gets, 8_192);
}

#[test]
fn what_a_process_did_before_a_task_began_is_not_the_tasks() {
    let mut server = Server::on_host();
    server.look(1_000, &[], &[]);
    let counters = Counters { ran_ns: 1_000_000_000, ..Counters::default() };
    server.did = [(Process::whole(1), Did { counters, over: Nanos::from_secs(2) })].into();
    let scene = server.look(1_100, &[client(1, State::Active, 1_080)], &[]);
    assert_eq!(used(&scene, 0, slots::CPU).unwrap().used, 10_000_000, "20 ms of 2 s");
}

#[test]
fn requests_run_for_as_long_as_they_were_seen_to() {
    let mut server = Server::default();
    server.look(1_000, &[client(1, State::Active, 900)], &[]);
    // It ended and another began: two requests were seen for 100 ms each, whatever their ages are.
    let scene = server.look(1_100, &[client(1, State::Active, 1_090), client(2, State::Active, 1_050)], &[]);
    let ages: u64 = scene.tasks.iter().map(|task| 1_100_000_000 - task.started_ns).sum();
    assert_eq!(scene.finished_ns + ages - 100_000_000, 200_000_000);
    assert_eq!(scene.finished, [(100_000_000, 1)]);
}

#[test]
fn how_far_a_command_is_it_says_itself() {
    let mut server = Server::default();
    let scene = server.look(1_000, &[client(9, State::Active, 0), client(8, State::Active, 1)], &[]);
    assert_eq!(scene.tasks.iter().map(|t| (t.done, t.total)).collect::<Vec<_>>(), [(25, 100), (0, 0)]);
}

#[test]
fn how_far_a_statement_is_follows_from_its_plan_until_it_takes_longer() {
    let mut server = Server::on_host();
    let over = Nanos::from_millis(100);
    let mut after = |at_ms, ran_ms: u64, backend: Backend| {
        let counters = Counters { ran_ns: ran_ms * 1_000_000, ..Counters::default() };
        server.did = [(Process::whole(7), Did { counters, over })].into();
        let task = server.look(at_ms, &[backend], &[]).tasks[0];
        (task.done / 1_000_000, task.total / 1_000_000)
    };
    let first = client(7, State::Active, 900);
    assert_eq!(after(1_000, 100, first.clone()), (100, 400));
    // Time that it had no processor does not count.
    assert_eq!(after(1_100, 20, first.clone()), (120, 400));
    let second = Backend { query: Some(Stamp(1_150 * MS)), ..first.clone() };
    assert_eq!(after(1_200, 100, second.clone()), (50, 400), "the transaction's next statement");
    assert_eq!(after(1_300, 350, second), (0, 0), "it takes longer: the plan was wrong");
}

#[test]
fn without_the_kernel_a_statement_runs_while_it_waits_for_nothing() {
    let mut server = Server::default();
    let runs = client(7, State::Active, 900);
    for (at_ms, backend, done_ms) in [
        (1_000, runs.clone(), 0),
        (1_100, runs.clone(), 100),
        (1_200, waits(runs.clone()), 100),
        (1_250, runs, 150),
    ] {
        let task = server.look(at_ms, &[backend], &[]).tasks[0];
        assert_eq!((task.done / 1_000_000, task.total), (done_ms, 400_000_000));
    }
}

#[test]
fn the_log_is_used_by_who_changes_things_not_by_who_happens_to_write_it() {
    let mut server = Server::on_host();
    let bulk = Backend { writes: true, ..client(1, State::Active, 0) };
    let reader = client(2, State::Active, 0);
    // Whoever commits writes what others have put into the log before.
    let did = |pid, ran_ms: u64, written| {
        let counters = Counters { ran_ns: ran_ms * 1_000_000, written, ..Counters::default() };
        (Process::whole(pid), Did { counters, over: Nanos::from_millis(100) })
    };
    server.did = [did(1, 90, 0), did(2, 90, 50 << 20), did(3, 1, 50 << 20)].into();
    let commits = Backend { writes: true, ..client(3, State::Active, 0) };
    let backends = [bulk, reader, commits];
    server.look(1_000, &backends, &[]);
    let scene = server.look(1_100, &backends, &[]);
    let recent = |task| used(&scene, task, slots::WAL).map_or(0, |used| used.recent);
    assert_eq!([0, 1, 2].map(recent), [90_000_000, 0, 1_000_000]);
}

#[test]
fn who_waits_for_a_lock_is_blamed_for_nothing_else() {
    let mut server = Server::on_host();
    let counters = Counters { ran_ns: 90_000_000, ..Counters::default() };
    server.did = [(Process::whole(2), Did { counters, over: Nanos::from_millis(100) })].into();
    let backends = [client(1, State::Active, 0), waits(client(2, State::Active, 500))];
    let scene = server.look(1_100, &backends, &[blame(2, 1, 1_000)]);
    assert!(
        scene.uses.iter().all(|used| used.task == 0 || used.recent == 0 && used.held == 0),
        "{:?}",
        scene.uses
    );
}

#[test]
fn who_waits_for_what_is_given_back_once_the_log_is_written_waits_for_the_log() {
    let mut server = Server::default();
    let mut look = |at_ms, holder_waits| {
        let holder = Backend { waits: holder_waits, writes: true, ..client(1, State::Active, 0) };
        let scene = server.look(at_ms, &[holder, waits(client(2, State::Active, 500))], &[blame(2, 1, 500)]);
        let lost_ms = |resource: &Resource| resource.delay_ns / 1_000_000;
        let rows = scene.uses.iter().find(|used| used.held > 0).expect("it has them").resource;
        [rows, slots::WAL].map(|resource| lost_ms(&scene.resources[resource as usize]))
    };
    look(1_000, None);
    assert_eq!(look(1_100, None), [100, 0]);
    assert_eq!(look(1_200, Some(Waits::Wal)), [0, 200], "both of them");
    assert_eq!(look(1_300, Some(Waits::DataFiles)), [100, 0], "it goes on with what it does");
}

#[test]
fn what_a_server_measures_itself_is_taken_as_it_is() {
    let mut server = Server::default();
    let workers = Resource { delay_ns: 3, use_ns: 5, ended: 1, ..Resource::quiet(Kind::Queue, 4) };
    let heap = Resource { gets: 100, slows: 100, ..Resource::quiet(Kind::Memory, 1_000) };
    let used = |held, recent| Use { held, recent, used: 2 * recent, ..Use::default() };
    server.measured = vec![
        Measured { name: "heap", resource: heap, uses: vec![(1, used(70, 60)), (3, used(9, 9))] },
        Measured { name: "workers", resource: workers, uses: vec![(2, used(1, 10)), (1, used(2, 20))] },
    ];
    let backends = [client(1, State::Active, 500), client(2, State::Active, 600)];
    let scene = server.look(1_000, &backends, &[]);
    assert!(scene.uses.is_empty(), "too early to blame anybody");
    let rows = |scene: &Scene| scene.uses.iter().map(|u| (u.task, u.resource, u.recent)).collect::<Vec<_>>();
    for ms in 1..=KNOWN_BY_COUNT as i64 {
        server.look(1_000 + ms, &backends, &[]);
    }
    let scene = server.look(2_000, &backends, &[]);
    let index = |of: &Resource| scene.resources.iter().position(|resource| resource == of).unwrap() as u32;
    let (workers, heap) = (index(&workers), index(&heap));
    // Of one that is not there nothing is told.
    let mut told = [(0, workers, 20), (0, heap, 60), (1, workers, 10)];
    told.sort_unstable();
    assert_eq!(rows(&scene), told);
}

#[test]
fn what_is_usual_is_known_in_seconds_also_where_looks_are_rare() {
    let mut server = Server { on_host: true, ..Server::default() };
    let counters = Counters { ran_ns: 1_000_000, ..Counters::default() };
    server.did.insert(Process::whole(1), Did { counters, over: Nanos::from_millis(200) });
    let blamed = |server: &mut Server, at_ms| {
        let scene = server.look(at_ms, &[client(1, State::Active, 0)], &[]);
        used(&scene, 0, slots::CPU).is_some()
    };
    for look in 0..25 {
        assert!(!blamed(&mut server, 200 * look), "after {look} looks");
    }
    assert!(blamed(&mut server, 5_000));
}
