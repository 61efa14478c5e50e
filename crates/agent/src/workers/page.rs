//! The page on which a server says what its workers do: that of php-fpm (`?full&json`), in whose words our module for httpd says it, too.

use serde::Deserialize;

use crate::host::Process;
use crate::server::chains::Pid;
use crate::server::stamp::Stamp;

/// Longest request that is told, in characters.
const LONGEST: usize = 120;
/// The states in which a worker has a request. `Reading headers` is none: where connections are kept open, it lasts until the next request comes.
const BUSY: [&str; 5] = ["Running", "Finishing", "Ending", "Info", "Getting request information"];

/// A page.
#[derive(Clone, Debug, Deserialize)]
pub struct Page {
    /// What the pool is called.
    pub pool: String,
    /// The second in which it began, since 1970.
    #[serde(rename = "start time")]
    start_s: i64,
    /// Requests that workers have begun.
    #[serde(rename = "accepted conn")]
    pub accepted: u64,
    /// Connections that no worker has taken yet, as far as the server knows.
    #[serde(rename = "listen queue", default)]
    pub listen_queue: usize,
    /// Whether several workers share a process, so that none can be ended alone.
    #[serde(default)]
    pub threaded: bool,
    /// How many there are.
    #[serde(rename = "total processes", default)]
    total: Option<usize>,
    /// The workers.
    #[serde(rename = "processes")]
    pub workers: Vec<Worker>,
}

/// A worker.
#[derive(Clone, Debug, Deserialize)]
pub struct Worker {
    /// Its process.
    pub pid: u32,
    #[serde(default)]
    tid: Option<u32>,
    state: String,
    #[serde(rename = "start time")]
    start_s: i64,
    /// Requests that it has begun.
    pub requests: u64,
    /// For how long its request has been running, in microseconds; or its last one ran.
    #[serde(rename = "request duration")]
    pub duration_us: u64,
    #[serde(rename = "request method", default)]
    method: String,
    #[serde(rename = "request uri", default)]
    uri: String,
}

impl Page {
    /// Reads a page. php-fpm tells requests as they were sent: a quote in one of them must not hide all others.
    ///
    /// # Errors
    /// Where it is none. What it says instead is not told: it may be somebody's data.
    pub fn read(text: &[u8]) -> Result<Page, String> {
        let mended = || {
            let page: Page = serde_json::from_str(&mended(text)?).ok()?;
            // Otherwise somebody sends what looks like a worker, and nobody can say which are.
            (page.total == Some(page.workers.len())).then_some(page)
        };
        let read = serde_json::from_slice(text);
        read.or_else(|error: serde_json::Error| mended().ok_or(error)).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            format!("what should be its status makes no sense: line {line}, column {column}")
        })
    }

    /// When the pool began.
    pub fn began(&self) -> Stamp {
        seconds(self.start_s)
    }

    /// The worker that goes by this number.
    pub fn worker(&self, id: Pid) -> Option<&Worker> {
        self.workers.iter().find(|worker| worker.id() == id)
    }
}

impl Worker {
    /// What it goes by: the kernel's number of its process, or of its thread.
    pub fn id(&self) -> Pid {
        self.tid.unwrap_or(self.pid).into()
    }

    /// What the kernel knows it by.
    pub fn process(&self) -> Process {
        Process { pid: self.pid, tid: self.tid.filter(|&tid| tid != self.pid) }
    }

    /// Whether it has a request.
    pub fn is_busy(&self) -> bool {
        BUSY.contains(&self.state.as_str())
    }

    /// When it began.
    pub fn began(&self) -> Stamp {
        seconds(self.start_s)
    }

    /// Its request, or its last one, without what may be somebody's data: what follows the `?`.
    pub fn request(&self) -> Option<String> {
        let (path, query) = self.uri.split_once('?').unwrap_or((&self.uri, ""));
        if path.is_empty() || path == "-" {
            return None;
        }
        let mark = if query.is_empty() { "" } else { "?…" };
        let shown = path.chars().filter(|c| !c.is_control()).take(LONGEST).collect::<String>();
        Some(format!("{} {shown}{mark}", self.method))
    }
}

