//! What a request needs on a server that has nothing else to do: its *inherent* service time, `R_cpu + alpha * R_data` (Cataclysm,
//! section 3.2, Eq. 2, and 3.5). What it will be is taken from requests of the same kind: same method, same path but for
//! its arguments, as a host hashes them.
//!
//! The table is bounded: of four kinds that share a place the one that was seen last the longest ago gives way. Reading it is a few
//! loads. A kind that is just giving way may be taken once for the one that takes its place, which is a wrong guess like any other.
//!
//! The paper measures alpha in advance. Here it is fitted to what requests took that had a server to themselves, as the alpha
//! with the least squares of what is left of them.

use plimsoll_core::Nanos;
use plimsoll_core::sync::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Kinds that share a place.
const WAYS: usize = 4;
/// What the newest request weighs in the averages of its kind.
const WEIGHT: f32 = 0.1;
/// What the fit of alpha forgets a second.
const FORGETS: f64 = 0.01;
/// No time of waiting for data counts for more than so many of its own.
const MOST: f64 = 4.0;

/// Service times of kinds of requests. Lock-free.
pub struct Inherent {
    /// A power of two of sets.
    sets: Box<[[Kind; WAYS]]>,
    /// An `f64`.
    alpha: AtomicU64,
    /// Since the last tick, in microseconds squared: data times data, and data times what cpu does not explain (in two's complement).
    data_data: AtomicU64,
    data_rest: AtomicU64,
    /// The same, faded, as `f64`s; [`Inherent::tick`] alone writes them.
    fit: [AtomicU64; 2],
    /// Ticks so far, by which kinds age.
    age: AtomicU32,
}

#[derive(Default)]
struct Kind {
    /// Zero where nobody is.
    key: AtomicU64,
    /// Two `f32`s, seconds of cpu and of data.
    times: AtomicU64,
    seen: AtomicU32,
}

impl Kind {
    fn times(&self) -> (f32, f32) {
        let word = self.times.load(Relaxed);
        (f32::from_bits((word >> 32) as u32), f32::from_bits(word as u32))
    }

    fn set(&self, (cpu_s, data_s): (f32, f32)) {
        self.times.store(u64::from(cpu_s.to_bits()) << 32 | u64::from(data_s.to_bits()), Relaxed);
    }
}

impl Inherent {
    /// A table for about so many kinds.
    pub fn new(kinds: usize) -> Inherent {
        let sets = kinds.div_ceil(WAYS).next_power_of_two();
        Inherent {
            sets: (0..sets).map(|_| Default::default()).collect(),
            alpha: AtomicU64::new(1f64.to_bits()),
            data_data: AtomicU64::new(0),
            data_rest: AtomicU64::new(0),
            fit: Default::default(),
            age: AtomicU32::new(0),
        }
    }

    /// What a request of this kind is expected to need; nothing where none was seen.
    #[inline]
    pub fn of(&self, key: u64) -> Option<Nanos> {
        let key = key.max(1);
        let kind = self.set_of(key).iter().find(|kind| kind.key.load(Relaxed) == key)?;
        let (cpu_s, data_s) = kind.times();
        Some(Nanos::from_secs_f64(f64::from(cpu_s) + self.alpha() * f64::from(data_s)))
    }

    /// A request of this kind took so much CPU time, and so long for its data. Where nobody can tell them apart, all is CPU time.
    pub fn learn(&self, key: u64, cpu: Nanos, data: Nanos) {
        let (key, age) = (key.max(1), self.age.load(Relaxed));
        let new = (cpu.as_secs_f64() as f32, data.as_secs_f64() as f32);
        let set = self.set_of(key);
        let found = set.iter().find(|kind| kind.key.load(Relaxed) == key);
        let kind = found.unwrap_or_else(|| {
            let since = |kind: &&Kind| match kind.key.load(Relaxed) {
                0 => u32::MAX,
                _ => age.wrapping_sub(kind.seen.load(Relaxed)),
            };
            set.iter().max_by_key(since).unwrap_or(&set[0])
        });
        let times = match (found, kind.times()) {
            (Some(_), old) => (old.0 + WEIGHT * (new.0 - old.0), old.1 + WEIGHT * (new.1 - old.1)),
            (None, _) => new,
        };
        kind.set(times);
        kind.seen.store(age, Relaxed);
        kind.key.store(key, Relaxed);
    }

