//! What came of it: figures of both sides, and whether they show what they are to show.

use std::fmt;

use plimsoll_core::Nanos;
use plimsoll_simulator::figures::{Chart, Figure, Line};
use serde_json::{Map, Value, json};

use super::super::Side;
use super::super::screen::time;
use super::figures::{Figures, standstill};
use super::stage::{Ending, Fate, Other, Phases, Request, Run};

/// The whole of it.
pub struct Outcome {
    phases: Phases,
    runs: [Run; 2],
    events: Vec<Value>,
}

/// Whether an event is about somebody: backends are named as they are, tasks by a number, too.
fn is_about(event: &Value, name: &str) -> bool {
    let task = event["task"].as_str().unwrap_or_default();
    task == name || task.ends_with(&format!("({name})"))
}

impl Outcome {
    /// Of what happened without and with the agent, which told these events.
    pub fn new(phases: Phases, runs: [Run; 2], events: Vec<Value>) -> Outcome {
        Outcome { phases, runs, events }
    }

    fn run(&self, side: Side) -> &Run {
        &self.runs[usize::from(side == Side::With)]
    }

    fn standstill(&self, side: Side) -> Nanos {
        standstill(&self.run(side).requests, self.phases.culprit, self.phases.end)
    }

    /// Of those that came since the culprit did.
    fn since(&self, side: Side) -> Figures {
        Figures::between(&self.run(side).requests, self.phases.culprit, self.phases.end)
    }

    /// Of what the agent told, what is of this kind.
    fn told<'a>(&'a self, what: &'a str) -> impl Iterator<Item = &'a Value> {
        self.events.iter().filter(move |event| event["event"] == what)
    }

    /// All that the agent told.
    pub fn events(&self) -> &[Value] {
        &self.events
    }

    /// One side.
    pub fn side_json(&self, side: Side) -> Value {
        let run = self.run(side);
        let phase = |(name, _, from, to): (&str, &str, Nanos, Nanos)| {
            let figures = Figures::between(&run.requests, from, to);
            let of = json!({
                "came": figures.came, "answered": figures.answered, "answered_pct": figures.answered_pct(),
                "answered_per_s": figures.answered_per_s(),
                "p50_ms": figures.quantile_ms(0.50), "p99_ms": figures.quantile_ms(0.99),
            });
            (name.to_owned(), of)
        };
        let before = Figures::between(&run.requests, self.phases.warm, self.phases.culprit);
        let other = |other: &Other| json!({ "name": other.name, "lasted_ms": other.lasted.as_millis_f64(), "ended": other.ending.to_string() });
        json!({
            "phases": self.phases.each().into_iter().map(phase).collect::<Map<String, Value>>(),
            "throughput_ratio": self.since(side).answered_per_s() / before.answered_per_s(),
            "standstill_ms": self.standstill(side).as_millis_f64(),
            "requests_cancelled": cancelled(run),
            "culprit": other(&run.culprit), "bystander": other(&run.bystander),
        })
    }

    /// Both sides as a picture.
    pub fn figure(&self, slo_ms: u64) -> Figure {
        let second = Nanos::from_secs(1);
        let seconds = self.phases.end.0 / second.0;
        let line = |side: Side, of: &dyn Fn(&[Request], Nanos) -> Option<f64>| {
            let requests = &self.run(side).requests;
            let point = |n: u64| Some((n as f64 + 0.5, of(requests, Nanos(n * second.0))?));
            Line {
                name: format!("{} the agent", side.as_str()),
                points: (0..seconds).filter_map(point).collect(),
            }
        };
        let answered = |requests: &[Request], from: Nanos| {
            let ends = requests.iter().filter_map(Request::answered_at);
            Some(ends.filter(|at| (from..from + second).contains(at)).count() as f64)
        };
        let p99 = |requests: &[Request], from: Nanos| {
            Figures::between(requests, from, from + second).quantile_ms(0.99)
        };
        let chart = |title, y, of: &dyn Fn(&[Request], Nanos) -> Option<f64>| {
            Chart::new(title, "seconds", y, vec![line(Side::With, of), line(Side::Without, of)])
        };
        Figure {
            name: "culprit".to_owned(),
            charts: vec![
                chart("Answered", "requests/s", &answered),
                chart("99 of 100 answers took at most", "ms, by when they were asked", &p99)
                    .with_level("promised", slo_ms as f64),
            ],
        }
    }

