//! Where PostgreSQL is on this machine, and as whom it runs.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::unistd::{Uid, User, geteuid};

use crate::installed::{hand_over, is_skipped, put};

/// What is needed of it.
const PROGRAMS: [&str; 2] = ["initdb", "postgres"];
/// Where Debian and its kin put the programs of each version, in directories with its number.
const VERSIONS: &str = "/usr/lib/postgresql";
/// What to do where there are none.
const REMEDY: &str = "apt-get install postgresql";

/// For tests that need one: whether the reason why it did not start is that there is none on this machine. Then they pass, and this says
/// that they did nothing.
///
/// # Panics
/// Where there is none although `PLIMSOLL_REQUIRE_POSTGRES=1` says that there is to be one.
pub fn there_is_none(error: &str) -> bool {
    error.contains(REMEDY) && is_skipped("PLIMSOLL_REQUIRE_POSTGRES", error)
}

/// The programs of one version, and the user that may run them.
#[derive(Clone, Debug)]
pub(crate) struct Install {
    bin: PathBuf,
    /// Somebody else, where this program runs as root, which PostgreSQL refuses.
    user: Option<User>,
}

impl Install {
    /// The programs in `bin`; else those on the path, else the newest version of those that the system's packages have installed.
    /// `user` runs them if this program runs as root.
    ///
    /// # Errors
    /// Where there are none, and how to install them; where there is no such user.
    pub(crate) fn find(bin: Option<&Path>, user: &str) -> Result<Install, String> {
        let bin = match bin {
            Some(bin) if holds_all(bin) => bin.to_owned(),
            Some(bin) => {
                return Err(format!("there is no PostgreSQL in {}: it has no initdb", bin.display()));
            }
            None => search(&std::env::var_os("PATH").unwrap_or_default(), Path::new(VERSIONS))?,
        };
        // The programs find their libraries and each other by where they are, and on the path there may be links to them.
        let bin = fs::canonicalize(bin.join(PROGRAMS[0])).map_err(|e| format!("{}: {e}", bin.display()))?;
        let bin = bin.parent().map(Path::to_owned).unwrap_or_default();
        Ok(Install { bin, user: if geteuid().is_root() { Some(unprivileged(user)?) } else { None } })
    }

    /// One of its programs, as the user, in that directory, with no settings from this program's environment.
    pub(crate) fn command(&self, program: &str, directory: &Path) -> Command {
        let mut command = Command::new(self.bin.join(program));
        // The present directory may be one that the user must not enter.
        command.current_dir(directory).env("LC_ALL", "C");
        let ours = std::env::vars_os().map(|(name, _)| name);
        ours.filter(|name| name.to_string_lossy().starts_with("PG"))
            .for_each(|name| _ = command.env_remove(name));
        if let Some(user) = &self.user {
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
        command
    }

    /// Gives the user what this program has made.
    pub(crate) fn hand_over(&self, path: &Path) -> Result<(), String> {
        self.user.as_ref().map_or(Ok(()), |user| hand_over(user, path))
    }

    /// Writes a file that only the user may read.
    pub(crate) fn put(&self, path: &Path, text: &str) -> Result<(), String> {
        put(self.user.as_ref(), path, text)
    }

    /// Whether there is a library of this name to be preloaded.
    pub(crate) fn has_library(&self, name: &str) -> bool {
        let file = format!("{name}.so");
        // Beside `bin` where it was installed by Debian's packages, further down in other builds.
        let places = ["../lib", "../lib/postgresql", "../lib64", "../lib64/postgresql"];
        places.iter().any(|place| self.bin.join(place).join(&file).exists())
    }
}

fn unprivileged(user: &str) -> Result<User, String> {
    match User::from_name(user) {
        Ok(Some(user)) if user.uid == Uid::from_raw(0) => {
            Err("PostgreSQL refuses to run as root: name another user".to_owned())
        }
        Ok(Some(user)) => Ok(user),
        Ok(None) => Err(format!(
            "PostgreSQL refuses to run as root, and there is no user `{user}`: name one that there is, such as `nobody`"
        )),
        Err(error) => Err(format!("cannot look up the user `{user}`: {error}")),
    }
}

fn holds_all(bin: &Path) -> bool {
    PROGRAMS.iter().all(|program| bin.join(program).is_file())
}

fn search(path: &OsStr, versions: &Path) -> Result<PathBuf, String> {
    let found = std::env::split_paths(path).find(|bin| holds_all(bin)).or_else(|| newest(versions));
    found.ok_or_else(|| format!("there is no PostgreSQL on this machine: install it with `{REMEDY}`"))
}

fn newest(versions: &Path) -> Option<PathBuf> {
    let versions = fs::read_dir(versions).ok()?.flatten();
    // The number is that of the major version, before version 10 with a fraction.
    let numbered = versions.filter_map(|entry| {
        let number: f64 = entry.file_name().to_str()?.parse().ok()?;
        Some((number, entry.path().join("bin"))).filter(|(_, bin)| holds_all(bin))
    });
    numbered.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, bin)| bin)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(root: &Path, number: &str, programs: &[&str]) {
        let bin = root.join(number).join("bin");
        fs::create_dir_all(&bin).unwrap();
        programs.iter().for_each(|program| fs::write(bin.join(program), "").unwrap());
    }

    #[test]
    fn the_newest_version_that_is_whole_is_taken_unless_one_is_on_the_path() {
        let root = tempfile::tempdir().unwrap();
        let on_path = root.path().join("elsewhere/bin");
        let found = || search(on_path.as_os_str(), root.path());
        let error = found().unwrap_err();
        assert!(error.contains("`apt-get install postgresql`"), "{error}");
        version(root.path(), "9.6", &PROGRAMS);
        version(root.path(), "15", &PROGRAMS);
        version(root.path(), "17", &["psql"]);
        version(root.path(), "common", &PROGRAMS);
        assert_eq!(found(), Ok(root.path().join("15/bin")));
        version(root.path(), "elsewhere", &PROGRAMS);
        assert_eq!(found(), Ok(on_path.clone()), "what is on the path goes before");
    }

    #[test]
    fn what_is_not_there_is_said() {
        let root = tempfile::tempdir().unwrap();
        let error = Install::find(Some(root.path()), "postgres").unwrap_err();
        assert!(error.contains("no PostgreSQL in") && error.contains("initdb"), "{error}");
        let error = unprivileged("no-such-user").unwrap_err();
        assert!(error.contains("no user `no-such-user`"), "{error}");
        assert!(unprivileged("root").unwrap_err().contains("refuses to run as root"));
    }
}