    /// A request that had a server to itself took `whole`, of which so much CPU time, and so long for its data.
    pub fn fit(&self, whole: Nanos, cpu: Nanos, data: Nanos) {
        // In microseconds, of at most nine seconds: a hundred thousand squares a tick fit, with their sign.
        let us = |time: Nanos| (time.0 / 1_000).min(9_000_000) as i64;
        let (data, rest) = (us(data), us(whole) - us(cpu));
        self.data_data.fetch_add((data * data) as u64, Relaxed);
        self.data_rest.fetch_add((data * rest) as u64, Relaxed);
    }

    /// What a second of waiting for data counts for.
    pub fn alpha(&self) -> f64 {
        f64::from_bits(self.alpha.load(Relaxed))
    }

    /// Renews alpha; once a second, by one caller at a time.
    pub fn tick(&self) {
        self.age.fetch_add(1, Relaxed);
        let new = [self.data_data.swap(0, Relaxed) as f64, self.data_rest.swap(0, Relaxed) as i64 as f64];
        let [squares, products] = std::array::from_fn(|i| {
            let sum = f64::from_bits(self.fit[i].load(Relaxed)) * (1.0 - FORGETS) + new[i];
            self.fit[i].store(sum.to_bits(), Relaxed);
            sum
        });
        if squares > 0.0 {
            self.alpha.store((products / squares).clamp(0.0, MOST).to_bits(), Relaxed);
        }
    }

    #[inline]
    fn set_of(&self, key: u64) -> &[Kind; WAYS] {
        // The host's hash may be any; its upper bits are mixed in.
        let mixed = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        &self.sets[mixed as usize & (self.sets.len() - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::rng::seeded;
    use proptest::prelude::*;
    use rand::RngExt;

    const MS: fn(u64) -> Nanos = Nanos::from_millis;

    fn close(found: Option<Nanos>, ms: f64) -> bool {
        found.is_some_and(|found| (found.as_millis_f64() - ms).abs() < ms * 0.01 + 1e-6)
    }

    #[test]
    fn a_kind_is_what_it_was_and_follows_what_it_becomes() {
        let table = Inherent::new(64);
        assert_eq!(table.of(7), None);
        table.learn(7, MS(40), Nanos::ZERO);
        assert!(close(table.of(7), 40.0), "{:?}", table.of(7));
        (0..100).for_each(|_| table.learn(7, MS(10), Nanos::ZERO));
        assert!(close(table.of(7), 10.0), "{:?}", table.of(7));
    }

    #[test]
    fn alpha_is_found_from_requests_that_had_a_server_to_themselves() {
        for truth in [0.0, 0.3, 1.0, 2.5] {
            let (table, mut rng) = (Inherent::new(64), seeded(1, 0));
            for _ in 0..2_000 {
                let (cpu, data, noise) = (rng.random::<f64>(), rng.random::<f64>(), rng.random::<f64>());
                let [cpu, data] = [cpu, data].map(|s| Nanos::from_secs_f64(s / 50.0));
                let whole = cpu.as_secs_f64() + truth * data.as_secs_f64() * (0.9 + 0.2 * noise);
                table.fit(Nanos::from_secs_f64(whole), cpu, data);
            }
            table.tick();
            assert!((table.alpha() - truth).abs() < 0.03, "{} for {truth}", table.alpha());
            table.learn(1, MS(10), MS(20));
            assert!(close(table.of(1), 10.0 + table.alpha() * 20.0));
        }
    }

    #[test]
    fn as_many_requests_as_a_tick_may_see_overflow_nothing() {
        let table = Inherent::new(1);
        (0..100_000).for_each(|_| table.fit(Nanos::MAX, Nanos::ZERO, Nanos::MAX));
        table.tick();
        assert_eq!(table.alpha(), 1.0);
    }

    #[test]
    fn of_more_kinds_than_there_is_room_for_those_seen_last_stay() {
        let table = Inherent::new(64);
        let learn = |keys: std::ops::Range<u64>| keys.for_each(|key| table.learn(key, MS(key), Nanos::ZERO));
        learn(1..10_000);
        table.tick();
        // Fewer than a quarter of the table, so that hardly any place is wanted by five of them.
        learn(20_000..20_014);
        let known = (20_000..20_014).filter(|&key| close(table.of(key), key as f64)).count();
        assert_eq!(known, 14);
    }

    proptest! {
        #[test]
        fn nothing_is_taken_for_something_else(keys in prop::collection::vec(any::<u64>(), 1..300)) {
            let table = Inherent::new(64);
            for &key in &keys {
                table.learn(key, Nanos(key % 1_000_000_000), Nanos::ZERO);
            }
            for &key in &keys {
                let found = table.of(key);
                let right = close(found, Nanos(key % 1_000_000_000).as_millis_f64());
                prop_assert!(found.is_none() || right || key == 0, "{} is {:?}", key, found);
            }
        }
    }
}
