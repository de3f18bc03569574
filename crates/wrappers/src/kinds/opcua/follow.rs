//! Follows the nodes of a file: connects, subscribes, closes gaps by history, and acknowledges what is stored.
//!
//! A lost connection is made again here, for as long as the server may have kept the subscription. Its notifications are
//! acknowledged when they are stored, so that a server that kept them sends them again; where they are gone, history is
//! read from the newest stored value of each node on, before the values that wait in the queues of the subscription.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chappe_stream::Timestamp;
use opcua_types::{
    ByteString, DataChangeNotification, DataValue, HistoryData, NodeId, NotificationMessage,
    PublishResponse, StatusChangeNotification, StatusCode, SubscriptionAcknowledgement,
};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::connection::{Connection, Fault, Session};
use super::elements::{Elements, quality, time_of};
use super::publish::{Publishes, republish};
use super::settings::{Group, Plan};
use super::subscription;
use super::track::{Arrival, Numbers, Track, Verdict};
use crate::clock::now;
use crate::{Batch, Condition, Notes, WrapperError};

/// Requests for notifications that wait at the server; 2: one more is there while an answer is stored.
const PUBLISHES: usize = 2;
/// Shortest time without any notification after which the server is gone: as for three of its signs of life.
const SILENCE_MIN: Duration = Duration::from_secs(30);
/// Time after which a lost connection is the wrapper's failure; reason: no server keeps a subscription for longer.
const RESUME_TIME: Duration = Duration::from_secs(600);
/// The first and the longest pause between two attempts to connect.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(15));
/// Pages of history without a new value after which a server is at fault; reason: values of the newest time come again.
const IDLE_PAGES_MAX: u32 = 3;
/// Values that are asked for at once from history, of one node.
pub(super) const HISTORY_PAGE: u32 = 1_000;
/// Factor by which a page shrinks that is too large for a message; at less than one value, history is given up.
const HISTORY_DIVISOR: u32 = 4;
/// Most faults of nodes that the reason of a wrapper names; reason: people read it.
const SHOWN_FAULTS: usize = 3;

/// A notification: its subscription and its number.
pub(super) type Notification = (u32, u32);

/// A batch, and the notification that it ends.
pub(super) type Delivery = Result<(Batch, Option<Notification>), WrapperError>;

/// A subscription at the server.
#[derive(Debug, Clone)]
pub(super) struct Subscription {
    pub(super) id: u32,
    /// The ids of the nodes; none for a node that is not there.
    pub(super) nodes: Vec<Option<NodeId>>,
    pub(super) numbers: Numbers,
    /// The handle of the first node; drawn by lot, so that values of another subscription are noticed.
    pub(super) first_handle: u32,
    /// Longest time between two signs of life, as the server promised.
    pub(super) alive: Duration,
}

impl Subscription {
    /// Time without any notification after which the server is gone.
    fn silence(&self) -> Duration {
        SILENCE_MIN.max(3 * self.alive)
    }
}

/// The task that has the connection.
pub(super) struct Follower {
    pub(super) plan: Plan,
    pub(super) track: Track,
    pub(super) batches: mpsc::Sender<Delivery>,
    /// What is stored and not yet acknowledged.
    pub(super) stored: Arc<Mutex<Vec<Notification>>>,
    pub(super) condition: Condition,
    pub(super) notes: Notes,
    pub(super) session: Option<Session>,
    pub(super) subscription: Option<Subscription>,
    /// The streams, with the units of the server.
    pub(super) groups: Vec<Group>,
    /// Whether values before the subscription may be missing.
    pub(super) has_gap: bool,
    /// Values of a page of history; 0: they are too large.
    pub(super) history_page: u32,
    /// When the last notification came.
    pub(super) worked: Option<Instant>,
    /// What is wrong with each node, and how many values had a bad status.
    pub(super) faults: Vec<(Option<String>, u64)>,
}

