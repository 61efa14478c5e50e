//! What all sources say of each service, put together; what was told long ago is taken down.

use std::collections::{BTreeMap, HashMap};
use std::mem::{Discriminant, discriminant};

use plimsoll_core::Nanos;

use super::{Figure, Known, Source, Told, Usage, What};

/// Instances of services that are remembered of one source.
const MOST: usize = 1 << 14;
/// Using more than a hundred times what there is is an error of measurement, and so are a queue of an hour and more requests a second than
/// anybody sends.
const MOST_UTILIZATION: f64 = 100.0;
const LONGEST_QUEUE_S: f64 = 3_600.0;
const MOST_PER_S: f64 = 1e9;

/// What is told again and again may be so again and again, or nobody counts any more. Within this time it is taken for the former: it is less
/// than the time after which limits are relaxed because nothing is heard.
const SAME: Nanos = Nanos::from_secs(8);

/// What was told of an instance.
#[derive(Clone, Copy)]
struct Note {
    what: What,
    /// When it was told, and
    at: Nanos,
    /// when it was new.
    changed: Nanos,
}

/// What one source told, by service, instance, and which of the things that can be said it is.
type Notes = HashMap<(String, String, Discriminant<What>), Note>;

impl What {
    fn is_sane(self) -> bool {
        match self {
            What::Uses { used, of } => (0.0..=MOST_UTILIZATION).contains(&(used / of)) && of.is_finite(),
            What::Waits(seconds) => (0.0..=LONGEST_QUEUE_S).contains(&seconds),
            What::Serves(per_s) => (0.0..=MOST_PER_S).contains(&per_s),
        }
    }

    /// Whether it is the same to the last bit, which means of many numbers are not unless nothing was measured since; or there was nothing
    /// to do, or no more to be had.
    fn is_again(self, before: What) -> bool {
        let same = |now: f64, before: f64| now.to_bits() == before.to_bits() && now > 0.0;
        match (self, before) {
            (What::Uses { used, of }, What::Uses { used: before, .. }) => same(used, before) && used < of,
            (What::Waits(now), What::Waits(before)) | (What::Serves(now), What::Serves(before)) => {
                same(now, before)
            }
            _ => false,
        }
    }
}

/// Of all instances of a service, of one thing.
#[derive(Clone, Copy)]
struct Sum {
    value: f64,
    of: f64,
    at: Nanos,
    changed: Nanos,
}

impl Sum {
    fn add(sum: &mut Option<Sum>, value: f64, of: f64, note: &Note) {
        let sum = sum.get_or_insert(Sum { value: 0.0, of: 0.0, at: Nanos::ZERO, changed: Nanos::ZERO });
        sum.value += value;
        sum.of += of;
        sum.at = sum.at.max(note.at);
        sum.changed = sum.changed.max(note.changed);
    }

    fn figure(self, value: f64) -> Figure {
        Figure { value, at: self.at, changed: self.changed }
    }
}

/// Whoever was not told of for three times as long as its source takes to tell, though others of its service were, is gone; at least this
/// long, since what was done is not told in each answer.
const TIMES_MISSED: u64 = 3;
const LEAST_MISSED: Nanos = Nanos::from_secs(2);

/// One who tells.
struct Teller {
    /// What it told longer ago than this is not known any more.
    stale: Nanos,
    source: Source,
    notes: Notes,
    /// When it answered last, and the time between that and the answer before.
    answered: Option<Nanos>,
    pace: Option<Nanos>,
}

impl Teller {
    fn new((name, stale): (String, Nanos)) -> Teller {
        let source = Source { name, ..Source::default() };
        Teller { stale, source, notes: Notes::new(), answered: None, pace: None }
    }

    /// How much older than the newest that is known of a service a note may be.
    fn lag(&self) -> Nanos {
        self.pace.map_or(Nanos::MAX, |pace| Nanos(pace.0.saturating_mul(TIMES_MISSED)).max(LEAST_MISSED))
    }
}

/// All that was told.
pub struct Board {
    tellers: Vec<Teller>,
}

impl Board {
    /// Nothing was told yet by these. What each tells is known for so long.
    pub fn new(sources: impl IntoIterator<Item = (String, Nanos)>) -> Board {
        Board { tellers: sources.into_iter().map(Teller::new).collect() }
    }

