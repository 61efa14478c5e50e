//! A stock server in the hands of another controller than ours: it sees what ours sees and may do what ours may, so that what comes of it
//! can be held beside ours.

use plimsoll_cancellation::Scene;
use plimsoll_cancellation::controller::{Controller, Order};
use plimsoll_cancellation::decision::State;
use plimsoll_core::config::{Database, DatabaseKind};
use tokio::time::sleep;

use crate::mariadb::MariaDb;
use crate::postgres::Postgres;
use crate::server::{Adapter, Server};
use crate::source::Source;

/// Lets a controller decide who is ended in a server. It returns only where it cannot begin, with the reason.
pub async fn steer(database: Database, controller: impl Controller) -> String {
    match database.kind {
        DatabaseKind::Postgres { .. } => steer_by::<Postgres>(database, controller).await,
        DatabaseKind::MariaDb { .. } => steer_by::<MariaDb>(database, controller).await,
        DatabaseKind::OpenSearch { .. } | DatabaseKind::Elasticsearch { .. } | DatabaseKind::Solr { .. } => {
            "in a search engine nobody is seen to wait for a lock".to_owned()
        }
        DatabaseKind::PhpFpm { .. } | DatabaseKind::Httpd => {
            "who waits for a worker of a web site waits in the kernel, where nobody can be dropped".to_owned()
        }
    }
}

async fn steer_by<A: Adapter>(database: Database, mut controller: impl Controller) -> String {
    let mut server = match Server::<A>::new(database) {
        Ok(server) => server,
        Err(why) => return why,
    };
    let (mut scene, mut orders) = (Scene::default(), Vec::new());
    loop {
        match server.look(&mut scene).await {
            Ok(now) => controller.look(now, &scene, &mut orders),
            // It connects again at the next look.
            Err(trouble) => log::warn!(why:% = trouble.why; "cannot look"),
        }
        // What a look shows does not depend on what it decides.
        server.judged(State::Calm, true);
        for order in orders.drain(..) {
            // What else a controller may order no stock server can carry out.
            if let Order::Cancel { task, .. } | Order::Drop { task } = order {
                let _ = server.cancel(task, 0, "", 0).await;
            }
        }
        sleep(controller.interval().into()).await;
    }
}
