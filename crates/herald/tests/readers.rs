//! The two readers tell the same of the same threads. Where BPF may not be loaded there is nothing to compare: it says so.
#![cfg(feature = "bpf")]

mod common;

use std::process::Command;
use std::time::Duration;

use common::{Hogs, of};
use plimsoll_herald::{Herald, Options, Reader};

/// Attempts until both were read close enough together: nothing keeps this thread from being held up between the two.
const ATTEMPTS: usize = 100;
/// A running thread's time is counted at ticks, of which a busy host may delay some.
const TICKS_NS: u64 = 20_000_000;

fn herald(reader: Reader) -> Result<Herald, String> {
    Herald::new(Options { period: Duration::from_millis(50), budget: 1.0, reader })
}

#[test]
fn both_readers_tell_the_same() {
    let mut bpf = match herald(Reader::Bpf) {
        Ok(bpf) => bpf,
        Err(why) => {
            assert!(why.contains("BPF") || why.contains("kernel"), "it says why: {why}");
            println!("not compared: {why}");
            return;
        }
    };
    assert_eq!(bpf.cost().reader, "bpf");
    let mut pread = herald(Reader::Pread).unwrap();
    let hogs = Hogs::start(3);
    let read = |bpf: &mut Herald, pread: &mut Herald| {
        bpf.wait();
        pread.sample();
        bpf.sample();
        let both = hogs.tids.iter().map(|&tid| Some((of(pread, tid)?, of(bpf, tid)?)));
        both.collect::<Option<Vec<_>>>()
    };
    let first = (0..ATTEMPTS).find_map(|_| read(&mut bpf, &mut pread)).expect("all are seen");
    for (pread, bpf) in &first {
        assert_eq!(pread.id, bpf.id);
    }
    let near = |a: u64, b: u64| a.abs_diff(b) <= TICKS_NS + a.max(b) / 20;
    let agreed = (0..ATTEMPTS).any(|_| {
        let now = read(&mut bpf, &mut pread).expect("they live");
        let (mut all_ran, mut all_waited) = (0, 0);
        let agree = now.iter().zip(&first).all(|((pread, bpf), (pread_then, bpf_then))| {
            let ran = (pread.run_ns - pread_then.run_ns, bpf.run_ns - bpf_then.run_ns);
            let waited = (pread.wait_ns - pread_then.wait_ns, bpf.wait_ns - bpf_then.wait_ns);
            (all_ran, all_waited) = (all_ran + ran.1, all_waited + waited.1);
            near(ran.0, ran.1) && near(waited.0, waited.1)
        });
        // Both long enough to tell something else from nothing. Not each of them: one may have a CPU of its own.
        agree && all_ran > 5 * TICKS_NS && all_waited > 5 * TICKS_NS
    });
    assert!(agreed, "the readers do not tell the same");
    let scheduled = read(&mut bpf, &mut pread).unwrap();
    for (pread, bpf) in scheduled {
        assert_eq!((bpf.nice, bpf.policy, bpf.group), (19, pread.policy, pread.group));
    }
    // The same threads, but for those that came or went between the two.
    let (many, few) =
        (bpf.tasks().len().max(pread.tasks().len()), bpf.tasks().len().min(pread.tasks().len()));
    assert!(many - few <= 2 + many / 5, "{many} and {few} threads");
}

#[test]
fn a_wait_is_told_while_it_goes_on() {
    let Ok(mut bpf) = herald(Reader::Bpf) else { return };
    let hogs = Hogs::start(3);
    // A thread that always wants to run either ran or waited, at any time: the two together grow as time does.
    let agreed = (0..ATTEMPTS).any(|_| {
        let mut busy = || {
            bpf.wait();
            bpf.sample();
            let busy: Option<Vec<u64>> =
                hogs.tids.iter().map(|&tid| of(&bpf, tid).map(|task| task.run_ns + task.wait_ns)).collect();
            busy.map(|busy| (bpf.now(), busy))
        };
        let (Some((then, before)), Some((now, after))) = (busy(), busy()) else { return false };
        let passed = now.since(then).0;
        before.iter().zip(&after).all(|(before, after)| (after - before).abs_diff(passed) <= TICKS_NS / 2)
    });
    assert!(agreed, "time is lost while threads wait");
}

/// Run by the test below in places where BPF may not be: `auto` reads by files there, and says why. Prints that.
#[test]
#[ignore = "wants a place without BPF; `where_bpf_may_not_be_files_are_read_and_it_says_why` makes some"]
fn auto_falls_back() {
    let mut herald = herald(Reader::Auto).unwrap();
    herald.sample();
    assert_eq!(herald.cost().reader, "pread");
    assert!(of(&herald, std::process::id()).is_some());
    println!("note: {}", herald.note().expect("it says why"));
}

/// Not tried where such a place cannot be made, or the directory of this program cannot be read from there.
#[test]
fn where_bpf_may_not_be_files_are_read_and_it_says_why() {
    let places = [
        (
            "no type information",
            "unshare --mount --propagation private sh -c 'mount -t tmpfs none /sys/kernel/btf && exec \"$@\"' sh",
            "CONFIG_DEBUG_INFO_BTF",
        ),
        ("no rights", "setpriv --reuid=65534 --regid=65534 --clear-groups", "CAP_BPF and CAP_PERFMON"),
        ("a pid namespace", "unshare --pid --fork --mount-proc", "a container with a pid namespace"),
    ];
    for (what, place, words) in places {
        let try_there = format!(
            "{place} \"$0\" --list 2>&1 || {{ echo 'not tried'; exit 0; }}; {place} \"$0\" --ignored --exact --nocapture auto_falls_back"
        );
        let output = Command::new("sh")
            .args(["-c", &try_there])
            .arg(std::env::current_exe().unwrap())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        if said.contains("not tried") {
            println!("{what}: {said}");
            continue;
        }
        assert!(output.status.success(), "{what}: {output:?}");
        // Behind the name of the test, where one runs at a time.
        let note = said.lines().find_map(|line| Some(line.split_once("note: ")?.1)).expect("a note");
        assert!(note.contains(words), "{what}: {note}");
    }
}