    /// A source told this, or what went wrong.
    pub fn note(&mut self, source: usize, now: Nanos, answer: Result<Vec<Told>, String>) {
        let Teller { stale, source, notes, answered, pace } = &mut self.tellers[source];
        let told = match answer {
            Ok(told) => told,
            Err(trouble) => {
                if source.trouble.as_ref() != Some(&trouble) {
                    log::warn!(source:% = source.name, error:% = trouble; "how busy services are cannot be asked");
                }
                (source.answers, source.trouble, source.failures) =
                    (false, Some(trouble), source.failures + 1);
                return;
            }
        };
        (source.answers, source.trouble) = (true, None);
        *pace = answered.replace(now).map(|before| now.since(before));
        notes.retain(|_, note| now.since(note.at) <= *stale);
        for Told { service, instance, what, is_new } in told {
            let key = (service, instance, discriminant(&what));
            let is_sane = what.is_sane() && !key.0.is_empty();
            if !is_sane || notes.len() >= MOST && !notes.contains_key(&key) {
                source.nonsense += 1;
                continue;
            }
            let before = notes.get(&key);
            let again =
                before.filter(|before| is_new.map_or_else(|| what.is_again(before.what), |is_new| !is_new));
            let since = again.map(|before| before.changed).filter(|&changed| now.since(changed) < SAME);
            notes.insert(key, Note { what, at: now, changed: since.unwrap_or(now) });
        }
    }

