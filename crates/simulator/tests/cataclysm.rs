//! The study of the paper on Cataclysm, in its quick form, whatever the seed.

use plimsoll_simulator::reproduce::findings::Row;
use plimsoll_simulator::reproduce::{Settings, cataclysm};

/// Runs one experiment with five seeds. All of its judged rows pass, and there are such rows.
fn passes(id: &str) {
    for seed in 1..=5 {
        let settings = Settings { seed, quick: true, real: false };
        let experiment = cataclysm::experiments(settings).into_iter().find(|experiment| experiment.id == id);
        let found = (experiment.expect("an experiment of the paper").run)().unwrap();
        let judged: Vec<&Row> = found.rows.iter().filter(|row| row.pass.is_some()).collect();
        assert!(!judged.is_empty() && !found.figures.is_empty());
        let failed: Vec<&&Row> = judged.iter().filter(|row| row.pass == Some(false)).collect();
        assert!(failed.is_empty(), "seed {seed}: {failed:#?}");
        for figure in &found.figures {
            assert!(figure.charts.iter().all(|chart| !chart.lines.is_empty()), "{}", figure.name);
        }
    }
}

#[test]
fn fig3() {
    passes("fig3");
}

#[test]
fn fig5() {
    passes("fig5");
}

#[test]
fn fig7() {
    passes("fig7");
}

#[test]
fn fig8() {
    passes("fig8");
}

#[test]
fn fig9() {
    passes("fig9");
}

#[test]
fn our_own_targets() {
    passes("targets");
}
