//! Control lines: whatever a socket gives, what is understood is written again as one line that is read as the same.
#![no_main]

use std::fmt::Debug;
use std::str::FromStr;

use libfuzzer_sys::fuzz_target;
use plimsoll_ledger::control::{FromAgent, FromSdk, Lines, MOST_LINE_BYTES};

fuzz_target!(|bytes: &[u8]| {
    let mut lines = Lines::default();
    // In pieces, as a socket gives them.
    let pieces = bytes.chunks(1 + bytes.first().copied().unwrap_or(0) as usize);
    for piece in pieces {
        lines.take(piece);
        loop {
            match lines.next_line() {
                Ok(Some(line)) => {
                    again(&line, FromAgent::to_line);
                    again(&line, FromSdk::to_line);
                }
                Ok(None) => break,
                Err(_) => {
                    assert!(bytes.len() >= MOST_LINE_BYTES);
                    return;
                }
            }
        }
    }
});

fn again<T: FromStr + PartialEq + Debug>(line: &str, to_line: impl Fn(&T) -> String) {
    let Ok(read) = line.parse::<T>() else { return };
    let written = to_line(&read);
    assert!(written.len() <= MOST_LINE_BYTES && written.ends_with('\n'), "{written:?}");
    assert_eq!(written.matches('\n').count(), 1, "{written:?}");
    let second = written[..written.len() - 1].parse::<T>().unwrap_or_else(|_| panic!("{written:?}"));
    // Control characters are written as spaces, and what does not fit is cut; after that nothing changes any more.
    assert_eq!(to_line(&second), written);
}