    /// What is to be seen, in words.
    ///
    /// # Errors
    /// If it is not: the agent cancelled nobody, or somebody innocent, or there was nothing to save anybody from.
    pub fn verdict(&self) -> Result<String, String> {
        let (without, with) = (self.standstill(Side::Without), self.standstill(Side::With));
        let Run { culprit, bystander, .. } = self.run(Side::With);
        let hold = self.phases.hold();
        if without < Nanos(hold.0 / 2) {
            return Err(format!(
                "there was nothing to see: without the agent everything was to stand still for {hold}, and did for {without}"
            ));
        }
        let Some(first) = self.told("cancel").next() else {
            return Err(format!("the agent cancelled nobody{}", self.trouble()));
        };
        if let Some(wrong) = self.told("cancel").find(|event| !is_about(event, &culprit.name)) {
            return Err(format!("the agent cancelled {}, and to blame was {}", wrong["task"], culprit.name));
        }
        if culprit.ending != Ending::Cancelled {
            return Err(format!("the agent told {} to end, but it {}", first["task"], culprit.ending));
        }
        if bystander.ending != Ending::Finished {
            return Err(format!("{} is innocent, and {}", bystander.name, bystander.ending));
        }
        match cancelled(self.run(Side::With)) {
            0 => {}
            victims => return Err(format!("{victims} requests that only waited were cancelled")),
        }
        if with > Nanos(without.0 / 2) {
            return Err(format!("the agent came late: with it everything stood still for {with}"));
        }
        let pct = |side| self.since(side).answered_pct().unwrap_or(0.0);
        Ok(format!(
            "Without the agent nobody was answered for {}, and {:.1} % of all who came since the culprit did.\n\
             With it nobody for {}, and {:.1} % of all: {} was cancelled {:.0} ms after it had come.",
            seconds(without),
            pct(Side::Without),
            seconds(with),
            pct(Side::With),
            culprit.name,
            culprit.lasted.as_millis_f64(),
        ))
    }

    /// What may have kept the agent from it, in its words.
    fn trouble(&self) -> String {
        let words = ["adapter_error", "escalate", "regular_overload"].into_iter();
        let reason =
            words.filter_map(|what| self.told(what).last()).find_map(|event| event["reason"].as_str());
        reason.map(|reason| format!("; it said: {reason}")).unwrap_or_default()
    }
}

fn cancelled(run: &Run) -> usize {
    run.requests.iter().filter(|request| request.fate == Fate::Cancelled).count()
}

fn seconds(time: Nanos) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Finished => f.write_str("finished"),
            Ending::Cancelled => f.write_str("was cancelled"),
            Ending::Failed(why) => write!(f, "failed: {why}"),
        }
    }
}

