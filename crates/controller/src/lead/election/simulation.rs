//! Controllers that elect a leader over a bad network, with bad clocks and long stops, and a checker that knows nothing of how they do it:
//! at no point in true time do two of them act, and who comes later has the higher revision.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use plimsoll_core::rng::seeded;
use plimsoll_core::{Nanos, Rng};
use rand::RngExt;

use super::{Answer, Ask, Election, SAFE};

const CONTROLLERS: usize = 3;
const TTL: Nanos = Nanos::from_secs(2);
/// Faults happen until then,
const FAULTS_END: Nanos = Nanos::from_secs(100);
/// somebody is to lead from then on,
const SETTLED: Nanos = Nanos::from_secs(110);
/// and it is over then.
const END: Nanos = Nanos::from_secs(120);

/// A clock that is wrong by up to a tenth, and by any amount from the beginning.
#[derive(Clone, Copy)]
struct Clock {
    ahead: f64,
    rate: f64,
}

impl Clock {
    fn new(rng: &mut Rng) -> Clock {
        Clock { ahead: rng.random_range(0.0..1e12), rate: rng.random_range(0.9..=1.1) }
    }

    fn at(self, truly: Nanos) -> Nanos {
        Nanos((self.ahead + self.rate * truly.0 as f64) as u64)
    }

    /// The first point in true time at which it shows this.
    fn truly(self, shown: Nanos) -> Nanos {
        Nanos(((shown.0 as f64 - self.ahead) / self.rate).max(0.0).ceil() as u64)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A controller looks at what to do next.
    Wake { of: usize },
    /// What it asked reaches the store,
    Asked { of: usize, question: u64 },
    /// which has granted it a lease a moment ago and sees who has the key.
    Claimed { of: usize, question: u64, lease: i64 },
    /// The answer is there.
    Answered { of: usize, question: u64 },
    /// It waits for it no longer.
    Patience { of: usize, question: u64 },
    /// It is stopped, or its link is cut.
    Fault { of: usize },
}

struct Controller {
    election: Election,
    clock: Clock,
    /// What it waits for: the question's number, and when it was asked by its own clock.
    asked: Option<(u64, Nanos)>,
    stopped_until: Nanos,
    cut_until: Nanos,
}

/// What etcd does for an election, by a clock of its own.
struct Store {
    clock: Clock,
    key: Option<i64>,
    /// By number: when it ends, and the revision that was got with it.
    leases: BTreeMap<i64, (Nanos, u64)>,
    granted: i64,
    revision: u64,
}

impl Store {
    fn expire(&mut self, now: Nanos) {
        self.leases.retain(|_, (ends, _)| *ends > now);
        self.key = self.key.filter(|lease| self.leases.contains_key(lease));
    }

    fn grant(&mut self, now: Nanos) -> i64 {
        self.granted += 1;
        self.leases.insert(self.granted, (now + TTL, 0));
        self.granted
    }

    fn claim(&mut self, lease: i64) -> Option<Answer> {
        if self.key.is_some() {
            return Some(Answer::Somebody);
        }
        let (_, revision) = self.leases.get_mut(&lease)?;
        self.revision += 1;
        (*revision, self.key) = (self.revision, Some(lease));
        Some(Answer::Ours { lease, revision: self.revision, ttl: TTL })
    }

    fn look(&self) -> Answer {
        if self.key.is_some() { Answer::Somebody } else { Answer::Nobody }
    }

    fn renew(&mut self, lease: i64, now: Nanos) -> Answer {
        if self.key != Some(lease) {
            return self.look();
        }
        let (ends, revision) = self.leases.get_mut(&lease).expect("the key goes with its lease");
        *ends = now + TTL;
        Answer::Ours { lease, revision: *revision, ttl: TTL }
    }
}

/// Sees who acts, and nothing else.
#[derive(Default)]
struct Checker {
    /// Who acted last, with which revision.
    last: Option<(usize, u64)>,
    terms: usize,
}

impl Checker {
    fn see(&mut self, now: Nanos, acting: &[(usize, u64)]) -> Result<(), String> {
        let [one] = acting else {
            return if acting.is_empty() { Ok(()) } else { Err(format!("at {now:?} these act: {acting:?}")) };
        };
        if self.last != Some(*one) {
            if self.last.is_some_and(|(_, revision)| one.1 <= revision) {
                return Err(format!("at {now:?} {one:?} acts after {:?}", self.last));
            }
            self.terms += 1;
            self.last = Some(*one);
        }
        Ok(())
    }
}

struct World {
    rng: Rng,
    now: Nanos,
    events: BinaryHeap<Reverse<(Nanos, Event)>>,
    controllers: Vec<Controller>,
    store: Store,
    /// By the number of the question, while they are under way. Who waits no longer for an answer has asked all the same.
    asks: BTreeMap<u64, Ask>,
    answers: BTreeMap<u64, Answer>,
    questions: u64,
    /// The part of messages that is lost while there are faults.
    loss: f64,
}

impl World {
    fn new(seed: u64, safe: f64) -> World {
        let mut rng = seeded(seed, 0);
        let controller = |rng: &mut Rng| Controller {
            election: Election { safe, ..Election::new(TTL) },
            clock: Clock::new(rng),
            asked: None,
            stopped_until: Nanos::ZERO,
            cut_until: Nanos::ZERO,
        };
        let controllers = (0..CONTROLLERS).map(|_| controller(&mut rng)).collect();
        let store = Store {
            clock: Clock::new(&mut rng),
            key: None,
            leases: BTreeMap::new(),
            granted: 0,
            revision: 0,
        };
        let loss = rng.random_range(0.0..0.3);
        let begin = |of| {
            [Reverse((Nanos::ZERO, Event::Wake { of })), Reverse((Nanos::from_secs(3), Event::Fault { of }))]
        };
        let events = (0..CONTROLLERS).flat_map(begin).collect();
        let (asks, answers) = (BTreeMap::new(), BTreeMap::new());
        World { rng, now: Nanos::ZERO, events, controllers, store, asks, answers, questions: 0, loss }
    }

