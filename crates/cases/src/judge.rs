//! A run beside the undisturbed one. All of it is what clients saw, but for what an agent says it did and why.

use plimsoll_core::Nanos;
use plimsoll_core::config::case::CaseFile;
use plimsoll_testbed::database::judge::{missed, over};
use plimsoll_testbed::database::request::{Figures, Outcome as Became, Request};
use plimsoll_testbed::database::task::{Ending, How};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::run::{Outcome, Plan, Remedy};

/// Around the trouble: what is left out of some figures lasts so long. It begins with the trigger, or where the objective is missed later than
/// that, twice the objective before, when those came who were the first to be late.
const AROUND: Nanos = Nanos::from_secs(2);
/// What must hold with the agent: of the undisturbed throughput at least, of its p99 without those two seconds at most, requests that are not
/// answered at most, in percent.
pub const THROUGHPUT: f64 = 0.95;
/// See [`THROUGHPUT`].
pub const P99: f64 = 1.2;
/// See [`THROUGHPUT`].
pub const DROPPED_PCT: f64 = 0.01;
/// And how soon after the objective is missed the agent is to act, in seconds.
pub const ACTION_S: f64 = 0.5;

/// A run, judged.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Judged {
    /// What was done about it.
    pub remedy: String,
    /// Requests that were answered within the objective, as a fraction of the undisturbed run's.
    pub goodput_norm: f64,
    /// Answered requests, as a fraction of the undisturbed run's.
    pub throughput_norm: f64,
    /// The 99th percentile, likewise.
    pub p99_norm: Option<f64>,
    /// Likewise, of the requests that came at other times than the two seconds from the beginning of the trouble on; in the undisturbed run, too.
    pub p99_norm_without_2s: Option<f64>,
    /// Requests that were not answered.
    pub dropped_pct: f64,
    /// Requests that were answered within the objective.
    pub slo_pct: f64,
    /// When the objective was first missed, after the trigger.
    pub missed_s: Option<f64>,
    /// How long after that the last late request was over; nothing where that did not happen within the run.
    pub recovery_s: Option<f64>,
    /// How long after that the agent first told somebody to end; below zero where that was before.
    #[serde(default)]
    pub acted_s: Option<f64>,
    /// How long after that the first of the tasks was ended, likewise: a server may take its time.
    pub action_s: Option<f64>,
    /// Whether the culprit was ended, one of them where there are several, and no other task.
    pub right: bool,
    /// Requests that were ended by the server because it was asked to: a limit, or an agent.
    pub requests_ended: usize,
    /// Answered requests a second.
    pub throughput_per_s: f64,
    /// In ms.
    pub p50_ms: Option<f64>,
    /// In ms.
    pub p99_ms: Option<f64>,
    /// How the tasks ended.
    pub tasks: Vec<Ended>,
    /// What the agent said that it cancelled.
    pub cancelled: Vec<Cancelled>,
    /// Requests of each second, by their arrival, that were answered within the objective.
    pub in_time_by_second: Vec<usize>,
    /// The 99th percentile of those that were answered, in ms.
    pub p99_ms_by_second: Vec<Option<f64>>,
}

/// How a task ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ended {
    /// In the file.
    pub name: String,
    /// The server's number for it.
    pub id: i32,
    /// `cancelled`, `terminated`, `finished`, `left alone`, or what went wrong.
    pub how: String,
    /// When.
    pub at_s: f64,
}

/// What an agent said of a cancellation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cancelled {
    /// When.
    pub at_s: f64,
    /// Who.
    pub task: String,
    /// The server's number for it.
    pub id: Option<i64>,
    /// What it held up.
    pub resource: String,
    /// Why, in words.
    pub reason: String,
}

