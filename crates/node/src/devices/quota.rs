//! The elements and bytes that one device may send per second and per day (`devices.*` in the
//! configuration).
//!
//! A device above a quota is slowed down without loss: nothing is read from it until it is within the
//! quota again. Meanwhile the queue of its notifications fills (`notifications_max` and
//! `notifications_bytes` of the device client), and then the device waits for its answers. A device
//! that does not wait for answers gains nothing by that. `offered.rs` limits the number of streams.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chappe_device::mapping::Trouble;
use tokio::time::Instant;

use crate::config::{Config, DeviceRules, MaxBytes};

/// Size of a burst, as time at the quota's rate; reason: a device that was disconnected for some seconds
/// catches up, and a device with hundreds of metrics sends all at its start.
const BURST: Duration = Duration::from_secs(5);
/// Size of a burst of the daily quota.
const DAY: Duration = Duration::from_secs(86_400);
/// Minimum of the daily bytes derived from the log's size; reason: a patient monitor with 24 leads at
/// 1,000 samples per second stays within it. In stretches of 25 ms it sends 960 elements per second of 352
/// bytes (152, and 25 samples of 8), 27 GiB per day; the log appends 222 bytes each, 17 GiB per day. In
/// stretches of 10 ms it sends 2,400 elements per second of 232 bytes, 45 GiB per day; the log appends 102
/// bytes each, 20 GiB per day.
const DAY_BYTES_MIN: u64 = 64 << 30;
/// Longest pause after a notification; reason: a third of the answer time-out
/// (`ServerLimits::answer_deadline`), so that a device is read however small its quota is.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// Time for which a device stays marked as slowed after it exceeded a quota.
const SHOWN: Duration = Duration::from_secs(10);

/// A quota.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Kind {
    /// The reason for which it slows a device.
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

/// A leaky bucket: its size is the burst, and it drains at the rate of the quota.
#[derive(Debug)]
struct Bucket {
    kind: &'static Kind,
    /// The quota in its unit; 0: unlimited.
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

    /// Time until its content is within its size.
    fn debt(&self) -> Duration {
        let above = self.level - self.size;
        match above > 0.0 {
            true => Duration::try_from_secs_f64(above / self.per_s).unwrap_or(Duration::MAX),
            false => Duration::ZERO,
        }
    }
}

/// The recent use of one device's quotas.
#[derive(Debug)]
pub(super) struct Quota {
    buckets: [Bucket; 3],
    drained_at: Instant,
    /// Nothing is read from the device before this time.
    resume_at: Option<Instant>,
    excess: Option<Excess>,
}

/// A recent excess of a quota.
#[derive(Debug)]
struct Excess {
    kind: &'static Kind,
    allowed: u64,
    last_at: Instant,
}

impl Quota {
    fn new(quotas: &DeviceRules, log_max_bytes: Option<u64>, now: Instant) -> Self {
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

    /// Whether reading from the device is paused.
    pub(super) fn is_paused(&self) -> bool {
        self.resume_at.is_some()
    }

    /// The time at which to call [`Quota::pass`].
    pub(super) fn deadline(&self) -> Option<Instant> {
        let shown = self.excess.as_ref().map(|excess| excess.last_at + SHOWN);
        self.resume_at.or(shown)
    }

    /// Advances the time to `now`.
    pub(super) fn pass(&mut self, now: Instant) {
        self.resume_at.take_if(|at| *at <= now);
        self.excess
            .take_if(|excess| excess.last_at + SHOWN <= now && self.resume_at.is_none());
    }

    /// The key of the quota that pauses the device, if one does.
    pub(super) fn pausing(&self) -> Option<&'static str> {
        let excess = self.excess.as_ref().filter(|_| self.is_paused())?;
        Some(excess.kind.key)
    }

