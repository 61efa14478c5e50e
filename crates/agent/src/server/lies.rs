//! Servers that lie, for tests: numbers that cannot be, counters that fall, times that run backwards. Nothing that a server says may end the agent.

use plimsoll_cancellation::{Reliever, Scene, Terms};
use plimsoll_core::config::Database;
use plimsoll_core::rng::{self, Rng};
use rand::RngExt;
use serde_json::{Number, Value};

use super::{Adapter, Server};
use crate::source::Source;

const SEED: u64 = 1;
const LOOKS: usize = 400;
/// One number in so many is a lie.
const ONE_IN: u32 = 12;

/// What is true, with some of the numbers in it replaced.
pub fn lied(truth: &Value, rng: &mut Rng) -> Value {
    match truth {
        Value::Number(number) if rng.random_ratio(1, ONE_IN) => Value::Number(lie(number, rng)),
        Value::Array(all) => all.iter().map(|one| lied(one, rng)).collect(),
        Value::Object(all) => all.iter().map(|(key, one)| (key.clone(), lied(one, rng))).collect(),
        other => other.clone(),
    }
}

fn lie(number: &Number, rng: &mut Rng) -> Number {
    let past = number.as_i64().unwrap_or(0).saturating_sub(rng.random_range(0..1 << 40));
    match rng.random_range(0..8) {
        0 => 0.into(),
        1 => 1.into(),
        2 => u64::MAX.into(),
        3 => i64::MAX.into(),
        4 => i64::MIN.into(),
        5 => past.into(),
        6 => rng.random::<u64>().into(),
        _ => Number::from_f64(1e300).unwrap_or_else(|| 0.into()),
    }
}

/// Looks at a server again and again, before each look of which `tell` has it say something else, and decides by what it says.
///
/// # Panics
/// Where that cannot be borne; where the server was hardly ever understood, and nothing was tried.
pub async fn are_borne<A: Adapter>(settings: Database, mut tell: impl FnMut(&mut Rng)) {
    eprintln!("seed {SEED}");
    let mut rng = rng::seeded(SEED, 0);
    let mut reliever = Reliever::new(Terms::new(settings.slo.clone()));
    let mut server = Server::<A>::new(settings).unwrap();
    let (mut scene, mut understood) = (Scene::default(), 0);
    for _ in 0..LOOKS {
        tell(&mut rng);
        // What makes no sense is told, and the server is connected to anew.
        if let Ok(now) = server.look(&mut scene).await {
            reliever.look(now, &scene);
            understood += 1;
        }
    }
    assert!(understood > LOOKS / 10, "{understood} of {LOOKS} looks");
}
