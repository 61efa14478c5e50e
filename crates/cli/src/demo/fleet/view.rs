//! What is shown while the surge lasts: a line an API, and one for all.

use plimsoll_core::Nanos;

use super::super::Side;
use super::super::screen::Screen;
use super::Phases;
use super::stage::{APIS, DEADLINE_MS, Limit};
use crate::observed::Requests;
use crate::observed::Seen;

/// The live view, and all that it has seen.
pub struct View {
    screen: Screen,
    phases: Phases,
    now: Nanos,
    sides: [Requests; 2],
    /// What may enter, by API, from when on.
    looks: Vec<(Nanos, [Limit; APIS.len()])>,
}

/// All that was seen.
pub struct Watched {
    /// By side.
    pub requests: [Vec<Seen>; 2],
    /// What might enter, by API, at each look.
    pub looks: Vec<(Nanos, [Limit; APIS.len()])>,
}

impl View {
    pub fn new(phases: Phases) -> View {
        let screen = Screen::new(phases.end, APIS.len() + 1);
        View { screen, phases, now: Nanos::ZERO, sides: Default::default(), looks: Vec::new() }
    }

    /// More requests have ended.
    pub fn observe(&mut self, side: Side, now: Nanos, ended: Vec<Seen>) {
        self.now = self.now.max(now);
        self.sides[side as usize].add(now, ended);
        if side == Side::With {
            self.show();
        }
    }

    /// What the controller says.
    pub fn limited(&mut self, limits: [Limit; APIS.len()]) {
        self.looks.push((self.now, limits));
    }

    fn show(&mut self) {
        let per_s = |side: Side, is_meant: &dyn Fn(&Seen) -> bool| {
            let (span_s, recent) = self.sides[side as usize].recent();
            recent.iter().filter(|seen| is_meant(seen)).count() as f64 / span_s.max(0.25)
        };
        let in_time = |side: Side, api: Option<usize>| {
            let within = Nanos::from_millis(DEADLINE_MS);
            per_s(side, &|seen| api.is_none_or(|api| seen.class == api) && seen.is_in_time(within))
        };
        let line = |name: &str, api: Option<usize>, limit: &str| {
            let come = per_s(Side::With, &|seen| api.is_none_or(|api| seen.class == api));
            let [without, with] = [Side::Without, Side::With].map(|side| in_time(side, api));
            format!(
                "{name:<9}{come:>5.0}/s come   in time {without:>4.0}/s without, {with:>4.0}/s with   {limit}"
            )
        };
        let mut texts: Vec<String> = Vec::new();
        let last = self.looks.last();
        for (place, api) in APIS.iter().enumerate() {
            let limit = last.and_then(|(_, limits)| limits[place].per_s);
            let limit = limit.map_or("all may enter".to_owned(), |limit| format!("{limit:.0}/s may enter"));
            texts.push(line(api.name, Some(place), &limit));
        }
        let phase = if self.now < self.phases.surge { "calm" } else { "the surge" };
        texts.push(line("all", None, phase));
        for (nth, text) in texts.into_iter().enumerate() {
            self.screen.set(nth, self.now, text);
        }
    }

    /// Clears the lines and gives away what was seen.
    pub fn finish(self) -> Watched {
        self.screen.clear();
        Watched { requests: self.sides.map(Requests::into_all), looks: self.looks }
    }
}
