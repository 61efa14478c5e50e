//! Another config while applications run.

use super::*;

#[test]
fn what_the_config_says_otherwise_holds_for_applications_that_run() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Arc::new(create(dir.path()));
    let name = writer.path().file_name().unwrap().to_str().unwrap().to_owned();
    let config = tokio::sync::watch::Sender::new(apps("off"));
    let app = RefCell::new(None);
    let events = with_agent_of(dir.path(), &config, async |status| {
        let mode = || status.borrow().watched.values().next().map(|watched| watched.mode);
        let socket = dir.path().join("agent.sock");
        while !socket.exists() {
            sleep(Duration::from_millis(20)).await;
        }
        let (welcome, welcomed) = tokio::sync::oneshot::channel();
        let connection = tokio::task::spawn_blocking(move || {
            let mut stream = UnixStream::connect(socket).unwrap();
            writeln!(stream, "hello 1 {name}").unwrap();
            let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
            welcome.send(lines.next()).unwrap();
            lines.count()
        });
        assert_eq!(welcomed.await.unwrap().as_deref(), Some("welcome 1 off"));
        assert_eq!(mode(), None);

        config.send_replace(apps("enforce"));
        assert_eq!(connection.await.unwrap(), 0, "hung up on, to come again and be told the mode");
        *app.borrow_mut() = Some(App::start(Arc::clone(&writer), CANCELLABLE));
        while status.borrow().watched.values().all(|watched| watched.cancelled == 0) {
            sleep(Duration::from_millis(20)).await;
        }
        config.send_replace(apps("shadow"));
        while mode() != Some("shadow") {
            sleep(Duration::from_millis(20)).await;
        }
        config.send_replace(Rc::from([]));
        while mode().is_some() || status.borrow().left_alone.is_empty() {
            sleep(Duration::from_millis(20)).await;
        }
        let why = status.borrow().left_alone.values().next().cloned();
        assert_eq!(why.as_deref(), Some("there is no [app.shop] in the config"));
    });
    app.take().unwrap().end();
    assert_eq!(told(&events, "cancel").len(), 1, "{events:#?}");
}
