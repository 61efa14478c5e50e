//! The reference docs and the JSON Schema are what the definitions of the keys say; the sample config is accepted.
//! `UPDATE_DOCS=1 cargo test -p plimsoll-core --test config_docs` writes them anew.
#![allow(clippy::disallowed_methods)] // The cases are in files.

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_core::config::case::Case;
use plimsoll_core::config::fleet::Scenario;
use plimsoll_core::config::mix::Mix;
use plimsoll_core::config::workload::Workload;
use plimsoll_core::config::{Config, json_schema, parse, reference};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The committed file, rewritten first where that is asked for.
fn committed(path: &str, generated: &str) -> String {
    let path = repository().join(path);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, generated).unwrap();
    }
    fs::read_to_string(&path).unwrap_or_default()
}

#[test]
fn the_reference_docs_are_generated() {
    let note = "Generated from the definitions in `crates/core/src/config`; a test holds this page to them. Unknown keys \
                are errors. Durations are written \"18ms\" (ns, us, ms, s, m, h), rates \"20/s\" (s, m, h), sizes \"64KiB\" \
                (B, KiB, MiB, GiB). A default of nothing means that the key may be left out.";
    let pages = [
        (
            "docs/config.md",
            "The config file",
            "All roles read one file, `plimsoll ROLE --config FILE`; `plimsoll check FILE` says what is wrong with it. [`plimsoll.toml`](../plimsoll.toml) is a sample, [`config.schema.json`](config.schema.json) the JSON Schema for editors.",
            reference::<Config> as fn(&str, &str) -> String,
        ),
        (
            "docs/workload.md",
            "The workload file",
            "What `plimsoll simulate WORKLOAD.toml` offers to a policy.",
            reference::<Workload>,
        ),
        (
            "docs/scenario.md",
            "The scenario file",
            "What `plimsoll fleet run SCENARIO.toml` puts a fleet through; [`fleet.md`](fleet.md) says what is simulated.",
            reference::<Scenario>,
        ),
        ("docs/mix.md", "The mix file", "What `plimsoll load --mix MIX.toml` sends.", reference::<Mix>),
        (
            "docs/case.md",
            "The case file",
            "What `plimsoll case run` does to a server; the files are in [`cases/`](../cases/README.md), with the sixteen cases of the ATROPOS paper and more.",
            reference::<Case>,
        ),
    ];
    for (path, title, purpose, reference) in pages {
        let generated = reference(title, &format!("{purpose} {note}"));
        assert_eq!(committed(path, &generated), generated, "{path}");
    }
}

#[test]
fn the_json_schema_is_generated() {
    let generated = json_schema::<Config>("The Plimsoll config file");
    let text = serde_json::to_string_pretty(&generated).unwrap() + "\n";
    let committed = committed("docs/config.schema.json", &text);
    // As values: the order of keys depends on the features that other crates ask of serde_json.
    assert_eq!(serde_json::from_str::<serde_json::Value>(&committed).unwrap(), generated);
}

#[test]
fn the_sample_is_accepted_without_a_warning() {
    let text = fs::read_to_string(repository().join("plimsoll.toml")).unwrap();
    let (config, warnings) =
        parse::<Config>(&text, "plimsoll.toml").unwrap_or_else(|errors| panic!("{errors}"));
    assert!(warnings.is_empty(), "{warnings:?}");
    let names: Vec<&str> = config.classes.iter().map(|class| class.name.as_str()).collect();
    assert_eq!(names, ["checkout", "browse", "default"]);
}
