//! Where ledgers are, what they are called, and which process is which.

use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::refusal::Refusal;

/// The variable that names the directory.
pub const DIRECTORY: &str = "PLIMSOLL_DIR";
/// The agent's socket in that directory.
pub const SOCKET: &str = "agent.sock";
/// How a ledger's name ends.
pub const SUFFIX: &str = ".ledger";
/// Most bytes of an application's name.
pub const MOST_APP_BYTES: usize = 32;

/// The directory of ledgers: `$PLIMSOLL_DIR`, or this user's in shared memory.
pub fn directory() -> PathBuf {
    match std::env::var_os(DIRECTORY) {
        Some(dir) if !dir.is_empty() => PathBuf::from(dir),
        _ => PathBuf::from(format!("/dev/shm/plimsoll-{}", rustix::process::geteuid().as_raw())),
    }
}

/// Makes the directory if it is missing, private to this user, and refuses one that others could put files into.
pub fn prepare(directory: &Path) -> Result<(), Refusal> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Ok(()) => {}
        Err(why) if why.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(why) => return Err(Refusal::Io { what: "make the directory of ledgers", why }),
    }
    let is = std::fs::metadata(directory).map_err(Refusal::io("look at the directory of ledgers"))?;
    let wrong = |why: &str| Err(Refusal::Directory(format!("{}: {why}", directory.display())));
    match is {
        is if !is.is_dir() => wrong("no directory; name one in PLIMSOLL_DIR"),
        is if is.uid() != 0 && is.uid() != rustix::process::geteuid().as_raw() => {
            wrong("belongs to another user; name one of your own in PLIMSOLL_DIR")
        }
        is if is.mode() & 0o002 != 0 => wrong("anybody may write there; name a private one in PLIMSOLL_DIR"),
        _ => Ok(()),
    }
}

/// Refuses what cannot be the name of an application.
pub fn check_app(app: &str) -> Result<(), Refusal> {
    let ok = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    match (1..=MOST_APP_BYTES).contains(&app.len()) && app.bytes().all(ok) {
        true => Ok(()),
        false => Err(Refusal::App(app.to_owned())),
    }
}

/// The name of a ledger's file.
pub fn file_name(app: &str, pid: u64) -> String {
    format!("{app}.{pid}{SUFFIX}")
}

/// The application and the process of a ledger's file; `None` if it is not called as one.
pub fn of_file_name(name: &str) -> Option<(&str, u64)> {
    let (app, pid) = name.strip_suffix(SUFFIX)?.split_once('.')?;
    check_app(app).ok()?;
    let digits = !pid.is_empty() && pid.bytes().all(|b| b.is_ascii_digit());
    Some((app, digits.then(|| pid.parse().ok()).flatten()?))
}

/// When a process began, in the kernel's ticks since it booted: field 22 of `/proc/PID/stat`. `None` if there is no such process.
pub fn process_started(pid: u64) -> Option<u64> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in parentheses, which may hold anything; what follows the last one is numbers.
    let rest = stat.get(stat.iter().rposition(|&b| b == b')')? + 2..)?;
    let field = rest.split(|&b| b == b' ').nth(19)?;
    std::str::from_utf8(field).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_name_is_read_as_written() {
        assert_eq!(of_file_name(&file_name("shop_2-b", 4711)), Some(("shop_2-b", 4711)));
        for wrong in [
            "shop.ledger",
            "shop.x.ledger",
            "sh.op.1.ledger",
            ".1.ledger",
            "shop.+1.ledger",
            "shop.1",
            "a/b.1.ledger",
        ] {
            assert_eq!(of_file_name(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn this_process_began() {
        assert!(process_started(u64::from(std::process::id())).is_some_and(|ticks| ticks > 0));
        assert_eq!(process_started(u64::from(u32::MAX)), None);
    }
}
