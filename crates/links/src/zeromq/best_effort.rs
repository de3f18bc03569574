//! Best effort over PUB and SUB: missed elements are counted, never sent again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chappe_identity::CurvePublic;
use chappe_stream::{StoreError, Written, WrittenFollower};
use chappe_transport::Drops;
use chappe_transport::zeromq::{
    Limits, Message, Publisher, Request, Security, Subscriber, SubscriberLink,
};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::{ZeromqConfig, connection_error};
use crate::documents::{apply, retry_until_room};
use crate::handle::Links;
use crate::inlet::{self, Inlet, InletError};
use crate::link::Link;
use crate::serialization::{
    Document, Elements, SchemaId, SchemaRef, Structure, count_for_document,
};
use crate::session::ConnectionError;
use crate::{LinkError, LinkHost, Reader, Selection, Serialization, directory};

/// Most elements of one message, in serializations that allow more than one.
const ELEMENTS_MAX: usize = 256;
/// The period of looking for new streams, and the delay before a silent directory is asked again.
const LOOK_PAUSE: Duration = Duration::from_secs(2);
/// Time limit for an answer of the directory.
const PATIENCE: Duration = Duration::from_secs(5);

const ALL: [Serialization; 3] = [
    Serialization::Xml,
    Serialization::Postcard,
    Serialization::MessagePack,
];

fn topic(stream: &str, serialization: Serialization) -> Bytes {
    format!("{stream} {}", serialization.as_str()).into()
}

impl Links {
    /// Publishes the streams that have subscribers, until the future is dropped: those that `reader` may read,
    /// to every subscriber that may read them by its key.
    pub async fn publish_zeromq(&self, publisher: Publisher, reader: Reader) {
        let shared = self.shared().clone();
        let mut changes = publisher.changes();
        let mut running: BTreeMap<String, Publishing> = BTreeMap::new();
        loop {
            let entries = shared.host.directory(&reader);
            let wanted = |name: &str| {
                ALL.into_iter()
                    .any(|form| publisher.wants(&topic(name, form)))
            };
            // A name may have been freed and given to another stream.
            let refers = |name: &str, first: &str| {
                let log = shared.host.stream(name, &reader);
                log.is_some_and(|log| log.name() == first)
            };
            running.retain(|name, one| {
                !one.task.0.is_finished() && wanted(name) && refers(name, &one.stream)
            });
            // A subscriber knows a stream by any of its names.
            for name in entries.into_iter().flat_map(|entry| entry.names) {
                if running.contains_key(&name) || !wanted(&name) {
                    continue;
                }
                if let Some(log) = shared.host.stream(&name, &reader) {
                    let follower = log.follow_written(log.log().last() + 1);
                    let stream = log.name().to_owned();
                    let access = Access::new(shared.host.clone(), stream.clone());
                    let publishing = publish(publisher.clone(), name.clone(), follower, access);
                    let task = Running(tokio::spawn(publishing).abort_handle());
                    running.insert(name, Publishing { task, stream });
                }
            }
            let look = tokio::time::sleep(LOOK_PAUSE);
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = look => {}
            }
        }
    }
}

/// A task that is aborted on drop.
struct Running(AbortHandle);

/// What publishes a stream by one name.
struct Publishing {
    task: Running,
    /// The name under which the stream was defined.
    stream: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// How long the host's answer for a subscriber holds.
const ACCESS_PERIOD: Duration = Duration::from_millis(500);

/// Which subscribers may read a stream.
struct Access {
    host: Arc<dyn LinkHost>,
    /// The name under which the stream was defined.
    stream: String,
    known: BTreeMap<[u8; 32], bool>,
    until: Instant,
}

impl Access {
    fn new(host: Arc<dyn LinkHost>, stream: String) -> Self {
        Self {
            host,
            stream,
            known: BTreeMap::new(),
            until: Instant::now() + ACCESS_PERIOD,
        }
    }

