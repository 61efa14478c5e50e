//! The bill of waited time: what each process of a recording ran, how long it waited for a CPU, and because of whom (section 3.3: who
//! pays for an hour of compute time should know that half of it was spent waiting).

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::path::Path;

use plimsoll_cpufutures::Allocations;
use plimsoll_herald::view::finite;
use serde::Serialize;

use crate::draw::text::{cut, slowdown};
use crate::record::{Line, OTHERS, Took, read, rounded};

/// So many processes are told apart; all further ones are one.
const MAX_PROCESSES: usize = 65_536;
/// So many takers of one process are told apart.
const MAX_TAKERS: usize = 256;
/// Who waited less than this, and ran less than ten times this, has no line of his own in the table.
const NOTICEABLE_S: f64 = 0.01;
/// So many takers are shown in a line of text.
const SHOWN_TAKERS: usize = 3;

/// What a recording says about who waited for whom.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Bill {
    /// How long was recorded.
    pub interval_s: f64,
    /// The CPUs of the host.
    pub cpus: usize,
    /// Who waited the longest first.
    pub processes: Vec<Item>,
}

/// What is billed to one process. A process that takes another name by `exec` is another one from then on.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Item {
    /// Its number; 0 where it stands for all that are not told apart.
    pub pid: u32,
    /// Its name.
    pub process: String,
    /// For how long its threads ran.
    pub run_s: f64,
    /// For how long they were ready to run without running.
    pub waited_s: f64,
    /// What they would have run on an idle machine over what they ran, from 1 to [`plimsoll_herald::view::MOST_SLOWDOWN`].
    pub slowdown: f64,
    /// Who ran while they waited, the greatest first. Its own number: its own threads.
    pub takers: Vec<Share>,
    /// The share of the wait of which nobody knows whose doing it is, in per cent.
    pub unknown_pct: f64,
}

/// A share of somebody's wait.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Share {
    /// The number of the process.
    pub pid: u32,
    /// Its name.
    pub process: String,
    /// In per cent of the whole wait.
    pub share_pct: f64,
}

#[derive(Default)]
struct Account {
    run_ms: f64,
    waited_ms: f64,
    desired_ms: f64,
    takers: HashMap<(u32, String), f64>,
}

#[derive(Default)]
struct Accounts {
    until_s: f64,
    of: HashMap<(u32, String), Account>,
}

impl Accounts {
    fn add(&mut self, line: Line) {
        self.until_s = self.until_s.max(line.t_s);
        let key = bounded(&self.of, (line.pid, line.process), MAX_PROCESSES);
        let account = self.of.entry(key).or_default();
        account.run_ms += line.run_ms;
        account.waited_ms += line.waited_ms;
        account.desired_ms += line.desired_ms;
        for Took { pid, process, ms } in line.takers {
            let key = bounded(&account.takers, (pid, process), MAX_TAKERS);
            *account.takers.entry(key).or_default() += ms;
        }
    }

    fn bill(self, cpus: usize) -> Bill {
        let mut processes: Vec<Item> = self.of.into_iter().map(item).collect();
        processes.sort_by(|a, b| {
            let by_wait = b.waited_s.total_cmp(&a.waited_s).then(b.run_s.total_cmp(&a.run_s));
            by_wait.then_with(|| (a.pid, &a.process).cmp(&(b.pid, &b.process)))
        });
        Bill { interval_s: self.until_s, cpus, processes }
    }
}

/// The key, as long as there is room for another one.
fn bounded<V>(map: &HashMap<(u32, String), V>, key: (u32, String), most: usize) -> (u32, String) {
    let fits = map.len() < most || map.contains_key(&key);
    if fits { key } else { (OTHERS.0, OTHERS.1.to_owned()) }
}

