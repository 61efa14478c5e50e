//! What a CPU scheduler must keep to whatever it is given: time is neither made nor lost, nobody idles while somebody waits, shares are
//! what weights say, and nobody waits for ever. What is expected is computed here, from weights and limits alone.

use plimsoll_core::Nanos;
use plimsoll_cpufutures::{Group, weights};
use plimsoll_simulator::scheduler::o1::{STARVATION_LIMIT, TICK};
use plimsoll_simulator::scheduler::pool::Kind;
use plimsoll_simulator::scheduler::programs::Program;
use plimsoll_simulator::scheduler::{
    Account, Attributes, Fair, Machine, O1, Programs, Scheduler, Sleep, Task, Workload,
};
use proptest::prelude::*;

/// Programs with nice values, some of them hogs.
fn programs() -> impl Strategy<Value = Vec<(Program, i8)>> {
    let program = (1u64..40, 0u64..60, 0.0..0.9f64).prop_map(|(compute, sleep, spread)| Program {
        compute: Nanos::from_millis(compute),
        sleep: Nanos::from_millis(sleep),
        spread,
    });
    prop::collection::vec((program, -20i8..20), 1..12)
}

fn machine<S: Scheduler>(scheduler: S, tasks: &[(Program, i8)], seed: u64) -> Machine<S, Programs> {
    let mut machine = Machine::new(scheduler, Programs::new(seed));
    for &(program, nice) in tasks {
        machine.workload.push(program);
        machine.spawn(Attributes { nice, ..Attributes::default() }, None);
    }
    machine
}

fn accounts<S: Scheduler, W: Workload>(machine: &Machine<S, W>) -> Vec<(Task, Account)> {
    machine.accounts().collect()
}

/// Runs for `span`. Fails where time is made or lost, or a CPU idles for longer than `most` while somebody waits.
fn conserves<S: Scheduler>(
    machine: &mut Machine<S, Programs>,
    span: Nanos,
    most: Nanos,
) -> Result<(), TestCaseError> {
    let (mut used, mut before, mut busy) = (0u64, Nanos::ZERO, machine.busy());
    let mut wasted = Nanos::ZERO;
    let mut wastes = machine.busy() < machine.scheduler.cpus() && machine.ready() > 0;
    while machine.step(span) {
        let passed = machine.now().since(before);
        used += busy as u64 * passed.0;
        wasted = if wastes { wasted + passed } else { Nanos::ZERO };
        prop_assert!(wasted <= most, "a CPU idles for {wasted} while somebody waits, at {}", machine.now());
        (before, busy) = (machine.now(), machine.busy());
        wastes = busy < machine.scheduler.cpus() && machine.ready() > 0;
    }
    machine.advance(span);
    used += busy as u64 * span.since(before).0;
    let ran: u64 = accounts(machine).iter().map(|(_, account)| account.ran.0).sum();
    prop_assert_eq!(ran, used, "time that ran and time that was used");
    for (task, account) in accounts(machine) {
        prop_assert!(account.ran + account.waited <= span, "task {task} has had more time than there was");
    }
    Ok(())
}

