//! What the leader of one host leaves to the next: what it allowed to enter, in a file beside the lock, with the time of day. As long as
//! something is limited that is written once a second, so that its age is that of the leader's last word.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use plimsoll_core::Nanos;
use plimsoll_sentry::clock;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::sleep;

use super::{Estate, Limits, sound};

const NAME: &str = "limits.json";
/// From one word to the next.
const BETWEEN: Duration = Duration::from_secs(1);

#[derive(Debug, Default, Serialize, Deserialize)]
struct Note {
    /// When it was written, in nanoseconds since 1970.
    wall_ns: u64,
    limits: Limits,
}

/// What is left in this state directory, if anything that can be read; `wall` is the time of day at `now`.
pub fn read(state: &Path, wall: Nanos, now: Nanos) -> Option<Estate> {
    let note: Note = serde_json::from_slice(&fs::read(state.join(NAME)).ok()?).ok()?;
    let limits = sound(note.limits);
    let age = wall.since(Nanos(note.wall_ns));
    (!limits.is_empty()).then(|| Estate { limits, seen: Nanos(now.0.saturating_sub(age.0)) })
}

/// Writes down what is left, whenever something is, until nobody is left to say so.
pub async fn keep(state: &Path, left: &mut watch::Receiver<Limits>) {
    let mut is_left = true;
    let mut fails = false;
    while left.changed().await.is_ok() {
        let limits = left.borrow_and_update().clone();
        let wrote = match (limits.is_empty(), is_left) {
            (true, false) => Ok(()),
            _ => write(state, limits.clone(), clock::wall()),
        };
        is_left = !limits.is_empty();
        match wrote {
            Ok(()) => fails = false,
            Err(error) if !fails => {
                fails = true;
                log::warn!(state:% = state.display(), error:%; "what is allowed to enter cannot be written down for the next leader");
            }
            Err(_) => {}
        }
        sleep(BETWEEN).await;
    }
}

/// At once or not at all: whoever is killed meanwhile leaves the one before.
fn write(state: &Path, limits: Limits, wall: Nanos) -> io::Result<()> {
    let (file, new) = (state.join(NAME), state.join(format!("{NAME}.new")));
    fs::write(&new, serde_json::to_vec(&Note { wall_ns: wall.0, limits })?)?;
    fs::rename(new, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(per_s: f64) -> Limits {
        Limits::from([("cart".to_owned(), per_s)])
    }

    #[test]
    fn what_is_left_is_read_with_its_age() {
        let state = tempfile::tempdir().unwrap();
        let s = Nanos::from_secs;
        assert_eq!(read(state.path(), s(1_000), s(50)), None);
        write(state.path(), limits(30.0), s(1_000)).unwrap();
        let found = |wall| read(state.path(), wall, s(50)).map(|estate| (estate.limits, estate.seen));
        assert_eq!(found(s(1_007)), Some((limits(30.0), s(43))));
        assert_eq!(found(s(990)), Some((limits(30.0), s(50))), "the clock was set back");
        assert_eq!(found(s(2_000)), Some((limits(30.0), s(0))), "so old that it is over");
        write(state.path(), Limits::new(), s(1_001)).unwrap();
        assert_eq!(found(s(1_002)), None);
        for spoilt in
            ["", "{}", "[1]", r#"{"wall_ns":-1,"limits":{}}"#, r#"{"wall_ns":1,"limits":{"cart":-1.0}}"#]
        {
            fs::write(state.path().join(NAME), spoilt).unwrap();
            assert_eq!(found(s(1_002)), None, "{spoilt}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_written_down_as_long_as_something_is_limited() {
        let state = tempfile::tempdir().unwrap();
        let (leaves, mut left) = watch::channel(Limits::new());
        let seen = || read(state.path(), clock::wall(), clock::now()).map(|estate| estate.limits);
        let tells = async {
            for (told, expected) in [
                (limits(30.0), Some(limits(30.0))),
                (limits(40.0), Some(limits(40.0))),
                (Limits::new(), None),
                (limits(50.0), Some(limits(50.0))),
            ] {
                leaves.send_replace(told);
                sleep(2 * BETWEEN).await;
                assert_eq!(seen(), expected);
            }
            drop(leaves);
        };
        tokio::join!(keep(state.path(), &mut left), tells);
    }
}
