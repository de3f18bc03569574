//! The elements and bytes that one device may bring a second (`devices.*` of the configuration).
//!
//! A device that brings more is slowed at first: its next notifications are read later, by [`DELAY_MAX`] at
//! most, so that those beyond the queue are answered later. Elements that are read while it is still above
//! its quota are dropped, and counted as lost. The number of its streams is bounded in `offered.rs`.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chappe_stream::StreamElement;
use chappe_wrappers::dpws::Yield;
use chappe_wrappers::{Offers, Trouble};
use tokio::time::Instant;

use super::intake;
use super::offered::Streams;
use crate::clock;
use crate::config::{Config, MaxBytes, Quotas};
use crate::metrics::QuotaLabel;
use crate::shared::App;

/// Time whose elements a device may bring at once. Reason: one that was cut off for some seconds catches
/// up, and one of hundreds of metrics sends all at its start.
const BURST: Duration = Duration::from_secs(5);
/// The same of the bytes of a day.
const DAY: Duration = Duration::from_secs(86_400);
/// Least bytes of a day, where they follow from the log's size. Reason: twice those of ten leads of 500
/// samples a second.
const DAY_BYTES_MIN: u64 = 16 << 30;
/// Longest wait of a notification for a quota. Reason: devices give up an answer after 5 s and more.
const DELAY_MAX: Duration = Duration::from_secs(1);
/// How long a device that was above a quota is shown so.
const SHOWN: Duration = Duration::from_secs(10);

/// A quota.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Kind {
    /// Why elements are lost by it.
    reason: &'static str,
    /// Its key in the configuration.
    key: &'static str,
    unit: &'static str,
    hint: &'static str,
}

const ELEMENTS: Kind = Kind {
    reason: "device_elements_quota",
    key: "devices.max_elements_per_s",
    unit: "elements a second",
    hint: "make it send less, or raise devices.max_elements_per_s",
};
const BYTES: Kind = Kind {
    reason: "device_bytes_quota",
    key: "devices.max_bytes_per_s",
    unit: "bytes a second",
    hint: "make it send less, or raise devices.max_bytes_per_s",
};
const DAY_BYTES: Kind = Kind {
    reason: "device_day_quota",
    key: "devices.max_bytes_per_day",
    unit: "bytes a day",
    hint: "make it send less, or raise devices.max_bytes_per_day or log.max_bytes",
};

/// A leaky bucket: it holds as much as a device may bring at once, and drains at the rate of the quota.
#[derive(Debug)]
struct Bucket {
    kind: &'static Kind,
    /// What the quota allows in its unit; 0: everything.
    allowed: u64,
    per_s: f64,
    size: f64,
    level: f64,
}

impl Bucket {
    fn new(kind: &'static Kind, allowed: u64, unit: Duration, size: Duration) -> Self {
        let per_s = allowed as f64 / unit.as_secs_f64();
        Self {
            kind,
            allowed,
            per_s,
            size: per_s * size.as_secs_f64(),
            level: 0.0,
        }
    }

    fn drain(&mut self, elapsed: Duration) {
        self.level = (self.level - self.per_s * elapsed.as_secs_f64()).max(0.0);
    }

    fn take(&mut self, amount: u64) {
        if self.allowed > 0 {
            self.level += amount as f64;
        }
    }

    /// Time until it no longer holds more than it should.
    fn debt(&self) -> Duration {
        let above = self.level - self.size;
        match above > 0.0 {
            true => Duration::try_from_secs_f64(above / self.per_s).unwrap_or(Duration::MAX),
            false => Duration::ZERO,
        }
    }
}

/// How much one device has brought lately.
#[derive(Debug)]
pub(super) struct Quota {
    buckets: [Bucket; 3],
    drained_at: Instant,
    /// Until then nothing more is read from the device.
    resume_at: Option<Instant>,
    excess: Option<Excess>,
}

/// A device that was above a quota lately.
#[derive(Debug)]
struct Excess {
    kind: &'static Kind,
    allowed: u64,
    last_at: Instant,
    lost: u64,
}

/// What is done with elements.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Take,
    Drop(&'static Kind),
}

impl Quota {
    fn new(quotas: &Quotas, log_max_bytes: Option<u64>, now: Instant) -> Self {
        let day_bytes = match (quotas.max_bytes_per_day, log_max_bytes) {
            (MaxBytes::Bytes(bytes), _) => bytes,
            (MaxBytes::Word(_), Some(bytes)) => (bytes / 2).max(DAY_BYTES_MIN),
            (MaxBytes::Word(_), None) => 0,
        };
        let second = Duration::from_secs(1);
        Self {
            buckets: [
                Bucket::new(&ELEMENTS, quotas.max_elements_per_s, second, BURST),
                Bucket::new(&BYTES, quotas.max_bytes_per_s, second, BURST),
                Bucket::new(&DAY_BYTES, day_bytes, DAY, DAY),
            ],
            drained_at: now,
            resume_at: None,
            excess: None,
        }
    }

