//! Requests for birth certificates (Eclipse Sparkplug 3.0, 5.10), at a bounded rate.

use std::collections::VecDeque;

use chappe_stream::Timestamp;

use super::super::payload::{Metric, MetricValue, Payload, Topic};
use super::super::value::{self, BOOLEAN};
use super::{NodeId, REBIRTH};
use crate::kinds::mqtt::session::Publication;

/// Edge nodes without a birth certificate of which the last request is known; reason: anybody can make up their names.
const UNBORN_MAX: usize = 1_024;
/// Nanoseconds between two requests to the same edge node; reason: its birth certificate needs some time to arrive.
const REQUEST_PERIOD: i64 = 10_000_000_000;
/// Requests to all edge nodes in one [`REQUESTS_PERIOD`]; reason: messages with many made-up names must not become as
/// many messages of this host.
const REQUESTS_MAX: u32 = 20;
/// Nanoseconds of a second, in which there are at most [`REQUESTS_MAX`] requests.
const REQUESTS_PERIOD: i64 = 1_000_000_000;

/// Requests for birth certificates.
#[derive(Default)]
pub(super) struct Requests {
    /// Edge nodes without a birth certificate, and when they were asked, the oldest first.
    unborn: VecDeque<(NodeId, Timestamp)>,
    /// When the current period began.
    period_start: Timestamp,
    /// Requests in the current period.
    count: u32,
}

impl Requests {
    /// Whether an edge node is asked now, which was asked last at `asked`.
    pub(super) fn is_due_for(&mut self, asked: &mut Option<Timestamp>, now: Timestamp) -> bool {
        let is_due = !asked.is_some_and(|asked| is_within(asked, REQUEST_PERIOD, now));
        if !is_due || !self.has_room(now) {
            return false;
        }
        self.count += 1;
        *asked = Some(now);
        true
    }

    /// Whether an edge node without a birth certificate is asked now.
    pub(super) fn is_due_for_unborn(&mut self, id: &NodeId, now: Timestamp) -> bool {
        if !self.has_room(now) {
            return false;
        }
        let at = self.unborn.iter().position(|(one, _)| one == id);
        let mut asked = at.map(|at| self.unborn[at].1);
        if !self.is_due_for(&mut asked, now) {
            return false;
        }
        if let Some(at) = at {
            self.unborn.remove(at);
        }
        if self.unborn.len() >= UNBORN_MAX {
            self.unborn.pop_front();
        }
        self.unborn.push_back((id.clone(), now));
        true
    }

    /// Whether one more request is allowed now.
    fn has_room(&mut self, now: Timestamp) -> bool {
        if !is_within(self.period_start, REQUESTS_PERIOD, now) {
            (self.period_start, self.count) = (now, 0);
        }
        self.count < REQUESTS_MAX
    }
}

/// Whether `now` is less than a period after `start`. A clock that was set back ends the period.
fn is_within(start: Timestamp, period: i64, now: Timestamp) -> bool {
    (0..period).contains(&now.0.saturating_sub(start.0))
}

/// The message that asks the edge node of a topic for its birth certificates.
pub(super) fn request(topic: Topic<'_>, now: Timestamp) -> Publication {
    let payload = Payload {
        timestamp: Some(value::milliseconds(now)),
        metrics: vec![Metric {
            name: Some(REBIRTH.to_owned()),
            timestamp: Some(value::milliseconds(now)),
            datatype: Some(BOOLEAN),
            value: Some(MetricValue::Boolean(true)),
            ..Metric::default()
        }],
        seq: None,
    };
    let topic = Topic {
        verb: "NCMD",
        device: None,
        ..topic
    };
    Publication {
        token: 0,
        topic: topic.text(),
        payload: payload.to_bytes(),
        qos: 0,
        is_retained: false,
        property: None,
    }
}
