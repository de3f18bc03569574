//! The node as its links see it.

use std::sync::{Arc, Weak};

use chappe_identity::AddressPolicy;
use chappe_links::http::KeptSubscription;
use chappe_links::{
    Arrivals, DeadLetterReason, DirectoryEntry, HostError, LinkHost, LinkNotice, LossReason,
    Opened, Reader,
};
use chappe_log::Level;
use chappe_registry::oxrdf::{Literal, NamedNode, Triple};
use chappe_registry::{Entity, EntityKind, vocabulary};
use chappe_stream::{Position, StoreError, StreamLog, StreamSchema, Timestamp};
use chappe_transport::Hop;

use super::kept::StateFile;
use super::opening::PendingOpens;
use super::{is_removed, link_key, link_name};
use crate::accounts::{Caller, View};
use crate::catalogue::{AUDIT, CatalogueError, Entry};
use crate::completeness::{Loss, LossKind};
use crate::config::Read;
use crate::notices::NoticeKind;
use crate::registrar::LINK_TYPE;
use crate::shared::{App, Shared};
use crate::{catalogue, clock, streams};

/// The node, as its links see it; it may be dropped before they are.
pub(super) struct Host {
    node: Weak<Shared>,
    subscriptions: StateFile<KeptSubscription>,
    opening: Arc<PendingOpens>,
}

impl Host {
    pub(super) fn new(
        app: &App,
        subscriptions: StateFile<KeptSubscription>,
        opening: Arc<PendingOpens>,
    ) -> Self {
        Self {
            node: Arc::downgrade(app),
            subscriptions,
            opening,
        }
    }

    fn app(&self) -> Result<App, HostError> {
        self.node.upgrade().ok_or_else(|| HostError {
            text: "the node is shutting down".to_owned(),
            transient: true,
        })
    }

    /// Opens a stream of a link. A task opens it if it must be defined or change its owner.
    ///
    /// # Errors
    /// Transient while that task runs.
    fn open_stream(
        &self,
        app: &App,
        name: &str,
        schema: &StreamSchema,
        source: &str,
        level: Option<Level>,
    ) -> Result<Arc<Entry>, HostError> {
        let key = (source.to_owned(), name.to_owned());
        let mut streams = self.opening.streams();
        let pending_error = || HostError {
            text: format!("{name} is being defined"),
            transient: true,
        };
        match streams.get_mut(&key).map(Option::take) {
            Some(None) => return Err(pending_error()),
            Some(Some(error)) => {
                streams.remove(&key);
                return Err(error);
            }
            None => {}
        }
        // Two streams of an origin never become one here, whatever they were renamed to.
        let is_usable = |entry: &Entry| {
            entry.name == name && entry.source() == source && entry.log.schema() == *schema
        };
        if let Some(entry) = app.catalogue.get(name).filter(|entry| is_usable(entry)) {
            return Ok(entry);
        }
        streams.insert(key.clone(), None);
        let spec = streams::StreamSpec {
            name: name.to_owned(),
            schema: schema.clone(),
            source: source.to_owned(),
            level,
        };
        let (app, pending) = (app.clone(), self.opening.clone());
        tokio::spawn(async move {
            let may_take = |owner: &str| is_orphan(&app, owner);
            match spec.open(&app, may_take).await {
                Ok(_) => {
                    pending.streams().remove(&key);
                    unregister_removed(&app, &spec).await;
                }
                Err(error) => {
                    // The entry is missing if the link was removed meanwhile.
                    if let Some(outcome) = pending.streams().get_mut(&key) {
                        *outcome = Some(host_error(&error));
                    }
                }
            }
        });
        Err(pending_error())
    }
}

/// Unregisters a stream if its link was removed while the stream was being registered. A later removal
/// of the link finds the stream itself.
async fn unregister_removed(app: &App, spec: &streams::StreamSpec) {
    let owner = app.catalogue.get(&spec.name).map(|entry| entry.source());
    let is_its = owner.is_none_or(|owner| owner == spec.source);
    if is_orphan(app, &spec.source) && is_its {
        app.registrar.remove(vec![catalogue::key(&spec.name)]).await;
    }
}

impl Arrivals for Entry {
    fn record_arrivals(&self, elements: u64, newest: Timestamp) {
        self.record_arrivals(elements, newest);
    }
}

impl LinkHost for Host {
    fn open(
        &self,
        link: &str,
        name: &str,
        schema: &StreamSchema,
        level: Option<Level>,
    ) -> Result<Opened, HostError> {
        let app = self.app()?;
        let source = link_key(link);
        let entry = self.open_stream(&app, name, schema, &source, level)?;
        if !app.registrar.is_registered(&entry.key()) {
            let spec = streams::StreamSpec {
                name: name.to_owned(),
                schema: schema.clone(),
                source,
                level,
            };
            tokio::spawn(async move {
                spec.register(&app).await;
                unregister_removed(&app, &spec).await;
            });
        }
        Ok(Opened {
            log: entry.log.clone(),
            arrivals: entry,
        })
    }

