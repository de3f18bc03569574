//! One link: what it is configured to do, and how it does.

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
    /// It as the feeder of its streams.
    pub(crate) feeder: Arc<Feeder>,
    /// Where the origin sends elements, for HTTP push.
    pub(crate) contact: Option<ContactPoint>,
    live: Mutex<Live>,
}

/// How it does.
#[derive(Default)]
pub(crate) struct Live {
    state: LinkState,
    last_error: Option<String>,
    hint: Option<String>,
    connections: u64,
    pub(crate) bytes_received: u64,
    pub(crate) streams: BTreeMap<String, Arc<Mutex<StreamLive>>>,
}

/// How one of its streams does.
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

    /// What is known of one of its streams.
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
            // Those that nothing is received of; an origin may make up names without end.
            live.streams.retain(|_, known| Arc::strong_count(known) > 1);
        }
        live.streams.insert(name.to_owned(), stream.clone());
        stream
    }

    /// It carries elements.
    pub(crate) fn connected(&self) {
        {
            let mut live = self.live();
            if live.state == LinkState::Connected {
                // Another of its streams, over a connection of its own.
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

    /// It is down.
    pub(crate) fn disconnected(&self, why: String, hint: Option<String>) {
        let told = {
            let mut live = self.live();
            let told = live.state == LinkState::Waiting && live.last_error.as_ref() == Some(&why);
            live.state = LinkState::Waiting;
            live.last_error = Some(why.clone());
            live.hint.clone_from(&hint);
            told
        };
        if !told {
            let link = self.config.name.clone();
            let notice = LinkNotice::Disconnected { link, why, hint };
            self.shared.host.notice(notice);
        }
    }

    /// Whether it was removed.
    pub(crate) fn is_ended(&self) -> bool {
        self.live().state == LinkState::Ended
    }

    /// It is ended, or about to be connected.
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
        let mut config = self.config.clone();
        config.token = None;
        LinkStatus {
            config,
            state: live.state,
            last_error: live.last_error.clone(),
            hint: live.hint.clone(),
            reconnects: live.connections.saturating_sub(1),
            rate_per_s: streams.iter().map(|it| it.rate_per_s).sum(),
            // What an origin says may be anything.
            lag_elements: streams
                .iter()
                .filter_map(|it| it.lag_elements)
                .reduce(u64::saturating_add),
            lag_s: streams.iter().map(|it| it.lag_s).fold(0.0, f64::max),
            held_bytes: streams.iter().map(|it| it.held_bytes).sum(),
            bytes_received: live.bytes_received,
            dead_letters,
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
