//! The classes of a log. Where they are paths, the parts that differ with every request are taken out.

use std::collections::HashMap;

/// Most classes that a log tells apart.
pub const MAX_NAMES: usize = 4_096;
/// What has no class of its own.
pub const OTHER: &str = "default";
/// Longest name of a class that is kept apart.
const MAX_NAME: usize = 256;
/// Cells of which the name is remembered; paths with identifiers differ without end.
const MAX_REMEMBERED: usize = 65_536;

/// Gives every class of a log a number.
pub struct Names {
    names: Vec<String>,
    by_name: HashMap<String, u16>,
    by_cell: HashMap<String, u16>,
    overflowed: bool,
}

impl Default for Names {
    fn default() -> Self {
        let by_name = HashMap::from([(OTHER.to_owned(), 0)]);
        Names { names: vec![OTHER.to_owned()], by_name, by_cell: HashMap::new(), overflowed: false }
    }
}

impl Names {
    /// The number of the class that a cell names.
    pub fn index(&mut self, cell: &str) -> u16 {
        if let Some(&index) = self.by_cell.get(cell) {
            return index;
        }
        let index = self.of_name(template(cell));
        if self.by_cell.len() < MAX_REMEMBERED {
            self.by_cell.insert(cell.to_owned(), index);
        }
        index
    }

    fn of_name(&mut self, name: String) -> u16 {
        if let Some(&index) = self.by_name.get(&name) {
            return index;
        }
        // Names reach the terminal, so what could steer it is no name.
        if name.is_empty() || name.len() > MAX_NAME || name.chars().any(char::is_control) {
            return 0;
        }
        if self.names.len() == MAX_NAMES {
            self.overflowed = true;
            return 0;
        }
        let index = self.names.len() as u16;
        self.names.push(name.clone());
        self.by_name.insert(name, index);
        index
    }

    /// Whether there were more classes than are told apart.
    pub fn overflowed(&self) -> bool {
        self.overflowed
    }

    /// The names by number; the first is [`OTHER`].
    pub fn into_names(self) -> Vec<String> {
        self.names
    }
}

/// `GET /product/17?color=red HTTP/1.1` is `GET /product/{id}`; what is no path stays as it is.
fn template(cell: &str) -> String {
    let words: Vec<&str> = cell.split_ascii_whitespace().collect();
    let (method, target) = match words[..] {
        [method, target, ..] if target.starts_with('/') => (Some(method), target),
        [target] => (None, target),
        _ => return cell.to_owned(),
    };
    let path = match target.split_once("://") {
        Some((_, rest)) => rest.find('/').map_or("/", |at| &rest[at..]),
        None if target.starts_with('/') => target,
        None => return cell.to_owned(),
    };
    let path = path.split(['?', '#']).next().unwrap_or("/");
    let segments: Vec<&str> = path.split('/').map(|s| if is_identifier(s) { "{id}" } else { s }).collect();
    let path = segments.join("/");
    method.map_or(path.clone(), |method| format!("{method} {path}"))
}

/// Numbers, UUIDs and long hexadecimal words that hold a digit.
fn is_identifier(segment: &str) -> bool {
    let digits = segment.bytes().filter(u8::is_ascii_digit).count();
    let hexadecimal = segment.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    digits > 0 && (digits == segment.len() || (hexadecimal && segment.len() >= 8))
}

/// The name of a class in a workload or config: letters, digits, `_`, `-` and `.`, at most 64 of them.
/// `GET /product/{id}` is `get-product-id`, `/` is `root`.
pub fn class_name(name: &str) -> String {
    let valid = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    if (1..=64).contains(&name.len()) && name.chars().all(valid) {
        return name.to_owned();
    }
    let words = name.split(|c: char| !valid(c)).filter(|word| !word.is_empty());
    let mut slug = words.collect::<Vec<_>>().join("-").to_ascii_lowercase();
    slug.truncate(64);
    match slug.as_str() {
        "" if name.contains('/') => "root".to_owned(),
        "" => OTHER.to_owned(),
        _ => slug,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lose_what_differs_with_every_request() {
        for (cell, expected, slug) in [
            ("slow", "slow", "slow"),
            ("Slow Query!", "Slow Query!", "slow-query"),
            ("/", "/", "root"),
            ("/product/17?color=red", "/product/{id}", "product-id"),
            ("/u/6f1c0b9e-8a1d-4c7e-9b1a-0123456789ab/cart", "/u/{id}/cart", "u-id-cart"),
            ("GET /cart/checkout HTTP/1.1", "GET /cart/checkout", "get-cart-checkout"),
            ("https://shop.example/v2/items/deadbeef01", "/v2/items/{id}", "v2-items-id"),
            ("https://shop.example", "/", "root"),
            ("/feedback", "/feedback", "feedback"),
            ("???", "???", "default"),
        ] {
            assert_eq!((template(cell).as_str(), class_name(expected).as_str()), (expected, slug), "{cell}");
        }
    }

    #[test]
    fn a_log_of_nothing_but_new_names_stays_bounded() {
        let mut names = Names::default();
        for i in 0..100_000 {
            names.index(&format!("name{i}x"));
        }
        assert!(names.overflowed() && names.by_cell.len() == MAX_REMEMBERED);
        assert_eq!(names.index("another"), 0);
        assert_eq!(names.index("name1x"), 2);
        assert_eq!(names.index(""), 0);
        assert_eq!(names.index("\u{1b}[2J"), 0);
        assert_eq!(names.index(&"long".repeat(100)), 0);
        assert_eq!(names.into_names().len(), MAX_NAMES);
    }
}
