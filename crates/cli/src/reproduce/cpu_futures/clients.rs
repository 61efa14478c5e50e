//! Closed-loop clients, as the paper has them: each waits for the answer to its request before it asks for the next page. What a
//! competitor takes from the server shows in the throughput.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use plimsoll_core::Nanos;
use tokio::task::LocalSet;

use crate::processes::ask;
use plimsoll_herald::clock;

/// A part of a run, through which the same load lasts.
#[derive(Clone, Copy, Debug)]
pub struct Stage {
    /// How many clients there are.
    pub clients: usize,
    /// What each does between an answer and its next request.
    pub think: Duration,
    /// For how long.
    pub lasts: Duration,
}

/// A request that was answered, or was not and failed.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// When, since the start.
    pub at: Nanos,
    /// How long that took.
    pub took: Nanos,
    /// Whether it was answered with 200.
    pub ok: bool,
    /// Whose it was, and its how manieth, from 0 on.
    pub of: (usize, usize),
}

/// What clients saw.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// In the order in which they came.
    pub answers: Vec<Answer>,
    /// How long those had waited that were not answered when the run ended.
    pub unanswered: Vec<Nanos>,
}

impl Seen {
    /// Requests that were answered from one moment until another, in seconds.
    pub fn answered(&self, from_s: f64, to_s: f64) -> usize {
        self.within(from_s, to_s).count()
    }

    /// What they were worth altogether, each by whose and its how manieth it was.
    pub fn worth(&self, from_s: f64, to_s: f64, of: impl Fn(usize, usize) -> f64) -> f64 {
        self.within(from_s, to_s).map(|answer| of(answer.of.0, answer.of.1)).sum()
    }

    fn within(&self, from_s: f64, to_s: f64) -> impl Iterator<Item = &Answer> {
        let within = move |answer: &&Answer| answer.ok && (from_s..to_s).contains(&answer.at.as_secs_f64());
        self.answers.iter().filter(within)
    }

    /// Requests that failed.
    pub fn failed(&self) -> usize {
        self.answers.iter().filter(|answer| !answer.ok).count()
    }

    /// Requests that took longer, those that were not answered included.
    pub fn over(&self, limit: Nanos) -> usize {
        let took = self.answers.iter().map(|answer| answer.took).chain(self.unanswered.iter().copied());
        took.filter(|took| *took > limit).count()
    }

    /// Answers of each second, over the time in seconds.
    pub fn by_second(&self, seconds: usize) -> Vec<(f64, f64)> {
        (0..seconds).map(|s| (s as f64 + 0.5, self.answered(s as f64, s as f64 + 1.0) as f64)).collect()
    }
}

struct Shared {
    seen: Seen,
    /// Since when each client has waited.
    waits: Vec<Option<Nanos>>,
}

/// Carries out one stage after the other. Client number i asks for `page(i, n)` as its n-th page. `look` is told the time since the start
/// every quarter of a second.
pub async fn run(
    at: SocketAddr,
    stages: &[Stage],
    page: impl Fn(usize, usize) -> String + 'static,
    mut look: impl FnMut(Nanos),
) -> Seen {
    let (start, page) = (clock::now(), Rc::new(page));
    let most = stages.iter().map(|stage| stage.clients).max().unwrap_or(0);
    let shared = Rc::new(RefCell::new(Shared { seen: Seen::default(), waits: vec![None; most] }));
    let tasks = LocalSet::new();
    for i in 0..most {
        tasks.spawn_local(client(i, at, start, stages.to_vec(), Rc::clone(&page), Rc::clone(&shared)));
    }
    let length: Duration = stages.iter().map(|stage| stage.lasts).sum();
    let end = start + length.into();
    tasks
        .run_until(async {
            let mut ticks = tokio::time::interval(Duration::from_millis(250));
            while clock::now() < end {
                ticks.tick().await;
                look(clock::now().since(start));
            }
        })
        .await;
    let now = clock::now();
    let mut shared = shared.borrow_mut();
    let unanswered = shared.waits.iter().flatten().map(|began| now.since(*began)).collect();
    Seen { unanswered, ..std::mem::take(&mut shared.seen) }
}

