//! Whatever a file holds, it is read or refused with a reason: no panic, and nothing that hurts a terminal.
#![allow(clippy::disallowed_methods)] // The cases are in files.

use std::fs;
use std::path::Path;

use plimsoll_core::config::fleet::Scenario;
use plimsoll_core::config::mix::Mix;
use plimsoll_core::config::workload::Workload;
use plimsoll_core::config::{Admission, Config, MAX_FILE, Value, parse};
use proptest::prelude::*;

/// Everything that the readers know, right and wrong.
fn corpus() -> Vec<String> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bad_configs");
    let mut paths: Vec<_> = fs::read_dir(tests).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    paths.push(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plimsoll.toml"));
    paths.sort();
    paths.iter().map(|path| fs::read_to_string(path).unwrap()).collect()
}

fn check<T: Value>(text: &str) {
    let findings = match parse::<T>(text, "f") {
        Ok((_, warnings)) => warnings,
        Err(errors) => {
            assert!(!errors.diagnostics.is_empty());
            errors.diagnostics
        }
    };
    assert!(findings.len() <= 50);
    for finding in findings {
        assert!(finding.line >= 1 && finding.line <= text.matches('\n').count() + 1, "{finding}");
        assert!(
            !finding.message.is_empty() && !finding.message.contains("does not say why"),
            "{finding}\n{text}"
        );
        let printed = finding.to_string();
        assert!(!printed.chars().any(|c| c.is_control() && !"\n\t".contains(c)), "{printed:?}");
        assert!(printed.len() < 4_000, "{} bytes", printed.len());
    }
}

fn check_all(text: &str) {
    check::<Config>(text);
    check::<Workload>(text);
    check::<Mix>(text);
    check::<Scenario>(text);
}

/// Pieces of TOML and of values, to put where they do not belong.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "[",
            "]",
            "{",
            "}",
            "=",
            "\"",
            "'''",
            ".",
            ",",
            "\n",
            "#",
            "\u{1b}[31m",
            "é",
            "\0",
            "-1",
            "1e999",
            "nan",
            "0x7f",
            "99999999999999999999",
            "\"0s\"",
            "\"1e300h\"",
            "{}",
            "[]",
            "true",
            "1979-05-27",
            "[class.default]\n",
            "[slo.x]\n",
            "p50",
            "\"*\"",
            "\"/{a...}/*\"",
            "match",
            "admin_token = \"swordfish\"\n",
            "\r",
            "\u{2028}",
        ])
        .prop_map(str::to_owned),
        "\\PC{0,12}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn a_damaged_file_is_read_or_refused_with_reasons(
        which in any::<prop::sample::Index>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), 0usize..30, piece()), 1..6),
    ) {
        let mut text = which.get(&corpus()).clone();
        for (place, cut, piece) in damage {
            let start = text.floor_char_boundary(place.index(text.len() + 1));
            let end = text.floor_char_boundary((start + cut).min(text.len())).max(start);
            text.replace_range(start..end, &piece);
        }
        check_all(&text);
    }

    #[test]
    fn a_damaged_policy_argument_is_read_or_refused(
        name in prop::sample::select(vec!["bouncer", "maxql", "maxqwt", "accept-fraction", "none", ""]),
        rest in prop::collection::vec(prop_oneof![
            "(limit|allowance|underserved|max-util|mode|limit\\.[a-z]{0,3})=(0|1|0.5|400|15ms|shadow|x|)",
            "\\PC{0,10}",
        ], 0..4),
    ) {
        let text = [vec![name.to_owned()], rest].concat().join(",");
        if let Err(error) = Admission::from_args(&text) {
            prop_assert!(error.starts_with("policy \"") && error.len() > text.len() + 12, "{}", error);
        }
    }
}

#[test]
fn files_at_the_limits_are_refused_and_stay_cheap() {
    let fill = |piece: &str| piece.repeat(MAX_FILE / piece.len());
    for text in [
        "a".repeat(MAX_FILE + 1),
        fill("[a]\n"),
        fill("a=1\n"),
        fill("[[a]]\n"),
        fill("a."),
        fill("[class.default]\nmatch=[{}]\n"),
        format!("x = {}", fill("[").split_at(MAX_FILE - 10).0),
        format!("[pool.p]\nservers = [{}]", fill("'a:1',").split_at(MAX_FILE - 100).0),
        format!("x = \"{}", fill("é").split_at(MAX_FILE - 10).0),
        (0..400).map(|i| format!("[class.c{i}]\nmatch=[{{path=\"/{i}\"}}]\n")).collect(),
        (0..200).map(|i| format!("[class.c{i}]\nmatch=[{}]\n", "{path=\"/a\"},".repeat(300))).collect(),
    ] {
        check_all(&text);
        assert!(parse::<Config>(&text, "f").is_err());
    }
}

#[test]
fn a_secret_is_never_printed() {
    let text =
        "[sentry]\nadmin = \"0.0.0.0:9900\"\nadmin_token = \"swordfish-7\"\n[pool.p]\nservers = [\"a:1\"]\n";
    let (config, _) = parse::<Config>(text, "f").unwrap();
    assert_eq!(config.sentry.admin_token.as_ref().unwrap().reveal(), "swordfish-7");
    assert!(!format!("{config:?}").contains("swordfish"));
    for wrong in
        ["\"sword fish\"", "[\"swordfish-7\"]", "\"swordfish-7\"\nadmin_token = \"swordfish-8\"", "swordfish"]
    {
        let text = text.replace("\"swordfish-7\"", wrong);
        let errors = parse::<Config>(&text, "f").unwrap_err().to_string();
        assert!(!errors.contains("fish"), "{errors}");
    }
}
