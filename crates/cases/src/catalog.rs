//! The cases there are.

use plimsoll_core::config::case::{Case, CaseFile};
use plimsoll_core::config::parse;

macro_rules! files {
    ($($name:literal)*) => { &[$(($name, include_str!(concat!("../../../cases/", $name, ".toml")))),*] };
}

/// Name and file, in the order of the list.
const FILES: &[(&str, &str)] = files! {
    "c1"
    "c4"
    "c6"
    "c7"
    "c9"
    "c12"
    "c13"
    "c14"
    "c16"
    "c17"
    "c18"
    "c19"
    "c20"
    "c21"
    "c22"
    "c23"
    "c25"
};

/// Their names.
pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|&(name, _)| name)
}

/// The case of this name.
///
/// # Errors
/// Where there is none; which there are.
pub fn find(name: &str) -> Result<CaseFile, String> {
    let found = FILES.iter().find(|&&(known, _)| known == name);
    let (_, text) = found.ok_or_else(|| {
        let all: Vec<&str> = names().collect();
        format!("there is no case `{name}`; write one of {}", all.join(", "))
    })?;
    let (Case(file), _) = parse::<Case>(text, &format!("cases/{name}.toml")).map_err(|e| e.to_string())?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_reads_and_names_whom_to_end() {
        for name in names() {
            let case = find(name).unwrap_or_else(|e| panic!("{e}"));
            assert!(case.culprit.is_some() && !case.task.0.is_empty(), "{name}");
        }
        let error = find("c99").unwrap_err();
        assert!(error.starts_with("there is no case `c99`; write one of c1, "), "{error}");
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
