//! The cases of Table 2, and two of our own.

use crate::application::Case;

const TABLE_2: [&str; 16] = [
    include_str!("../../../../../paper/atropos/c1.toml"),
    include_str!("../../../../../paper/atropos/c2.toml"),
    include_str!("../../../../../paper/atropos/c3.toml"),
    include_str!("../../../../../paper/atropos/c4.toml"),
    include_str!("../../../../../paper/atropos/c5.toml"),
    include_str!("../../../../../paper/atropos/c6.toml"),
    include_str!("../../../../../paper/atropos/c7.toml"),
    include_str!("../../../../../paper/atropos/c8.toml"),
    include_str!("../../../../../paper/atropos/c9.toml"),
    include_str!("../../../../../paper/atropos/c10.toml"),
    include_str!("../../../../../paper/atropos/c11.toml"),
    include_str!("../../../../../paper/atropos/c12.toml"),
    include_str!("../../../../../paper/atropos/c13.toml"),
    include_str!("../../../../../paper/atropos/c14.toml"),
    include_str!("../../../../../paper/atropos/c15.toml"),
    include_str!("../../../../../paper/atropos/c16.toml"),
];
const ORDINARY: &str = include_str!("../../../../../paper/atropos/ordinary.toml");
const INNOCENT: &str = include_str!("../../../../../paper/atropos/innocent.toml");

/// The sixteen, in order.
pub fn table2() -> Result<Vec<Case>, String> {
    TABLE_2.iter().map(|text| Case::parse(text)).collect()
}

/// Plain overload.
pub fn ordinary() -> Result<Case, String> {
    Case::parse(ORDINARY)
}

/// Long work that harms nobody beside somebody who does.
pub fn innocent() -> Result<Case, String> {
    Case::parse(INNOCENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_cases_can_be_read_and_have_something_that_disturbs_them() {
        let cases = table2().unwrap();
        for (i, case) in cases.iter().chain([&ordinary().unwrap(), &innocent().unwrap()]).enumerate() {
            if i < 16 {
                assert_eq!(case.id, format!("c{}", i + 1));
            }
            assert!(case.classes.iter().any(|class| class.trigger), "{}", case.id);
        }
    }
}