/// Judges a run by the undisturbed one.
pub fn judge(case: &CaseFile, plan: &Plan, remedy: Option<Remedy>, run: &Outcome, calm: &Outcome) -> Judged {
    let [figures, usual] = [run, calm].map(|run| run.figures(plan));
    let slo = promised(case, &usual);
    let is_in_time = |it: &&Request| it.outcome == Became::Ok && it.latency <= slo;
    let in_time = |run: &Outcome| run.requests.iter().filter(is_in_time).count();
    let missed = missed(&run.requests, slo, plan.trigger_at).filter(|_| remedy.is_some());
    let trouble = missed.map_or(plan.trigger_at, |missed| missed.since(slo + slo).max(plan.trigger_at));
    let [elsewhere, usual_elsewhere] = [run, calm].map(|run| elsewhere(plan, run, trouble));
    let is_over =
        missed.and_then(|missed| over(&run.requests, slo, missed)).filter(|&over| over < plan.length);
    let first = run.endings.iter().filter(|task| task.was_ended()).map(|task| task.to).min();
    let seconds = || (0..plan.length.0 / 1_000_000_000).map(|s| [s, s + 1].map(Nanos::from_secs));
    let in_time_from = |[from, to]: [Nanos; 2]| {
        run.requests.iter().filter(|it| (from..to).contains(&it.at)).filter(is_in_time).count()
    };
    let mut judged = Judged {
        remedy: remedy.map_or("undisturbed", Remedy::as_str).to_owned(),
        goodput_norm: in_time(run) as f64 / in_time(calm).max(1) as f64,
        throughput_norm: figures.throughput_per_s / usual.throughput_per_s.max(f64::MIN_POSITIVE),
        p99_norm: ratio(figures.p99_ms, usual.p99_ms),
        p99_norm_without_2s: ratio(elsewhere.p99_ms, usual_elsewhere.p99_ms),
        dropped_pct: share_pct(figures.sent - figures.ok, figures.sent),
        slo_pct: share_pct(in_time(run), figures.sent),
        missed_s: missed.map(|missed| missed.since(plan.trigger_at).as_secs_f64()),
        recovery_s: missed.zip(is_over).map(|(missed, over)| over.since(missed).as_secs_f64()),
        acted_s: None,
        action_s: missed.zip(first).map(|(missed, first)| first.as_secs_f64() - missed.as_secs_f64()),
        right: is_right(&run.endings, case.culprit.as_deref()),
        requests_ended: run.requests.iter().filter(|it| is_ended(it)).count(),
        throughput_per_s: figures.throughput_per_s,
        p50_ms: figures.p50_ms,
        p99_ms: figures.p99_ms,
        tasks: run
            .endings
            .iter()
            .map(|task| Ended {
                name: task.name.clone(),
                id: task.pid,
                how: words(&task.how),
                at_s: task.to.as_secs_f64(),
            })
            .collect(),
        cancelled: run.events.iter().filter_map(|event| cancelled(event, run.began_s)).collect(),
        in_time_by_second: seconds().map(in_time_from).collect(),
        p99_ms_by_second: seconds()
            .map(|[from, to]| Figures::between(&run.requests, from, to).p99_ms)
            .collect(),
    };
    judged.tell_action(plan.trigger_at.as_secs_f64());
    judged
}

/// What 99 % of the requests are promised, where these are the figures of those that nobody disturbed.
pub fn promised(case: &CaseFile, undisturbed: &Figures) -> Nanos {
    case.slo.beside(Nanos::from_secs_f64(undisturbed.p99_ms.unwrap_or(0.0) / 1e3))
}

impl Judged {
    /// Tells when the agent acted, where the culprit came at this time.
    pub fn tell_action(&mut self, trigger_s: f64) {
        let first = self.cancelled.iter().map(|cancelled| cancelled.at_s).reduce(f64::min);
        self.acted_s = first.zip(self.missed_s).map(|(first_s, missed_s)| first_s - trigger_s - missed_s);
    }

    /// What must hold with an agent and does not, in words. Where there is no culprit, too much is asked of the server, which an agent can do nothing
    /// about: all it must do then is leave everybody alone.
    pub fn falls_short(&self, culprit: Option<&str>) -> Vec<String> {
        let mut short = self.harms(culprit);
        if culprit.is_some() {
            short.extend(slow(self.throughput_norm, self.p99_norm_without_2s, self.acted_s));
        }
        short
    }

    /// What an agent has done that it must not, or has left undone, however busy the machine: by this, not by how fast it was, a run fails.
    pub fn harms(&self, culprit: Option<&str>) -> Vec<String> {
        let mut harms = Vec::new();
        match culprit {
            _ if self.right => {}
            Some(_) => {
                harms.push("another task than the culprit was ended, or the culprit was not".to_owned());
            }
            None => harms.push("a task was ended, and nobody is to blame".to_owned()),
        }
        match self.requests_ended {
            0 => {}
            1 => harms.push("a request was ended that had done nothing".to_owned()),
            ended => harms.push(format!("{ended} requests were ended that had done nothing")),
        }
        if self.dropped_pct >= DROPPED_PCT && culprit.is_some() {
            harms.push(format!("{:.3} % of requests dropped, of {DROPPED_PCT} %", self.dropped_pct));
        }
        harms
    }
}