    /// Whether nothing is to be read from the device now.
    pub(super) fn is_paused(&self) -> bool {
        self.resume_at.is_some()
    }

    /// When [`Quota::pass`] is to be called.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let shown = self.excess.as_ref().map(|excess| excess.last_at + SHOWN);
        self.resume_at.or(shown)
    }

    /// Notes that it is `now`.
    pub(super) fn pass(&mut self, now: Instant) {
        self.resume_at.take_if(|at| *at <= now);
        self.excess
            .take_if(|excess| excess.last_at + SHOWN <= now && self.resume_at.is_none());
    }

    /// Why the device is slowed or its elements dropped, if that was so lately.
    pub(super) fn trouble(&self) -> Option<Trouble> {
        let excess = self.excess.as_ref()?;
        let Kind {
            reason,
            key,
            unit,
            hint,
        } = excess.kind;
        let consequence = match excess.lost {
            0 => "it is slowed".to_owned(),
            lost => format!("it is slowed, and {lost} of its elements were dropped"),
        };
        Some(Trouble {
            reason,
            detail: format!(
                "it sends more than {} {unit} ({key}): {consequence}",
                excess.allowed
            ),
            hint: Some(hint),
        })
    }

    /// Judges elements that came together, of which the first has waited for so long.
    ///
    /// All are taken while the device is within its quotas, also where it is above them afterwards: then
    /// the next ones are read later.
    fn judge(&mut self, now: Instant, waited: Duration, elements: u64, bytes: u64) -> Verdict {
        self.drain(now);
        let above = self.buckets.iter().find(|bucket| !bucket.debt().is_zero());
        let verdict = match above {
            Some(bucket) => Verdict::Drop(bucket.kind),
            None => Verdict::Take,
        };
        let mut lost = elements;
        if verdict == Verdict::Take {
            lost = 0;
            for (bucket, amount) in self.buckets.iter_mut().zip([elements, bytes, bytes]) {
                bucket.take(amount);
            }
        }
        let most = self.buckets.iter().max_by_key(|bucket| bucket.debt());
        let Some(most) = most.filter(|bucket| !bucket.debt().is_zero()) else {
            return verdict;
        };
        let pause = most.debt().min(DELAY_MAX.saturating_sub(waited));
        self.resume_at = (!pause.is_zero()).then(|| now + pause);
        let before = self.excess.as_ref().map_or(0, |excess| excess.lost);
        self.excess = Some(Excess {
            kind: most.kind,
            allowed: most.allowed,
            last_at: now,
            lost: before + lost,
        });
        verdict
    }

    fn drain(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.drained_at);
        self.drained_at = now;
        for bucket in &mut self.buckets {
            bucket.drain(elapsed);
        }
    }
}

/// What a device that has left had brought by then.
#[derive(Debug, Clone, Copy)]
struct Left {
    levels: [f64; 3],
    at: Instant,
}

/// The quotas of all devices. What a device has brought is remembered after it has left, so that one that
/// comes again and again has no more than one that stays.
#[derive(Debug)]
pub(crate) struct DeviceQuotas {
    config: Quotas,
    log_max_bytes: Option<u64>,
    /// How many are remembered.
    most: usize,
    left: Mutex<HashMap<String, Left>>,
}

impl DeviceQuotas {
    pub(crate) fn new(config: &Config, log_max_bytes: Option<u64>) -> Self {
        Self {
            config: config.devices.clone(),
            log_max_bytes,
            most: config.discovery.max_devices as usize,
            left: Mutex::default(),
        }
    }

    /// The quota of a device that comes.
    fn enter(&self, key: &str, now: Instant) -> Quota {
        let mut quota = Quota::new(&self.config, self.log_max_bytes, now);
        if let Some(left) = self.left().remove(key) {
            quota.drained_at = left.at;
            for (bucket, level) in quota.buckets.iter_mut().zip(left.levels) {
                bucket.level = level;
            }
        }
        quota
    }