/// Why following ended.
enum End {
    /// The wrapper is gone.
    Dropped,
    Failed(WrapperError),
}

impl From<WrapperError> for End {
    fn from(error: WrapperError) -> Self {
        Self::Failed(error)
    }
}

impl Follower {
    /// Follows until the wrapper is gone, or the server is for too long.
    pub(super) async fn run(mut self) {
        let mut pause = PAUSES.0;
        loop {
            let begun = Instant::now();
            let error = match self.connected().await {
                End::Dropped => return,
                End::Failed(error) => error,
            };
            // A connection that carried notifications for a while starts the pauses again.
            if begun.elapsed() > 2 * PAUSES.1 {
                pause = PAUSES.0;
            }
            let is_over = self.worked.is_none_or(|last| last.elapsed() > RESUME_TIME);
            if is_over || matches!(error, WrapperError::Settings { .. }) {
                // A wrapper that is gone asks for no reason.
                let _ = self.batches.send(Err(error)).await;
                return;
            }
            let hint = error.hint().map(|hint| format!(" (hint: {hint})"));
            self.condition
                .waits(format!("{error}{}", hint.unwrap_or_default()));
            self.notes.add(format!("{error}; connecting again"));
            let until = Instant::now() + pause;
            while Instant::now() < until {
                tokio::select! {
                    () = sleep_until(until) => {}
                    () = due(&self.notes) => self.notes.pass(),
                    () = self.batches.closed() => return,
                }
            }
            pause = (2 * pause).min(PAUSES.1);
        }
    }

    /// One connection, from its beginning to its end.
    async fn connected(&mut self) -> End {
        let (connection, session, is_resumed) =
            match Connection::open(&self.plan.target, self.session.clone()).await {
                Ok(opened) => opened,
                Err(error) => return End::Failed(error),
            };
        self.session = Some(session);
        let followed = self.follow(&connection, is_resumed).await;
        match followed {
            Ok(()) => {
                connection.close().await;
                End::Dropped
            }
            Err(fault) => {
                match fault.status {
                    StatusCode::BadSessionIdInvalid
                    | StatusCode::BadSessionClosed
                    | StatusCode::BadSessionNotActivated => self.session = None,
                    StatusCode::BadNoSubscription | StatusCode::BadSubscriptionIdInvalid => {
                        self.subscription = None;
                    }
                    _ if fault.is_unreadable() => self.subscription = None,
                    _ => {}
                }
                if self.subscription.is_none() {
                    // What the server still has of it ends with the session.
                    connection.close().await;
                    self.session = None;
                }
                End::Failed(fault.error(&self.plan.target.url))
            }
        }
    }

    /// Follows by one connection; ends without a fault when the wrapper is gone.
    async fn follow(&mut self, connection: &Connection, is_resumed: bool) -> Result<(), Fault> {
        let kept = match (&self.subscription, is_resumed) {
            (Some(_), true) => true,
            (Some(subscription), false) => {
                subscription::transfer(connection, subscription.id).await?
            }
            (None, _) => false,
        };
        if !kept {
            self.subscription = None;
            self.subscription = Some(subscription::create(self, connection).await?);
            self.has_gap = self.track.has_begun();
        }
        if self.has_gap {
            let nodes: Vec<usize> = (0..self.plan.nodes.len()).collect();
            if !self.close_gap(connection, &nodes, "gap").await? {
                return Ok(());
            }
            self.has_gap = false;
        }
        self.show();
        let silence = self
            .subscription
            .as_ref()
            .map_or(SILENCE_MIN, Subscription::silence);
        let (mut publishes, mut most) = (Publishes::default(), PUBLISHES);
        loop {
            while publishes.waiting() < most {
                publishes.add(connection, self.acknowledgements(), 2 * silence);
            }
            let answer = tokio::select! {
                answer = timeout(silence, publishes.next()) => answer,
                () = self.batches.closed() => return Ok(()),
                () = due(&self.notes) => {
                    self.notes.pass();
                    continue;
                }
            };
            let answer = match answer {
                Err(_) => return Err(Fault::silence(silence)),
                Ok(Err(fault))
                    if fault.status == StatusCode::BadTooManyPublishRequests && most > 1 =>
                {
                    most = 1;
                    continue;
                }
                Ok(answer) => answer?,
            };
            self.worked = Some(Instant::now());
            if !self.notified(connection, answer).await? {
                return Ok(());
            }
        }
    }

