//! GSN 2.0.1 servers over their ZeroMQ sockets and their REST interface (docs/reference/gsn-exchange.md). The formats and the
//! conversations are in `chappe-gsn`; here are the sockets.

mod deliver;
mod directory;
mod publish;
mod receive;
mod remote;
mod subscribe;

#[cfg(test)]
mod tests;

pub(crate) use deliver::{PUSH_EXPORTER, SYNC_EXPORTER};
pub(crate) use publish::ASYNC_EXPORTER;
pub(crate) use receive::{PUSH_WRAPPER, SYNC_WRAPPER};
pub(crate) use remote::REMOTE_WRAPPER;
pub(crate) use subscribe::ASYNC_WRAPPER;

use std::sync::Arc;

use chappe_gsn::kryo::{DataField, GsnElement, encode_element};
use chappe_gsn::mapping;
use chappe_stream::{DescriptorError, check_name, name_part};
use chappe_transport::zeromq::{Endpoint, Limits, Message};

use crate::clock::now;
use crate::{
    Batch, CommonKeys, PeerFile, StreamDefinition, Undecodable, WrapperError, WrapperFile,
};

/// Bytes of an undecodable message that are kept.
const KEPT_BYTES: usize = 64 << 10;
/// The hint for endpoints beyond this machine.
const INSECURE: &str = "GSN's ZeroMQ has no encryption: allow it with insecure = true";

/// Checks an endpoint: it is well-formed, and on this machine unless that is waived.
fn check_endpoint<C: CommonKeys>(
    file: &PeerFile<C>,
    key: &str,
    endpoint: &str,
    insecure: bool,
) -> Result<(), DescriptorError> {
    let parsed = endpoint.parse::<Endpoint>();
    let parsed = parsed.map_err(|error| file.fault(key, error.to_string(), error.hint()))?;
    if !insecure && !parsed.is_loopback() {
        let text = format!("{endpoint:?} is not on this machine");
        return Err(file.fault(key, text, Some(INSECURE.to_owned())));
    }
    Ok(())
}

/// Checks the stream of a wrapper: at most one table, and a usable name.
fn check_stream(
    file: &WrapperFile,
    stream_name: Option<&str>,
    is_required: bool,
) -> Result<(), DescriptorError> {
    let count = file.keys.streams.len();
    if count > 1 || (is_required && count == 0) {
        let text = match is_required {
            true => "exactly one [[stream]] is needed",
            false => "at most one [[stream]] is possible",
        };
        return Err(file.fault("stream", text.to_owned(), None));
    }
    match stream_name.map(check_name) {
        Some(Err(error)) => Err(file.fault("stream_name", error.to_string(), None)),
        _ => Ok(()),
    }
}

/// The stream of a sensor, whose schema comes from the file or from the server's directory.
struct Target {
    name: Arc<str>,
    given: Option<Arc<StreamDefinition>>,
    learnt: Option<(Vec<DataField>, Arc<StreamDefinition>)>,
    level: Option<chappe_log::Level>,
}

impl Target {
    fn new(file: &WrapperFile, stream_name: Option<&str>, sensor: &str) -> Self {
        let table = file.fixed_streams().into_iter().next();
        let name = match (&table, stream_name) {
            (Some((name, _)), _) => name.clone(),
            (None, Some(name)) => name.to_owned(),
            (None, None) => name_part(sensor),
        };
        Self {
            name: name.into(),
            given: table.map(|(_, definition)| Arc::new(definition)),
            learnt: None,
            level: file.keys.level,
        }
    }

    /// The definition, once it is known.
    fn definition(&self) -> Option<&Arc<StreamDefinition>> {
        let learnt = self.learnt.as_ref().map(|(_, definition)| definition);
        self.given.as_ref().or(learnt)
    }

    /// Adds an element. Without a `[[stream]]` an element whose fields are not known defines them.
    fn add(&mut self, gsn: &GsnElement, batch: &mut Batch) {
        let now = now();
        let add = |target: &Self, batch: &mut Batch| {
            let definition = target.definition()?;
            let element = mapping::from_gsn(gsn, &definition.schema, now);
            Some(element.map(|element| batch.push(&target.name, definition, element)))
        };
        let mut added = add(self, batch);
        if self.given.is_none() && !matches!(added, Some(Ok(()))) {
            let learnt = self.learn(mapping::fields(gsn));
            added = match learnt {
                Ok(()) => add(self, batch),
                Err(_) => added,
            };
        }
        if let Some(Err(error)) = added {
            // What was decoded is encoded to the same bytes.
            let frame = encode_element(gsn, Vec::new()).unwrap_or_default();
            self.add_undecodable(error.to_string(), &frame, batch);
        }
    }

    fn add_undecodable(&self, reason: String, frame: &[u8], batch: &mut Batch) {
        batch.undecodable.push(Undecodable {
            stream: Some(self.name.to_string()),
            reason,
            message: frame[..frame.len().min(KEPT_BYTES)].to_vec(),
            is_cut: frame.len() > KEPT_BYTES,
        });
    }

    /// Takes the structure of a directory.
    fn learn(&mut self, fields: Vec<DataField>) -> Result<(), WrapperError> {
        if self
            .learnt
            .as_ref()
            .is_some_and(|(known, _)| *known == fields)
        {
            return Ok(());
        }
        let schema = mapping::schema(&fields).map_err(|error| {
            let hint = "describe the stream by a [[stream]] without that field";
            WrapperError::peer(error.to_string()).with_hint(hint)
        });
        let schema = match schema {
            Err(_) if self.given.is_some() => return Ok(()),
            schema => schema?,
        };
        let definition = StreamDefinition {
            schema,
            level: self.level,
            description: None,
        };
        self.learnt = Some((fields, Arc::new(definition)));
        Ok(())
    }
}

/// Limits of connections with GSN. Its servers expect a queue without a limit at the publisher, and are slower than
/// Chappe: the queue holds a burst of some seconds.
fn limits() -> Limits {
    Limits {
        send_messages: 100_000,
        send_bytes: 32 << 20,
        ..Limits::default()
    }
}

/// The one frame of a message, which follows an empty one between a REQ and a REP.
fn body(message: Message) -> Option<Vec<u8>> {
    let frames = message.into_frames();
    match &frames[..] {
        [empty, body] if empty.is_empty() => Some(body.to_vec()),
        _ => None,
    }
}
