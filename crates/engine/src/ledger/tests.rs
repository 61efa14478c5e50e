//! A ledger that is watched, and the application at the other end of its port.

use plimsoll_ledger::layout::{CANCELLABLE, Kind, Shape};
use plimsoll_ledger::{Begin, Create, Writer};
use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;

use super::port::Connection;
use super::*;

/// The lines that the application is told beside being welcomed, while `body` has the book.
fn told(book: &mut Book, body: impl AsyncFnOnce(&mut Book)) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let port = Rc::clone(&book.port);
    let mut said = String::new();
    runtime.block_on(async {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let talk = async {
            theirs.read_exact(&mut [0; "welcome 1 enforce\n".len()]).await.unwrap();
            assert!(book.reaches());
            body(book).await;
            // What was said is on its way, and then nothing more is.
            book.close();
            theirs.read_to_string(&mut said).await.unwrap();
        };
        let (served, ()) = tokio::join!(Connection::new(ours).serve(control::Mode::Enforce, &port), talk);
        served.unwrap();
    });
    said.lines().map(str::to_owned).collect()
}

#[test]
fn what_the_application_has_no_record_of_has_no_name_there() {
    let dir = tempfile::tempdir().unwrap();
    let now_ns = clock::now().0;
    let shape = Shape { resources: 8, lanes: 1, tasks: 8, accounts: 8 };
    let writer =
        Writer::create(&Create { app: "shop", shape, ..Create::in_directory(dir.path(), now_ns) }).unwrap();
    let table = writer.resource(Kind::Lock, 1, "table").unwrap();
    for _ in 0..2 {
        writer.begin(&Begin { flags: CANCELLABLE, started_ns: now_ns, ..Begin::default() }).unwrap();
    }
    let ledger = Rc::new(RefCell::new(Ledger::open(writer.path()).unwrap()));
    let mut book = Book::new(ledger, Rc::default());
    assert!(!book.reaches());
    let told = told(&mut book, async |book| {
        let mut scene = Scene::default();
        book.look(&mut scene).await.unwrap();
        let [one, other] = scene.tasks[..] else { panic!("{scene:?}") };
        let untold = book.cancel(one.id, scene::CPU, "told before", 1).await;
        assert_eq!(untold, Sent::Failed("its application could not be told".to_owned()));
        assert_eq!(book.cancel(one.id, FIRST + u32::from(table), "why", 0).await, Sent::Told);
        assert_eq!(book.cancel(other.id, scene::CPU, "why", 0).await, Sent::Told);
    });
    let [own, outside] = &told[..] else { panic!("{told:?}") };
    assert_eq!(own, &format!("cancel 1 0 1 {table} why"));
    let FromAgent::Cancel { id: 2, resource, .. } = outside.parse().unwrap() else { panic!("{outside}") };
    assert_eq!(writer.resource_name(resource), None);
    assert!(!book.reaches());
}
