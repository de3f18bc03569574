//! The directory that GSN's wrappers ask for the structure of a sensor.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use chappe_gsn::exchange::Question;
use chappe_gsn::kryo::encode_structure;
use chappe_gsn::mapping;
use chappe_stream::StreamSchema;
use chappe_transport::zeromq::{IncomingRequest, Reply, Security};
use chappe_transport::{Drops, Hop};
use tokio::task::AbortHandle;

use super::limits;
use crate::{Batch, WrapperError};

/// The structures that a directory knows: those of streams of which elements were exported.
#[derive(Debug, Clone, Default)]
pub(super) struct Structures(Arc<Mutex<BTreeMap<String, Arc<[u8]>>>>);

impl Structures {
    /// Takes the schemas of a batch.
    pub(super) fn learn(&self, batch: &Batch) {
        for part in &batch.parts {
            self.insert(&part.stream, &part.definition.schema);
        }
    }

    fn insert(&self, stream: &str, schema: &StreamSchema) {
        let fields = mapping::structure(schema).ok();
        let answer = fields.and_then(|fields| encode_structure(Some(&fields)).ok());
        if let Some(answer) = answer {
            let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            known.insert(stream.to_owned(), answer.into());
        }
    }

    fn get(&self, stream: &str) -> Option<Arc<[u8]>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(stream).cloned()
    }
}

/// A running directory, which ends when it is dropped.
#[derive(Debug)]
pub(super) struct Directory(AbortHandle);

impl Drop for Directory {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Directory {
    /// Listens at `endpoint`. A registration for synchronous delivery is answered only for `subscriber`, to which the
    /// exporter delivers in any case: nobody else can make Chappe connect anywhere.
    pub(super) async fn start(
        endpoint: &str,
        subscriber: Option<String>,
        structures: Structures,
        drops: Drops,
    ) -> Result<Self, WrapperError> {
        let bound = Reply::bind(endpoint, Security::NullFrom2, limits(), drops.clone()).await;
        let mut reply = bound.map_err(|error| failed(&error))?;
        let task = tokio::spawn(async move {
            while let Ok(request) = reply.recv().await {
                answer(request, subscriber.as_deref(), &structures, &drops);
            }
        });
        Ok(Self(task.abort_handle()))
    }
}

fn answer(
    request: IncomingRequest,
    subscriber: Option<&str>,
    structures: &Structures,
    drops: &Drops,
) {
    const NOTHING: &[u8] = &[0];
    let who = request.peer.address.ip();
    let question = Question::parse(request.question.last());
    let answer = match &question {
        Ok(Question::Structure { name }) => structures.get(name),
        Ok(Question::Deliver { name, endpoint, .. }) if Some(endpoint.as_str()) == subscriber => {
            structures.get(name)
        }
        Ok(Question::Deliver { endpoint, .. }) => {
            let hint = "make an exporter of kind gsn-zeromq-sync for it".to_owned();
            let reason = "registration of an unknown subscriber";
            drops.record(Hop::Exchange, reason, who, endpoint.clone(), Some(hint));
            None
        }
        Err(error) => {
            let reason = "malformed question to the directory";
            drops.record(Hop::Exchange, reason, who, error.to_string(), None);
            None
        }
    };
    match answer {
        Some(answer) => request.answer(answer.to_vec()),
        None => request.answer(NOTHING),
    }
}

/// The error of a socket.
pub(super) fn failed(error: &chappe_transport::zeromq::Error) -> WrapperError {
    let text = WrapperError::peer(error.to_string());
    match error.hint() {
        Some(hint) => text.with_hint(hint),
        None => text,
    }
}
