//! What a user reads about each kind of mistake: every `bad_configs/*.toml` beside what is said about it.
//! `UPDATE_EXPECTED=1 cargo test -p plimsoll-core --test config_errors` writes the expectations anew.
#![allow(clippy::disallowed_methods)] // The cases are in files.

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_core::config::case::Case;
use plimsoll_core::config::fleet::Scenario;
use plimsoll_core::config::mix::Mix;
use plimsoll_core::config::workload::Workload;
use plimsoll_core::config::{Config, Value, parse};

fn fixtures() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bad_configs");
    let mut paths: Vec<PathBuf> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    paths.sort();
    paths
}

fn said<T: Value>(text: &str, file: &str) -> String {
    let (warns, said) = match parse::<T>(text, file) {
        Ok((_, warnings)) => (true, warnings.iter().map(|warning| format!("{warning}\n")).collect()),
        Err(errors) => (false, format!("{errors}\n")),
    };
    assert_eq!(warns, file.starts_with("warn_"), "{file} is used or refused against its name:\n{said}");
    said
}

#[test]
fn every_mistake_is_told_with_its_place_and_its_remedy() {
    let fixtures = fixtures();
    assert!(fixtures.len() > 20, "the fixtures are gone");
    for path in fixtures {
        let text = fs::read_to_string(&path).unwrap();
        let file = path.file_name().unwrap().to_str().unwrap();
        let said = match file.split('_').next() {
            Some("workload") => said::<Workload>(&text, file),
            Some("scenario") => said::<Scenario>(&text, file),
            Some("case") => said::<Case>(&text, file),
            Some("mix") => said::<Mix>(&text, file),
            _ => said::<Config>(&text, file),
        };
        assert!(said.starts_with(&format!("{file}:")), "{said}");
        let expected = path.with_extension("stderr");
        if std::env::var_os("UPDATE_EXPECTED").is_some() {
            fs::write(&expected, &said).unwrap();
        }
        let expected = fs::read_to_string(&expected).unwrap_or_default();
        assert_eq!(said, expected, "what is said about {file} has changed");
    }
}
