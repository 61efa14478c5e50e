//! What all sources say of each service, put together; what was told long ago is taken down.

use std::collections::{BTreeMap, HashMap};

use plimsoll_core::Nanos;

use super::{Known, Source, Told, Usage};

/// Instances of services that are remembered of one source.
const MOST: usize = 1 << 14;
/// Using more than a hundred times what there is is an error of measurement.
const MOST_UTILIZATION: f64 = 100.0;

/// What is told again and again may be so again and again, or nobody counts any more. Within this time it is taken for the former: it is less
/// than the time after which limits are relaxed because nothing is heard.
const SAME: Nanos = Nanos::from_secs(8);

/// What was told of an instance.
#[derive(Clone, Copy)]
struct Note {
    used: f64,
    capacity: f64,
    /// When it was told, and
    at: Nanos,
    /// when it was new.
    changed: Nanos,
}

/// What one source told, by service and instance.
type Notes = HashMap<(String, String), Note>;

/// All that was told.
pub struct Board {
    stale: Nanos,
    sources: Vec<(Source, Notes)>,
}

impl Board {
    /// Nothing was told yet by these.
    pub fn new(stale: Nanos, names: impl IntoIterator<Item = String>) -> Board {
        let source = |name| (Source { name, ..Source::default() }, Notes::new());
        Board { stale, sources: names.into_iter().map(source).collect() }
    }

    /// A source told this, or what went wrong.
    pub fn note(&mut self, source: usize, now: Nanos, answer: Result<Vec<Told>, String>) {
        let (source, notes) = &mut self.sources[source];
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
        notes.retain(|_, note| now.since(note.at) <= self.stale);
        for Told { service, instance, used, capacity, is_new } in told {
            let is_sane = (0.0..=MOST_UTILIZATION).contains(&(used / capacity))
                && capacity.is_finite()
                && !service.is_empty();
            let key = (service, instance);
            if !is_sane || notes.len() >= MOST && !notes.contains_key(&key) {
                source.nonsense += 1;
                continue;
            }
            let before = notes.get(&key);
            let again = before.filter(|before| match is_new {
                Some(is_new) => !is_new,
                // Means of many numbers do not come out the same to the last bit, unless there is nothing to do or no more to be had.
                None => before.used.to_bits() == used.to_bits() && used > 0.0 && used < capacity,
            });
            let since = again.map(|before| before.changed).filter(|&changed| now.since(changed) < SAME);
            notes.insert(key, Note { used, capacity, at: now, changed: since.unwrap_or(now) });
        }
    }

    /// What is known now. Instances of one service count by what they may use, whoever told of them.
    pub fn usage(&self, now: Nanos) -> Usage {
        let mut sums: BTreeMap<&str, Note> = BTreeMap::new();
        for (_, notes) in &self.sources {
            for ((service, _), note) in notes.iter().filter(|(_, note)| now.since(note.at) <= self.stale) {
                let sum = sums.entry(service).or_insert(Note {
                    used: 0.0,
                    capacity: 0.0,
                    at: Nanos::ZERO,
                    changed: Nanos::ZERO,
                });
                sum.used += note.used;
                sum.capacity += note.capacity;
                sum.at = sum.at.max(note.at);
                sum.changed = sum.changed.max(note.changed);
            }
        }
        let known = sums.into_iter().filter(|(_, sum)| sum.capacity > 0.0);
        Usage {
            services: known
                .map(|(service, sum)| Known {
                    service: service.to_owned(),
                    utilization: (sum.used / sum.capacity).min(1.0),
                    at: sum.at,
                    changed: sum.changed,
                })
                .collect(),
            sources: self.sources.iter().map(|(source, _)| source.clone()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(service: &str, instance: &str, used: f64, capacity: f64) -> Told {
        Told { service: service.to_owned(), instance: instance.to_owned(), used, capacity, is_new: None }
    }

    fn known(board: &Board, now: u64) -> Vec<(String, f64)> {
        board
            .usage(Nanos::from_secs(now))
            .services
            .into_iter()
            .map(|known| (known.service, known.utilization))
            .collect()
    }

    #[test]
    fn instances_count_by_what_they_may_use_and_stale_ones_not_at_all() {
        let mut board = Board::new(Nanos::from_secs(10), ["a".to_owned(), "b".to_owned()]);
        board.note(
            0,
            Nanos::from_secs(1),
            Ok(vec![told("cart", "1", 0.5, 1.0), told("cart", "2", 3.5, 4.0), told("db", "", 7.0, 1.0)]),
        );
        board.note(1, Nanos::from_secs(8), Ok(vec![told("cart", "1", 0.0, 3.0)]));
        assert_eq!(known(&board, 8), [("cart".to_owned(), 0.5), ("db".to_owned(), 1.0)]);
        assert_eq!(known(&board, 12), [("cart".to_owned(), 0.0)]);
        assert!(known(&board, 19).is_empty());
    }

    #[test]
    fn what_cannot_be_is_counted_and_a_source_that_fails_is_named() {
        let mut board = Board::new(Nanos::from_secs(10), ["a".to_owned()]);
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
        let mut board = Board::new(Nanos::from_secs(10), ["a".to_owned()]);
        let mut news = Vec::new();
        for second in 1..=20 {
            let now = Nanos::from_secs(second);
            board.note(0, now, Ok(vec![told(second)]));
            let known = &board.usage(now).services[0];
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
}
