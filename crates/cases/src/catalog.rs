//! The cases there are.

use std::fs;

use plimsoll_core::config::case::{Case, CaseFile};
use plimsoll_core::config::parse;

macro_rules! files {
    ($($name:literal)*) => { &[$(($name, include_str!(concat!("../../../cases/", $name, ".toml")))),*] };
}

/// Name and file, in the order of the list.
const FILES: &[(&str, &str)] = files! {
    "c1"
    "c2"
    "c3"
    "c4"
    "c5"
    "c6"
    "c7"
    "c8"
    "c9"
    "c10"
    "c11"
    "c12"
    "c13"
    "c14"
    "c15"
    "c16"
    "c17"
    "c18"
    "c19"
    "c20"
    "c21"
    "c22"
    "c23"
    "c24"
    "c25"
    "c26"
};

/// Their names.
pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|&(name, _)| name)
}

/// The case of this name, or in this file, by its ending.
///
/// # Errors
/// Where there is none; which there are. What is wrong in the file.
pub fn find(name: &str) -> Result<CaseFile, String> {
    let read = |text: &str, file: &str| {
        let Case(case) = parse(text, file).map_err(|e| e.to_string())?.0;
        Ok(case)
    };
    if name.ends_with(".toml") {
        let text = fs::read_to_string(name).map_err(|e| format!("cannot read {name}: {e}"))?;
        return read(&text, name);
    }
    let found = FILES.iter().find(|&&(known, _)| known == name);
    let (_, text) = found.ok_or_else(|| {
        let all: Vec<&str> = names().collect();
        format!("there is no case `{name}`; write one of {}, or a file as in mine.toml", all.join(", "))
    })?;
    read(text, &format!("cases/{name}.toml"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_reads_and_names_whom_to_end_but_those_in_which_nobody_is_to_blame() {
        for name in names() {
            let case = find(name).unwrap_or_else(|e| panic!("{e}"));
            let has_culprit = !["c24", "c26"].contains(&name);
            assert!(case.culprit.is_some() == has_culprit && !case.task.0.is_empty(), "{name}");
        }
        let error = find("c99").unwrap_err();
        assert!(error.starts_with("there is no case `c99`; write one of c1, "), "{error}");
    }

    #[test]
    fn a_file_is_as_good_as_a_name() {
        let ours = find(concat!(env!("CARGO_MANIFEST_DIR"), "/../../cases/c6.toml")).unwrap();
        assert_eq!(ours.title, find("c6").unwrap().title);
        let error = find("nowhere/c6.toml").unwrap_err();
        assert!(error.starts_with("cannot read nowhere/c6.toml: "), "{error}");
    }

    #[test]
    fn no_file_is_forgotten() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../cases");
        let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
        let mut files: Vec<String> =
            files.filter_map(|file| Some(file.to_str()?.strip_suffix(".toml")?.to_owned())).collect();
        let mut known: Vec<&str> = names().collect();
        files.sort_unstable();
        known.sort_unstable();
        assert_eq!(files, known);
    }
}