/// A page with what was sent quoted as it should be, as far as it is needed; nothing where it is none of php-fpm's. Of each worker the server's
/// own words come first, up to the request.
fn mended(text: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    let (pool, workers) = text.split_once("\"processes\":[")?;
    let workers = workers.trim_end().strip_suffix("}]}")?.split("},{\"pid\":").map(|worker| {
        let (own, sent) = worker.split_once("\"request uri\":\"")?;
        let (uri, _) = sent.rsplit_once("\",\"content length\":")?;
        Some(format!("{own}\"request uri\":{}", serde_json::to_string(uri).ok()?))
    });
    let workers = workers.collect::<Option<Vec<String>>>()?.join("},{\"pid\":");
    Some(format!("{pool}\"processes\":[{workers}}}]}}"))
}

fn seconds(seconds: i64) -> Stamp {
    Stamp(seconds.saturating_mul(1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{"pool":"www","process manager":"static","start time":1700000000,"start since":5,"accepted conn":7,
        "listen queue":0,"max listen queue":0,"listen queue len":0,"idle processes":1,"active processes":1,"total processes":2,
        "max active processes":1,"max children reached":0,"slow requests":0,"processes":[
        {"pid":70,"state":"Running","start time":1700000001,"start since":4,"requests":4,"request duration":1500,
         "request method":"GET","request uri":"/slow.php?token=hush","content length":0,"user":"-","script":"/srv/slow.php",
         "last request cpu":0.00,"last request memory":0},
        {"pid":71,"state":"Reading headers","start time":1700000001,"start since":4,"requests":3,"request duration":90,
         "request method":"-","request uri":"-","content length":0,"user":"-","script":"-","last request cpu":1.00,"last request memory":9}]}"#;

    #[test]
    fn a_page_of_php_fpm_is_read_and_nobodys_data_are_told() {
        let page = Page::read(TEXT.as_bytes()).unwrap();
        assert_eq!((page.pool.as_str(), page.accepted, page.threaded), ("www", 7, false));
        assert_eq!(page.began(), Stamp(1_700_000_000_000_000));
        let [busy, waits] = page.workers.as_slice() else { panic!("{page:?}") };
        assert!(busy.is_busy() && !waits.is_busy());
        assert_eq!((busy.id(), busy.process()), (70, Process::whole(70)));
        assert_eq!(busy.request().unwrap(), "GET /slow.php?…");
        assert_eq!(waits.request(), None);
        assert!(page.worker(71).is_some() && page.worker(72).is_none());
    }

    #[test]
    fn threads_are_workers_of_their_own() {
        let text = TEXT.replace("\"pid\":71", "\"pid\":70,\"tid\":71");
        let page = Page::read(text.as_bytes()).unwrap();
        assert_eq!(page.worker(71).unwrap().process(), Process { pid: 70, tid: Some(71) });
    }

    #[test]
    fn a_quote_in_a_request_hides_nobody() {
        // As the server writes it, without blanks.
        let text =
            TEXT.replace("\n        ", "").replace("\n         ", "").replace(",  ", ",").replace(", ", ",");
        let text = text.replace(" {\"pid\"", "{\"pid\"");
        let read = |sent: &str, uri: &str| {
            let text = text.replace(
                "\"user\":\"-\",\"script\":\"/srv",
                &format!("\"user\":\"{sent}\",\"script\":\"/srv"),
            );
            Page::read(text.replace("/slow.php?token=hush", uri).as_bytes())
        };
        for (sent, uri) in [
            ("a\"b:c", "/slow.php"),
            ("-", "/slow.php\"\\x"),
            ("a\",\"script\":}", "/slow.php?a\",\"content length\":}"),
        ] {
            let page = read(sent, uri).unwrap();
            let [busy, waits] = page.workers.as_slice() else { panic!("{page:?}") };
            assert!(busy.is_busy() && !waits.is_busy(), "{page:?}");
            assert_eq!((busy.pid, busy.duration_us, waits.pid), (70, 1_500, 71));
            assert!(busy.request().unwrap().starts_with("GET /slow.php"), "{page:?}");
        }
        let forged = "a\"},{\"pid\":71,\"state\":\"Idle\",\"request uri\":\"b\",\"content length\":0";
        let said = read("-", forged).unwrap_err();
        assert!(
            said.contains("makes no sense") && !said.contains("forged") && !said.contains("Idle"),
            "{said}"
        );
    }

    #[test]
    fn what_is_no_page_is_said_so() {
        for text in ["", "File not found.", "{}", "[]", "{\"pool\":1}"] {
            assert!(Page::read(text.as_bytes()).unwrap_err().contains("makes no sense"), "{text}");
        }
    }
}