async fn client(
    i: usize,
    at: SocketAddr,
    start: Nanos,
    stages: Vec<Stage>,
    page: Rc<impl Fn(usize, usize) -> String>,
    shared: Rc<RefCell<Shared>>,
) {
    let mut ends = start;
    let mut asked = 0;
    for stage in stages {
        ends += stage.lasts.into();
        if i < stage.clients {
            // Not all at once.
            tokio::time::sleep(stage.think.mul_f64(i as f64 / stage.clients as f64)).await;
        }
        while i < stage.clients && clock::now() < ends {
            let began = clock::now();
            shared.borrow_mut().waits[i] = Some(began);
            let ok = matches!(ask(at, &page(i, asked)).await, Ok((200, _)));
            let now = clock::now();
            let answer = Answer { at: now.since(start), took: now.since(began), ok, of: (i, asked) };
            asked += 1;
            {
                let mut shared = shared.borrow_mut();
                shared.waits[i] = None;
                shared.seen.answers.push(answer);
            }
            // One that is refused at once must not ask without end.
            let pause = if ok { stage.think } else { stage.think.max(Duration::from_millis(100)) };
            tokio::time::sleep(pause).await;
        }
        tokio::time::sleep(ends.since(clock::now()).into()).await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Answers every third request with 500, and the last ones not at all.
    async fn serve(listener: TcpListener, asked: Rc<RefCell<Vec<String>>>, answers: usize) {
        let mut kept = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 256];
            let length = stream.read(&mut request).await.unwrap();
            let path = String::from_utf8_lossy(&request[..length]).split(' ').nth(1).unwrap().to_owned();
            asked.borrow_mut().push(path);
            let n = asked.borrow().len();
            if n > answers {
                kept.push(stream);
                continue;
            }
            let status = if n.is_multiple_of(3) { "500 No" } else { "200 OK" };
            let answer = format!("HTTP/1.1 {status}\r\nconnection: close\r\n\r\nx");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn each_waits_for_its_answer_and_asks_on() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (at, asked) = (listener.local_addr().unwrap(), Rc::new(RefCell::new(Vec::new())));
        let stage = |clients, lasts_ms| Stage {
            clients,
            think: Duration::from_millis(1),
            lasts: Duration::from_millis(lasts_ms),
        };
        let stages = [stage(0, 10), stage(2, 1_000)];
        let load = run(at, &stages, |i, n| format!("/{i}/{n}"), |_| ());
        let seen = tokio::select! {
            seen = load => seen,
            () = serve(listener, Rc::clone(&asked), 9) => unreachable!("it serves for ever"),
        };
        let asked = asked.borrow();
        assert_eq!((seen.answers.len(), seen.failed(), seen.unanswered.len()), (9, 3, 2));
        assert_eq!(seen.answered(0.0, f64::INFINITY), 6);
        assert_eq!(seen.worth(0.0, f64::INFINITY, |_, _| 2.0), 12.0);
        for client in 0..2 {
            let own = seen.answers.iter().filter(|answer| answer.of.0 == client);
            assert!(own.enumerate().all(|(n, answer)| answer.of.1 == n), "numbered one after the other");
        }
        assert_eq!(seen.over(Nanos::ZERO), 11, "those that wait as well");
        for client in 0..2 {
            let own: Vec<_> = asked.iter().filter(|path| path.starts_with(&format!("/{client}/"))).collect();
            let expected: Vec<String> = (0..own.len()).map(|n| format!("/{client}/{n}")).collect();
            assert_eq!(own, expected.iter().collect::<Vec<_>>(), "one after the other");
        }
    }
}
