//! What is the same of all servers that this machine may have or not: tests without one, and servers that refuse to run as root.

use std::path::Path;

use nix::unistd::User;

/// Says that a test did nothing for want of a server, and why.
///
/// # Panics
/// Where this variable is 1, which says that there is to be one.
pub(crate) fn is_skipped(required: &str, why: &str) -> bool {
    assert!(std::env::var_os(required).is_none_or(|it| it != "1"), "{why}");
    eprintln!("SKIPPED: {why}");
    true
}

/// Gives a user what this program has made.
pub(crate) fn hand_over(user: &User, path: &Path) -> Result<(), String> {
    std::os::unix::fs::chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw()))
        .map_err(|e| format!("cannot give {} to the user `{}`: {e}", path.display(), user.name))
}
