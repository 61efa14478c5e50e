//! Who stands between a server that speaks HTTP and its clients.

use std::net::SocketAddr;

use plimsoll_testbed::agent::Agent;
use plimsoll_testbed::database::http::Http;
use plimsoll_testbed::envoy::Envoy;

/// Somebody, or nobody. Dropped, whoever it is ends.
#[derive(Default)]
pub enum Front {
    /// Clients ask the server itself.
    #[default]
    Nobody,
    /// A sentry, where it listens, and what the config of who asks it has to say of it.
    Sentry { _process: Agent, address: SocketAddr, tables: String },
    /// An Envoy.
    Envoy(Envoy),
}

impl Front {
    /// Whom clients ask, of this server.
    pub fn asked(&self, server: Http) -> Http {
        let address = match self {
            Front::Nobody => server.address,
            Front::Sentry { address, .. } => *address,
            Front::Envoy(envoy) => envoy.address(),
        };
        Http { address, ..server }
    }
}