    fn acknowledgements(&self) -> Vec<SubscriptionAcknowledgement> {
        let mut stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        let current = self.subscription.as_ref().map(|it| it.id);
        let stored = stored.drain(..).filter(|(id, _)| Some(*id) == current);
        let acknowledgement = |(subscription_id, sequence_number)| SubscriptionAcknowledgement {
            subscription_id,
            sequence_number,
        };
        stored.map(acknowledgement).collect()
    }

    /// Takes a notification, and those that are missing before it; returns false when the wrapper is gone.
    async fn notified(
        &mut self,
        connection: &Connection,
        answer: PublishResponse,
    ) -> Result<bool, Fault> {
        let message = answer.notification_message;
        let Some(subscription) = &self.subscription else {
            return Ok(true);
        };
        let id = subscription.id;
        if answer.subscription_id != id {
            return Ok(true);
        }
        let is_alive = message.notification_data.as_ref().is_none_or(Vec::is_empty);
        // They count as arrived when they are delivered: until then a new connection asks for them again.
        let mut numbers = subscription.numbers;
        let arrival = numbers.arrived(message.sequence_number, is_alive);
        let missing: Vec<Option<u32>> = match arrival {
            Arrival::Next => Vec::new(),
            Arrival::Repeated => return Ok(true),
            Arrival::Jump => vec![None],
            Arrival::After(missing) => missing.into_iter().map(Some).collect(),
        };
        let mut is_closed = false;
        for number in missing {
            let found = match number {
                Some(number) => republish(connection, id, number).await?,
                None => None,
            };
            let is_there = match found {
                Some(message) => self.deliver(connection, message, id).await?,
                // Before what comes after it: later the newest values would be behind the gap.
                None if !is_closed => {
                    is_closed = true;
                    let nodes: Vec<usize> = (0..self.plan.nodes.len()).collect();
                    self.close_gap(connection, &nodes, "gap").await?
                }
                None => true,
            };
            if !is_there {
                return Ok(false);
            }
            if let Some(number) = number {
                self.arrived(Numbers::after(number));
            }
        }
        let is_there = self.deliver(connection, message, id).await?;
        self.arrived(numbers);
        Ok(is_there)
    }

    fn arrived(&mut self, numbers: Numbers) {
        if let Some(subscription) = &mut self.subscription {
            subscription.numbers = numbers;
        }
    }

