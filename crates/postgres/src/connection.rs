//! A connection, and the task that reads it.

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::tls::NoTls;
use tokio_postgres::{AsyncMessage, Client, Connection};

use crate::options::ConnectError;
use crate::tls;

/// What a connection needs.
#[derive(Clone)]
pub struct Target {
    pub(crate) config: tokio_postgres::Config,
    pub(crate) tls: Option<tls::Connector>,
}

/// Something that happens to a connection by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incident {
    /// A notification on this channel.
    Notified(String),
    /// The connection has ended, for this reason.
    Ended(String),
}

impl Target {
    /// Connects, and passes what happens to the connection to `heard`; its end comes last. The connection
    /// ends once the client is dropped.
    ///
    /// # Errors
    /// PostgreSQL cannot be reached, or refuses the connection.
    pub async fn connect(
        &self,
        heard: impl FnMut(Incident) + Send + 'static,
    ) -> Result<Client, ConnectError> {
        let failed = |error: tokio_postgres::Error| ConnectError::Connect(describe(&error));
        match &self.tls {
            Some(tls) => {
                let connected = self.config.connect(tls.clone()).await;
                let (client, connection) = connected.map_err(failed)?;
                drive(connection, heard);
                Ok(client)
            }
            None => {
                let connected = self.config.connect(NoTls).await;
                let (client, connection) = connected.map_err(failed)?;
                drive(connection, heard);
                Ok(client)
            }
        }
    }
}

/// Runs the connection until it ends.
fn drive<S, T>(mut connection: Connection<S, T>, mut heard: impl FnMut(Incident) + Send + 'static)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    tokio::spawn(async move {
        let reason = loop {
            match std::future::poll_fn(|context| connection.poll_message(context)).await {
                Some(Ok(AsyncMessage::Notification(note))) => {
                    heard(Incident::Notified(note.channel().to_owned()));
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => break describe(&error),
                None => break "the connection was closed".to_owned(),
            }
        };
        heard(Incident::Ended(reason));
    });
}

/// An error of the client with its cause: it alone says only what was attempted.
#[must_use]
pub fn describe(error: &tokio_postgres::Error) -> String {
    use std::error::Error as _;
    match (error.as_db_error(), error.source()) {
        (Some(db), _) => db.message().to_owned(),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}
