//! TLS on both sides: by rustls, with ring, so that no build needs more than a C compiler.

use std::fs;
use std::sync::Arc;

use plimsoll_core::config;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::config_file::Unusable;

/// What clients are answered with: HTTP/2 where they can, else HTTP/1.1.
///
/// # Errors
/// Where the certificate or the key cannot be read, or do not belong together.
pub fn server(files: &config::Tls) -> Result<Arc<ServerConfig>, Unusable> {
    let (cert_name, key_name) = (files.cert.display(), files.key.display());
    let in_both = |why: String| Unusable::new(&["sentry", "tls"], why);
    let in_cert = |why: String| Unusable::new(&["sentry", "tls", "cert"], format!("{cert_name}: {why}"));
    let in_key = |why: String| Unusable::new(&["sentry", "tls", "key"], format!("{key_name}: {why}"));
    let cert = fs::read(&files.cert).map_err(|e| in_cert(e.to_string()))?;
    let key = fs::read(&files.key).map_err(|e| in_key(e.to_string()))?;
    let chain = certificates(&cert).map_err(in_cert)?;
    let key =
        PrivateKeyDer::from_pem_slice(&key).map_err(|e| in_key(format!("no private key in PEM: {e}")))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| in_both(e.to_string()))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|e| in_both(format!("{cert_name} and {key_name}: {e}")))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// How servers are spoken to: held to these certificates (PEM), or to those that the system trusts.
///
/// # Errors
/// Where there is no certificate to hold them to.
pub fn client(ca: Option<&[u8]>) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(trusted(ca)?);
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// These certificates (PEM), or those that the system trusts: those of them that a server can be held to, at least one.
///
/// # Errors
/// Where there is none.
pub fn trusted(ca: Option<&[u8]>) -> Result<Vec<CertificateDer<'static>>, String> {
    let (mut given, source) = match ca {
        Some(pem) => (certificates(pem).map_err(|e| format!("tls_ca: {e}"))?, "tls_ca"),
        None => (rustls_native_certs::load_native_certs().certs, "the system"),
    };
    given.retain(|it| RootCertStore::empty().add(it.clone()).is_ok());
    if given.is_empty() {
        return Err(format!("{source} has no certificate to hold servers to; set tls_ca"));
    }
    Ok(given)
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if found.is_empty() => Err("no certificate in PEM".to_owned()),
        found => found.map_err(|e| e.to_string()),
    }
}
