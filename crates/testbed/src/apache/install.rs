//! Where httpd, PHP and our module are on this machine, and as whom workers run.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::unistd::geteuid;

use crate::installed::is_skipped;

/// Where Debian keeps the server, what it loads, and php-fpm, each version under a name of its own.
const PROGRAMS: &str = "/usr/sbin";
const HTTPD: &str = "/usr/sbin/apache2";
const MODULES: &str = "/usr/lib/apache2/modules";
/// Ours, and what names another one than that which is installed: that of these sources, say.
const MODULE: &str = "mod_plimsoll.so";
const NAMES_MODULE: &str = "PLIMSOLL_HTTPD_MODULE";
/// Who answers requests, where this program may choose.
const USER: &str = "www-data";
/// What to do where something is missing.
const GET_HTTPD: &str = "apt-get install apache2";
const GET_PHP: &str = "apt-get install libapache2-mod-php";
const GET_FPM: &str = "apt-get install php-fpm";
const GET_MODULE: &str = "apt-get install apache2-dev && make -C sdk/httpd install";

/// For tests that need one: whether the reason why it did not start is that there is none on this machine. Then they pass, and this says
/// that they did nothing.
///
/// # Panics
/// Where there is none although `PLIMSOLL_REQUIRE_APACHE=1` says that there is to be one.
pub fn there_is_none(error: &str) -> bool {
    [GET_HTTPD, GET_PHP, GET_FPM, GET_MODULE].iter().any(|remedy| error.contains(remedy))
        && is_skipped("PLIMSOLL_REQUIRE_APACHE", error)
}

/// The server.
pub(super) fn httpd() -> Result<PathBuf, String> {
    let program = PathBuf::from(HTTPD);
    let missing = || format!("there is no Apache httpd on this machine: install it with `{GET_HTTPD}`");
    if program.exists() { Ok(program) } else { Err(missing()) }
}

/// One of its own modules.
pub(super) fn module(name: &str) -> PathBuf {
    Path::new(MODULES).join(format!("mod_{name}.so"))
}

/// Our module.
pub(super) fn ours() -> Result<PathBuf, String> {
    let named = env::var_os(NAMES_MODULE).map(PathBuf::from);
    let module = named.unwrap_or_else(|| Path::new(MODULES).join(MODULE));
    let missing = || format!("our module for httpd is not on this machine: install it with `{GET_MODULE}`");
    if module.exists() { Ok(module) } else { Err(missing()) }
}

/// PHP as a module, whatever its version.
pub(super) fn php() -> Result<PathBuf, String> {
    let missing = || format!("there is no PHP for httpd on this machine: install it with `{GET_PHP}`");
    newest(Path::new(MODULES), "libphp", ".so").ok_or_else(missing)
}

/// php-fpm, whatever its version.
pub(super) fn fpm() -> Result<PathBuf, String> {
    let missing = || format!("there is no php-fpm on this machine: install it with `{GET_FPM}`");
    newest(Path::new(PROGRAMS), "php-fpm", "").ok_or_else(missing)
}

/// The last by its name.
fn newest(directory: &Path, from: &str, to: &str) -> Option<PathBuf> {
    let fits = |path: &PathBuf| {
        path.file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.starts_with(from) && name.ends_with(to))
    };
    fs::read_dir(directory).ok()?.flatten().map(|entry| entry.path()).filter(fits).max()
}

/// As whom workers run; nobody else than this program where that is not root.
pub(super) fn user() -> Option<&'static str> {
    geteuid().is_root().then_some(USER)
}

/// What a program says of its version, in the first line.
pub(super) fn version(program: &Path) -> Result<String, String> {
    let said = Command::new(program).arg("-v").output();
    let said = said.map_err(|e| format!("cannot start {}: {e}", program.display()))?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    Ok(said.lines().next().unwrap_or_default().trim_start_matches("Server version: ").to_owned())
}