    /// Passes the values of a notification on; returns false when the wrapper is gone.
    async fn deliver(
        &mut self,
        connection: &Connection,
        message: NotificationMessage,
        id: u32,
    ) -> Result<bool, Fault> {
        let (mut values, number) = (Vec::new(), message.sequence_number);
        let first_handle = self.subscription.as_ref().map_or(0, |it| it.first_handle);
        for data in message.notification_data.unwrap_or_default() {
            if let Some(status) = data.inner_as::<StatusChangeNotification>()
                && status.status.is_bad()
            {
                self.subscription = None;
                return Err(Fault::ended(status.status));
            }
            if let Some(data) = data.into_inner_as::<DataChangeNotification>() {
                let items = data.monitored_items.unwrap_or_default().into_iter();
                values.extend(items.map(|item| {
                    let index = item.client_handle.wrapping_sub(first_handle);
                    (index as usize, item.value)
                }));
            }
        }
        if values
            .iter()
            .any(|(index, _)| *index >= self.plan.nodes.len())
        {
            // A server that was started again may have given the number of the subscription to another client.
            self.subscription = None;
            return Err(Fault::new(
                StatusCode::BadSubscriptionIdInvalid,
                "values of another subscription",
            ));
        }
        let overflowed = values.iter().filter(|(_, value)| overflow(value.status()));
        let overflowed: BTreeSet<usize> = overflowed.map(|(node, _)| *node).collect();
        let overflowed: Vec<usize> = overflowed.into_iter().collect();
        if !overflowed.is_empty() && !self.close_gap(connection, &overflowed, "overflow").await? {
            return Ok(false);
        }
        let (mut elements, received) = (Elements::default(), now());
        for (index, value) in &values {
            let time = time_of(value, received);
            match self.track.live(*index, time) {
                Verdict::Double => continue,
                Verdict::New => {}
                Verdict::ClockBack => {
                    let name = self.name(*index);
                    self.notes.add(format!(
                        "{name}: the clock of the source went back to {time}"
                    ));
                }
            }
            self.add(&mut elements, *index, value, (time, received));
            if elements.is_full() && !self.send(&mut elements, None).await {
                return Ok(false);
            }
        }
        self.show();
        if !values.is_empty() && !self.send(&mut elements, Some((id, number))).await {
            return Ok(false);
        }
        Ok(true)
    }

    fn add(
        &mut self,
        elements: &mut Elements,
        index: usize,
        value: &DataValue,
        times: (Timestamp, Timestamp),
    ) {
        let Some(node) = self.plan.nodes.get(index) else {
            return;
        };
        elements.add(&self.groups, node, value, times);
        let status = value.status();
        let is_good = quality(status) == chappe_stream::Quality::Good;
        let name = self.name(index);
        let Some((fault, count)) = self.faults.get_mut(index) else {
            return;
        };
        *count += u64::from(!is_good);
        let now = (!is_good).then(|| format!("{name}: {}", status.sub_code().name()));
        if *fault != now {
            let text = now.clone().unwrap_or_else(|| {
                format!("{name}: good again; {count} values so far were bad or uncertain")
            });
            self.notes.add(text);
            *fault = now;
        }
    }

    /// A node for people.
    pub(super) fn name(&self, index: usize) -> String {
        let node = self.plan.nodes.get(index);
        node.map_or_else(String::new, |node| {
            format!("{:?} ({})", node.name, node.address)
        })
    }

    /// Shows what is wrong with nodes.
    fn show(&self) {
        let faults: Vec<&str> = self
            .faults
            .iter()
            .filter_map(|(it, _)| it.as_deref())
            .collect();
        let shown = faults[..faults.len().min(SHOWN_FAULTS)].join("; ");
        match faults.len().saturating_sub(SHOWN_FAULTS) {
            _ if faults.is_empty() => self.condition.runs(),
            0 => self.condition.waits(shown),
            hidden => self.condition.waits(format!("{shown}; and {hidden} more")),
        }
    }

    /// Passes a batch on, with a notification that it ends; returns false when the wrapper is gone. A notification
    /// without anything new is acknowledged at once.
    async fn send(&mut self, elements: &mut Elements, ends: Option<Notification>) -> bool {
        let Some(mut batch) = elements.take() else {
            let mut stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
            stored.extend(ends);
            return true;
        };
        batch.mark = self.track.mark();
        self.batches.send(Ok((batch, ends))).await.is_ok()
    }

