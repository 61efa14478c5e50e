//! The resources of a server as a scene numbers them. Some are always there; locks and latches come and go, and keep their numbers
//! while they do: what is usual of a table's rows is learnt by that number.

use std::collections::HashMap;

use plimsoll_cancellation::Kind;

use super::chains::{Object, Pid};

/// Time on the processors.
pub const CPU: u32 = 0;
/// Tables and indexes on disk and in the kernel's cache.
pub const DATA: u32 = 1;
/// The write-ahead log.
pub const WAL: u32 = 2;
/// Pages that are pinned.
pub const PIN: u32 = 3;
/// Locks for which there was no number left.
pub const OTHER: u32 = 4;
/// The first that comes and goes.
const FIRST: u32 = 5;
/// So many come and go at most.
const MOST: usize = 123;
/// One that nobody used for so many looks may become another.
const IDLE: u64 = 1_200;

/// What a number that comes and goes stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum What {
    /// A lock, or the queue for one. Several who hold up others at the same time over the same object are told apart by a number,
    /// since each of them has its own victims.
    Lock {
        /// What is locked.
        object: Object,
        /// Whether it is the queue for it.
        queue: bool,
        /// From 0.
        instance: u32,
    },
    /// A latch.
    Latch(String),
    /// Something that the server measures itself.
    Measured(Kind, &'static str),
}

#[derive(Debug)]
struct Slot {
    what: What,
    /// Who has it now, of a lock.
    holder: Option<Pid>,
    used: u64,
}

/// Numbers.
#[derive(Debug, Default)]
pub struct Slots {
    slots: Vec<Slot>,
    index: HashMap<What, usize>,
    look: u64,
}

impl Slots {
    /// A new look, before anybody is told of: `still` says who has what as before, so that nobody else gets its number.
    pub fn begin(&mut self, still: impl Fn(Object, bool, Pid) -> bool) {
        self.look += 1;
        for slot in &mut self.slots {
            if let (&What::Lock { object, queue, .. }, Some(holder)) = (&slot.what, slot.holder)
                && !still(object, queue, holder)
            {
                slot.holder = None;
            }
        }
    }

    /// How many numbers there are.
    pub fn count(&self) -> usize {
        FIRST as usize + self.slots.len()
    }

    /// The number of a lock, or of a queue, that `holder` has: the one that it had before, if it did.
    pub fn lock(&mut self, object: Object, queue: bool, holder: Pid) -> u32 {
        let of = |slot: &Slot| match slot.what {
            What::Lock { object: o, queue: q, instance } if o == object && q == queue => Some(instance),
            _ => None,
        };
        let mut instances: Vec<(u32, Option<Pid>)> =
            self.slots.iter().filter_map(|slot| Some((of(slot)?, slot.holder))).collect();
        instances.sort_unstable();
        let own = instances.iter().find(|(_, has)| *has == Some(holder));
        let free =
            own.or_else(|| instances.iter().find(|(_, has)| has.is_none())).map(|&(instance, _)| instance);
        let unused = || (0..).find(|i| instances.iter().all(|(instance, _)| instance != i)).unwrap_or(0);
        let instance = free.unwrap_or_else(unused);
        self.take(What::Lock { object, queue, instance }, Some(holder))
    }

    /// The number of a latch.
    pub fn latch(&mut self, name: &str) -> u32 {
        self.take(What::Latch(name.to_owned()), None)
    }

    /// The number of something that the server measures itself.
    pub fn measured(&mut self, kind: Kind, name: &'static str) -> u32 {
        if kind == Kind::Cpu { CPU } else { self.take(What::Measured(kind, name), None) }
    }

    /// What kind of thing a number stands for.
    pub fn kind(&self, index: u32) -> Kind {
        match (index, self.what(index)) {
            (CPU, _) => Kind::Cpu,
            (DATA | WAL, _) => Kind::Io,
            (_, Some(&What::Measured(kind, _))) => kind,
            _ => Kind::Lock,
        }
    }

    fn take(&mut self, what: What, holder: Option<Pid>) -> u32 {
        let Some(at) = self.index.get(&what).copied().or_else(|| self.place(what)) else { return OTHER };
        let slot = &mut self.slots[at];
        (slot.holder, slot.used) = (holder, self.look);
        FIRST + at as u32
    }