    /// Whether the subscriber with this key may read the stream by this name.
    fn allows(&mut self, name: &str, key: &CurvePublic) -> bool {
        if Instant::now() >= self.until {
            self.known.clear();
            self.until = Instant::now() + ACCESS_PERIOD;
        }
        let key = *key.as_bytes();
        *self.known.entry(key).or_insert_with(|| {
            let reader = Reader {
                address: None,
                key: Some(key),
                account: None,
            };
            self.host.may_read(name, &self.stream, &reader)
        })
    }
}

/// Publishes new elements of a stream by this name.
async fn publish(
    publisher: Publisher,
    name: String,
    mut follower: WrittenFollower,
    mut access: Access,
) {
    loop {
        let Written {
            schema_version: version,
            schema,
            elements,
        } = match follower.next().await {
            Ok(written) => written,
            Err(StoreError::Log(chappe_log::Error::Gap { .. })) => continue,
            Err(_) => return,
        };
        let id = SchemaId::of(&schema);
        for form in ALL {
            let topic = topic(&name, form);
            if !publisher.wants(&topic) {
                continue;
            }
            let each = if form == Serialization::Xml {
                1
            } else {
                ELEMENTS_MAX
            };
            let mut rest = elements.as_slice();
            while !rest.is_empty() {
                let (chunk, others) = rest.split_at(count_for_document(rest, each));
                rest = others;
                let mut chunk = chunk.to_vec();
                chunk.iter_mut().for_each(|element| element.origin = None);
                let document = Document::Elements(Elements {
                    stream: name.clone(),
                    schema: SchemaRef { id, version },
                    names: Vec::new(),
                    elements: chunk,
                    last: None,
                });
                let mut bytes = Vec::new();
                // An element too large for a document is skipped, as best effort allows; the
                // receiver counts it.
                if form.encode(&document, &schema, &mut bytes).is_ok() {
                    let mut message = Message::new(topic.clone());
                    message.push(Bytes::from(bytes));
                    publisher.publish_to(&message, &mut |key| access.allows(&name, key));
                }
            }
        }
    }
}

/// Runs a best-effort link until it is removed.
pub(crate) async fn subscribe(link: Arc<Link>, node: ZeromqConfig) {
    match run(&link, &node).await {
        Ok(()) => {}
        Err(error) => link.disconnected(error.text, error.hint),
    }
}

async fn run(link: &Arc<Link>, node: &ZeromqConfig) -> Result<(), ConnectionError> {
    let plain = |error: LinkError| ConnectionError {
        text: error.to_string(),
        hint: error.hint(),
    };
    let security = node.security(&link.config).map_err(plain)?;
    let selections = link.config.selections().map_err(plain)?;
    let form = link.config.serialization();
    let named = |selection: &Selection| match selection {
        Selection::Exact(name) => Some(name.clone()),
        Selection::Prefix(_) => None,
    };
    let mut names: BTreeSet<String> = selections.iter().filter_map(named).collect();
    let topics: Vec<Bytes> = names.iter().map(|name| topic(name, form)).collect();
    let mut subscriber = Subscriber::connect(
        &link.config.address,
        topics,
        security.clone(),
        node.limits.clone(),
        Drops::default(),
    )
    .await
    .map_err(|error| connection_error(&error))?;
    let mut state = subscriber.link();
    let directory = Directory::new(link, security, node.limits.clone());
    let (found, mut looks) = mpsc::channel(1);
    let _looking = Running(tokio::spawn(look(directory.reconnected(), found)).abort_handle());
    let mut reader = Receiving {
        link: link.clone(),
        selections,
        form,
        directory,
        inlets: BTreeMap::new(),
        refused: BTreeMap::new(),
    };
    loop {
        tokio::select! {
            biased;
            changed = state.changed() => {
                if changed.is_err() {
                    return Ok(());
                }
                match &*state.borrow_and_update() {
                    SubscriberLink::Connecting => {}
                    SubscriberLink::Connected(_) => link.connected(),
                    SubscriberLink::Broken(error) => {
                        link.disconnected(error.to_string(), error.hint());
                    }
                }
            }
            Some(found) = looks.recv() => match found {
                Ok(found) => {
                    for name in found.difference(&names) {
                        subscriber.subscribe(topic(name, form)).await;
                    }
                    for name in names.difference(&found) {
                        subscriber.cancel(topic(name, form)).await;
                    }
                    names = found;
                    if matches!(&*state.borrow(), SubscriberLink::Connected(_)) {
                        link.connected();
                    }
                }
                // Subscribed streams continue.
                Err(error) if names.is_empty() => {
                    link.disconnected(error.to_string(), error.hint());
                }
                Err(_) => {}
            },
            message = subscriber.recv() => reader.take(&message).await,
        }
    }
}

/// Queries repeatedly which streams the link selects. Subscribing to a prefix would return each
/// stream in every serialization: a topic is `NAME SERIALIZATION`.
async fn look(mut directory: Directory, found: mpsc::Sender<Result<BTreeSet<String>, LinkError>>) {
    let link = directory.link.clone();
    let selections = link.config.selections().unwrap_or_default();
    let beginning = |selection: &Selection| matches!(selection, Selection::Prefix(_));
    let period = Duration::from_secs(link.config.limits.directory_s.max(1));
    while selections.iter().any(beginning) {
        let names = selected(&mut directory, &selections).await;
        let pause = match names {
            Ok(_) => period,
            Err(_) => LOOK_PAUSE.min(period),
        };
        if found.send(names).await.is_err() {
            return;
        }
        tokio::time::sleep(pause).await;
    }
}

async fn selected(
    directory: &mut Directory,
    selections: &[Selection],
) -> Result<BTreeSet<String>, LinkError> {
    let link = directory.link.clone();
    let mut names = BTreeSet::new();
    for selection in selections {
        if let Selection::Exact(name) = selection {
            names.insert(name.clone());
            continue;
        }
        let structures = directory.ask(selection).await?;
        let found = structures.into_iter().map(|structure| structure.stream);
        names.extend(found.filter(|name| link.config.takes(selection, name)));
    }
    while names.len() > link.config.limits.streams {
        let Some(name) = names.pop_last() else { break };
        let why = "the link has as many streams as its limit allows";
        inlet::refused(&link, &name, why);
    }
    Ok(names)
}

/// The origin's directory, over one connection.
struct Directory {
    link: Arc<Link>,
    security: Security,
    limits: Limits,
    request: Option<Request>,
}

impl Directory {
    fn new(link: &Arc<Link>, security: Security, limits: Limits) -> Self {
        Self {
            link: link.clone(),
            security,
            limits,
            request: None,
        }
    }