    /// What is known now, whoever told of it. How busy instances of one service are counts by what they may use; each waits as much as the
    /// others, and what they get done adds up.
    pub fn usage(&self, now: Nanos) -> Usage {
        let notes = || {
            let all =
                self.tellers.iter().flat_map(|teller| teller.notes.iter().map(move |note| (teller, note)));
            all.filter(|(teller, (_, note))| now.since(note.at) <= teller.stale)
        };
        let mut newest: HashMap<(&str, Discriminant<What>), Nanos> = HashMap::new();
        for (_, ((service, _, which), note)) in notes() {
            let newest = newest.entry((service, *which)).or_default();
            *newest = note.at.max(*newest);
        }
        let mut sums: BTreeMap<&str, [Option<Sum>; 3]> = BTreeMap::new();
        for (teller, ((service, _, which), note)) in notes() {
            if newest[&(service.as_str(), *which)].since(note.at) <= teller.lag() {
                let [uses, waits, serves] = sums.entry(service).or_default();
                match note.what {
                    What::Uses { used, of } => Sum::add(uses, used, of, note),
                    What::Waits(seconds) => Sum::add(waits, seconds, 1.0, note),
                    What::Serves(per_s) => Sum::add(serves, per_s, 1.0, note),
                }
            }
        }
        let known = |(service, [uses, waits, serves]): (&str, [Option<Sum>; 3])| Known {
            service: service.to_owned(),
            utilization: uses.map(|sum| sum.figure((sum.value / sum.of).min(1.0))),
            queue_s: waits.map(|sum| sum.figure(sum.value / sum.of)),
            served_per_s: serves.map(|sum| sum.figure(sum.value)),
        };
        Usage {
            services: sums.into_iter().map(known).collect(),
            sources: self.tellers.iter().map(|teller| teller.source.clone()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(service: &str, instance: &str, used: f64, capacity: f64) -> Told {
        let what = What::Uses { used, of: capacity };
        Told { service: service.to_owned(), instance: instance.to_owned(), what, is_new: None }
    }

    fn board(stale_s: u64, names: &[&str]) -> Board {
        Board::new(names.iter().map(|&name| (name.to_owned(), Nanos::from_secs(stale_s))))
    }

    fn known(board: &Board, now: u64) -> Vec<(String, f64)> {
        board
            .usage(Nanos::from_secs(now))
            .services
            .into_iter()
            .filter_map(|known| Some((known.service, known.utilization?.value)))
            .collect()
    }

    #[test]
    fn instances_count_by_what_they_may_use_and_stale_ones_not_at_all() {
        let mut board = board(10, &["a", "b"]);
        board.note(
            0,
            Nanos::from_secs(1),
            Ok(vec![told("cart", "1", 0.5, 1.0), told("cart", "2", 3.5, 4.0), told("db", "", 7.0, 1.0)]),
        );
        board.note(1, Nanos::from_secs(3), Ok(vec![told("cart", "1", 0.0, 3.0)]));
        assert_eq!(known(&board, 8), [("cart".to_owned(), 0.5), ("db".to_owned(), 1.0)]);
        assert_eq!(known(&board, 12), [("cart".to_owned(), 0.0)]);
        assert!(known(&board, 14).is_empty());
    }

    #[test]
    fn who_is_not_told_of_while_others_are_is_gone_and_who_tells_seldom_is_not() {
        let mut board = board(30, &["often", "seldom"]);
        for second in 1..=20 {
            let mut answer = vec![told("cart", "1", 0.2, 1.0)];
            // One of two ends, and is not in the answers any more.
            answer.extend((second <= 10).then(|| told("cart", "2", 1.0, 1.0)));
            board.note(0, Nanos::from_secs(second), Ok(answer));
            if second % 4 == 0 {
                board.note(1, Nanos::from_secs(second), Ok(vec![told("cart", "3", 0.3, 1.0)]));
            }
            let cart = known(&board, second)[0].1;
            let expected = match second {
                1..4 => (0.2 + 1.0) / 2.0,
                4..14 => (0.2 + 1.0 + 0.3) / 3.0,
                _ => (0.2 + 0.3) / 2.0,
            };
            assert!((cart - expected).abs() < 1e-9, "{second}: {cart}");
        }
        board.note(0, Nanos::from_secs(25), Err("refused".to_owned()));
        assert!(
            (known(&board, 25)[0].1 - 0.25).abs() < 1e-9,
            "where nobody is told of, all are as they were"
        );
    }

    #[test]
    fn what_cannot_be_is_counted_and_a_source_that_fails_is_named() {
        let mut board = board(10, &["a"]);
        let nonsense = [
            (f64::NAN, 1.0),
            (-1.0, 1.0),
            (f64::INFINITY, 1.0),
            (1.0, 0.0),
            (1.0, f64::INFINITY),
            (1.0, f64::NAN),
            (1e6, 1.0),
        ];
        board.note(0, Nanos(1), Ok(nonsense.map(|(used, capacity)| told("x", "", used, capacity)).to_vec()));
        board.note(0, Nanos(2), Ok(vec![told("", "", 0.5, 1.0)]));
        assert!(known(&board, 0).is_empty());
        board.note(0, Nanos(3), Ok(vec![told("y", "", 0.5, 1.0)]));
        board.note(0, Nanos(4), Err("refused".to_owned()));
        let usage = board.usage(Nanos(5));
        let source = &usage.sources[0];
        assert_eq!(
            (usage.services.len(), source.nonsense, source.failures, source.answers),
            (1, 8, 1, false)
        );
        assert_eq!(source.trouble.as_deref(), Some("refused"));
    }

    /// At which seconds something new was told, where the same things are told every second.
    fn news(told: impl Fn(u64) -> Told) -> Vec<u64> {
        let mut board = board(10, &["a"]);
        let mut news = Vec::new();
        for second in 1..=20 {
            let now = Nanos::from_secs(second);
            board.note(0, now, Ok(vec![told(second)]));
            let known = board.usage(now).services[0].figures().next().unwrap();
            assert_eq!(known.at, now);
            if known.changed == now {
                news.push(second);
            }
        }
        news
    }

    #[test]
    fn what_is_told_again_is_no_news_for_a_while() {
        let all: Vec<u64> = (1..=20).collect();
        assert_eq!(news(|_| told("x", "", 0.937, 1.0)), [1, 9, 17]);
        assert_eq!(news(|second| told("x", "", 0.9 + 1e-6 * (second / 5) as f64, 1.0)), [1, 5, 10, 15, 20]);
        // Nothing to do, or all that there is to do: that is so until something else is said.
        assert_eq!(news(|_| told("x", "", 0.0, 1.0)), all);
        assert_eq!(news(|_| told("x", "", 2.0, 2.0)), all);
        // A source that says when it counted is believed.
        let counted =
            |second: u64| Told { is_new: Some(second.is_multiple_of(5)), ..told("x", "", 1.0, 1.0) };
        assert_eq!(news(counted), [1, 5, 10, 15, 20]);
        assert_eq!(news(|_| Told { is_new: Some(true), ..told("x", "", 0.5, 1.0) }), all);
    }

    #[test]
    fn queues_are_means_and_what_is_done_adds_up() {
        let mut board = board(10, &["a", "b"]);
        let told = |instance: &str, what| Told { what, ..told("cart", instance, 0.0, 1.0) };
        let first = [What::Waits(0.3), What::Serves(40.0), What::Uses { used: 1.0, of: 1.0 }];
        board.note(0, Nanos::from_secs(1), Ok(first.map(|what| told("1", what)).to_vec()));
        board.note(
            1,
            Nanos::from_secs(2),
            Ok(vec![told("2", What::Waits(0.1)), told("2", What::Serves(2.0))]),
        );
        let known = &board.usage(Nanos::from_secs(2)).services[0];
        let value = |figure: Option<Figure>| figure.map(|figure| (figure.value, figure.at));
        assert_eq!(value(known.utilization), Some((1.0, Nanos::from_secs(1))));
        assert_eq!(value(known.queue_s), Some((0.2, Nanos::from_secs(2))));
        assert_eq!(value(known.served_per_s), Some((42.0, Nanos::from_secs(2))));
        let nonsense =
            [What::Waits(-1.0), What::Waits(1e9), What::Serves(f64::NAN), What::Serves(f64::INFINITY)];
        board.note(0, Nanos::from_secs(3), Ok(nonsense.map(|what| told("3", what)).to_vec()));
        assert_eq!(board.usage(Nanos::from_secs(3)).sources[0].nonsense, 4);
    }

    #[test]
    fn an_empty_queue_is_news_and_the_same_queue_is_not() {
        let of = |what| Told { what, ..told("x", "", 0.0, 1.0) };
        assert_eq!(news(|_| of(What::Waits(0.0))).len(), 20);
        assert_eq!(news(|_| of(What::Waits(0.125))), [1, 9, 17]);
        assert_eq!(news(|_| of(What::Serves(3.5))), [1, 9, 17]);
    }
}
