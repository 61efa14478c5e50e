//! A connection to an application: the lines that it and the agent exchange (`docs/ledger.md`).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use plimsoll_ledger::control::{FromAgent, FromSdk, Lines, Mode, TooLong, VERSION};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// How long an application may take to read a line.
const PATIENCE: Duration = Duration::from_secs(2);
/// Lines that may wait for an application; one that does not read them is hung up on.
const WAITING: usize = 256;
/// Lines of an application that may wait for us.
const UNREAD: usize = 4_096;

/// Why somebody is refused who does not say who he is.
pub const NO_HELLO: &str = "the first line is `hello 1 FILE`";

/// The end of a connection that a ledger's watch has.
#[derive(Debug, Default)]
pub struct Port {
    to: Option<mpsc::Sender<String>>,
    from: VecDeque<FromSdk>,
    closed: bool,
}

impl Port {
    /// Says something to the application; whether it is there to hear it.
    pub fn say(&mut self, line: &FromAgent) -> bool {
        let said = self.to.as_ref().is_some_and(|to| to.try_send(line.to_line()).is_ok());
        if !said {
            self.to = None;
        }
        said
    }

    /// Whether the application is connected.
    pub fn is_open(&self) -> bool {
        self.to.as_ref().is_some_and(|to| !to.is_closed())
    }

    /// Hangs up, and on whoever comes now: the ledger is watched no more. An application that has opened it anew comes again, and is
    /// heard by who watches that.
    pub fn close(&mut self) {
        (self.to, self.closed) = (None, true);
    }

    /// What the application said next.
    pub fn hear(&mut self) -> Option<FromSdk> {
        self.from.pop_front()
    }
}

/// The end that talks.
pub struct Connection {
    stream: UnixStream,
    lines: Lines,
}

impl Connection {
    /// One on which nothing was said yet.
    pub fn new(stream: UnixStream) -> Connection {
        Connection { stream, lines: Lines::default() }
    }

    /// What it goes over.
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// The ledger for which the application speaks, by its own account; or why it is to be refused.
    ///
    /// # Errors
    /// Where the connection ends first.
    pub async fn hello(&mut self) -> io::Result<Result<String, String>> {
        Ok(match next(&mut self.stream, &mut self.lines).await? {
            FromSdk::Hello { version: VERSION, file } => Ok(file),
            FromSdk::Hello { version, .. } => {
                Err(format!("this agent speaks version {VERSION} of the protocol, not {version}"))
            }
            _ => Err(NO_HELLO.to_owned()),
        })
    }

    /// Refuses the application.
    ///
    /// # Errors
    /// Where it cannot be told.
    pub async fn refuse(mut self, text: String) -> io::Result<()> {
        let line = FromAgent::Refused { text }.to_line();
        timeout(PATIENCE, self.stream.write_all(line.as_bytes())).await.unwrap_or(Ok(()))
    }

    /// Welcomes the application and carries what it and the watch say to each other, until the application leaves.
    ///
    /// # Errors
    /// Why it left.
    pub async fn serve(mut self, mode: Mode, port: &RefCell<Port>) -> io::Result<()> {
        let welcome = FromAgent::Welcome { version: VERSION, mode };
        self.stream.write_all(welcome.to_line().as_bytes()).await?;
        let (to, mut waiting) = mpsc::channel::<String>(WAITING);
        // The latest connection is the one that counts: an application that lost one opens another.
        {
            let mut port = port.borrow_mut();
            if port.closed {
                return Ok(());
            }
            port.to = Some(to);
        }
        let (mut reader, mut writer) = self.stream.split();
        let write = async {
            while let Some(line) = waiting.recv().await {
                timeout(PATIENCE, writer.write_all(line.as_bytes())).await??;
            }
            Ok::<(), io::Error>(())
        };
        let read = async {
            loop {
                let line = next(&mut reader, &mut self.lines).await?;
                let mut port = port.borrow_mut();
                if port.from.len() < UNREAD {
                    port.from.push_back(line);
                }
            }
        };
        tokio::select! {
            done = write => done,
            done = read => done,
        }
    }
}

/// The next line that is understood.
async fn next(stream: &mut (impl AsyncReadExt + Unpin), lines: &mut Lines) -> io::Result<FromSdk> {
    loop {
        let long = |error: TooLong| io::Error::new(io::ErrorKind::InvalidData, error.to_string());
        while let Some(line) = lines.next_line().map_err(long)? {
            if let Ok(line) = line.parse() {
                return Ok(line);
            }
        }
        let mut bytes = [0; 4_096];
        match stream.read(&mut bytes).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => lines.take(&bytes[..n]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_watched_no_more_is_hung_up_on() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let port = RefCell::new(Port::default());
        runtime.block_on(async {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            let mut bytes = [0; 64];
            let watched = async {
                let welcome = theirs.read(&mut bytes).await.unwrap();
                assert_eq!(&bytes[..welcome], b"welcome 1 enforce\n");
                assert!(port.borrow().is_open());
                port.borrow_mut().close();
            };
            let (served, ()) = tokio::join!(Connection::new(ours).serve(Mode::Enforce, &port), watched);
            assert!(served.is_ok() && !port.borrow().is_open());
            // Whoever comes now.
            let (ours, _theirs) = UnixStream::pair().unwrap();
            assert!(Connection::new(ours).serve(Mode::Enforce, &port).await.is_ok());
            assert!(!port.borrow().is_open());
        });
    }
}