    /// A second directory client, with its own connection.
    fn reconnected(&self) -> Self {
        Self::new(&self.link, self.security.clone(), self.limits.clone())
    }

    /// The structures of the streams that are selected.
    async fn ask(&mut self, selection: &Selection) -> Result<Vec<Structure>, LinkError> {
        let failed = LinkError::Unsupported;
        let Some(endpoint) = &self.link.config.directory else {
            return Err(failed("the link has no directory address".to_owned()));
        };
        let mut request = match self.request.take() {
            Some(request) => request,
            None => Request::connect(endpoint, self.security.clone(), self.limits.clone())
                .await
                .map_err(|error| {
                    failed(format!(
                        "cannot connect to the directory at {endpoint}: {error}"
                    ))
                })?,
        };
        let question = directory::question(selection, Serialization::Postcard);
        let answer = request.ask(question, PATIENCE).await;
        let answer = answer.map_err(|error| {
            failed(format!(
                "the directory at {endpoint} does not answer: {error}"
            ))
        })?;
        self.request = Some(request);
        let structures = directory::read(answer.last(), Serialization::Postcard);
        structures.map_err(|error| failed(error.to_string()))
    }
}

struct Receiving {
    link: Arc<Link>,
    selections: Vec<Selection>,
    form: Serialization,
    directory: Directory,
    inlets: BTreeMap<String, Inlet>,
    /// Streams that this node or the directory refuses, and the time until which they are ignored.
    refused: BTreeMap<String, Instant>,
}

impl Receiving {
    async fn take(&mut self, message: &Message) {
        let link = self.link.clone();
        link.live().bytes_received += message.bytes() as u64;
        let dropped = |reason, detail: String| {
            let host = &link.shared.host;
            host.dropped(reason, &link.config.address, detail, None);
        };
        let document = match (message.len(), self.form.decode(message.last())) {
            (2, Ok((Document::Elements(elements), _))) => elements,
            (2, Ok(_)) => return,
            (2, Err(error)) => return dropped("unreadable", error.to_string()),
            (frames, _) => return dropped("unreadable", format!("a message has {frames} frames")),
        };
        let name = document.stream.clone();
        if !self
            .selections
            .iter()
            .any(|selection| link.config.takes(selection, &name))
        {
            return;
        }
        let now = Instant::now();
        if self.refused.get(&name).is_some_and(|again| now < *again) {
            return dropped("not stored", format!("{name} is refused"));
        }
        if let Err(error) = self.store(&name, document).await {
            // If the log refuses elements now, it may accept the next.
            if let InletError::Link(error) = &error
                && !matches!(error, LinkError::Store(_))
            {
                inlet::refused(&self.link, &name, &error.with_hint());
                let pause = Duration::from_secs(self.link.config.limits.directory_s);
                self.inlets.remove(&name);
                self.refused.retain(|_, again| now < *again);
                if self.refused.len() < self.link.config.limits.streams {
                    self.refused.insert(name, now + pause);
                }
            }
            dropped("not stored", error.to_string());
        }
    }

    async fn store(&mut self, name: &str, elements: Elements) -> Result<(), InletError> {
        if !self.inlets.contains_key(name) {
            if self.inlets.len() >= self.link.config.limits.streams {
                let why = "the link has as many streams as its limit allows";
                inlet::refused(&self.link, name, why);
                return Ok(());
            }
            let inlet = Inlet::new(&self.link, name).await?;
            self.inlets.insert(name.to_owned(), inlet);
        }
        let schema = elements.schema;
        let known = self
            .inlets
            .get(name)
            .is_some_and(|inlet| inlet.schema(schema).is_some());
        if !known {
            self.ask_schema(name).await?;
        }
        match self.inlets.get_mut(name) {
            Some(inlet) => apply(inlet, Document::Elements(elements)).await,
            None => Ok(()),
        }
    }

    /// Asks the origin's directory for the structure of the stream's elements.
    async fn ask_schema(&mut self, name: &str) -> Result<(), InletError> {
        let structures = self
            .directory
            .ask(&Selection::Exact(name.to_owned()))
            .await?;
        let structure = structures.into_iter().find(|it| it.stream == name);
        let unknown = || LinkError::Unsupported(format!("the directory does not know {name:?}"));
        let structure = structure.ok_or_else(unknown)?;
        match self.inlets.get_mut(name) {
            Some(inlet) => {
                let store = inlet.replica().store();
                retry_until_room(&store, || {
                    inlet.structure(structure.version, &structure.schema)
                })
                .await
            }
            None => Ok(()),
        }
    }
}
