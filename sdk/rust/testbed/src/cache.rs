//! A cache of pages, the least recently used of which makes room: what a database calls its buffer pool.

use std::collections::{BTreeMap, HashMap};

/// Who brought a page in.
pub type Owner = u64;

/// So many pages, by number.
pub struct Cache {
    most: usize,
    /// By page: when it was last used, and who brought it in.
    pages: HashMap<u64, (u64, Owner)>,
    /// By when they were last used.
    order: BTreeMap<u64, u64>,
    uses: u64,
}

/// What became of a page that was asked for.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// It is there.
    Hit,
    /// It is there now, in the place of one that this owner had brought in, if of any.
    Miss(Option<Owner>),
}

impl Cache {
    pub fn new(most: usize) -> Cache {
        Cache { most, pages: HashMap::new(), order: BTreeMap::new(), uses: 0 }
    }

    /// Uses a page, which is brought in if it is not there.
    pub fn find(&mut self, page: u64, owner: Owner) -> Found {
        self.uses += 1;
        if let Some((used, _)) = self.pages.get_mut(&page) {
            self.order.remove(used);
            *used = self.uses;
            self.order.insert(self.uses, page);
            return Found::Hit;
        }
        let full = self.pages.len() >= self.most;
        let evicted = if full { self.order.pop_first() } else { None };
        let evicted = evicted.and_then(|(_, page)| self.pages.remove(&page)).map(|(_, owner)| owner);
        self.pages.insert(page, (self.uses, owner));
        self.order.insert(self.uses, page);
        Found::Miss(evicted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_makes_room() {
        let mut cache = Cache::new(2);
        assert_eq!(cache.find(1, 10), Found::Miss(None));
        assert_eq!(cache.find(2, 20), Found::Miss(None));
        assert_eq!(cache.find(1, 30), Found::Hit);
        assert_eq!(cache.find(3, 30), Found::Miss(Some(20)));
        assert_eq!(cache.find(1, 40), Found::Hit);
        assert_eq!(cache.find(2, 40), Found::Miss(Some(30)));
    }
}
