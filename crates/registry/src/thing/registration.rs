//! The registration of a Thing Description: when it was made, changed, and when it ends.
//!
//! Source: WoT Discovery, sections 7.3.1.1 and 7.3.1.2.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::fault::Faults;
use super::validation::expected;
use crate::entity::MAX_LEASE_S;
use crate::time::{parse_date_time, timestamp};

/// Longest time to live in seconds, a hundred years; reason: times have four digits for the year.
pub const MAX_TTL_S: f64 = 3_155_760_000.0;

/// The member of a document that holds it.
pub(super) const MEMBER: &str = "registration";

/// A registration. Times are milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Registration {
    /// When the Thing Description was registered.
    pub created_ms: i64,
    /// When it was last changed.
    pub modified_ms: i64,
    /// When it is removed; `None`: never.
    pub expires_ms: Option<i64>,
    /// The seconds between a change and the end; `None`: the client named the end itself, or none.
    pub ttl_s: Option<f64>,
}

impl Registration {
    /// What follows from the client's wishes at `now_ms`, for a document that was made at `created_ms`.
    /// With a time to live, the client's `expires` is ignored.
    pub(super) fn new(wishes: Option<&Value>, created_ms: i64, now_ms: i64) -> Self {
        let ttl_s = wishes
            .and_then(|wishes| wishes.get("ttl"))
            .and_then(Value::as_f64);
        let expires = wishes
            .and_then(|wishes| wishes.get("expires"))
            .and_then(Value::as_str);
        let after_ms = |ttl_s: f64| {
            let ttl = Duration::try_from_secs_f64(ttl_s).unwrap_or(Duration::MAX);
            i64::try_from(ttl.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
        };
        Self {
            created_ms,
            modified_ms: now_ms,
            expires_ms: match ttl_s {
                Some(ttl_s) => Some(now_ms.saturating_add(after_ms(ttl_s))),
                None => expires.and_then(parse_date_time),
            },
            ttl_s,
        }
    }

    /// Reads the registration of a document that this directory has made.
    #[must_use]
    pub fn of(document: &Value) -> Option<Self> {
        let member = document.get(MEMBER)?;
        let time = |name| {
            member
                .get(name)
                .and_then(Value::as_str)
                .and_then(parse_date_time)
        };
        Some(Self {
            created_ms: time("created")?,
            modified_ms: time("modified")?,
            expires_ms: time("expires"),
            ttl_s: member.get("ttl").and_then(Value::as_f64),
        })
    }

    /// The lease of a thing with a time to live, which is not shorter; `None` without, or if it is longer than
    /// leases are.
    pub(super) fn lease_s(self) -> Option<u32> {
        let ttl = Duration::try_from_secs_f64(self.ttl_s?).ok()?;
        let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        let seconds = u32::try_from(seconds).ok()?;
        (seconds <= MAX_LEASE_S).then_some(seconds)
    }

    /// As a member of a document. What the client added to its own is kept.
    pub(super) fn to_json(self, wishes: Option<&Value>) -> Value {
        let mut members = match wishes {
            Some(Value::Object(members)) => members.clone(),
            _ => Map::new(),
        };
        for name in ["expires", "retrieved"] {
            members.remove(name);
        }
        members.insert("created".to_owned(), json!(timestamp(self.created_ms)));
        members.insert("modified".to_owned(), json!(timestamp(self.modified_ms)));
        if let Some(expires_ms) = self.expires_ms {
            members.insert("expires".to_owned(), json!(timestamp(expires_ms)));
        }
        Value::Object(members)
    }
}

/// Checks the wishes of a client.
pub(super) fn check(value: &Value, now_ms: i64, faults: &mut Faults) {
    let Some(members) = value.as_object() else {
        return faults.add(expected("an object", value));
    };
    let ttl = members.get("ttl");
    if let Some(ttl) = ttl {
        faults.at("ttl", |faults| match ttl.as_f64() {
            None => faults.add(expected("a number", ttl)),
            Some(ttl_s) if ttl_s > 0.0 && ttl_s <= MAX_TTL_S => {}
            Some(_) => faults.add(format!("is not above 0 and at most {MAX_TTL_S} s")),
        });
    }
    if let Some(expires) = members.get("expires").filter(|_| ttl.is_none()) {
        faults.at("expires", |faults| match expires.as_str() {
            None => faults.add(expected("a string", expires)),
            Some(text) => match parse_date_time(text) {
                None => faults.add("is not a date-time with an offset (RFC 3339)"),
                Some(expires_ms) if expires_ms <= now_ms => faults.add("is in the past"),
                Some(_) => {}
            },
        });
    }
}
