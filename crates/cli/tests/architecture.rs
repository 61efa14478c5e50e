//! The house rules of ARCHITECTURE.md that a compiler does not check: which crate may lean on which, what policies may
//! never pull in, and that no source file is forgotten.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Names of the crates that `of` needs to run, itself left out: normal dependencies with the features that it asks for,
/// all the way down.
fn needs(of: &str) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--package", of, "--edges", "normal", "--prefix", "none", "--offline", "--locked"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let names = text.lines().filter_map(|line| line.split(' ').next());
    names.filter(|name| !name.is_empty() && *name != of).map(str::to_owned).collect()
}

const POLICIES: [&str; 6] = [
    "plimsoll-admission",
    "plimsoll-policing",
    "plimsoll-cancellation",
    "plimsoll-cpufutures",
    "plimsoll-provisioning",
    "plimsoll-ratecontrol",
];
/// The format that applications and the agent share. It is below the hosts and beside the core: an application that takes the
/// SDK takes this alone.
const FORMATS: [&str; 1] = ["plimsoll-ledger"];
const HOSTS: [&str; 12] = [
    "plimsoll-simulator",
    "plimsoll-sentry",
    "plimsoll-loadgen",
    "plimsoll-testbed",
    "plimsoll-controller",
    "plimsoll-engine",
    "plimsoll-agent",
    "plimsoll-herald",
    "plimsoll-empathy",
    "plimsoll-rlqs",
    "plimsoll-top",
    "plimsoll-cases",
];

#[test]
fn arrows_point_from_the_binary_to_the_core() {
    let ours = |name: &str| -> BTreeSet<String> {
        needs(name).into_iter().filter(|n| n.starts_with("plimsoll")).collect()
    };
    let crates = std::fs::read_dir(root().join("crates")).unwrap().count();
    assert_eq!(
        2 + POLICIES.len() + FORMATS.len() + HOSTS.len(),
        crates,
        "a new crate takes its place in POLICIES, FORMATS or HOSTS"
    );

    for alone in ["plimsoll-core"].into_iter().chain(FORMATS) {
        assert_eq!(ours(alone), BTreeSet::new(), "{alone} leans on nothing of ours");
    }
    for policy in POLICIES {
        assert_eq!(
            ours(policy),
            BTreeSet::from(["plimsoll-core".into()]),
            "{policy} depends on the core alone"
        );
    }
    for host in HOSTS {
        assert!(!ours(host).contains("plimsoll"), "{host} leans on the binary");
    }
}

#[test]
fn core_and_policies_pull_in_no_runtime() {
    for name in ["plimsoll-core"].into_iter().chain(POLICIES) {
        let needs = needs(name);
        assert!(needs.contains("rand"), "{name} needs something: {needs:?}");
        for banned in
            ["tokio", "mio", "hyper", "socket2", "async-io", "quanta", "chrono", "getrandom", "rustix", "nix"]
        {
            assert!(!needs.contains(banned), "{name} pulls in {banned}");
        }
    }
}

/// A file that no `mod` names is compiled by nobody and rots.
#[test]
fn no_source_file_is_forgotten() {
    fn visit(dir: &Path, forgotten: &mut Vec<PathBuf>) {
        let entries: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
        let text = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        // What a folder's files are declared in: its own root, or the file beside the folder.
        let mut declared: String =
            ["lib.rs", "main.rs", "mod.rs"].iter().map(|name| text(&dir.join(name))).collect();
        declared += &text(&dir.with_extension("rs"));
        for path in entries {
            let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                visit(&path, forgotten);
            } else if path.extension().is_some_and(|e| e == "rs")
                && !["lib", "main", "mod"].contains(&stem.as_str())
                && !declared.lines().any(|line| line.trim_end().ends_with(&format!("mod {stem};")))
            {
                forgotten.push(path);
            }
        }
    }
    let mut forgotten = Vec::new();
    for krate in std::fs::read_dir(root().join("crates")).unwrap() {
        visit(&krate.unwrap().path().join("src"), &mut forgotten);
    }
    assert!(forgotten.is_empty(), "no `mod` names {forgotten:?}");
}