const SPAN: Nanos = Nanos::from_secs(4);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn shares_conserve_work_and_time(tasks in programs(), cpus in 1usize..5, seed in any::<u64>()) {
        let fair = Fair::new(cpus, &[Group::ROOT]).unwrap();
        conserves(&mut machine(fair, &tasks, seed), SPAN, Nanos::ZERO)?;
    }

    /// An idle CPU of the O(1) scheduler looks for work at its next tick; until then another may have become idle.
    #[test]
    fn priorities_conserve_work_and_time(tasks in programs(), cpus in 1usize..5, seed in any::<u64>()) {
        conserves(&mut machine(O1::new(cpus), &tasks, seed), SPAN, Nanos(10 * TICK.0))?;
    }

    /// Those who always want to run are never further from what generalised processor sharing gives them than about a slice.
    #[test]
    fn hogs_get_their_share_within_a_slice(nices in prop::collection::vec(-20i8..20, 1..10), after_ms in 1u64..5_000) {
        let tasks: Vec<_> = nices.iter().map(|&nice| (Program::HOG, nice)).collect();
        let fair = Fair::new(1, &[Group::ROOT]).unwrap();
        let slice = fair.slice_ns();
        let mut machine = machine(fair, &tasks, 1);
        machine.advance(Nanos::from_millis(after_ms));
        let weight = |nice: i8| f64::from(weights::of_nice(nice));
        let all: f64 = nices.iter().map(|&nice| weight(nice)).sum();
        for ((task, account), &nice) in accounts(&machine).into_iter().zip(&nices) {
            let ideal = machine.now().0 as f64 * weight(nice) / all;
            let off = (account.ran.0 as f64 - ideal).abs();
            prop_assert!(off <= 1.5 * slice, "task {task}, nice {nice}: {off} ns off, a slice has {slice}");
        }
    }

    /// Groups share as weights say, whatever the number of tasks in them; so do the tasks of one.
    #[test]
    fn groups_share_before_their_tasks_do(
        first in 1usize..6, second in 1usize..6, third in 1usize..4,
        weights in [100u32..5_000, 100u32..5_000, 100u32..5_000],
    ) {
        let group = |parent, weight| Group { parent, weight, ..Group::ROOT };
        let groups = [Group::ROOT, group(0, weights[0]), group(0, weights[1]), group(2, weights[2])];
        let fair = Fair::new(1, &groups).unwrap();
        let slice = fair.slice_ns();
        let mut machine = Machine::new(fair, Programs::new(1));
        let members = [(1u32, first), (2, second), (3, third)];
        for &(group, count) in &members {
            for _ in 0..count {
                machine.workload.push(Program::HOG);
                machine.spawn(Attributes { group, ..Attributes::default() }, None);
            }
        }
        machine.advance(Nanos::from_secs(20));
        let [a, b, c] = weights.map(f64::from);
        // In the second group its own tasks and the third group are beside each other.
        let inner = f64::from(weights::NORMAL) * second as f64 + c;
        let of_second = b / (a + b);
        let shares = [a / (a + b) / first as f64, of_second * f64::from(weights::NORMAL) / inner, of_second * c / inner / third as f64];
        for (_, account) in accounts(&machine) {
            let ideal = 20e9 * shares[account.attributes.group as usize - 1];
            let off = (account.ran.0 as f64 - ideal).abs();
            prop_assert!(off <= 4.5 * slice, "group {}: {off} ns off, a slice has {slice}", account.attributes.group);
        }
    }

    /// Nobody waits for longer than it takes to tell that the expired starve, twice: once until the arrays change places, and once
    /// behind those who are better in the new one.
    #[test]
    fn starvation_has_a_limit(tasks in programs(), seed in any::<u64>()) {
        let tasks: Vec<_> = tasks.into_iter().map(|(program, _)| (program, 0)).collect();
        let count = tasks.len() as u64;
        let mut machine = machine(O1::new(1), &tasks, seed);
        let slices = Nanos::from_millis(100 * count);
        let most = Nanos(2 * (STARVATION_LIMIT.0 * count + slices.0) + 2 * TICK.0);
        let step = Nanos::from_millis(100);
        let mut waits = vec![(Nanos::ZERO, Nanos::ZERO); tasks.len()];
        for _ in 0..600 {
            machine.advance(machine.now() + step);
            for (task, account) in accounts(&machine) {
                let (ran, since) = &mut waits[task];
                if account.ran != *ran {
                    (*ran, *since) = (account.ran, account.waited);
                }
                let waited = account.waited.since(*since);
                prop_assert!(waited <= most + step, "task {task} has waited for {waited}, at most {most}");
            }
        }
    }

    #[test]
    fn the_same_seed_is_the_same_run(tasks in programs(), seed in any::<u64>()) {
        let run = |seed| {
            let mut machine = machine(O1::new(2), &tasks, seed);
            machine.advance(SPAN);
            accounts(&machine)
        };
        prop_assert_eq!(run(seed), run(seed));
    }
}

