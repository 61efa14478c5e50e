//! A private Apache httpd with a page to read and a page that computes.

use std::net::SocketAddr;

use plimsoll_testbed::apache::Httpd;
use plimsoll_testbed::apache::httpd::{Options, Workers};

/// Page of job class S (section 5.3), 8 KiB.
pub const STATIC: &str = "/page.html";
const STATIC_BYTES: usize = 8 << 10;
/// What the page that computes makes of `n`: a fixed amount of work, the same in every setting.
const COMPUTES: &str = "<?php\n\
    $x = 1;\n\
    for ($i = 0, $n = (int) ($_GET['n'] ?? 0); $i < $n; $i++) { $x = ($x * 31 + $i) % 1000003; }\n\
    echo $x, \"\\n\";\n";
/// So many rounds take about a millisecond of a CPU of today (24 ns each here); nothing depends on how nearly.
const ROUNDS_PER_MS: f64 = 42_000.0;

/// How many workers are there beside those that are needed, as Debian's package has it. Who is without our module needs all of them under the
/// load of a study, and would start one after the other all through it.
const SPARE: [(&str, &str); 3] = [("StartServers", "5"), ("MinSpareServers", "5"), ("MaxSpareServers", "10")];

/// The page of job class D that takes about so long.
pub fn computing(ms: f64) -> String {
    format!("/page.php?n={}", (ms * ROUNDS_PER_MS) as u64)
}

/// A server with its processes.
pub struct Apache {
    /// Where it is.
    pub addr: SocketAddr,
    httpd: Httpd,
}

impl Apache {
    /// Whether this machine has one, with PHP.
    pub fn is_here() -> bool {
        Httpd::is_there(&Options::new(Workers::Processes(1))).is_ok()
    }

    /// Whether our module is where it looks for modules: `make -C sdk/httpd install`.
    pub fn has_module() -> bool {
        let options = Options { max_slowdown: Some(2.0), ..Options::new(Workers::Processes(1)) };
        Httpd::is_there(&options).is_ok()
    }

    /// Starts one with so many worker processes: all of them at once, or as many as are needed where our module holds them to `max_slowdown`.
    pub fn start(workers: u32, max_slowdown: Option<f64>) -> Result<Apache, String> {
        let pages = vec![
            (STATIC.to_owned(), "plimsoll".repeat(STATIC_BYTES / 8)),
            ("/page.php".to_owned(), COMPUTES.to_owned()),
        ];
        let spare = max_slowdown.map(|_| SPARE).into_iter().flatten();
        let settings = spare.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let options = Options { max_slowdown, pages, settings, ..Options::new(Workers::Processes(workers)) };
        let httpd = Httpd::start(&options)?;
        Ok(Apache { addr: httpd.addr(), httpd })
    }

    /// The process whose children answer requests.
    pub fn master(&self) -> u32 {
        self.httpd.pid()
    }
}