    /// Closes a gap of some nodes by history, where the server has it; else it is counted as a loss for `reason`.
    /// Returns false when the wrapper is gone.
    async fn close_gap(
        &mut self,
        connection: &Connection,
        nodes: &[usize],
        reason: &'static str,
    ) -> Result<bool, Fault> {
        for node in nodes {
            self.track.begin_gap(*node);
        }
        if let Some(delay) = self.plan.history_delay {
            self.condition.waits("reading history");
            sleep(delay).await;
        }
        let mut losses = Elements::default();
        for node in nodes {
            // Nothing can be missing of a node that had no value.
            let Some(newest) = self.track.newest(*node) else {
                continue;
            };
            let read = match self.plan.history_delay {
                Some(_) => self.read_history(connection, *node, newest).await?,
                None => History::Missing(None),
            };
            match read {
                History::Read => {}
                History::Dropped => return Ok(false),
                History::Missing(status) => {
                    let name = self.name(*node);
                    let group = self.plan.nodes.get(*node).map(|node| node.group);
                    if let Some(group) = group.and_then(|group| self.groups.get(group)) {
                        losses.lose(group, reason);
                    }
                    let status = status.map_or(String::new(), |it| format!("; history: {it}"));
                    self.notes
                        .add(format!("{name}: values may be missing ({reason}{status})"));
                }
            }
        }
        Ok(self.send(&mut losses, None).await)
    }

    /// Reads the history of a node from a time on.
    async fn read_history(
        &mut self,
        connection: &Connection,
        index: usize,
        newest: Timestamp,
    ) -> Result<History, Fault> {
        let ids = self.subscription.as_ref().map(|it| &it.nodes);
        let Some(id) = ids.and_then(|ids| ids.get(index)?.clone()) else {
            return Ok(History::Missing(None));
        };
        let (mut from, mut point, mut idle) = (newest, ByteString::null(), 0_u32);
        loop {
            if self.history_page == 0 {
                return Ok(History::Missing(Some(StatusCode::BadResponseTooLarge)));
            }
            let count = self.history_page;
            let page = match connection.history(&id, (from, count), point).await {
                Err(fault) if fault.is_unreadable() => {
                    self.history_page /= HISTORY_DIVISOR;
                    return Err(fault);
                }
                Err(fault) if fault.status == StatusCode::BadResponseTooLarge => {
                    self.history_page /= HISTORY_DIVISOR;
                    point = ByteString::null();
                    continue;
                }
                Err(fault) if !fault.is_disconnect() => {
                    return Ok(History::Missing(Some(fault.status)));
                }
                page => page?,
            };
            if page.status_code.is_bad() {
                return Ok(History::Missing(Some(page.status_code)));
            }
            let data = page.history_data.into_inner_as::<HistoryData>();
            let values = data.and_then(|data| data.data_values).unwrap_or_default();
            let (mut elements, received) = (Elements::default(), now());
            let mut has_new = false;
            for value in &values {
                let time = time_of(value, received);
                if !self.track.history(index, time) {
                    continue;
                }
                has_new = true;
                from = time;
                self.add(&mut elements, index, value, (time, received));
                if elements.is_full() && !self.send(&mut elements, None).await {
                    return Ok(History::Dropped);
                }
            }
            if !self.send(&mut elements, None).await {
                return Ok(History::Dropped);
            }
            point = page.continuation_point;
            idle = if has_new { 0 } else { idle + 1 };
            // Some servers give no continuation point, and a full page.
            let is_full = values.len() >= count as usize;
            let is_last = point.is_null_or_empty();
            if idle == IDLE_PAGES_MAX || (is_last && is_full && !has_new) {
                return Ok(History::Missing(Some(
                    StatusCode::BadContinuationPointInvalid,
                )));
            }
            if is_last && !is_full {
                return Ok(History::Read);
            }
        }
    }
}

/// What became of reading the history of a node.
enum History {
    Read,
    /// The server has none, for this reason.
    Missing(Option<StatusCode>),
    /// The wrapper is gone.
    Dropped,
}

/// Whether a value came out of a queue that overflowed: the bits mean that only for values (part 4, table 178).
fn overflow(status: StatusCode) -> bool {
    status.overflow() && status.bits() & 0x400 != 0
}

/// Ends when notes are to be passed on.
async fn due(notes: &Notes) {
    match notes.due() {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
