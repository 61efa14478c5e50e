//! Where MariaDB is on this machine, and as whom it runs.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::unistd::{User, geteuid};

use crate::installed::{hand_over, is_skipped, put};

/// The server, and what makes its first tables; each has an older name.
const SERVER: [&str; 2] = ["mariadbd", "mysqld"];
const INSTALLER: [&str; 2] = ["mariadb-install-db", "mysql_install_db"];
/// Where packages put them that no user's path has.
const PLACES: [&str; 3] = ["/usr/sbin", "/usr/libexec", "/usr/local/sbin"];
/// What to do where there are none.
const REMEDY: &str = "apt-get install mariadb-server";

/// For tests that need one: whether the reason why it did not start is that there is none on this machine. Then they pass, and this says
/// that they did nothing.
///
/// # Panics
/// Where there is none although `PLIMSOLL_REQUIRE_MARIADB=1` says that there is to be one.
pub fn there_is_none(error: &str) -> bool {
    error.contains(REMEDY) && is_skipped("PLIMSOLL_REQUIRE_MARIADB", error)
}

/// The programs, and the user that may run them.
#[derive(Clone, Debug)]
pub(crate) struct Install {
    server: PathBuf,
    installer: PathBuf,
    /// Somebody else, where this program runs as root, which the server refuses.
    user: Option<User>,
}

impl Install {
    /// Finds them in `bin`, or without on the path, and where packages put them. `user` runs them if this program runs as root.
    ///
    /// # Errors
    /// Where there are none, and how to install them; where there is no such user.
    pub(crate) fn find(bin: Option<&Path>, user: &str) -> Result<Install, String> {
        let path = bin.map(|bin| bin.as_os_str().to_owned()).or_else(|| std::env::var_os("PATH"));
        let path = path.unwrap_or_default();
        let missing = || format!("there is no MariaDB on this machine: install it with `{REMEDY}`");
        let server = search(&path, &SERVER).ok_or_else(missing)?;
        let installer = search(&path, &INSTALLER).ok_or_else(missing)?;
        let user = match (geteuid().is_root(), User::from_name(user)) {
            (false, _) => None,
            (true, Ok(Some(found))) if !found.uid.is_root() => Some(found),
            (true, _) => {
                return Err(format!(
                    "MariaDB refuses to run as root, and `{user}` is no other user of this machine"
                ));
            }
        };
        Ok(Install { server, installer, user })
    }

    /// The server, as the user, in that directory.
    pub(crate) fn server(&self, directory: &Path) -> Command {
        self.command(&self.server, directory)
    }

    /// What makes its first tables.
    pub(crate) fn installer(&self, directory: &Path) -> Command {
        self.command(&self.installer, directory)
    }

    fn command(&self, program: &Path, directory: &Path) -> Command {
        let mut command = Command::new(program);
        // The present directory may be one that the user must not enter.
        command.current_dir(directory).env("LC_ALL", "C");
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
}

fn search(path: &OsStr, names: &[&str]) -> Option<PathBuf> {
    let places = || std::env::split_paths(path).chain(PLACES.iter().map(PathBuf::from));
    names.iter().find_map(|name| places().map(|place| place.join(name)).find(|program| program.is_file()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_by_its_newer_name_first() {
        let root = tempfile::tempdir().unwrap();
        let names = ["no-such-mariadbd", "no-such-mysqld"];
        assert_eq!(search(root.path().as_os_str(), &names), None);
        for name in ["no-such-mysqld", "no-such-mariadbd"] {
            std::fs::write(root.path().join(name), "").unwrap();
            assert_eq!(search(root.path().as_os_str(), &names), Some(root.path().join(name)));
        }
    }
}