    pub(super) fn trouble(&self) -> Option<Trouble> {
        let excess = self.excess.as_ref()?;
        let Kind {
            reason,
            key,
            unit,
            hint,
        } = excess.kind;
        Some(Trouble {
            reason,
            detail: format!(
                "it sends more than {} {unit} ({key}): it is slowed",
                excess.allowed
            ),
            hint: Some(hint),
        })
    }

    /// Charges elements that arrived together. A device above a quota is paused until it is within all of
    /// them.
    pub(super) fn charge(&mut self, now: Instant, elements: u64, bytes: u64) {
        self.drain(now);
        for (bucket, amount) in self.buckets.iter_mut().zip([elements, bytes, bytes]) {
            bucket.take(amount);
        }
        let most = self.buckets.iter().max_by_key(|bucket| bucket.debt());
        let Some(most) = most.filter(|bucket| !bucket.debt().is_zero()) else {
            return;
        };
        self.resume_at = Some(now + most.debt().min(PAUSE_MAX));
        self.excess = Some(Excess {
            kind: most.kind,
            allowed: most.allowed,
            last_at: now,
        });
    }

    fn drain(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.drained_at);
        self.drained_at = now;
        for bucket in &mut self.buckets {
            bucket.drain(elapsed);
        }
    }
}

/// The quota use of a device that has left.
#[derive(Debug, Clone, Copy)]
struct Left {
    levels: [f64; 3],
    at: Instant,
}

/// The quotas of all devices. The use of a device is remembered after it has left, so that a device that
/// reconnects repeatedly gains nothing. This is no column of the table of devices, because a device that
/// has lost its row to another must not gain anything either.
#[derive(Debug)]
pub(crate) struct DeviceQuotas {
    config: DeviceRules,
    log_max_bytes: Option<u64>,
    /// The number of departed devices to remember.
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

    /// The quota of an arriving device.
    pub(super) fn enter(&self, key: &str, now: Instant) -> Quota {
        let mut quota = Quota::new(&self.config, self.log_max_bytes, now);
        if let Some(left) = self.left().remove(key) {
            quota.drained_at = left.at;
            for (bucket, level) in quota.buckets.iter_mut().zip(left.levels) {
                bucket.level = level;
            }
        }
        quota
    }