fn item(((pid, process), account): ((u32, String), Account)) -> Item {
    let share = |ms: f64| if account.waited_ms > 0.0 { 100.0 * ms / account.waited_ms } else { 0.0 };
    let known: f64 = account.takers.values().sum();
    let share_of = |((pid, process), ms): (&(u32, String), &f64)| Share {
        pid: *pid,
        process: process.clone(),
        share_pct: rounded(share(*ms)),
    };
    let mut takers: Vec<Share> = account.takers.iter().map(share_of).collect();
    takers.sort_by(|a, b| {
        b.share_pct.total_cmp(&a.share_pct).then_with(|| (a.pid, &a.process).cmp(&(b.pid, &b.process)))
    });
    let of = Allocations {
        desired_ms_per_s: account.desired_ms,
        actual_ms_per_s: account.run_ms,
        ..Allocations::default()
    };
    Item {
        pid,
        process,
        run_s: rounded(account.run_ms / 1e3),
        waited_s: rounded(account.waited_ms / 1e3),
        slowdown: finite(of.slowdown()),
        takers,
        unknown_pct: rounded(share(account.waited_ms - known).max(0.0)),
    }
}

impl Bill {
    /// The bill of a recording.
    ///
    /// # Errors
    /// As of [`read`].
    pub fn of(path: &Path) -> Result<Bill, String> {
        let mut accounts = Accounts::default();
        let head = read(path, |line| accounts.add(line))?;
        Ok(accounts.bill(head.cpus))
    }
}

/// The table that is printed.
impl fmt::Display for Bill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = |of: fn(&Item) -> f64| self.processes.iter().map(of).sum::<f64>();
        let (run_s, waited_s) = (sum(|item| item.run_s), sum(|item| item.waited_s));
        let plural = if self.cpus == 1 { "" } else { "s" };
        writeln!(
            f,
            "{:.1} s on {} CPU{plural}: {} processes ran {run_s:.1} s and waited {waited_s:.1} s",
            self.interval_s,
            self.cpus,
            self.processes.len()
        )?;
        writeln!(
            f,
            "{:>8} {:<16} {:>9} {:>9} {:>7}  WAITED BECAUSE OF",
            "PID", "PROCESS", "RAN s", "WAITED s", "SLOWER"
        )?;
        let is_noticeable = |item: &&Item| item.waited_s >= NOTICEABLE_S || item.run_s >= 10.0 * NOTICEABLE_S;
        let (shown, rest): (Vec<&Item>, Vec<&Item>) = self.processes.iter().partition(is_noticeable);
        for item in shown {
            let slowed = slowdown(item.slowdown, false);
            let Item { pid, run_s, waited_s, .. } = item;
            let line =
                format!("{pid:>8} {:<16} {run_s:>9.2} {waited_s:>9.2} {slowed:>7}  ", cut(&item.process, 16));
            writeln!(f, "{}", (line + &because_of(item)).trim_end())?;
        }
        if rest.is_empty() {
            return Ok(());
        }
        let sum = |of: fn(&Item) -> f64| rest.iter().map(|item| of(item)).sum::<f64>();
        let (run_s, waited_s) = (sum(|item| item.run_s), sum(|item| item.waited_s));
        writeln!(f, "and {} more, which ran {run_s:.2} s and waited {waited_s:.2} s in all", rest.len())
    }
}

fn because_of(item: &Item) -> String {
    let mut text = String::new();
    // Into memory, which cannot fail. Those that are not told apart come last, whatever their share.
    let (told_apart, pooled): (Vec<&Share>, Vec<&Share>) =
        item.takers.iter().partition(|taker| (taker.pid, &*taker.process) != OTHERS);
    for taker in told_apart.iter().take(SHOWN_TAKERS) {
        let name = if taker.pid == item.pid && taker.process == item.process {
            "its own threads".to_owned()
        } else {
            format!("{} ({})", cut(&taker.process, 16), taker.pid)
        };
        let _ = write!(text, "{name} {:.0} %, ", taker.share_pct);
    }
    let others: f64 = told_apart.iter().skip(SHOWN_TAKERS).chain(&pooled).map(|taker| taker.share_pct).sum();
    if others >= 0.5 {
        let _ = write!(text, "others {others:.0} %, ");
    }
    if item.unknown_pct >= 0.5 {
        let _ = write!(text, "not known {:.0} %", item.unknown_pct);
    }
    text.trim_end_matches(", ").to_owned()
}