    fn may_feed(&self, link: &str, name: &str) -> Result<(), HostError> {
        let app = self.app()?;
        let entry = app.catalogue.get(name);
        if let Some(renamed) = entry.as_ref().filter(|entry| entry.name != name) {
            let stream = renamed.current_name();
            return Err(HostError {
                text: format!(
                    "{name:?} is a name of the stream {stream:?}; rename that, or set as_prefix for this link"
                ),
                transient: false,
            });
        }
        let owner = entry.map(|entry| entry.source());
        match owner.filter(|owner| !owner.is_empty() && *owner != link_key(link)) {
            Some(owner) if !is_orphan(&app, &owner) => {
                let stream = name.to_owned();
                let taken = CatalogueError::Taken { stream, owner };
                Err(HostError {
                    text: format!("{taken}; remove that, or set as_prefix for this link"),
                    transient: false,
                })
            }
            _ => Ok(()),
        }
    }

    fn stream(&self, name: &str, reader: &Reader) -> Option<StreamLog> {
        let app = self.node.upgrade().filter(|_| name != AUDIT)?;
        let entry = app.catalogue.get(name)?;
        let caller = account_of(&app, reader)?;
        let may_read = caller.is_none_or(|caller| View::of_reader(&app, &caller).has(&entry));
        may_read.then(|| entry.log.clone())
    }

    fn may_read(&self, name: &str, first: &str, reader: &Reader) -> bool {
        let Some(app) = self.node.upgrade() else {
            return true;
        };
        let Some(caller) = account_of(&app, reader) else {
            return false;
        };
        match app.catalogue.get(name) {
            Some(entry) if entry.name != first => false,
            Some(entry) => caller.is_none_or(|it| View::of_reader(&app, &it).has(&entry)),
            // The name was freed, or the stream was removed.
            None => app.catalogue.defined_as(first).is_none(),
        }
    }

    fn directory(&self, reader: &Reader) -> Vec<DirectoryEntry> {
        let Some(app) = self.node.upgrade() else {
            return Vec::new();
        };
        let Some(caller) = account_of(&app, reader) else {
            return Vec::new();
        };
        let view = caller.as_ref().map(|caller| View::of_reader(&app, caller));
        let entries = app.catalogue.entries();
        entries
            .iter()
            .filter(|entry| entry.name != AUDIT)
            .filter(|entry| view.as_ref().is_none_or(|view| view.has(entry)))
            .map(|entry| DirectoryEntry {
                is_present: app.registrar.is_registered(&entry.key()),
                ..DirectoryEntry::of(&entry.log)
            })
            .collect()
    }

    fn lost(
        &self,
        link: &str,
        stream: &str,
        reason: LossReason,
        elements: u64,
        (from, next): (Position, u64),
    ) {
        let Some(app) = self.node.upgrade() else {
            return;
        };
        let label = match reason {
            // The log itself counts locally corrupt elements under `corrupt`.
            LossReason::Corrupt => "corrupt_at_origin",
            other => other.as_str(),
        };
        let numbers = Some((from.epoch.0, from.sequence, next));
        let loss = Loss {
            numbers,
            is_of_origin: true,
            ..Loss::now(stream, LossKind::Lost, label, elements)
        };
        app.observability.count(label, loss);
        let detail = format!("{elements} elements of {stream}");
        app.observability
            .drops
            .record(Hop::Exchange, reason.as_str(), link, detail, None);
    }

    fn dead_letter(
        &self,
        stream: &str,
        reason: DeadLetterReason,
        origin: Position,
        source_time: Timestamp,
    ) {
        if let Some(app) = self.node.upgrade() {
            let reason = format!("dead_letter_{}", reason.as_str());
            let mut loss = letter(stream, LossKind::Refused, &reason, origin);
            loss.times = Some((source_time.0, source_time.0));
            app.observability.ledger.note(loss);
        }
    }

    fn sent_again(&self, stream: &str, origin: Position) {
        if let Some(app) = self.node.upgrade() {
            let loss = letter(stream, LossKind::Restored, "sent_again", origin);
            app.observability.ledger.note(loss);
        }
    }

    fn notice(&self, notice: LinkNotice) {
        if let Some(app) = self.node.upgrade() {
            let ledger = &app.observability.ledger;
            match &notice {
                LinkNotice::Connected { link } => {
                    ledger.changed(&link_key(link), true, "connected")
                }
                LinkNotice::Disconnected { link, why, .. } => {
                    ledger.changed(&link_key(link), false, why);
                }
                _ => {}
            }
            let (link, text) = (notice.link(), notice.to_string());
            // A notice shows its subject separately.
            let rest = text.strip_prefix(&format!("link {link}"));
            let text = rest.map_or(&*text, |rest| rest.trim_start_matches([':', ' ']));
            app.observability
                .notices
                .notify(NoticeKind::Link, link, text);
        }
    }

    fn dropped(&self, reason: &'static str, peer: &str, detail: String, hint: Option<String>) {
        if let Some(app) = self.node.upgrade() {
            app.observability
                .drops
                .record(Hop::Exchange, reason, peer, detail, hint);
        }
    }