    fn is_calm(&self) -> bool {
        self.now >= FAULTS_END
    }

    /// Mostly a few milliseconds, at times longer than a lease.
    fn delay(&mut self) -> Nanos {
        let is_long = !self.is_calm() && self.rng.random_bool(0.1);
        Nanos::from_micros(self.rng.random_range(if is_long { 20_000..3_000_000 } else { 200..20_000 }))
    }

    fn later(&mut self, by: Nanos, event: Event) {
        self.events.push(Reverse((self.now + by, event)));
    }

    /// Sends it over the link of a controller, where it may be lost.
    fn send(&mut self, of: usize, event: Event) {
        let is_lost = !self.is_calm() && self.rng.random_bool(self.loss);
        if !is_lost && self.now >= self.controllers[of].cut_until {
            let delay = self.delay();
            self.later(delay, event);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Wake { of } | Event::Answered { of, .. } | Event::Patience { of, .. }
                if self.now < self.controllers[of].stopped_until =>
            {
                // What comes meanwhile is there when it goes on.
                self.events.push(Reverse((self.controllers[of].stopped_until, event)));
            }
            Event::Wake { of } => self.wake(of),
            Event::Asked { of, question } => self.asked(of, question),
            Event::Claimed { of, question, lease } => {
                self.store.expire(self.store.clock.at(self.now));
                if let Some(answer) = self.store.claim(lease) {
                    self.answer(of, question, answer);
                }
            }
            Event::Answered { of, question } => {
                let answer = self.answers.remove(&question);
                self.heard(of, question, answer);
            }
            Event::Patience { of, question } => self.heard(of, question, None),
            Event::Fault { of } => {
                let lasts = Nanos::from_millis(self.rng.random_range(100..8_000));
                let until = self.now + lasts;
                match self.rng.random_bool(0.5) {
                    true => self.controllers[of].stopped_until = until,
                    false => self.controllers[of].cut_until = until,
                }
                let pause = Nanos::from_millis(self.rng.random_range(100..20_000));
                if until + pause < FAULTS_END {
                    self.later(lasts + pause, event);
                }
            }
        }
    }

    fn wake(&mut self, of: usize) {
        let controller = &mut self.controllers[of];
        if controller.asked.is_some() {
            return;
        }
        let local = controller.clock.at(self.now);
        let (at, ask) = controller.election.next(local);
        if at > local {
            let at = controller.clock.truly(at).max(self.now + Nanos(1));
            return self.events.push(Reverse((at, Event::Wake { of })));
        }
        self.questions += 1;
        let question = self.questions;
        controller.asked = Some((question, local));
        self.asks.insert(question, ask);
        let patience = controller.clock.truly(local + controller.election.patience(ask, local));
        self.events.push(Reverse((patience, Event::Patience { of, question })));
        self.send(of, Event::Asked { of, question });
    }

    fn asked(&mut self, of: usize, question: u64) {
        let Some(ask) = self.asks.remove(&question) else { return };
        let now = self.store.clock.at(self.now);
        self.store.expire(now);
        match ask {
            Ask::Look => self.answer(of, question, self.store.look()),
            Ask::Claim => {
                let lease = self.store.grant(now);
                let delay = self.delay();
                self.later(delay, Event::Claimed { of, question, lease });
            }
            Ask::Renew { lease } => {
                let answer = self.store.renew(lease, now);
                self.answer(of, question, answer);
            }
        }
    }

    fn answer(&mut self, of: usize, question: u64, answer: Answer) {
        self.answers.insert(question, answer);
        self.send(of, Event::Answered { of, question });
    }

    fn heard(&mut self, of: usize, question: u64, answer: Option<Answer>) {
        let controller = &mut self.controllers[of];
        let Some((_, asked)) = controller.asked.take_if(|(waits, _)| *waits == question) else { return };
        let local = controller.clock.at(self.now);
        controller.election.heard(asked, answer, local);
        self.wake(of);
    }

    /// Who acts now, and with which revision. Who is stopped does not.
    fn acting(&self) -> Vec<(usize, u64)> {
        let acts = |(of, controller): (usize, &Controller)| {
            let hold = controller.election.leads(controller.clock.at(self.now))?;
            (self.now >= controller.stopped_until).then_some((of, hold.revision))
        };
        self.controllers.iter().enumerate().filter_map(acts).collect()
    }

    /// How often somebody began to lead.
    fn run(mut self) -> Result<usize, String> {
        let mut checker = Checker::default();
        while let Some(Reverse((at, event))) = self.events.pop() {
            if at > END {
                break;
            }
            self.now = at;
            self.happen(event);
            let acting = self.acting();
            checker.see(self.now, &acting)?;
            if self.now > SETTLED && acting.is_empty() {
                return Err(format!("at {:?} nobody leads, though nothing is in the way", self.now));
            }
        }
        Ok(checker.terms)
    }
}

#[test]
fn two_never_act_and_somebody_does_once_nothing_is_in_the_way() {
    let mut terms = 0;
    for seed in 0..300 {
        terms += World::new(seed, SAFE).run().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    assert!(terms > 300 * 5, "hardly anything has happened: {terms} terms");
}

/// The checker sees what it is for: with a lease that is used up to its end by a clock that may be slow, two act.
#[test]
fn the_checker_finds_two_who_act_where_leases_are_used_for_too_long() {
    assert!((0..300).any(|seed| World::new(seed, 1.0).run().is_err_and(|error| error.contains("these act"))));
}
