//! `plimsoll-sdk-testbed --port N [--miss-ms N] [--no-sdk]`: the server on 127.0.0.1. It prints `ready PORT`; port 0 takes a free one.
//!
//! `--miss-ms` is what it takes to bring a page into the cache, 2 if not said. With `--no-sdk` it keeps no accounts: what they cost is measured
//! against that.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use plimsoll_sdk_testbed::Settings;

fn arguments(mut words: impl Iterator<Item = String>) -> Option<(u16, Settings)> {
    let (mut port, mut settings) = (None, Settings::default());
    while let Some(word) = words.next() {
        match &*word {
            "--port" => port = Some(words.next()?.parse().ok()?),
            "--miss-ms" => {
                let ms = words.next()?.parse().ok().filter(|&ms| ms <= 1_000)?;
                settings.miss = Duration::from_millis(ms);
            }
            "--no-sdk" => settings.accounts = false,
            _ => return None,
        }
    }
    Some((port?, settings))
}

fn main() -> ExitCode {
    let Some((port, settings)) = arguments(std::env::args().skip(1)) else {
        eprintln!("usage: plimsoll-sdk-testbed --port N [--miss-ms N] [--no-sdk]");
        return ExitCode::from(2);
    };
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    match plimsoll_sdk_testbed::run(listen, settings, |addr| println!("ready {}", addr.port())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("cannot serve on port {port}: {why}");
            ExitCode::FAILURE
        }
    }
}
