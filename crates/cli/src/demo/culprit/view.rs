//! What is shown while it lasts: a line a side, and above them what happens and what the agent says of it.

use plimsoll_core::Nanos;
use plimsoll_simulator::stats::Histogram;
use serde_json::Value;

use super::super::Side;
use super::super::screen::{Screen, time};
use super::stage::{Phases, Request};

/// Sides are shown as they were in the last second.
const RECENT: Nanos = Nanos::from_secs(1);

/// The live view.
pub struct View {
    screen: Screen,
    phases: Phases,
    /// That the culprit comes, until that has been said.
    comes: Option<&'static str>,
    recent: [Recent; 2],
}

/// Who was answered in the last second.
#[derive(Default)]
struct Recent {
    answered: Vec<Request>,
    last: Nanos,
}

impl View {
    pub fn new(phases: Phases, comes: &'static str) -> View {
        View { screen: Screen::new(phases.end, 2), phases, comes: Some(comes), recent: Default::default() }
    }

    /// More requests of a side have ended.
    pub fn observe(&mut self, side: Side, now: Nanos, ended: Vec<Request>) {
        if now >= self.phases.culprit
            && let Some(comes) = self.comes.take()
        {
            self.screen.say(&at(self.phases.culprit, comes));
        }
        let index = usize::from(side == Side::With);
        let text = self.recent[index].line(side, now, ended);
        if now >= RECENT {
            self.screen.set(index, now, text);
        }
    }

    /// The agent has told something.
    pub fn tell(&self, now: Nanos, event: &Value) {
        if let Some(words) = words(event) {
            self.screen.say(&at(now, &words));
        }
    }

    /// Clears the lines.
    pub fn finish(self) {
        self.screen.clear();
    }
}

impl Recent {
    fn line(&mut self, side: Side, now: Nanos, ended: Vec<Request>) -> String {
        self.answered.extend(ended);
        let since = now.since(RECENT);
        self.answered.retain(|request| request.answered_at().is_some_and(|at| at >= since));
        let ends = self.answered.iter().filter_map(Request::answered_at);
        self.last = ends.fold(self.last, Nanos::max);
        let mut latencies = Histogram::default();
        self.answered.iter().for_each(|request| latencies.record(request.latency));
        let p99 = latencies.quantile(0.99).map(Nanos::as_millis_f64);
        let per_s = latencies.total() as f64 / RECENT.as_secs_f64();
        let silence = now.since(self.last);
        let stands = match silence >= RECENT {
            true => format!("   nobody for {:.0} s", silence.as_secs_f64()),
            false => String::new(),
        };
        format!("{:<8} answered {per_s:>5.0}/s   p99 {}{stands}", side.as_str(), time(p99))
    }
}

/// Something that happens, with its time.
fn at(time: Nanos, what: &str) -> String {
    format!("{:>4.0} s {what}", time.as_secs_f64())
}

/// What an event says, for people; nothing where the next one says more.
fn words(event: &Value) -> Option<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (task, resource, reason) = (text(&event["task"]), text(&event["resource"]), text(&event["reason"]));
    let does = event["about"]["what"].as_str().filter(|what| !task.contains(what));
    let does = does.map(|what| format!(", `{what}`")).unwrap_or_default();
    Some(match event["event"].as_str()? {
        "cancel" => {
            let chain = event["about"]["chain"].as_str();
            let chain =
                chain.map(|chain| format!("\n       who waits for whom: {chain}")).unwrap_or_default();
            format!("the agent cancels {task}{does}:\n       {reason}{chain}")
        }
        "released" => match event["after_ms"].as_f64() {
            Some(ms) if event["task"].is_string() => {
                format!("the agent: {resource} is free, {ms:.0} ms after that")
            }
            _ => format!("the agent: {reason}"),
        },
        "overload" => return None,
        what => format!("the agent: {}: {reason}", what.replace('_', " ")),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::stage::Fate;
    use super::*;

    const MS: fn(u64) -> Nanos = Nanos::from_millis;

    fn answered(at_ms: u64, latency_ms: u64) -> Request {
        Request { at: MS(at_ms), latency: MS(latency_ms), fate: Fate::Answered }
    }

    #[test]
    fn a_side_is_shown_as_it_was_in_the_last_second() {
        let mut recent = Recent::default();
        let lost = Request { fate: Fate::Lost, ..answered(100, 50) };
        let line = recent.line(Side::With, MS(1_050), vec![answered(0, 100), answered(100, 100), lost]);
        assert!(line.starts_with("with ") && line.contains("answered     2/s"), "{line}");
        let line = recent.line(Side::With, MS(1_150), vec![]);
        assert!(line.contains("answered     1/s   p99   10") && !line.contains("nobody"), "{line}");
        let line = recent.line(Side::With, MS(4_200), vec![]);
        assert!(line.contains("answered     0/s   p99       -   nobody for 4 s"), "{line}");
        let line = recent.line(Side::With, MS(4_300), vec![answered(300, 3_950)]);
        assert!(line.contains("answered     1/s") && !line.contains("nobody"), "{line}");
    }

    #[test]
    fn events_are_told_to_people() {
        let event = json!({
            "event": "cancel", "task": "backend 7", "resource": "the queue for public.account",
            "reason": "it holds up 32 others", "about": { "what": "alter table account", "chain": "backend 9 -> backend 7 -> backend 6" },
        });
        let said = words(&event).unwrap();
        assert!(said.contains("cancels backend 7, `alter table account`:\n"), "{said}");
        assert!(said.contains("holds up 32 others\n       who waits for whom: backend 9 ->"), "{said}");
        let event = json!({
            "event": "cancel", "task": "task 3 (GET /hog/lock)", "resource": "table", "reason": "why",
            "about": { "what": "GET /hog/lock" },
        });
        assert!(words(&event).unwrap().starts_with("the agent cancels task 3 (GET /hog/lock):\n"));
        let event = json!({ "event": "released", "task": "backend 7", "resource": "the lock", "reason": "", "after_ms": 20.6 });
        assert_eq!(words(&event).unwrap(), "the agent: the lock is free, 21 ms after that");
        let event =
            json!({ "event": "adapter_error", "task": null, "resource": null, "reason": "it is too old" });
        assert_eq!(words(&event).unwrap(), "the agent: adapter error: it is too old");
        assert_eq!(words(&json!({ "event": "overload", "reason": "" })), None);
    }
}
