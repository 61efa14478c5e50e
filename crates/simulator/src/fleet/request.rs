//! Requests under way, in a slab: places are used again.

use plimsoll_core::Nanos;

/// An attempt of a user's request.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Of which API.
    pub api: u32,
    /// Which path it takes.
    pub path: u32,
    /// Which step of it is under way.
    pub stage: u32,
    /// Visits of this step that are not over.
    pub pending: u32,
    /// When its user first sent it.
    pub first_sent: Nanos,
    /// When this attempt was sent.
    pub sent: Nanos,
    /// How often it was tried before.
    pub tries: u32,
    /// How important its user is, drawn for each user.
    pub user: u8,
    /// Whether it has failed: the rest of its visits is in vain.
    pub failed: bool,
    /// Whether its client has gone.
    pub abandoned: bool,
}

/// All of them.
#[derive(Clone, Default)]
pub struct Requests {
    slots: Vec<(Request, u32)>,
    free: Vec<u32>,
}

impl Requests {
    /// Gives a request a place.
    #[inline]
    pub fn insert(&mut self, request: Request) -> u32 {
        match self.free.pop() {
            Some(place) => {
                self.slots[place as usize].0 = request;
                place
            }
            None => {
                self.slots.push((request, 0));
                (self.slots.len() - 1) as u32
            }
        }
    }

    /// The request in a place.
    #[inline]
    pub fn get(&mut self, place: u32) -> &mut Request {
        &mut self.slots[place as usize].0
    }

    /// Which use of a place this is.
    pub fn generation(&self, place: u32) -> u32 {
        self.slots[place as usize].1
    }

    /// Frees a place.
    #[inline]
    pub fn remove(&mut self, place: u32) -> Request {
        let (request, generation) = &mut self.slots[place as usize];
        *generation = generation.wrapping_add(1);
        self.free.push(place);
        *request
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
