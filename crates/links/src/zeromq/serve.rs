//! Serving other nodes: sessions over ROUTER, and the directory over REP.

use bytes::Bytes;
use chappe_transport::zeromq::{IncomingRequest, Reply, Router};

use crate::handle::Links;
use crate::serialization::DOCUMENT_BYTES_MAX;
use crate::{Reader, directory};

impl Links {
    /// Serves a session to each peer that connects to `router`, until the runtime shuts down. Dropping the
    /// future ends them all.
    pub async fn serve_zeromq(&self, mut router: Router) {
        let mut sessions = tokio::task::JoinSet::new();
        loop {
            tokio::select! {
                connection = router.accept() => match connection {
                    Ok(connection) => {
                        let links = self.clone();
                        sessions.spawn(async move {
                            if let Err(error) = links.serve(connection).await {
                                tracing::debug!(%error, "session ended");
                            }
                        });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "no more sessions are accepted");
                        return;
                    }
                },
                Some(_) = sessions.join_next(), if !sessions.is_empty() => {}
            }
        }
    }

    /// Answers directory queries until the runtime shuts down.
    pub async fn serve_directory(&self, mut reply: Reply) {
        loop {
            match reply.recv().await {
                Ok(asked) => self.answer_directory(asked),
                Err(error) => {
                    tracing::warn!(%error, "the directory stopped");
                    return;
                }
            }
        }
    }

    fn answer_directory(&self, asked: IncomingRequest) {
        let reader = Reader {
            address: Some(asked.peer.address),
            key: asked.peer.key.as_ref().map(|key| *key.as_bytes()),
            account: None,
        };
        let host = &self.shared().host;
        let entries = host.directory(&reader);
        let answer = directory::answer(asked.question.last(), &entries, DOCUMENT_BYTES_MAX);
        asked.answer(answer.unwrap_or_else(|error| {
            host.dropped(
                "directory question",
                &reader.label(),
                error.to_string(),
                None,
            );
            // An empty answer means that the stream does not exist.
            Bytes::new()
        }));
    }
}