#[test]
fn timeslices_say_how_hogs_share_under_the_o1_scheduler() {
    let mut machine = machine(O1::new(1), &[(Program::HOG, 0), (Program::HOG, 10)], 1);
    machine.advance(Nanos::from_secs(30));
    let ran: Vec<f64> = accounts(&machine).iter().map(|(_, account)| account.ran.as_secs_f64()).collect();
    // 100 ms for nice 0, 50 ms for nice 10.
    assert!((ran[0] / ran[1] - 2.0).abs() < 0.1, "{ran:?}");
}

#[test]
fn who_sleeps_gets_a_bonus_and_runs_before_a_hog() {
    let sleeper = Program::cycle(Nanos::from_millis(2), Nanos::from_millis(50));
    let mut machine = machine(O1::new(1), &[(Program::HOG, 0), (sleeper, 0)], 1);
    machine.advance(Nanos::from_secs(20));
    let bonuses: Vec<u64> =
        accounts(&machine).iter().map(|&(task, _)| machine.scheduler.bonus(task)).collect();
    assert_eq!(bonuses[0], 0);
    assert!(bonuses[1] >= 9, "{bonuses:?}");
    let (_, account) = accounts(&machine)[1];
    let slowdown = (account.ran + account.waited).as_secs_f64() / account.ran.as_secs_f64();
    assert!(slowdown < 1.2, "{slowdown}");
    let before = machine.scheduler.expected_priority(1, machine.now());
    machine.renice(1, 10);
    assert_eq!(machine.scheduler.expected_priority(1, machine.now()), before + 10);
}

#[test]
fn an_idle_task_gives_way_at_once_and_gets_what_is_left() {
    let mut machine = Machine::new(Fair::new(1, &[Group::ROOT]).unwrap(), Programs::new(1));
    machine.workload.push(Program::HOG);
    let policy = plimsoll_cpufutures::Policy::Idle;
    machine.spawn(Attributes { policy, ..Attributes::default() }, None);
    machine.workload.push(Program::cycle(Nanos::from_millis(3), Nanos::from_millis(7)));
    machine.spawn(Attributes::default(), None);
    machine.advance(Nanos::from_secs(10));
    let accounts = accounts(&machine);
    assert!(accounts[1].1.waited < Nanos::from_millis(100), "{accounts:?}");
    assert_eq!(accounts[0].1.ran + accounts[1].1.ran, Nanos::from_secs(10));
}

#[test]
fn groups_that_cannot_be_are_refused() {
    let refused = |groups: &[Group]| Fair::new(1, groups).err().unwrap();
    assert!(refused(&[]).contains("root"));
    assert!(refused(&[Group::ROOT, Group { parent: 2, ..Group::ROOT }]).contains("group 1"));
    assert!(refused(&[Group::ROOT, Group { quota_cpus: Some(1.0), ..Group::ROOT }]).contains("quota"));
}

#[test]
fn every_client_is_answered_before_it_asks_again_and_pools_change_their_size() {
    let millis = Nanos::from_millis;
    let kind = Kind { cpu: millis(20), parts: 4, io: millis(5), sleep: Sleep::Disk, spread: 0.5 };
    let mut server = Machine::serving(O1::new(2), &[(kind, 30), (kind, 10)], 16, 7);
    let cpu_time = |server: &Machine<O1, _>| server.accounts().map(|(_, account)| account.ran.0).sum::<u64>();
    for (workers, seconds) in [(16, 10), (3, 20), (40, 30)] {
        server.resize(workers);
        server.advance(Nanos::from_secs(seconds));
        assert_eq!(server.workload.workers(), workers);
        assert_eq!(server.accounts().count(), workers + 1, "and the master");
        assert_eq!(server.workload.unanswered().count(), 40, "one a client");
    }
    let answered = server.workload.answered();
    // 20 ms each on two CPUs; those who end take their accounts along.
    assert!((2_700..=3_000).contains(&answered.len()), "{}", answered.len());
    assert!(answered.iter().all(|each| each.answered > each.sent && each.answered <= server.now()));
    assert!(cpu_time(&server) > 0);
    let served = |kind: usize| answered.iter().filter(|each| each.kind == kind).count() as f64;
    assert!((2.0..4.0).contains(&(served(0) / served(1))), "three times as many clients of the first");
}