/// What of [`Judged::throughput_norm`], [`Judged::p99_norm_without_2s`] and [`Judged::acted_s`] is not as it must be.
pub fn slow(throughput: f64, p99_without_2s: Option<f64>, acted_s: Option<f64>) -> Vec<String> {
    let mut slow = Vec::new();
    if throughput < THROUGHPUT {
        slow.push(format!("throughput {throughput:.3} of {THROUGHPUT}"));
    }
    if let Some(p99) = p99_without_2s.filter(|&p99| p99 > P99) {
        slow.push(format!("p99 without two seconds {p99:.2} of {P99}"));
    }
    if let Some(acted_s) = acted_s.filter(|&acted_s| acted_s > ACTION_S) {
        slow.push(format!("first action after {acted_s:.2} s of {ACTION_S}"));
    }
    slow
}

/// Of the requests that came at other times than around the trouble.
fn elsewhere(plan: &Plan, run: &Outcome, trouble: Nanos) -> Figures {
    let around = trouble..trouble + AROUND;
    Figures::of(
        run.requests.iter().filter(|request| !around.contains(&request.at)),
        plan.length.since(AROUND),
    )
}

/// Whether the culprit was ended, if there is one, and nobody else. Of several copies of it one may do: then all is well again, and the others are
/// in nobody's way.
fn is_right(endings: &[Ending], culprit: Option<&str>) -> bool {
    let ended = || endings.iter().filter(|task| task.was_ended()).map(|task| task.name.as_str());
    ended().all(|name| Some(name) == culprit)
        && culprit.is_none_or(|culprit| ended().any(|name| name == culprit) || endings.is_empty())
}

fn ratio(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    a.zip(b).filter(|&(_, b)| b > 0.0).map(|(a, b)| a / b)
}

fn share_pct(part: usize, whole: usize) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

/// PostgreSQL's 57014 and 57P01, MariaDB's 70100, and what servers say over HTTP.
fn is_ended(request: &Request) -> bool {
    match request.outcome {
        Became::Failed(state) => [b"57014", b"57P01", b"70100"].contains(&&state),
        outcome => outcome == Became::Ended,
    }
}

fn words(how: &How) -> String {
    match how {
        How::Finished => "finished".to_owned(),
        How::Cancelled => "cancelled".to_owned(),
        How::Terminated => "terminated".to_owned(),
        How::Abandoned => "left alone".to_owned(),
        How::Failed(why) => why.clone(),
    }
}

