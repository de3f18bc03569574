//! PostgreSQL: rows of a table or query as elements, elements as rows of tables.
//!
//! Documentation of PostgreSQL 15: 55.2 (message flow), COPY (binary format), 9.27.10 (snapshots), 54.12 (pg_locks).
//! TimescaleDB speaks the same protocol; nothing here is particular to it.

mod browse;
mod copy;
mod export;
mod read;
mod rows;
mod table;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use chappe_postgres::{ConnectError, Incident, Options, Target, describe};
use chappe_stream::DescriptorError;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::Notify;
use tokio_postgres::Client;

use crate::kinds::http::peer::secret;
use crate::{CommonKeys, PeerFile, WrapperError};

pub(crate) use export::EXPORTER;
pub(crate) use read::WRAPPER;

/// Longest time of a statement in the server; reason: a view may compute without end.
const STATEMENT_TIME: Duration = Duration::from_secs(300);
/// Longest file of certificates.
const AUTHORITIES_BYTES_MAX: u64 = 1 << 20;

/// The keys of every file whose peer is PostgreSQL.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
struct Database {
    /// The address without a password: postgres://USER@HOST:PORT/DATABASE, or
    /// postgres://USER@/DATABASE?host=/run/postgresql for a Unix socket.
    address: String,
    /// File with the password. Relative to this file.
    password_file: Option<PathBuf>,
    /// File with the certificates (PEM) of the authorities that sign the server's certificate. With it the connection
    /// is encrypted and the server's name is verified; an address beyond this machine needs it, or `sslmode=disable`.
    authorities: Option<PathBuf>,
    /// The schema of the tables. Default: the first of the server's search path that has them.
    schema: Option<String>,
}

impl Database {
    /// Checks what is independent of other files.
    fn check<C: CommonKeys>(&self, file: &PeerFile<C>) -> Result<(), DescriptorError> {
        let fault = |text: &str, hint: &str| {
            Err(file.fault("address", text.to_owned(), Some(hint.to_owned())))
        };
        let form = "write it as postgres://USER@HOST:PORT/DATABASE";
        let scheme = self.address.split_once("://");
        let Some((_, rest)) =
            scheme.filter(|(scheme, _)| ["postgres", "postgresql"].contains(scheme))
        else {
            return fault("it is not an address of PostgreSQL", form);
        };
        let user = rest.split_once('@').map_or("", |(user, _)| user);
        if user.contains(':') || rest.contains("password=") {
            let hint = "write it to a file, and name the file in password_file";
            return fault("a password does not belong into an address", hint);
        }
        let options = Options {
            url: self.address.clone(),
            password: None,
            authorities: None,
        };
        match options.target() {
            Err(ConnectError::NotEncrypted(_)) if self.authorities.is_some() => Ok(()),
            Err(error) => fault(&error.to_string(), form),
            Ok(_) => Ok(()),
        }
    }

    /// What a connection needs, with the contents of the files that are named.
    fn target<C: CommonKeys>(&self, file: &PeerFile<C>) -> Result<Target, WrapperError> {
        let password = self.password_file.as_ref();
        let password = password.map(|path| secret(&file.path(path))).transpose()?;
        let authorities = self.authorities.as_ref().map(|path| {
            let path = file.path(path);
            let failed = |text: String| {
                WrapperError::settings(format!("cannot read {}: {text}", path.display()))
            };
            let length = std::fs::metadata(&path).map_err(|error| failed(error.to_string()))?;
            if length.len() > AUTHORITIES_BYTES_MAX {
                return Err(failed("it is longer than 1 MiB".to_owned()));
            }
            std::fs::read(&path).map_err(|error| failed(error.to_string()))
        });
        let options = Options {
            url: self.address.clone(),
            password,
            authorities: authorities.transpose()?,
        };
        options
            .target()
            .map_err(|error| WrapperError::settings(error.to_string()))
    }
}

/// An open connection whose times are in UTC and whose numbers are exact.
struct Session {
    client: Client,
    /// Signalled by each notification, and when the connection ends.
    heard: Arc<Notify>,
}

impl Session {
    async fn open(
        target: &Target,
        schema: Option<&str>,
        is_reader: bool,
    ) -> Result<Self, WrapperError> {
        let heard = Arc::<Notify>::default();
        let of_connection = heard.clone();
        let connected = target.connect(move |incident| match incident {
            Incident::Notified(_) | Incident::Ended(_) => of_connection.notify_one(),
        });
        let client = connected
            .await
            .map_err(|error| WrapperError::peer(error.to_string()))?;
        let mut settings = format!(
            "SET TimeZone = 'UTC'; SET DateStyle = 'ISO'; SET IntervalStyle = 'iso_8601'; \
             SET bytea_output = 'hex'; SET extra_float_digits = 3; \
             SET statement_timeout = {}; SET idle_in_transaction_session_timeout = {};",
            STATEMENT_TIME.as_millis(),
            STATEMENT_TIME.as_millis(),
        );
        if let Some(schema) = schema {
            settings.push_str(&format!("SET search_path = {};", quoted(schema)));
        }
        if is_reader {
            settings.push_str("SET default_transaction_read_only = on;");
        }
        client.batch_execute(&settings).await.map_err(failed)?;
        Ok(Self { client, heard })
    }
}

/// A statement failed.
fn failed(error: tokio_postgres::Error) -> WrapperError {
    WrapperError::peer(format!("PostgreSQL: {}", describe(&error)))
}

/// A name as SQL writes it.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
