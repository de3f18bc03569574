//! Removes Thing Descriptions at the time that they name (WoT Discovery, section 7.3.1.2). Those with a time to live
//! have a lease instead, which no step of the wall clock ends.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use chappe_registry::{Attempts, Change, EntityKind, FeedItem, Principal, Search, thing};

use crate::clock;
use crate::shared::App;
use crate::tasks::{shutdown, yield_every};

/// Longest pause; reason: the wall clock may step.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// Pause after a removal that failed; reason: a full disk may stay full.
const RETRY: Duration = Duration::from_secs(1);

/// The ends of things, earliest first.
#[derive(Default)]
struct Ends {
    in_order: BTreeSet<(i64, String)>,
    by_key: HashMap<String, i64>,
}

impl Ends {
    fn set(&mut self, key: &str, end_ms: Option<i64>) {
        if let Some(known) = self.by_key.remove(key) {
            self.in_order.remove(&(known, key.to_owned()));
        }
        if let Some(end_ms) = end_ms {
            self.by_key.insert(key.to_owned(), end_ms);
            self.in_order.insert((end_ms, key.to_owned()));
        }
    }

    /// Reads the end of one thing.
    fn read(&mut self, app: &App, key: &str) {
        let entity = app.registry.get(key, &Principal::Operator);
        let entity =
            entity.filter(|entity| entity.kind == EntityKind::Thing && entity.lease_s.is_none());
        self.set(key, entity.as_ref().and_then(thing::expiry_ms));
    }

    /// Reads the ends of all things.
    async fn read_all(&mut self, app: &App) {
        *self = Self::default();
        let search = Search {
            kind: Some(EntityKind::Thing),
            ..Search::default()
        };
        let keys = app.registry.search_keys(&search, &Principal::Operator);
        for (index, key) in keys.iter().enumerate() {
            yield_every(index).await;
            self.read(app, key);
        }
    }

    /// The time until the next end.
    fn pause(&self, now_ms: i64) -> Duration {
        let Some((end_ms, _)) = self.in_order.first() else {
            return PAUSE_MAX;
        };
        let left = u64::try_from(end_ms.saturating_sub(now_ms)).unwrap_or(0);
        Duration::from_millis(left).min(PAUSE_MAX)
    }
}

/// Removes things that have ended, until the node shuts down.
pub(crate) async fn watch(app: App) {
    let mut drain = app.drain.clone();
    let start = app.registry.revision() + 1;
    let mut changes = app.registry.subscribe(start, Principal::Operator);
    let mut ends = Ends::default();
    ends.read_all(&app).await;
    let mut pause = ends.pause(now_ms());
    loop {
        tokio::select! {
            () = shutdown(&mut drain) => return,
            item = changes.next() => {
                follow(&app, &mut ends, item).await;
                pause = ends.pause(now_ms());
            }
            () = tokio::time::sleep(pause) => {
                pause = match remove_ended(&app, &mut ends).await {
                    true => ends.pause(now_ms()),
                    false => RETRY,
                };
            }
        }
    }
}

async fn follow(app: &App, ends: &mut Ends, item: FeedItem) {
    match item {
        FeedItem::Resync { .. } => ends.read_all(app).await,
        FeedItem::Change { change, .. } => match change {
            Change::Published {
                key,
                kind: EntityKind::Thing,
                ..
            } => ends.read(app, &key),
            Change::Published { key, .. } | Change::Removed { key, .. } => ends.set(&key, None),
        },
    }
}

/// Removes the things that have ended; false if that failed.
async fn remove_ended(app: &App, ends: &mut Ends) -> bool {
    let now_ms = now_ms();
    while let Some((end_ms, key)) = ends.in_order.first().cloned() {
        if end_ms > now_ms {
            break;
        }
        let mut attempts = Attempts::default();
        let removed = async {
            loop {
                let publication = app.registry.remove_expired_thing(&key, now_ms)?;
                if attempts.settle(publication).await? {
                    return Ok::<_, chappe_registry::Error>(());
                }
            }
        };
        if let Err(error) = removed.await {
            tracing::warn!(%error, thing = key, "cannot remove a thing that has ended");
            return false;
        }
        // If a client renewed it meanwhile, the feed says so.
        ends.set(&key, None);
        ends.read(app, &key);
    }
    true
}

fn now_ms() -> i64 {
    clock::now().0 / 1_000_000
}
