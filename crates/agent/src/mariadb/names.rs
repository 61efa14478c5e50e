//! Numbers for what locks are on, by which they are known from look to look.

use std::collections::HashMap;

/// So many have numbers at most.
const MOST: usize = 4_096;

/// Names, each with its number from 1 on.
#[derive(Debug, Default)]
pub struct Names {
    numbers: HashMap<String, u32>,
    names: Vec<String>,
}

impl Names {
    /// The number of a name; 0 for all that come when there is none left.
    pub fn number(&mut self, name: &str) -> u32 {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        if self.names.len() >= MOST {
            return 0;
        }
        self.names.push(name.to_owned());
        let number = self.names.len() as u32;
        self.numbers.insert(name.to_owned(), number);
        number
    }

    /// The name of a number.
    pub fn name(&self, number: u32) -> &str {
        let index = number.checked_sub(1).map(|index| index as usize);
        index.and_then(|index| self.names.get(index)).map_or("that has no name here", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_last_and_are_bounded() {
        let mut names = Names::default();
        let (one, two) = (names.number("shop.a"), names.number("shop.b"));
        assert_ne!(one, two);
        (0..10_000).for_each(|n| _ = names.number(&n.to_string()));
        assert_eq!((names.number("shop.a"), names.name(two)), (one, "shop.b"));
        assert_eq!((names.number("one more"), names.name(0)), (0, "that has no name here"));
    }
}
