//! Files of `/proc` and `/sys`: whatever they hold, it is read or it is not. What was read is written as the kernel writes it and read as the
//! same.
#![no_main]

use std::str::from_utf8;

use libfuzzer_sys::fuzz_target;
use plimsoll_cpufutures::task::MAX_CPUS;
use plimsoll_cpufutures::{CpuSet, Policy};
use plimsoll_herald::parse::{Load, Stat, Times, autogroup, cpu_list, status};

fuzz_target!(|text: &[u8]| {
    if let Some(times) = Times::parse(text) {
        let Times { run_ns, delay_ns, turns } = times;
        assert_eq!(Times::parse(format!("{run_ns} {delay_ns} {turns}\n").as_bytes()), Some(times));
    }
    if let Some((name, stat)) = Stat::parse(text) {
        stat_is_read_as_written(name, stat);
    }
    if let Some(load) = Load::parse(text) {
        let Load { runnable, last } = load;
        assert_eq!(Load::parse(format!("0.00 0.01 0.05 {runnable}/9 {last}\n").as_bytes()), Some(load));
    }
    if let Some((number, nice)) = autogroup(text) {
        assert!((-20..=19).contains(&nice));
        assert_eq!(autogroup(format!("/autogroup-{number} nice {nice}\n").as_bytes()), Some((number, nice)));
    }
    for key in ["Tgid", "CapEff", "", ":", "\n"] {
        assert!(status(text, key).is_none_or(|value| !value.contains('\n')));
    }
    if let Some(cpus) = from_utf8(text).ok().and_then(cpu_list) {
        assert!(cpus.len() <= MAX_CPUS);
        let listed: Vec<String> = cpus.iter().map(|cpu| cpu.to_string()).collect();
        if !listed.is_empty() {
            assert_eq!(cpu_list(&listed.join(",")), Some(cpus.iter().collect::<CpuSet>()));
        }
    }
});

fn stat_is_read_as_written(name: &[u8], stat: Stat) {
    let policy = match stat.policy {
        Policy::Normal => 0,
        Policy::RealTime => 1,
        Policy::Batch => 3,
        Policy::Idle => 5,
    };
    let Stat { state, parent, session, nice, threads, started, .. } = stat;
    let mut written = b"1 (".to_vec();
    written.extend(name);
    written.extend(b") ");
    written.push(state);
    written.extend(format!(" {parent} 1 {session}").bytes());
    written.extend(" 0".repeat(12).bytes());
    written.extend(format!(" {nice} {threads} 0 {started}").bytes());
    written.extend(" 0".repeat(18).bytes());
    written.extend(format!(" {policy} 0\n").bytes());
    // What is no character of its own was no state of the kernel's.
    if state.is_ascii() {
        assert_eq!(Stat::parse(&written), Some((name, stat)), "{:?}", String::from_utf8_lossy(&written));
    }
}
