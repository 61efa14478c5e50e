//! Which requests are alike: what one needed tells what the next of its kind will (Cataclysm, section 3.5).

use std::hash::{DefaultHasher, Hash, Hasher};

use plimsoll_core::config::{PathPattern, Segment};

/// Of a path without a pattern so much counts, in bytes, and its length.
const PATH: usize = 256;

/// The kind of a request, by its method and its path without the arguments: the pattern by which its class recognised it, where
/// that has `{name}` for a segment, or else the path itself. So `/product/17` and `/product/4` are one kind where the config says
/// `/product/{id}`, and the files below `/static/*` one each, since they differ in size.
///
/// The hash is the same in every run, and allocates nothing. Kinds that collide are taken for one, which makes a guess worse.
#[inline]
pub fn kind(method: &str, path: &str, pattern: Option<&PathPattern>) -> u64 {
    let mut hasher = DefaultHasher::new();
    method.hash(&mut hasher);
    match pattern.filter(|pattern| pattern.segments.contains(&Segment::Param)) {
        Some(pattern) => pattern.hash(&mut hasher),
        None => {
            let path = path.as_bytes();
            (&path[..path.len().min(PATH)], path.len()).hash(&mut hasher);
        }
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(method: &str, path: &str, pattern: &str) -> u64 {
        kind(method, path, pattern.parse().ok().as_ref())
    }

    #[test]
    fn a_kind_is_a_method_and_a_path_but_for_its_arguments() {
        let product = of("GET", "/product/17", "/product/{id}");
        assert_eq!(product, of("GET", "/product/4", "/product/{id}"));
        let others = [
            of("PUT", "/product/17", "/product/{id}"),
            of("GET", "/product/17", ""),
            of("GET", "/product/4", ""),
            of("GET", "/static/a", "/static/*"),
            of("GET", "/static/b", "/static/*"),
            of("GET", "/product/17", "/product/{id}/*"),
        ];
        let mut all = [&others[..], &[product]].concat();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), others.len() + 1);
    }

    #[test]
    fn long_paths_cost_no_more_than_others() {
        let long = |end: char, length: usize| {
            let path: String =
                std::iter::once('/').chain(std::iter::repeat_n('a', length)).chain([end]).collect();
            kind("GET", &path, None)
        };
        assert_eq!(long('x', 5_000), long('y', 5_000));
        assert_ne!(long('x', 5_000), long('x', 5_001));
        assert_ne!(long('x', PATH - 2), long('y', PATH - 2));
    }
}