    /// Remembers the use of a departing device; beyond the limit, the one that left first is forgotten.
    pub(super) fn leave(&self, key: &str, quota: &Quota) {
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

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use chappe_stream::{Position, Samples, StreamElement, Timestamp, Value};
    use proptest::prelude::*;

    use super::*;

    fn quotas() -> DeviceRules {
        DeviceRules {
            max_streams: 1,
            max_elements_per_s: 100,
            max_bytes_per_s: 10_000,
            max_bytes_per_day: MaxBytes::Bytes(0),
            ..DeviceRules::default()
        }
    }

    fn quota(quotas: &DeviceRules, now: Instant) -> Quota {
        Quota::new(quotas, None, now)
    }

    /// A device of a simulation that sends as fast as it is answered, and a node that reads it.
    struct World {
        quota: Quota,
        now: Instant,
        /// Elements of the notifications that it still holds, those that wait for their answers, and those
        /// that were answered and are not read.
        backlog: VecDeque<u64>,
        waiting: VecDeque<u64>,
        queue: VecDeque<u64>,
        in_flight_max: usize,
        queue_max: usize,
        taken: u64,
    }

    impl World {
        fn send(&mut self) {
            while self.waiting.len() < self.in_flight_max
                && let Some(next) = self.backlog.pop_front()
            {
                self.waiting.push_back(next);
            }
            while self.queue.len() < self.queue_max
                && let Some(next) = self.waiting.pop_front()
            {
                self.queue.push_back(next);
            }
        }

        /// Passes the time until something is read; false when there is nothing.
        fn read(&mut self) -> bool {
            if self.quota.is_paused() {
                let at = self.quota.deadline().unwrap();
                assert!(self.now < at && at <= self.now + PAUSE_MAX);
                self.now = at;
                self.quota.pass(at);
            }
            let Some(next) = self.queue.pop_front() else {
                return false;
            };
            self.quota.charge(self.now, next, 0);
            self.taken += next;
            true
        }

        fn held(&self) -> u64 {
            let queues = [&self.backlog, &self.waiting, &self.queue];
            queues.iter().flat_map(|queue| queue.iter()).sum()
        }
    }

    proptest! {
        /// A device that waits for its answers, of several at a time, loses nothing however much it holds.
        /// It brings no more than its quota, and no less while it has something.
        #[test]
        fn what_waits_is_taken_at_the_pace_of_the_quota(
            backlog in proptest::collection::vec(1..900_u64, 1..300),
            in_flight_max in 1..20_usize,
            queue_max in 1..100_usize,
            idle_ms in proptest::collection::vec(0..3_000_u64, 0..20),
        ) {
            let start = Instant::now();
            let sent: u64 = backlog.iter().sum();
            let largest = *backlog.iter().max().unwrap();
            let mut world = World {
                quota: quota(&quotas(), start),
                now: start,
                backlog: backlog.into(),
                waiting: VecDeque::new(),
                queue: VecDeque::new(),
                in_flight_max,
                queue_max,
                taken: 0,
            };
            let mut idle = Duration::ZERO;
            let mut idles = idle_ms.into_iter().map(Duration::from_millis);
            let (rate, burst) = (100.0, 500.0);
            loop {
                world.send();
                let (before, was_paused) = (world.taken, world.quota.is_paused());
                let is_read = world.read();
                prop_assert_eq!(world.taken + world.held(), sent);
                if !is_read {
                    break;
                }
                let passed = (world.now - start).as_secs_f64();
                prop_assert!(before as f64 <= burst + rate * passed + 1e-3, "too much");
                let owed = rate * (passed - idle.as_secs_f64());
                prop_assert!(!was_paused || before as f64 >= owed + burst - 1e-3, "too little");
                if let Some(pause) = idles.next() {
                    // The node is busy, or the device has nothing for a while.
                    idle += pause;
                    world.now += pause;
                    world.quota.pass(world.now);
                }
            }
            prop_assert_eq!(world.taken, sent);
            prop_assert!(largest < 1_000);
        }
    }

    #[test]
    fn a_device_that_was_slowed_is_shown_for_a_while() {
        let now = Instant::now();
        let mut quota = quota(&quotas(), now);
        quota.charge(now, 500, 0);
        assert!(!quota.is_paused() && quota.trouble().is_none());
        quota.charge(now, 100, 0);
        assert!(quota.trouble().unwrap().detail.ends_with("it is slowed"));
        let resumed = now + Duration::from_secs(1);
        assert_eq!(quota.deadline(), Some(resumed));
        quota.pass(resumed);
        assert!(!quota.is_paused() && quota.trouble().is_some());
        quota.pass(now + SHOWN);
        assert!(quota.trouble().is_none());
        assert_eq!(quota.deadline(), None);
    }

    #[test]
    fn bytes_have_a_quota_of_their_own_and_zero_is_none() {
        let now = Instant::now();
        let mut bounded = quota(&quotas(), now);
        bounded.charge(now, 1, 50_000);
        assert!(!bounded.is_paused());
        bounded.charge(now, 1, 1);
        assert!(bounded.is_paused());
        assert_eq!(bounded.trouble().unwrap().reason, BYTES.reason);
        let none = DeviceRules {
            max_elements_per_s: 0,
            max_bytes_per_s: 0,
            ..quotas()
        };
        let mut unbounded = quota(&none, now);
        for _ in 0..100 {
            unbounded.charge(now, u64::MAX, u64::MAX);
        }
        assert!(!unbounded.is_paused() && unbounded.trouble().is_none());
    }

    #[test]
    fn one_notification_far_above_a_quota_pauses_a_device_for_a_limited_time() {
        let now = Instant::now();
        let mut quota = quota(&quotas(), now);
        quota.charge(now, u64::MAX, u64::MAX);
        assert_eq!(quota.deadline(), Some(now + PAUSE_MAX));
    }

    #[test]
    fn in_a_day_a_device_brings_twice_its_bytes_of_a_day_at_most() {
        let (day, one) = (86_400_000_u64, 1 << 12);
        let config = DeviceRules {
            max_elements_per_s: 0,
            max_bytes_per_s: 0,
            max_bytes_per_day: MaxBytes::Bytes(day),
            ..quotas()
        };
        let start = Instant::now();
        let mut quota = quota(&config, start);
        let (mut now, mut taken) = (start, 0);
        while now < start + DAY {
            quota.charge(now, 1, one);
            taken += one;
            if quota.is_paused() {
                now = quota.deadline().unwrap();
                quota.pass(now);
            }
        }
        assert!((2 * day..=2 * day + 2 * one).contains(&taken), "{taken}");
    }

    #[test]
    fn a_monitor_of_24_leads_keeps_to_the_default_quotas_for_days() {
        for (stretch_ms, size, gibibytes) in [(25, 352, 27), (10, 232, 44)] {
            let bytes = stretch(stretch_ms).size_bytes() as u64;
            assert_eq!(bytes, size);
            let (each, stretches) = (24, 1_000 / stretch_ms as u64);
            assert_eq!((each * stretches * bytes * DAY.as_secs()) >> 30, gibibytes);
            let start = Instant::now();
            let mut quota = Quota::new(&DeviceRules::default(), Some(1 << 30), start);
            for second in 0..3 * DAY.as_secs() {
                let now = start + Duration::from_secs(second);
                quota.charge(now, each * stretches, each * stretches * bytes);
                assert!(!quota.is_paused(), "after {second} s");
            }
        }
        let on_disk = |ms| {
            chappe_stream::encode_element(&stretch(ms), 1)
                .unwrap()
                .len()
        };
        assert_eq!((on_disk(25), on_disk(10)), (222, 102));
    }

    /// A stretch of one lead of 1,000 samples a second.
    fn stretch(ms: usize) -> StreamElement {
        let samples = (0..ms).map(|sample| 0.1 * sample as f64).collect();
        StreamElement {
            position: Position::default(),
            source_time: Timestamp(1_000_000_000_000_000_000),
            receive_time: Timestamp(1_000_000_000_004_000_000),
            key: None,
            values: vec![Value::Samples(Samples {
                start: Timestamp(1_000_000_000_000_000_000),
                period_ns: 1_000_000,
                values: samples,
            })],
            quality: Default::default(),
            origin: None,
        }
    }

    #[test]
    fn the_bytes_of_a_day_follow_from_the_size_of_the_log() {
        let quotas = DeviceRules::default();
        let allowed = |log| Quota::new(&quotas, log, Instant::now()).buckets[2].allowed;
        assert_eq!(allowed(Some(1 << 40)), 1 << 39);
        assert_eq!(allowed(Some(1 << 30)), DAY_BYTES_MIN);
        assert_eq!(allowed(None), 0, "nothing is pushed out");
    }

    #[test]
    fn a_device_that_comes_again_has_brought_what_it_had() {
        let mut config = Config {
            devices: quotas(),
            ..Config::default()
        };
        config.discovery.max_devices = 2;
        let all = DeviceQuotas::new(&config, None);
        let now = Instant::now();
        for key in ["a", "b", "c"] {
            let mut quota = all.enter(key, now);
            quota.charge(now, 501, 0);
            all.leave(key, &quota);
        }
        let later = now + Duration::from_millis(5);
        let is_slowed = |key, now| {
            let mut quota = all.enter(key, now);
            quota.charge(now, 1, 0);
            quota.is_paused()
        };
        assert!(is_slowed("c", later));
        let much_later = now + Duration::from_secs(1);
        assert!(!is_slowed("b", much_later));
        let remembered = ["a", "b"]
            .iter()
            .filter(|key| all.left().contains_key(**key));
        assert!(remembered.count() <= 1, "as many as there may be devices");
    }
}
