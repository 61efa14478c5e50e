//! Names as numbers: each is kept once, and what nobody refers to any more makes room.

use std::collections::HashMap;
use std::hash::{BuildHasher, DefaultHasher, Hasher};
use std::sync::Arc;

use super::OTHER;

/// Longest name that is kept, in bytes; the rest is cut off.
const LONGEST: usize = 256;

/// The number of a name.
pub type NameId = u32;
/// The number of the name that stands for all that did not fit.
pub const REST: NameId = 0;

/// Hashes with a secret, so that nobody can send names or trace numbers that all meet in one place. The secret comes in as an
/// argument, as all randomness does.
#[derive(Clone, Copy, Debug)]
pub struct Seeded(pub u64);

impl BuildHasher for Seeded {
    type Hasher = DefaultHasher;
    fn build_hasher(&self) -> DefaultHasher {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.0);
        hasher
    }
}

/// All names.
pub struct Names {
    ids: HashMap<Arc<str>, NameId, Seeded>,
    texts: Vec<Arc<str>>,
    free: Vec<NameId>,
    most: usize,
    /// Asked for a name that did not fit, since that was last asked.
    overflowed: bool,
}

impl Names {
    /// None yet but that of the rest.
    pub fn new(most: usize, hash: Seeded) -> Names {
        let rest: Arc<str> = OTHER.into();
        let mut ids = HashMap::with_hasher(hash);
        ids.insert(Arc::clone(&rest), REST);
        Names { ids, texts: vec![rest], free: Vec::new(), most: most.max(1), overflowed: false }
    }

    /// The number of a name; that of the rest where there is no room for another one.
    pub fn intern(&mut self, name: &str) -> NameId {
        let name = &name[..name.floor_char_boundary(LONGEST)];
        if let Some(&id) = self.ids.get(name) {
            return id;
        }
        let text: Arc<str> = name.into();
        let id = match self.free.pop() {
            Some(id) => {
                self.texts[id as usize] = Arc::clone(&text);
                id
            }
            None if self.texts.len() < self.most => {
                self.texts.push(Arc::clone(&text));
                (self.texts.len() - 1) as NameId
            }
            None => {
                self.overflowed = true;
                return REST;
            }
        };
        self.ids.insert(text, id);
        id
    }

    /// The name of a number.
    pub fn text(&self, id: NameId) -> &Arc<str> {
        &self.texts[id as usize]
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether a name has been turned away since this was last asked: then it is worth looking for those that nobody uses.
    pub fn has_overflowed(&mut self) -> bool {
        std::mem::take(&mut self.overflowed)
    }

    /// Forgets all names that are not marked; `is_used` has a place for each number.
    pub fn sweep(&mut self, is_used: &[bool]) {
        let nobody: Arc<str> = OTHER.into();
        let Names { ids, texts, free, .. } = self;
        ids.retain(|_, id| {
            let stays = *id == REST || is_used[*id as usize];
            if !stays {
                free.push(*id);
                texts[*id as usize] = Arc::clone(&nobody);
            }
            stays
        });
    }

    /// A place for each number.
    pub fn marks(&self) -> Vec<bool> {
        vec![false; self.texts.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_number_and_what_does_not_fit_is_other() {
        let mut names = Names::new(3, Seeded(1));
        let (a, b) = (names.intern("a"), names.intern("b"));
        assert_eq!((names.intern("a"), names.intern("b"), names.intern(OTHER)), (a, b, REST));
        assert!(!names.has_overflowed());
        assert_eq!((names.intern("c"), names.has_overflowed(), names.has_overflowed()), (REST, true, false));
        let mut marks = names.marks();
        marks[b as usize] = true;
        names.sweep(&marks);
        assert_eq!((names.intern("b"), names.intern("c"), names.len()), (b, a, 3));
        assert_eq!((&**names.text(a), &**names.text(b)), ("c", "b"));
    }

    #[test]
    fn a_long_name_is_cut_between_letters() {
        let mut names = Names::new(9, Seeded(1));
        let id = names.intern(&"é".repeat(LONGEST));
        assert_eq!(names.text(id).len(), LONGEST);
        let id = names.intern(&("x".to_owned() + &"é".repeat(LONGEST)));
        assert_eq!(names.text(id).len(), LONGEST - 1);
    }
}