#[cfg(test)]
mod tests {
    use plimsoll_herald::view::MOST_SLOWDOWN;

    use super::*;

    fn line(
        t_s: f64,
        pid: u32,
        tid: u32,
        run_ms: f64,
        waited_ms: f64,
        desired_ms: f64,
        takers: &[(u32, f64)],
    ) -> Line {
        let name = |pid: u32| if pid == 1 { "web".to_owned() } else { format!("batch-{pid}") };
        let took = |&(pid, ms): &(u32, f64)| Took { pid, process: name(pid), ms };
        Line {
            t_s,
            span_s: 1.0,
            pid,
            tid,
            process: name(pid),
            run_ms,
            waited_ms,
            desired_ms,
            takers: takers.iter().map(took).collect(),
            ..Line::default()
        }
    }

    fn bill(lines: Vec<Line>) -> Bill {
        let mut accounts = Accounts::default();
        lines.into_iter().for_each(|line| accounts.add(line));
        accounts.bill(2)
    }

    #[test]
    fn threads_and_periods_add_up_and_shares_are_of_the_whole_wait() {
        let bill = bill(vec![
            line(1.0, 1, 1, 200.0, 600.0, 800.0, &[(7, 450.0), (1, 150.0)]),
            line(1.0, 1, 2, 100.0, 200.0, 300.0, &[(7, 150.0)]),
            line(2.0, 1, 1, 200.0, 200.0, 400.0, &[(8, 200.0)]),
            line(2.0, 7, 7, 1000.0, 0.0, 1000.0, &[]),
            line(2.0, 9, 9, 0.0, 30.0, 30.0, &[]),
            line(2.0, 10, 10, 5.0, 1.0, 6.0, &[]),
        ]);
        assert_eq!((bill.interval_s, bill.cpus), (2.0, 2));
        assert_eq!(
            bill.processes.iter().map(|item| item.pid).collect::<Vec<_>>(),
            [1, 9, 10, 7],
            "by what they waited"
        );
        let web = &bill.processes[0];
        assert_eq!((web.run_s, web.waited_s, web.slowdown), (0.5, 1.0, 3.0));
        let shares: Vec<_> = web.takers.iter().map(|share| (share.pid, share.share_pct)).collect();
        assert_eq!(shares, [(7, 60.0), (8, 20.0), (1, 15.0)]);
        assert!((web.unknown_pct - 5.0).abs() < 1e-3, "{web:?}");
        let stuck = &bill.processes[1];
        assert_eq!((stuck.slowdown, stuck.unknown_pct), (MOST_SLOWDOWN, 100.0));
        assert_eq!((bill.processes[3].slowdown, bill.processes[3].unknown_pct), (1.0, 0.0));
        insta::assert_snapshot!(bill);
    }

    #[test]
    fn a_process_is_billed_under_each_name_that_it_had() {
        let mut shell = line(1.0, 1, 1, 10.0, 0.0, 10.0, &[]);
        shell.process = "sh".to_owned();
        let bill = bill(vec![shell, line(2.0, 1, 1, 20.0, 0.0, 20.0, &[])]);
        assert_eq!(
            bill.processes.iter().map(|item| (item.pid, item.run_s)).collect::<Vec<_>>(),
            [(1, 0.02), (1, 0.01)]
        );
    }

    #[test]
    fn takers_beyond_the_bound_are_one() {
        let many: Vec<(u32, f64)> = (10..10 + MAX_TAKERS as u32 + 50).map(|pid| (pid, 1.0)).collect();
        let waited = many.len() as f64;
        let bill = bill(vec![line(1.0, 1, 1, 10.0, waited, 10.0 + waited, &many)]);
        let web = &bill.processes[0];
        assert_eq!(web.takers.len(), MAX_TAKERS + 1);
        assert_eq!((web.takers[0].process.as_str(), web.takers[0].pid), ("all others", 0));
        assert!((web.takers.iter().map(|share| share.share_pct).sum::<f64>() - 100.0).abs() < 0.5);
        assert!(because_of(web).contains("others"));
    }
}