    /// Remembers what a device that leaves has brought. Where that is one too many, the one that left
    /// first is forgotten.
    fn leave(&self, key: &str, quota: &Quota) {
        let mut left = self.left();
        let levels = quota.buckets.each_ref().map(|bucket| bucket.level);
        let at = quota.drained_at;
        left.insert(key.to_owned(), Left { levels, at });
        if left.len() > self.most {
            let others = left.iter().filter(|(other, _)| *other != key);
            let first = others.min_by_key(|(_, left)| left.at);
            if let Some(key) = first.map(|(key, _)| key.clone()) {
                left.remove(&key);
            }
        }
    }

    fn left(&self) -> MutexGuard<'_, HashMap<String, Left>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The quota of a device that is followed.
pub(super) struct Held {
    app: App,
    key: String,
    quota: Quota,
}

impl Held {
    pub(super) fn new(app: &App, key: &str) -> Self {
        Self {
            app: app.clone(),
            key: key.to_owned(),
            quota: app.device_quotas.enter(key, Instant::now()),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.app.device_quotas.leave(&self.key, &self.quota);
    }
}

impl std::ops::Deref for Held {
    type Target = Quota;

    fn deref(&self) -> &Quota {
        &self.quota
    }
}

impl std::ops::DerefMut for Held {
    fn deref_mut(&mut self) -> &mut Quota {
        &mut self.quota
    }
}

/// What is to be stored of what came from a device: all, or nothing but what is no element.
pub(super) async fn admit(
    app: &App,
    key: &str,
    quota: &mut Quota,
    streams: &mut Streams,
    offers: &Offers,
    mut yields: Vec<Yield>,
) -> Vec<Yield> {
    let elements = || yields.iter().filter_map(element_of);
    let Some((_, first)) = elements().next() else {
        return yields;
    };
    let waited = u64::try_from(clock::now().0.saturating_sub(first.receive_time.0));
    let waited = Duration::from_nanos(waited.unwrap_or(0));
    let bytes = elements().map(|(_, one)| one.size_bytes() as u64).sum();
    let mut counts: BTreeMap<usize, u64> = BTreeMap::new();
    for (offer, _) in elements() {
        *counts.entry(offer).or_default() += 1;
    }
    let verdict = quota.judge(Instant::now(), waited, counts.values().sum(), bytes);
    if quota.is_paused() {
        let quota = quota.excess.as_ref().map_or("", |excess| excess.kind.key);
        let label = QuotaLabel { quota };
        app.metrics.devices_slowed.get_or_create(&label).inc();
    }
    let Verdict::Drop(kind) = verdict else {
        return yields;
    };
    yields.retain(|one| element_of(one).is_none());
    let detail = quota
        .trouble()
        .map_or(String::new(), |trouble| trouble.detail);
    for (number, count) in counts {
        let stream = match offers.get(number) {
            // A stream is defined when its first element is stored, behind those before it.
            Some(offer) if !streams.is_undefined(number) => {
                streams.stream(app, key, number, offer).await
            }
            _ => Err((key.to_owned(), String::new())),
        };
        let name = match &stream {
            Ok(entry) => &entry.name,
            Err((name, _)) => name,
        };
        intake::lost_of(app, name, count, kind.reason, &detail);
    }
    yields
}

fn element_of(one: &Yield) -> Option<(usize, &StreamElement)> {
    match one {
        Yield::Element(offer, element) | Yield::Current(offer, element) => Some((*offer, element)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUOTAS: Quotas = Quotas {
        max_streams: 1,
        max_elements_per_s: 100,
        max_bytes_per_s: 10_000,
        max_bytes_per_day: MaxBytes::Bytes(0),
    };

    fn quota(quotas: &Quotas, now: Instant) -> Quota {
        Quota::new(quotas, None, now)
    }

    #[test]
    fn a_device_that_waits_is_slowed_to_its_quota_and_loses_nothing() {
        let start = Instant::now();
        let mut quota = quota(&QUOTAS, start);
        let (mut now, mut taken) = (start, 0_u64);
        while now < start + Duration::from_secs(60) {
            // It sends the next ten as soon as those before are answered.
            assert_eq!(quota.judge(now, Duration::ZERO, 10, 0), Verdict::Take);
            taken += 10;
            if let Some(at) = quota.deadline().filter(|_| quota.is_paused()) {
                assert!(at <= now + DELAY_MAX);
                now = at;
                quota.pass(now);
            }
        }
        assert!((6_400..=6_520).contains(&taken), "{taken}");
        assert!(quota.trouble().unwrap().detail.ends_with("it is slowed"));
        quota.pass(now + SHOWN);
        assert!(quota.trouble().is_none());
        assert_eq!(quota.deadline(), None);
    }

    #[test]
    fn a_flood_that_cannot_be_slowed_is_cut_to_the_quota_and_waits_no_longer_than_allowed() {
        let start = Instant::now();
        let mut quota = quota(&QUOTAS, start);
        let step = Duration::from_millis(1);
        // Ten elements come each millisecond, a hundred times what is allowed.
        let mut queue = std::collections::VecDeque::new();
        let (mut taken, mut dropped, mut longest) = (0_u64, 0_u64, Duration::ZERO);
        for round in 0..60_000_u32 {
            let now = start + step * round;
            queue.push_back(now);
            quota.pass(now);
            while !quota.is_paused()
                && let Some(came) = queue.pop_front()
            {
                let waited = now - came;
                longest = longest.max(waited);
                match quota.judge(now, waited, 10, 0) {
                    Verdict::Take => taken += 10,
                    Verdict::Drop(kind) => {
                        assert_eq!(kind, &ELEMENTS);
                        dropped += 10;
                    }
                }
            }
        }
        assert_eq!(taken + dropped + 10 * queue.len() as u64, 600_000);
        assert!((6_400..=6_520).contains(&taken), "{taken}");
        assert!(longest <= DELAY_MAX + step, "{longest:?}");
        let detail = quota.trouble().unwrap().detail;
        assert!(detail.contains(&dropped.to_string()), "{detail}");
    }

    #[test]
    fn bytes_have_a_quota_of_their_own_and_zero_is_none() {
        let now = Instant::now();
        let take = |quota: &mut Quota, bytes| quota.judge(now, Duration::ZERO, 1, bytes);
        let mut bounded = quota(&QUOTAS, now);
        assert_eq!(take(&mut bounded, 50_001), Verdict::Take);
        assert_eq!(take(&mut bounded, 1), Verdict::Drop(&BYTES));
        let none = Quotas {
            max_elements_per_s: 0,
            max_bytes_per_s: 0,
            ..QUOTAS
        };
        let mut unbounded = quota(&none, now);
        for _ in 0..100 {
            assert_eq!(take(&mut unbounded, u64::MAX), Verdict::Take);
        }
        assert!(!unbounded.is_paused() && unbounded.trouble().is_none());
    }

    #[test]
    fn in_a_day_a_device_brings_twice_its_bytes_of_a_day_at_most() {
        let day = 86_400_000_u64;
        let config = Quotas {
            max_elements_per_s: 0,
            max_bytes_per_s: 0,
            max_bytes_per_day: MaxBytes::Bytes(day),
            ..QUOTAS
        };
        let start = Instant::now();
        let mut quota = quota(&config, start);
        let mut taken = 0;
        for second in 0..86_400 {
            let now = start + Duration::from_secs(second);
            quota.pass(now);
            if quota.judge(now, DELAY_MAX, 1, 1 << 20) == Verdict::Take {
                taken += 1 << 20;
            }
        }
        assert!(
            (2 * day - (1 << 20)..=2 * day + (1 << 20)).contains(&taken),
            "{taken}"
        );
    }

    #[test]
    fn the_bytes_of_a_day_follow_from_the_size_of_the_log() {
        let quotas = Quotas::default();
        let allowed = |log| Quota::new(&quotas, log, Instant::now()).buckets[2].allowed;
        assert_eq!(allowed(Some(1 << 40)), 1 << 39);
        assert_eq!(allowed(Some(1 << 30)), DAY_BYTES_MIN);
        assert_eq!(allowed(None), 0, "nothing is pushed out");
    }

    #[test]
    fn a_device_that_comes_again_has_brought_what_it_had() {
        let mut config = Config {
            devices: QUOTAS,
            ..Config::default()
        };
        config.discovery.max_devices = 2;
        let all = DeviceQuotas::new(&config, None);
        let now = Instant::now();
        for key in ["a", "b", "c"] {
            let mut quota = all.enter(key, now);
            assert_eq!(quota.judge(now, Duration::ZERO, 501, 0), Verdict::Take);
            all.leave(key, &quota);
        }
        let later = now + Duration::from_millis(5);
        let judge = |key| all.enter(key, later).judge(later, Duration::ZERO, 1, 0);
        assert_eq!(judge("c"), Verdict::Drop(&ELEMENTS));
        let much_later = now + Duration::from_secs(1);
        let mut b = all.enter("b", much_later);
        let remembered = ["a", "b"]
            .iter()
            .filter(|key| all.left().contains_key(**key));
        assert!(remembered.count() <= 1, "as many as there may be devices");
        assert_eq!(b.judge(much_later, Duration::ZERO, 1, 0), Verdict::Take);
    }
}