    fn address_policy(&self) -> AddressPolicy {
        let app = self.node.upgrade();
        app.map_or_else(
            || AddressPolicy::default().loopback_by_prefix(),
            |app| app.config.contact_policy(),
        )
    }

    fn contact_base(&self) -> Option<String> {
        // An origin cannot connect to an unspecified address.
        let app = self.node.upgrade()?;
        let reachable = !app.identity.address.ip().is_unspecified();
        reachable.then(|| app.identity.url())
    }

    fn contact_fingerprint(&self) -> Option<String> {
        let app = self.node.upgrade()?;
        app.identity.fingerprint()
    }

    fn may_push_in_clear(&self) -> bool {
        let app = self.node.upgrade();
        app.is_some_and(|app| app.config.access.insecure)
    }

    fn keep_subscriptions(&self, subscriptions: &[KeptSubscription]) {
        if let Err(error) = self.subscriptions.write(subscriptions) {
            let hint = "free space on the disk of the data directory".to_owned();
            let (reason, detail) = ("subscriptions not kept", error.to_string());
            self.dropped(reason, "", detail, Some(hint));
        }
    }

    fn now(&self) -> Timestamp {
        clock::now()
    }

    fn random(&self) -> u64 {
        chappe_transport::seed_number().unwrap_or_default()
    }
}

/// The account of a reader, `Some(None)` for one without an account; `None` if its account has ended.
fn account_of(app: &Shared, reader: &Reader) -> Option<Option<Caller>> {
    let found = match (&reader.account, &reader.key) {
        (Some(session), _) => Some(app.accounts.of_session(session)),
        (None, Some(key)) => app.accounts.by_key(key),
        (None, None) => None,
    };
    match found {
        None => Some(None),
        Some(Ok(caller)) => Some(Some(match app.config.access.read {
            // What a contact point was subscribed with.
            Read::Open if reader.account.is_some() => caller.with_open_reading(),
            _ => caller,
        })),
        Some(Err(_)) => None,
    }
}

/// The record of one dead letter.
fn letter(stream: &str, kind: LossKind, reason: &str, origin: Position) -> Loss {
    let (first, next) = (origin.sequence, origin.sequence + 1);
    Loss {
        numbers: Some((origin.epoch.0, first, next)),
        is_of_origin: true,
        ..Loss::now(stream, kind, reason, 1)
    }
}

fn host_error(error: &CatalogueError) -> HostError {
    HostError {
        text: error.to_string(),
        transient: matches!(
            error,
            CatalogueError::Store(StoreError::Log(chappe_log::Error::QueueFull { .. }))
        ),
    }
}

/// Whether a source was a link that has been removed.
fn is_orphan(app: &App, owner: &str) -> bool {
    link_name(owner).is_some_and(|link| is_removed(app, link))
}

/// The registry entity of a link.
pub(super) fn entity(name: &str, address: &str) -> Entity {
    let key = link_key(name);
    let mut entity = Entity::new(key.clone(), EntityKind::Other, name);
    entity.types = vec![LINK_TYPE.to_owned()];
    let address = Literal::new_simple_literal(address);
    let subject = NamedNode::new_unchecked(key);
    entity
        .triples
        .push(Triple::new(subject, vocabulary::ADDRESS, address));
    entity
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::links::SUBSCRIPTIONS;
    use crate::node::tests::on_node;

    /// Retries until the stream is no longer pending, and returns why it cannot be opened.
    async fn refusal(host: &Host, link: &str) -> String {
        let asking = async {
            loop {
                let opened = host.open(link, "s", &StreamSchema::default(), None);
                match opened.map(|_| ()) {
                    Err(error) if error.transient => tokio::task::yield_now().await,
                    Err(error) => return error.text,
                    Ok(()) => return "it is opened".to_owned(),
                }
            }
        };
        let limited = tokio::time::timeout(Duration::from_secs(60), asking).await;
        limited.expect("opened within a minute")
    }

    #[test]
    fn only_the_link_that_asked_receives_the_error() {
        let one = |config: &mut crate::config::Config| config.log.max_streams = 1;
        on_node(one, async |app| {
            let schema = StreamSchema::default();
            let other = app.catalogue.create("other", &schema, "a", None);
            other.await.unwrap();
            let opening = Arc::<PendingOpens>::default();
            let kept = StateFile::new(&app.config.data_directory, SUBSCRIPTIONS);
            let host = Host::new(app, kept, opening.clone());
            let ask = |link: &str| {
                let opened = host.open(link, "s", &schema, None);
                opened.map(|_| ()).unwrap_err().transient
            };
            let failed = async |link: &str| {
                let key = (link_key(link), "s".to_owned());
                while opening.streams().get(&key).is_some_and(Option::is_none) {
                    tokio::task::yield_now().await;
                }
            };
            assert!(ask("a"), "it is being defined");
            failed("a").await;
            // Now there is room; link `a` is removed without having fetched its error.
            assert_eq!(
                crate::catalogue::remove(app, "other", true).await.unwrap(),
                0
            );
            assert_eq!(refusal(&host, "b").await, "it is opened");
            opening.forget(&link_key("a"));
            assert_eq!(refusal(&host, "a").await, "it is opened");
        });
    }
}
