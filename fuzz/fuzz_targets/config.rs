//! The config: read or refused with a reason, and what was read can be put to use.
#![no_main]

mod findings;

use libfuzzer_sys::fuzz_target;
use plimsoll_core::MAX_CLASSES;
use plimsoll_core::classify::Classifier;
use plimsoll_core::config::Config;

fuzz_target!(|text: &str| {
    let Some(config) = findings::read::<Config>(text) else { return };
    assert!(!config.pools.is_empty());
    assert!(config.classes.len() <= MAX_CLASSES);
    assert!(config.classes.last().is_some_and(|class| class.name == "default"));
    assert!(config.classes.iter().all(|class| class.pool < config.pools.len()));
    let class = Classifier::new(&config.classes).classify("GET", "/product/7", "shop.example", |_| None);
    assert!(class.index() < config.classes.len());
});
