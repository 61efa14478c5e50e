//! How each resource stands.

use super::case::{Is, Miss};
use super::fluid::Fluid;
use super::pages::Pages;
use super::waiting::Waiting;
use plimsoll_core::Nanos;

/// A lock.
#[derive(Clone, Debug)]
pub struct Lock {
    /// How many have it.
    pub holders: u32,
    /// Whether the one that has it has it to itself.
    pub exclusive: bool,
    /// Who waits; what for, its operation says.
    pub waiting: Waiting<u32>,
    /// Whose commits the holder writes with its own.
    pub followers: Vec<u32>,
}

/// Permits.
#[derive(Clone, Debug)]
pub struct Pool {
    /// How many there are.
    pub permits: u64,
    /// How many are taken.
    pub taken: u64,
    /// By class: how many it has, and may have.
    pub classes: Vec<(u64, u64)>,
    /// Who waits.
    pub waiting: Waiting<u32>,
}

/// Memory that is collected.
#[derive(Clone, Debug)]
pub struct Heap {
    /// Units there are.
    pub units: f64,
    /// Units in use.
    pub live: f64,
    /// Units that nobody uses any more, until the next collection.
    pub garbage: f64,
    /// How long a collection takes.
    pub pause: Nanos,
    /// And how much longer for each unit in use, in ns.
    pub pause_per_unit_ns: f64,
    /// What stands still meanwhile.
    pub cpu: u32,
    /// Whether one is under way.
    pub collecting: bool,
    /// Who waits for memory.
    pub waiting: Vec<u32>,
}

/// How a resource stands.
#[derive(Clone, Debug)]
pub enum State {
    /// Processors.
    Cpu(Fluid),
    /// A device.
    Device(Fluid),
    /// A lock.
    Lock(Lock),
    /// Permits.
    Pool(Pool),
    /// A cache, and what a page costs that is not there.
    Pages(Pages, Miss),
    /// Memory.
    Heap(Heap),
}

impl State {
    /// Of a resource that nobody has used yet, for so many classes.
    pub fn new(is: Is, classes: usize) -> State {
        match is {
            Is::Cpu { cores } => State::Cpu(Fluid::new(cores, 1.0, classes)),
            Is::Device { bytes_per_s, stream_bytes_per_s } => {
                State::Device(Fluid::new(bytes_per_s / 1e9, stream_bytes_per_s / 1e9, classes))
            }
            Is::Lock => {
                let waiting = Waiting::new(1);
                State::Lock(Lock { holders: 0, exclusive: false, waiting, followers: Vec::new() })
            }
            Is::Pool { permits } => State::Pool(Pool {
                permits: u64::from(permits),
                taken: 0,
                classes: vec![(0, u64::MAX); classes],
                waiting: Waiting::new(classes),
            }),
            Is::Pages { pages, miss } => State::Pages(Pages::new(pages, classes), miss),
            Is::Heap { units, pause, pause_per_unit, cpu } => State::Heap(Heap {
                units: units as f64,
                live: 0.0,
                garbage: 0.0,
                pause,
                pause_per_unit_ns: pause_per_unit.0 as f64,
                cpu,
                collecting: false,
                waiting: Vec::new(),
            }),
        }
    }

    /// What is shared by all that use it.
    #[inline]
    pub fn fluid(&self) -> Option<&Fluid> {
        match self {
            State::Cpu(fluid) | State::Device(fluid) => Some(fluid),
            _ => None,
        }
    }

    /// The same.
    #[inline]
    pub fn fluid_mut(&mut self) -> Option<&mut Fluid> {
        match self {
            State::Cpu(fluid) | State::Device(fluid) => Some(fluid),
            _ => None,
        }
    }
}

impl Lock {
    /// Whether it can be had.
    pub fn is_free_for(&self, exclusive: bool) -> bool {
        self.holders == 0 || !exclusive && !self.exclusive
    }
}

impl Pool {
    /// Whether one of a class may have a permit now.
    pub fn is_free_for(&self, class: u32) -> bool {
        let (has, may) = self.classes[class as usize];
        self.taken < self.permits && has < may
    }
}
