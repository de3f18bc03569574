//! The wrapper of kind `gsn-zeromq-async`: a SUB on the proxy of a GSN server.

use std::time::Duration;

use bytes::Bytes;
use chappe_gsn::exchange::{Question, read_publication, topic};
use chappe_gsn::kryo::decode_structure;
use chappe_stream::DescriptorError;
use chappe_transport::Drops;
use chappe_transport::zeromq::{Message, Request, Security, Subscriber, SubscriberLink};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::Instant;

use super::directory::failed;
use super::{Target, check_endpoint, check_stream, limits};
use crate::{
    BATCH_BYTES_MAX, Batch, Condition, Delivery, Lost, Step, Wrapper, WrapperError, WrapperFile,
    WrapperKind, WrapperOpening,
};

/// Time for an answer of the directory.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause before the directory is asked again.
const PAUSE: Duration = Duration::from_secs(3);

/// The kind.
pub(crate) const ASYNC_WRAPPER: WrapperKind = WrapperKind {
    name: "gsn-zeromq-async",
    about: "a sensor of a GSN 2 server, from its ZeroMQ proxy",
    delivery: Delivery {
        acknowledges: "never",
        resumes: "nothing: at the next element",
        may_double: "no",
        may_miss: "elements while this node is away or slow; GSN does not number them",
        back_pressure: "none: the server drops elements of a slow reader",
    },
    check: |file| settings(file).map(drop),
    open,
    schema: || schemars::schema_for!(Settings),
    browse: None,
};

/// The keys of a wrapper of kind `gsn-zeromq-async`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// The server's proxy, `tcp://HOST:PORT`; GSN's port is 22022.
    address: String,
    /// The server's directory, `tcp://HOST:PORT`; GSN's port is 22023.
    directory: String,
    /// The virtual sensor at the server.
    sensor: String,
    /// The name of the stream, if the file has no [[stream]]. Default: made from that of the sensor.
    stream_name: Option<String>,
    /// Allow servers beyond this machine, without encryption. Default: false.
    #[serde(default)]
    insecure: bool,
}

fn settings(file: &WrapperFile) -> Result<Settings, DescriptorError> {
    let settings: Settings = file.settings()?;
    check_endpoint(file, "address", &settings.address, settings.insecure)?;
    check_endpoint(file, "directory", &settings.directory, settings.insecure)?;
    check_stream(file, settings.stream_name.as_deref(), false)?;
    Ok(settings)
}

fn open(opening: WrapperOpening<'_>) -> Result<Box<dyn Wrapper>, WrapperError> {
    let file = opening.file;
    let settings = settings(file).map_err(|error| WrapperError::settings(error.to_string()))?;
    let target = Target::new(file, settings.stream_name.as_deref(), &settings.sensor);
    Ok(Box::new(Subscription {
        target,
        settings,
        subscriber: None,
        ask_at: None,
        was_connected: false,
        condition: opening.condition,
        drops: opening.drops,
    }))
}

struct Subscription {
    settings: Settings,
    target: Target,
    subscriber: Option<(Subscriber, watch::Receiver<SubscriberLink>)>,
    /// When to ask the directory again.
    ask_at: Option<Instant>,
    was_connected: bool,
    condition: Condition,
    drops: Drops,
}

impl Wrapper for Subscription {
    fn repeats(&self) -> bool {
        false
    }

    fn next(&mut self) -> Step<'_, Result<Batch, WrapperError>> {
        Box::pin(async {
            self.learn().await?;
            let mut batch = Batch::default();
            while batch.parts.is_empty() && batch.undecodable.is_empty() && batch.lost.is_empty() {
                self.receive(&mut batch).await?;
            }
            Ok(batch)
        })
    }
}

impl Subscription {
    /// Asks the directory until the structure is known. A file with a `[[stream]]` needs none.
    async fn learn(&mut self) -> Result<(), WrapperError> {
        while self.target.definition().is_none() {
            if let Some(ask_at) = self.ask_at {
                tokio::time::sleep_until(ask_at).await;
            }
            self.ask_at = Some(Instant::now() + PAUSE);
            let Settings {
                directory, sensor, ..
            } = &self.settings;
            let connected = Request::connect(directory, Security::NullFrom2, limits()).await;
            let mut request = connected.map_err(|error| failed(&error))?;
            let name = sensor.to_lowercase();
            let question = Question::Structure { name }.to_string();
            let answer = request.ask(Bytes::from(question), PATIENCE).await;
            let answer = answer.map_err(|error| failed(&error))?;
            let structure = decode_structure(answer.last());
            let structure = structure
                .map_err(|error| WrapperError::peer(format!("{directory} answered: {error}")))?;
            match structure {
                Some(fields) => self.target.learn(fields)?,
                None => self
                    .condition
                    .waits(format!("{directory} has no sensor {sensor:?}")),
            }
        }
        self.condition.runs();
        Ok(())
    }

    /// Adds the publications that have arrived, at least one message.
    async fn receive(&mut self, batch: &mut Batch) -> Result<(), WrapperError> {
        if self.subscriber.is_none() {
            let Settings {
                address, sensor, ..
            } = &self.settings;
            let security = Security::NullFrom2;
            let prefixes = [topic(sensor)];
            let subscribed =
                Subscriber::connect(address, prefixes, security, limits(), self.drops.clone())
                    .await;
            let subscriber = subscribed.map_err(|error| failed(&error))?;
            let link = subscriber.link();
            self.subscriber = Some((subscriber, link));
        }
        let Some((subscriber, link)) = &mut self.subscriber else {
            return Ok(());
        };
        let first = tokio::select! {
            biased;
            message = subscriber.recv() => Some(message),
            changed = link.changed() => {
                if changed.is_err() {
                    return Err(WrapperError::peer("the subscriber has ended"));
                }
                None
            }
        };
        let Some(first) = first else {
            let is_connected = match &*link.borrow_and_update() {
                SubscriberLink::Connected(_) => true,
                SubscriberLink::Broken(error) => {
                    self.condition.waits(error.to_string());
                    false
                }
                SubscriberLink::Connecting => false,
            };
            if is_connected {
                self.condition.runs();
            } else if self.was_connected {
                batch.lost.push(Lost {
                    stream: Some(self.target.name.to_string()),
                    reason: "disconnected",
                    messages: 0,
                });
            }
            self.was_connected = is_connected;
            return Ok(());
        };
        let mut next = Some(first);
        while let Some(message) = next {
            add(&mut self.target, &self.settings.sensor, &message, batch);
            if batch.weight() >= BATCH_BYTES_MAX / 2 {
                break;
            }
            next = tokio::select! {
                biased;
                message = subscriber.recv() => Some(message),
                () = std::future::ready(()) => None,
            };
        }
        Ok(())
    }
}

/// Adds the element of a publication.
fn add(target: &mut Target, sensor: &str, message: &Message, batch: &mut Batch) {
    match read_publication(sensor, message.first()) {
        Ok(Some(element)) => target.add(&element, batch),
        Ok(None) => {}
        Err(error) => target.add_undecodable(error.to_string(), message.first(), batch),
    }
}
