//! What a server is held to over TLS.

use std::path::Path;

pub use plimsoll_sentry::tls;

/// The certificates of a file, unread; nothing where none is named.
///
/// # Errors
/// Where it cannot be read.
pub fn certificates(tls_ca: Option<&Path>) -> Result<Option<Vec<u8>>, String> {
    let read = |path: &Path| {
        std::fs::read(path).map_err(|e| format!("`tls_ca`: cannot read {}: {e}", path.display()))
    };
    tls_ca.map(read).transpose()
}
