//! The config file on disk, read by the parent, the worker and `plimsoll check` alike.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use plimsoll_core::config::{self, Config, Errors, MAX_FILE, Warning};

/// A file that is a valid config.
#[derive(Debug)]
pub struct Loaded {
    /// What it means.
    pub config: Config,
    /// What it says.
    pub text: String,
    /// What in it is likely a slip.
    pub warnings: Vec<Warning>,
}

/// Why a file is not a config.
#[derive(Debug)]
pub enum LoadError {
    /// It cannot be read.
    Unreadable(String),
    /// It is wrong, here and for this reason.
    Wrong(Errors),
}

/// Something that a valid config names and that cannot be used, such as a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    /// The keys that lead to its name.
    keys: Vec<String>,
    why: String,
}

impl Unusable {
    /// What stands under these keys, and what is wrong with it.
    pub fn new(keys: &[&str], why: String) -> Unusable {
        Unusable { keys: keys.iter().map(|&key| key.to_owned()).collect(), why }
    }

    /// The same as a mistake in the config, whose text is this.
    pub fn at(&self, text: &str, path: &Path) -> LoadError {
        let keys: Vec<&str> = self.keys.iter().map(|key| &**key).collect();
        LoadError::Wrong(config::error_at(text, &path.display().to_string(), &keys, &self.why))
    }
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for Unusable {}

impl From<Unusable> for String {
    fn from(error: Unusable) -> String {
        error.why
    }
}

/// Reads a config file.
///
/// # Errors
/// Where it cannot be read, is too large or is not valid.
pub fn load(path: &Path) -> Result<Loaded, LoadError> {
    let text = text(path)?;
    let (config, warnings) = parse(&text, path)?;
    Ok(Loaded { config, text, warnings })
}

/// Reads a config file for a program that is about to begin: what is wrong with it, or odd about it, goes to stderr. Nothing where
/// it is wrong.
pub fn load_aloud(path: &Path) -> Option<Loaded> {
    let loaded = load(path).inspect_err(|error| eprintln!("{error}")).ok()?;
    loaded.warnings.iter().for_each(|warning| eprintln!("{warning}"));
    Some(loaded)
}

/// Reads the text of a config file.
///
/// # Errors
/// Where it cannot be read or is too large.
pub fn text(path: &Path) -> Result<String, LoadError> {
    let unreadable = |why: String| LoadError::Unreadable(format!("{}: {why}", path.display()));
    let mut text = String::new();
    File::open(path)
        // One byte more than is allowed tells a file that is too large from one that just fits.
        .and_then(|file| file.take(MAX_FILE as u64 + 1).read_to_string(&mut text))
        .map_err(|e| unreadable(e.to_string()))?;
    if text.len() > MAX_FILE {
        return Err(unreadable(format!("is larger than {MAX_FILE} bytes")));
    }
    Ok(text)
}

/// What this text of the config file means.
///
/// # Errors
/// Where it is not a valid config.
pub fn parse(text: &str, path: &Path) -> Result<(Config, Vec<Warning>), LoadError> {
    config::parse(text, &path.display().to_string()).map_err(LoadError::Wrong)
}

impl LoadError {
    /// One line of the log for each thing that is wrong.
    pub fn log(&self) {
        match self {
            LoadError::Unreadable(why) => log::error!(error:% = why; "config cannot be read"),
            LoadError::Wrong(errors) => {
                for d in &errors.diagnostics {
                    let at = format!("{}:{}:{}", d.file, d.line, d.column);
                    log::error!(at:%, error:% = d.message; "config is wrong");
                }
            }
        }
    }
}

/// As `plimsoll check` prints it.
impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Unreadable(why) => f.write_str(why),
            LoadError::Wrong(errors) => fmt::Display::fmt(errors, f),
        }
    }
}

impl std::error::Error for LoadError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_said_with_its_path() {
        let missing = load(Path::new("/nonexistent/plimsoll.toml")).unwrap_err().to_string();
        assert!(missing.starts_with("/nonexistent/plimsoll.toml: "), "{missing}");
        let endless = load(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(endless.contains("larger than"), "{endless}");
    }
}