    /// A new number, or that of the one that was not used for longest; nothing if all are in use.
    fn place(&mut self, what: What) -> Option<usize> {
        let idle = |slot: &Slot| self.look.saturating_sub(slot.used);
        let oldest = self.slots.iter().enumerate().max_by_key(|(_, slot)| idle(slot));
        let at = match oldest.map(|(at, slot)| (at, idle(slot))) {
            Some((_, 0)) if self.slots.len() >= MOST => return None,
            Some((at, for_looks)) if self.slots.len() >= MOST || for_looks > IDLE => {
                self.index.remove(&self.slots[at].what);
                at
            }
            _ => self.slots.len(),
        };
        let slot = Slot { what: what.clone(), holder: None, used: self.look };
        if at == self.slots.len() {
            self.slots.push(slot);
        } else {
            self.slots[at] = slot;
        }
        self.index.insert(what, at);
        Some(at)
    }

    /// What a number stands for, if it is one that comes and goes.
    pub fn what(&self, index: u32) -> Option<&What> {
        Some(&self.slots.get(index.checked_sub(FIRST)? as usize)?.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: Object = Object::Rows(1, 100);

    #[test]
    fn a_lock_keeps_its_number_from_holder_to_holder() {
        let mut slots = Slots::default();
        for holder in 1..=5 {
            slots.begin(|_, _, who| who == holder);
            assert_eq!(slots.lock(ROWS, false, holder), FIRST);
        }
    }

    #[test]
    fn two_at_once_are_told_apart_and_stay_who_they_are() {
        let mut slots = Slots::default();
        slots.begin(|_, _, _| true);
        let (one, two) = (slots.lock(ROWS, false, 1), slots.lock(ROWS, false, 2));
        assert_ne!(one, two);
        slots.begin(|_, _, _| true);
        // The other way round, and with a queue beside them.
        assert_eq!(slots.lock(ROWS, false, 2), two);
        assert_eq!(slots.lock(ROWS, false, 1), one);
        assert!(![one, two].contains(&slots.lock(ROWS, true, 3)));
        assert_eq!(slots.what(two), Some(&What::Lock { object: ROWS, queue: false, instance: 1 }));
        slots.begin(|_, _, who| who == 2);
        assert_eq!((slots.lock(ROWS, false, 4), slots.lock(ROWS, false, 2)), (one, two));
    }

    #[test]
    fn what_a_server_measures_is_of_its_kind() {
        let mut slots = Slots::default();
        let (pool, heap) = (slots.measured(Kind::Queue, "workers"), slots.measured(Kind::Memory, "heap"));
        assert_eq!([pool, heap].map(|number| slots.kind(number)), [Kind::Queue, Kind::Memory]);
        assert_eq!((slots.measured(Kind::Cpu, "processors"), slots.kind(CPU)), (CPU, Kind::Cpu));
        assert_eq!(slots.measured(Kind::Queue, "workers"), pool);
        let latch = slots.latch("ProcArray");
        assert_eq!(slots.kind(latch), Kind::Lock);
    }

    #[test]
    fn numbers_are_bounded() {
        let mut slots = Slots::default();
        for n in 0..10_000 {
            slots.begin(|_, _, _| false);
            let number = slots.lock(Object::Relation(1, n), false, 1);
            assert!((number as usize) < slots.count() && slots.count() <= FIRST as usize + MOST);
            assert_eq!(
                slots.what(number),
                Some(&What::Lock { object: Object::Relation(1, n), queue: false, instance: 0 })
            );
        }
        assert_eq!(slots.latch("ProcArray"), slots.latch("ProcArray"));
        assert_eq!((slots.what(DATA), slots.kind(DATA)), (None, Kind::Io));
        slots.begin(|_, _, _| false);
        let numbers: Vec<u32> = (0..1_000).map(|pid| slots.lock(ROWS, false, pid)).collect();
        assert_eq!(numbers.iter().filter(|&&number| number == OTHER).count(), 1_000 - MOST);
    }
}
