//! A web site in PHP, as a case has it: a private httpd with PHP in its processes, or with a php-fpm behind it.

use super::fpm::{self, Fpm};
use super::httpd::{self, Httpd, Workers};
use crate::database::http::Http;

/// PHP's workers, unless the settings say otherwise.
const WORKERS: u32 = 16;
/// Threads of httpd, where they only hand on what is asked: more than clients.
const THREADS: u32 = 128;
/// What httpd answers when PHP's worker has ended, or takes too long.
const ENDED: &[&str] = &["<title>503 Service Unavailable</title>", "<title>504 Gateway Timeout</title>"];

/// Where PHP runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Php {
    /// In the processes of httpd (the MPM `prefork`), with our module beside it.
    Httpd,
    /// In a php-fpm.
    Fpm,
}

/// Names and values of a configuration, and pages: names, and what is there.
type Pairs = Vec<(String, String)>;

/// A running site. Dropped, it ends.
pub struct Site {
    settings: Pairs,
    pages: Pairs,
    httpd: Httpd,
    fpm: Option<Fpm>,
}

impl Site {
    /// Whether this machine has what it takes.
    ///
    /// # Errors
    /// What is missing, and the command that installs it.
    pub fn is_there(php: Php) -> Result<(), String> {
        let needs =
            |workers, status| Httpd::is_there(&httpd::Options { status, ..httpd::Options::new(workers) });
        match php {
            Php::Httpd => needs(Workers::Processes(WORKERS), true),
            Php::Fpm => {
                needs(Workers::Threads(THREADS, Default::default()), false).and_then(|()| Fpm::is_there())
            }
        }
    }

    /// Starts one. `settings` are lines of the configuration of whoever runs PHP.
    ///
    /// # Errors
    /// Where something is missing or does not start, in words.
    pub fn start(php: Php, settings: Pairs, pages: Pairs) -> Result<Site, String> {
        let (fpm, options) = match php {
            Php::Httpd => {
                let options = httpd::Options::new(Workers::Processes(WORKERS));
                (None, httpd::Options { status: true, settings: settings.clone(), ..options })
            }
            Php::Fpm => {
                let fpm = fpm::Options { workers: WORKERS, settings: settings.clone(), pages: Vec::new() };
                let fpm = Fpm::start(&fpm)?;
                let socket = fpm.socket();
                (Some(fpm), httpd::Options::new(Workers::Threads(THREADS, socket)))
            }
        };
        let httpd = Httpd::start(&httpd::Options { pages: pages.clone(), ..options })?;
        Ok(Site { settings, pages, httpd, fpm })
    }

    /// Starts it anew, with more lines of configuration.
    ///
    /// # Errors
    /// As [`Site::start`].
    pub fn reconfigure(&mut self, more: impl IntoIterator<Item = (String, String)>) -> Result<(), String> {
        let php = if self.fpm.is_some() { Php::Fpm } else { Php::Httpd };
        let settings = self.settings.iter().cloned().chain(more).collect();
        *self = Site::start(php, settings, self.pages.clone())?;
        Ok(())
    }

    /// Where it is asked.
    pub fn http(&self) -> Http {
        Http { address: self.httpd.addr(), ended: ENDED, content_type: "text/plain" }
    }

    /// The agent's table of whoever runs PHP, without what it promises: its kind, and its keys.
    pub fn watched(&self) -> (&'static str, String) {
        match &self.fpm {
            Some(fpm) => ("phpfpm", format!("status = \"{}\"", fpm.status())),
            None => ("httpd", format!("status = \"{}\"", self.httpd.status().display())),
        }
    }

    /// What it calls itself.
    ///
    /// # Errors
    /// Where its programs do not say.
    pub fn version(&self) -> Result<String, String> {
        let httpd = Httpd::version()?;
        match &self.fpm {
            Some(fpm) => Ok(format!("{}, {httpd}", fpm.version()?)),
            None => Ok(httpd),
        }
    }
}
