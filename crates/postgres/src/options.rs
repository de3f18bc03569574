//! How to reach PostgreSQL.

use std::net::IpAddr;
use std::time::Duration;

use tokio_postgres::config::{Host, SslMode};

use crate::connection::{Target, describe};
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

/// The reason why there is no connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
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
}

impl Options {
    /// What a connection needs.
    ///
    /// # Errors
    /// The URL or the certificates cannot be read, or the connection would cross a network without TLS.
    pub fn target(&self) -> Result<Target, ConnectError> {
        let mut config: tokio_postgres::Config = self
            .url
            .parse()
            .map_err(|error| ConnectError::Url(describe(&error)))?;
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
                    return Err(ConnectError::NotEncrypted(far));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str) -> Result<Target, ConnectError> {
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
        assert!(matches!(refused, Err(ConnectError::NotEncrypted(host)) if host == "db.example"));
        assert!(matches!(target("mysql://x"), Err(ConnectError::Url(_))));
    }

    #[test]
    fn authorities_are_certificates() {
        let options = Options {
            url: "postgres://chappe@db.example/chappe".to_owned(),
            password: None,
            authorities: Some(b"no certificate".to_vec()),
        };
        assert!(matches!(
            options.target(),
            Err(ConnectError::Authorities(_))
        ));
    }
}