fn cancelled(event: &Value, began_s: f64) -> Option<Cancelled> {
    let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
    (event["event"] == "cancel").then(|| Cancelled {
        at_s: event["ts"].as_f64().unwrap_or(began_s) - began_s,
        task: text("task"),
        id: event["pid"].as_i64(),
        resource: text("resource"),
        reason: text("reason"),
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::catalog;

    const MS: fn(u64) -> Nanos = Nanos::from_millis;

    fn plan() -> Plan {
        let program = PathBuf::new();
        Plan { warm_up: Nanos::ZERO, length: MS(10_000), trigger_at: MS(4_000), seed: 1, program }
    }

    /// A request every 10 ms, each answered within 1 ms; who comes within `still_ms` after the trigger waits until that is over.
    fn run(still_ms: u64, how: Option<How>) -> Outcome {
        let request = |i: u64| {
            let at = 10 * i;
            let waits = (4_000..4_000 + still_ms).contains(&at);
            let latency = if waits { 4_000 + still_ms - at } else { 1 };
            Request { at: MS(at), latency: MS(latency), outcome: Became::Ok }
        };
        let ending = |how| Ending { name: "reprice".to_owned(), pid: 7, from: MS(4_000), to: MS(4_200), how };
        Outcome {
            requests: (0..1_000).map(request).collect(),
            endings: how.map(ending).into_iter().collect(),
            events: Vec::new(),
            began_s: 0.0,
            version: String::new(),
        }
    }

    #[test]
    fn a_run_is_judged_by_the_undisturbed_one() {
        let case = catalog::find("c6").unwrap();
        let calm = run(0, None);
        let judged = judge(&case, &plan(), Some(Remedy::Plimsoll), &run(300, Some(How::Cancelled)), &calm);
        assert_eq!((judged.throughput_norm, judged.dropped_pct, judged.right), (1.0, 0.0, true));
        // Those who came in the first 250 of the 300 ms waited for longer than 50 ms.
        assert_eq!((judged.goodput_norm, judged.in_time_by_second[4]), (0.975, 75));
        assert_eq!((judged.p99_norm_without_2s, judged.requests_ended), (Some(1.0), 0));
        assert!(judged.p99_norm.unwrap() > 100.0);
        // Two of the hundred that came within a second are late at 4.06 s.
        assert_eq!((judged.missed_s, judged.recovery_s), (Some(0.06), Some(0.24)));
        assert!((judged.action_s.unwrap() - 0.14).abs() < 1e-9);
        let short = judged.falls_short(Some("reprice"));
        assert!(short.is_empty(), "{short:?}");
        assert_eq!(judged.acted_s, None, "no agent has said so");
        let said = Cancelled {
            at_s: 4.58,
            task: "reprice".to_owned(),
            id: Some(7),
            resource: String::new(),
            reason: String::new(),
        };
        let mut late = Judged { cancelled: vec![said], ..judged };
        late.tell_action(4.0);
        assert_eq!(late.falls_short(Some("reprice")), ["first action after 0.52 s of 0.5"]);
    }

    #[test]
    fn what_does_not_hold_is_said() {
        let case = catalog::find("c6").unwrap();
        let mut bad = run(6_000, Some(How::Abandoned));
        bad.requests[500].outcome = Became::Refused;
        bad.requests[501].outcome = Became::Failed(*b"57014");
        let judged = judge(&case, &plan(), Some(Remedy::None), &bad, &run(0, None));
        assert_eq!((judged.right, judged.requests_ended, judged.recovery_s), (false, 1, None));
        assert!((judged.dropped_pct - 0.2).abs() < 1e-9);
        let culprit = Some("reprice");
        assert_eq!(judged.falls_short(culprit).len(), 4, "{:?}", judged.falls_short(culprit));
        assert_eq!(judged.harms(culprit).len(), 3, "{:?}", judged.harms(culprit));
    }

    #[test]
    fn a_request_that_was_ended_for_the_culprit_is_a_harm() {
        let case = catalog::find("c6").unwrap();
        let mut harmed = run(300, Some(How::Cancelled));
        harmed.requests[500].outcome = Became::Failed(*b"57014");
        let judged = judge(&case, &plan(), Some(Remedy::Plimsoll), &harmed, &run(0, None));
        assert!(judged.right);
        assert_eq!(
            judged.harms(Some("reprice")),
            ["a request was ended that had done nothing", "0.100 % of requests dropped, of 0.01 %"]
        );
    }

    #[test]
    fn where_nobody_is_to_blame_all_that_counts_is_that_nobody_was_ended() {
        let case = CaseFile { culprit: None, ..catalog::find("c6").unwrap() };
        let mut slow = run(6_000, Some(How::Abandoned));
        slow.requests[500].outcome = Became::Refused;
        let judged = judge(&case, &plan(), Some(Remedy::Plimsoll), &slow, &run(0, None));
        assert_eq!(judged.falls_short(None), Vec::<String>::new());
        let ended = run(6_000, Some(How::Cancelled));
        let judged = judge(&case, &plan(), Some(Remedy::Plimsoll), &ended, &run(0, None));
        assert_eq!(judged.falls_short(None), ["a task was ended, and nobody is to blame"]);
        slow.requests[500].outcome = Became::Ended;
        let judged = judge(&case, &plan(), Some(Remedy::Plimsoll), &slow, &run(0, None));
        assert_eq!(judged.harms(None), ["a request was ended that had done nothing"]);
    }

    #[test]
    fn of_several_copies_of_a_culprit_one_is_enough() {
        let ending = |name: &str, how| Ending { name: name.to_owned(), pid: 7, from: MS(1), to: MS(2), how };
        let copies = [ending("hog", How::Cancelled), ending("hog", How::Finished)];
        assert!(is_right(&copies, Some("hog")) && !is_right(&copies, None));
        assert!(!is_right(&copies[1..], Some("hog")) && is_right(&copies[1..], None));
        let other = [copies.as_slice(), &[ending("report", How::Terminated)]].concat();
        assert!(!is_right(&other, Some("hog")));
    }
}