/// A table for people.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for side in [Side::Without, Side::With] {
            writeln!(
                f,
                "\n{:<18}{:>10}{:>13}{:>10}{:>10}{:>10}",
                format!("{} the agent", side.as_str()),
                "come/s",
                "answered/s",
                "answered",
                "p50",
                "p99"
            )?;
            for (_, name, from, to) in self.phases.each() {
                let figures = Figures::between(&self.run(side).requests, from, to);
                writeln!(
                    f,
                    "  {name:<16}{:>10.1}{:>13.1}{:>8.1} %{:>10}{:>10}",
                    figures.came as f64 / figures.span_s,
                    figures.answered_per_s(),
                    figures.answered_pct().unwrap_or(0.0),
                    time(figures.quantile_ms(0.50)),
                    time(figures.quantile_ms(0.99)),
                )?;
            }
        }
        writeln!(f, "\nBy when they were asked; who waited long and was answered counts as answered.\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Nanos = Nanos::from_millis;

    fn request(at_ms: u64, latency_ms: u64, fate: Fate) -> Request {
        Request { at: MS(at_ms), latency: MS(latency_ms), fate }
    }

    fn other(name: &str, ending: Ending) -> Other {
        Other { name: name.to_owned(), lasted: MS(150), ending }
    }

    /// A request every 10 ms for 20 s; those that come from 5 s on and before `until_ms` are answered then, or given up after 10 s.
    fn run(until_ms: u64, ending: Ending) -> Run {
        let request = |at_ms| match at_ms {
            5_000.. if at_ms + 10_000 < until_ms => request(at_ms, 10_000, Fate::Lost),
            5_000.. if at_ms < until_ms => request(at_ms, until_ms - at_ms, Fate::Answered),
            _ => request(at_ms, 1, Fate::Answered),
        };
        Run {
            requests: (0..2_000).map(|n| request(10 * n)).collect(),
            culprit: other("backend 7", ending),
            bystander: other("backend 6", Ending::Finished),
        }
    }

    fn cancel(task: &str) -> Value {
        json!({ "event": "cancel", "task": task, "reason": "" })
    }

    /// As it should be; `change` makes it otherwise.
    fn outcome(change: impl FnOnce(&mut [Run; 2], &mut Vec<Value>)) -> Outcome {
        let mut runs = [run(15_000, Ending::Finished), run(5_200, Ending::Cancelled)];
        let released =
            json!({ "event": "released", "task": "backend 7", "resource": "the table", "after_ms": 20.4 });
        let mut events = vec![cancel("backend 7"), released];
        change(&mut runs, &mut events);
        Outcome::new(Phases::within(Nanos::from_secs(20)), runs, events)
    }

    #[test]
    fn what_is_to_be_seen_is_told_with_its_figures() {
        let outcome = outcome(|_, _| {});
        let seen = outcome.verdict().unwrap();
        for words in [
            "nobody was answered for 10.0 s, and 100.0 % of",
            "With it nobody for 0.2 s, and 100.0 %",
            "backend 7 was cancelled 150 ms",
        ] {
            assert!(seen.contains(words), "{words}: {seen}");
        }
        let with = outcome.side_json(Side::With);
        assert_eq!(with["requests_cancelled"], 0);
        assert_eq!(with["culprit"]["ended"], "was cancelled");
        let ratio = with["throughput_ratio"].as_f64().unwrap();
        assert!((0.99..1.01).contains(&ratio), "{ratio}");
        let p99 =
            |side: Side, phase: &str| outcome.side_json(side)["phases"][phase]["p99_ms"].as_f64().unwrap();
        assert!((180.0..220.0).contains(&p99(Side::With, "first")));
        assert!(p99(Side::With, "later") < 2.0 && p99(Side::Without, "later") > 7_000.0);
        let table = outcome.to_string();
        assert_eq!(table.matches("before it comes").count(), 2, "{table}");
        assert_eq!(outcome.figure(50).charts.len(), 2);
    }

    #[test]
    fn what_is_not_as_it_should_be_is_told() {
        let task = |task: &str| task.to_owned();
        let victim = |run: &mut Run| run.requests[700].fate = Fate::Cancelled;
        let wrong = [
            (outcome(|runs, _| runs[0] = run(5_100, Ending::Finished)), "nothing to see"),
            (outcome(|_, events| events.clear()), "cancelled nobody"),
            (
                outcome(|_, events| events.push(cancel("backend 8"))),
                "cancelled \"backend 8\", and to blame was backend 7",
            ),
            (
                outcome(|runs, _| runs[1].culprit.ending = Ending::Finished),
                "told \"backend 7\" to end, but it finished",
            ),
            (
                outcome(|runs, _| runs[1].bystander.ending = Ending::Cancelled),
                "backend 6 is innocent, and was cancelled",
            ),
            (outcome(|runs, _| victim(&mut runs[1])), "1 requests that only waited"),
            (outcome(|runs, _| runs[1] = run(13_000, Ending::Cancelled)), "came late"),
        ];
        for (outcome, words) in wrong {
            let error = outcome.verdict().unwrap_err();
            assert!(error.contains(words), "{words}: {error}");
        }
        let trouble = |_: &mut [Run; 2], events: &mut Vec<Value>| {
            *events =
                vec![json!({ "event": "adapter_error", "task": null, "reason": task("it is too old") })];
        };
        assert!(
            outcome(trouble).verdict().unwrap_err().ends_with("cancelled nobody; it said: it is too old")
        );
    }

    #[test]
    fn a_task_is_known_by_its_number_or_by_what_it_does() {
        assert!(is_about(&cancel("backend 7"), "backend 7") && !is_about(&cancel("backend 77"), "backend 7"));
        assert!(is_about(&cancel("task 17 (GET /hog/lock)"), "GET /hog/lock"));
        assert!(!is_about(&cancel("task 17 (GET /slow)"), "GET /hog/lock"));
        assert!(!is_about(&json!({ "task": null }), "backend 7"));
    }
}
