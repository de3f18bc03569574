//! One link: its configuration and its state.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::dead_letters::DeadLetters;
use super::feeding::Feeder;
use super::http::ContactPoint;
use super::meter::Meter;
use super::shared::Shared;
use super::{LinkConfig, LinkError, LinkKind, LinkNotice, LinkState, LinkStatus, StreamStatus};

/// One link.
pub(crate) struct Link {
    pub(crate) shared: Arc<Shared>,
    pub(crate) config: LinkConfig,
    pub(crate) letters: DeadLetters,
    /// This link as the feeder of its streams.
    pub(crate) feeder: Arc<Feeder>,
    /// Where the origin sends elements, for HTTP push.
    pub(crate) contact: Option<ContactPoint>,
    live: Mutex<Live>,
}

/// The state of a link.
#[derive(Default)]
pub(crate) struct Live {
    state: LinkState,
    last_error: Option<String>,
    hint: Option<String>,
    connections: u64,
    pub(crate) bytes_received: u64,
    pub(crate) streams: BTreeMap<String, Arc<Mutex<StreamLive>>>,
}

/// The state of one stream of a link.
#[derive(Default)]
pub(crate) struct StreamLive {
    pub(crate) status: StreamStatus,
    pub(crate) meter: Meter,
}

impl Link {
    pub(crate) fn new(shared: Arc<Shared>, config: LinkConfig, letters: DeadLetters) -> Self {
        let secret = || {
            let random = || shared.host.random();
            format!("{:016x}{:016x}", random(), random())
        };
        let push = config.kind == LinkKind::HttpPush;
        let contact = push.then(|| ContactPoint::new(secret()));
        Self {
            contact,
            shared,
            feeder: Feeder::new(&config.name),
            config,
            letters,
            live: Mutex::default(),
        }
    }

    pub(crate) fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state of one stream.
    pub(crate) fn stream(&self, name: &str) -> Arc<Mutex<StreamLive>> {
        let mut live = self.live();
        if let Some(stream) = live.streams.get(name) {
            return stream.clone();
        }
        let mut stream = StreamLive::default();
        stream.status.name = name.to_owned();
        stream.status.local_name = self.config.local_name(name);
        let stream = Arc::new(Mutex::new(stream));
        if live.streams.len() >= 2 * self.config.limits.streams {
            // Drops streams without a receiver; an origin may invent any number of names.
            live.streams.retain(|_, known| Arc::strong_count(known) > 1);
        }
        live.streams.insert(name.to_owned(), stream.clone());
        stream
    }

    /// Notes that the link carries elements.
    pub(crate) fn connected(&self) {
        {
            let mut live = self.live();
            if live.state == LinkState::Connected {
                // Another stream of the link, on a connection of its own.
                return;
            }
            live.state = LinkState::Connected;
            live.last_error = None;
            live.hint = None;
            live.connections += 1;
        }
        let link = self.config.name.clone();
        self.shared.host.notice(LinkNotice::Connected { link });
    }

    /// Notes that the link is down.
    pub(crate) fn disconnected(&self, why: String, hint: Option<String>) {
        let is_reported = {
            let mut live = self.live();
            let is_reported =
                live.state == LinkState::Waiting && live.last_error.as_ref() == Some(&why);
            live.state = LinkState::Waiting;
            live.last_error = Some(why.clone());
            live.hint.clone_from(&hint);
            is_reported
        };
        if !is_reported {
            let link = self.config.name.clone();
            let notice = LinkNotice::Disconnected { link, why, hint };
            self.shared.host.notice(notice);
        }
    }

    /// Whether the link was removed.
    pub(crate) fn is_ended(&self) -> bool {
        self.live().state == LinkState::Ended
    }

    /// Sets the state without elements: ended, or about to connect.
    pub(crate) fn end(&self, state: LinkState) {
        if let (LinkState::Ended, Some(contact)) = (state, &self.contact) {
            contact.close();
        }
        self.live().state = state;
        if state == LinkState::Ended {
            self.feeder.remove();
        }
    }

    pub(crate) fn status(&self) -> LinkStatus {
        let dead_letters = self.letters.count();
        let live = self.live();
        let mut streams = Vec::with_capacity(live.streams.len());
        for stream in live.streams.values() {
            let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
            stream.status.rate_per_s = stream.meter.rate_per_s();
            streams.push(stream.status.clone());
        }
        let config = &self.config;
        LinkStatus {
            name: config.name.clone(),
            kind: config.kind,
            address: config.address.clone(),
            selects: config.streams.clone(),
            as_prefix: config.as_prefix.clone(),
            serialization: config.serialization(),
            state: live.state,
            last_error: live.last_error.clone(),
            hint: live.hint.clone(),
            reconnects: live.connections.saturating_sub(1),
            // An empty sum is -0; adding 0 makes it 0.
            rate_per_s: streams.iter().map(|it| it.rate_per_s).sum::<f64>() + 0.0,
            // What an origin says may be anything.
            lag_elements: streams
                .iter()
                .filter_map(|it| it.lag_elements)
                .reduce(u64::saturating_add),
            lag_s: streams.iter().map(|it| it.lag_s).fold(0.0, f64::max),
            held_bytes: streams.iter().map(|it| it.held_bytes).sum(),
            bytes_received: live.bytes_received,
            dead_letters,
            refused: sum(streams.iter().map(|it| &it.refused)),
            lost: sum(streams.iter().map(|it| &it.lost)),
            streams,
        }
    }

    pub(crate) async fn send_again(&self, number: u64) -> Result<(), LinkError> {
        let (store, now) = (&self.shared.store, self.shared.host.now());
        let (stream, origin) = self.letters.send_again(store, now, number).await?;
        if let Some(origin) = origin {
            self.shared.host.sent_again(&stream, origin);
        }
        Ok(())
    }
}

/// Adds up counts by reason.
fn sum<'a>(maps: impl Iterator<Item = &'a BTreeMap<String, u64>>) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for (reason, count) in maps.flatten() {
        let sum: &mut u64 = all.entry(reason.clone()).or_default();
        *sum = sum.saturating_add(*count);
    }
    all
}
