//! A cache of pages with the least recently used one going first (LRU), where a class may be held to a part of it.
//!
//! A page belongs to the class that read it last, and each class has a list of its own; the oldest of all is the oldest of one of
//! the lists.

/// None.
const NIL: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Page {
    class: u32,
    newer: u32,
    older: u32,
    /// When it was last read; 0 if it is not there.
    stamp: u64,
}

#[derive(Clone, Copy, Debug)]
struct List {
    newest: u32,
    oldest: u32,
    len: u32,
    cap: u32,
}

/// The cache.
#[derive(Clone, Debug)]
pub struct Pages {
    pages: Vec<Page>,
    lists: Vec<List>,
    room: u32,
    stamp: u64,
}

/// What came of reading a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// It was there.
    Hit,
    /// It was not, and there was room for it.
    Miss,
    /// It was not, and another had to go.
    Evicted,
}

impl Pages {
    /// With room for so many, for so many classes.
    pub fn new(room: u32, classes: usize) -> Pages {
        let list = List { newest: NIL, oldest: NIL, len: 0, cap: u32::MAX };
        Pages { pages: Vec::new(), lists: vec![list; classes], room: room.max(1), stamp: 0 }
    }

    /// A class has so many of them at most from now on; one at least.
    pub fn cap(&mut self, class: u32, pages: u64) {
        self.lists[class as usize].cap = u32::try_from(pages).unwrap_or(u32::MAX).max(1);
    }

    /// Reads a page, which is there afterwards.
    pub fn read(&mut self, page: u32, class: u32) -> Read {
        if page as usize >= self.pages.len() {
            let absent = Page { class: 0, newer: NIL, older: NIL, stamp: 0 };
            self.pages.resize(page as usize + 1, absent);
        }
        let hit = self.pages[page as usize].stamp != 0;
        if hit {
            self.unlink(page);
        }
        // A hit takes no room, but it may be another class's from now on.
        let evicted = self.make_room(class);
        self.stamp += 1;
        let list = &mut self.lists[class as usize];
        self.pages[page as usize] = Page { class, newer: NIL, older: list.newest, stamp: self.stamp };
        match list.newest {
            NIL => list.oldest = page,
            newest => self.pages[newest as usize].newer = page,
        }
        list.newest = page;
        list.len += 1;
        match (hit, evicted) {
            (true, _) => Read::Hit,
            (false, false) => Read::Miss,
            (false, true) => Read::Evicted,
        }
    }

    /// Whether something had to go.
    fn make_room(&mut self, class: u32) -> bool {
        let own = &self.lists[class as usize];
        let all: u32 = self.lists.iter().map(|list| list.len).sum();
        let victim = if own.len >= own.cap {
            own.oldest
        } else if all >= self.room {
            let oldest = self.lists.iter().map(|list| list.oldest).filter(|&page| page != NIL);
            oldest.min_by_key(|&page| self.pages[page as usize].stamp).unwrap_or(NIL)
        } else {
            NIL
        };
        if victim != NIL {
            self.unlink(victim);
            self.pages[victim as usize].stamp = 0;
        }
        victim != NIL
    }

    fn unlink(&mut self, page: u32) {
        let Page { class, newer, older, .. } = self.pages[page as usize];
        let list = &mut self.lists[class as usize];
        list.len -= 1;
        match newer {
            NIL => list.newest = older,
            newer => self.pages[newer as usize].older = older,
        }
        match older {
            NIL => list.oldest = newer,
            older => self.pages[older as usize].newer = newer,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a plain list of (page, class), newest last.
        #[test]
        fn the_least_recently_used_goes(reads in prop::collection::vec((0u32..20, 0u32..3), 1..300), cap in 1u64..9) {
            let mut pages = Pages::new(8, 3);
            pages.cap(2, cap);
            let mut naive: Vec<(u32, u32)> = Vec::new();
            for (page, class) in reads {
                let hit = naive.iter().any(|&(p, _)| p == page);
                naive.retain(|&(p, _)| p != page);
                let own = naive.iter().filter(|&&(_, c)| c == class).count() as u64;
                let victim = if class == 2 && own >= cap {
                    naive.iter().position(|&(_, c)| c == 2)
                } else {
                    (naive.len() >= 8).then_some(0)
                };
                victim.map(|i| naive.remove(i));
                naive.push((page, class));
                let expected = match (hit, victim) {
                    (true, _) => Read::Hit,
                    (false, None) => Read::Miss,
                    (false, Some(_)) => Read::Evicted,
                };
                prop_assert_eq!(pages.read(page, class), expected);
            }
        }
    }
}
