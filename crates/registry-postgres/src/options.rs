//! How to reach PostgreSQL.

use std::net::IpAddr;
use std::time::Duration;

use tokio_postgres::config::{Host, SslMode};

use crate::tls;

/// Time for a connection to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time without an answer of the network after which a connection is given up.
const NETWORK_TIMEOUT: Duration = Duration::from_secs(10);

/// How to reach PostgreSQL.
#[derive(Clone)]
pub struct Options {
    /// `postgres://user@host:port/database`, or with `?host=/run/postgresql` for a Unix socket.
    pub url: String,
    /// The password, if there is one.
    pub password: Option<String>,
    /// PEM certificates of the authorities that may sign the server's certificate. With it, the connection is
    /// TLS and the server's name is verified; without it, it is not encrypted.
    pub authorities: Option<Vec<u8>>,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options").finish_non_exhaustive()
    }
}

/// The reason why the journal was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The URL is not one of PostgreSQL.
    #[error("the URL of PostgreSQL cannot be read: {0}")]
    Url(String),
    /// The connection would cross a network without TLS.
    #[error(
        "the connection to {0} would not be encrypted (hint: name the authority of its certificate, or add \
         sslmode=disable to the URL)"
    )]
    NotEncrypted(String),
    /// The certificates cannot be read.
    #[error("the certificates of the authorities cannot be read: {0}")]
    Authorities(String),
    /// PostgreSQL cannot be reached, or refuses the node.
    #[error("cannot connect to PostgreSQL: {0}")]
    Connect(String),
    /// The tables were made by another version of this program.
    #[error("the registry in PostgreSQL has version {found}; this program reads version {known}")]
    Version {
        /// The version found.
        found: i32,
        /// The version that this program reads.
        known: i32,
    },
    /// The thread was not started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

/// What a connection needs.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) config: tokio_postgres::Config,
    pub(crate) tls: Option<tls::Connector>,
}

impl Options {
    pub(crate) fn target(&self) -> Result<Target, OpenError> {
        let mut config: tokio_postgres::Config = self
            .url
            .parse()
            .map_err(|error| OpenError::Url(describe(&error)))?;
        if let Some(password) = &self.password {
            config.password(password);
        }
        config
            .application_name("chappe")
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_user_timeout(NETWORK_TIMEOUT)
            .keepalives_idle(NETWORK_TIMEOUT);
        let tls = match &self.authorities {
            Some(pem) => {
                config.ssl_mode(SslMode::Require);
                Some(tls::Connector::new(pem)?)
            }
            None => {
                if config.get_ssl_mode() != SslMode::Disable
                    && let Some(far) = config.get_hosts().iter().find_map(beyond_loopback)
                {
                    return Err(OpenError::NotEncrypted(far));
                }
                config.ssl_mode(SslMode::Disable);
                None
            }
        };
        Ok(Target { config, tls })
    }
}

/// The name of a host that is not this one.
fn beyond_loopback(host: &Host) -> Option<String> {
    match host {
        Host::Tcp(name) => {
            let address = name.parse::<IpAddr>();
            let is_near = name == "localhost" || address.is_ok_and(|address| address.is_loopback());
            (!is_near).then(|| name.clone())
        }
        Host::Unix(_) => None,
    }
}

/// An error of the client with its cause: it alone says only what was attempted.
pub(crate) fn describe(error: &tokio_postgres::Error) -> String {
    use std::error::Error as _;
    match (error.as_db_error(), error.source()) {
        (Some(db), _) => db.message().to_owned(),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str) -> Result<Target, OpenError> {
        let options = Options {
            url: url.to_owned(),
            password: None,
            authorities: None,
        };
        options.target()
    }

    #[test]
    fn a_connection_across_a_network_is_encrypted_unless_asked_otherwise() {
        assert!(target("postgres://chappe@localhost/chappe").is_ok());
        assert!(target("postgres://chappe@127.0.0.1:5433/chappe").is_ok());
        assert!(target("postgres://chappe@/chappe?host=/run/postgresql").is_ok());
        assert!(target("postgres://chappe@db.example/chappe?sslmode=disable").is_ok());
        let refused = target("postgres://chappe@db.example/chappe");
        assert!(matches!(refused, Err(OpenError::NotEncrypted(host)) if host == "db.example"));
        assert!(matches!(target("mysql://x"), Err(OpenError::Url(_))));
    }

    #[test]
    fn authorities_are_certificates() {
        let options = Options {
            url: "postgres://chappe@db.example/chappe".to_owned(),
            password: None,
            authorities: Some(b"no certificate".to_vec()),
        };
        assert!(matches!(options.target(), Err(OpenError::Authorities(_))));
    }
}
