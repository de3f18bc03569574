//! The common part of writers and readers under supervision: their common status, and the check of the
//! deadline.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::lock;
use super::status::{EndStatus, add_mismatch};
use crate::backend::{Mismatch, Topic};
use crate::{DdsError, Qos};

/// The status of an end, shared by its handle and the thread that calls the library.
#[derive(Debug)]
pub(super) struct SharedStatus<S>(Mutex<S>);

impl<S: Clone + AsMut<EndStatus>> SharedStatus<S> {
    pub(super) fn new(status: S) -> Self {
        Self(Mutex::new(status))
    }

    pub(super) fn status(&self) -> S {
        lock(&self.0).clone()
    }

    pub(super) fn change<T>(&self, change: impl FnOnce(&mut S) -> T) -> T {
        change(&mut lock(&self.0))
    }

    /// Another end has the topic and is incompatible.
    pub(super) fn mismatch(&self, mismatch: &Mismatch) {
        self.change(|status| add_mismatch(status.as_mut(), mismatch.to_string()));
    }
}

impl EndStatus {
    /// The status of a new end that keeps this many samples.
    pub(super) fn of(topic: &Topic, qos: &Qos, samples: u32) -> Self {
        Self {
            topic: topic.name.clone(),
            type_name: topic.type_name.clone(),
            qos: Qos {
                max_samples: samples,
                ..qos.clone()
            },
            ..Self::default()
        }
    }
}

/// Checks whether samples keep the deadline of the topic (DDS 1.4, clause 2.2.3.7; here for all its
/// instances together).
#[derive(Debug)]
pub(super) struct Deadline {
    period: Option<Duration>,
    since: Instant,
}

impl Deadline {
    pub(super) fn new(qos: &Qos, now: Instant) -> Self {
        Self {
            period: qos.deadline(),
            since: now,
        }
    }

    /// Notes the number of samples and of matching ends. Returns how many deadlines passed without a sample. None
    /// passes without a matching end.
    pub(super) fn count_missed(&mut self, now: Instant, samples: u64, matched: usize) -> u64 {
        let Some(period) = self.period else { return 0 };
        if samples > 0 || matched == 0 {
            self.since = now;
            return 0;
        }
        let silent = now.saturating_duration_since(self.since).as_nanos();
        let passed = silent / period.as_nanos().max(1);
        let whole = u32::try_from(passed).unwrap_or(u32::MAX);
        self.since += period.saturating_mul(whole);
        whole.into()
    }

    /// The time of the next deadline.
    pub(super) fn next(&self) -> Option<Instant> {
        self.period.map(|period| self.since + period)
    }
}

/// Checks topic and quality of service of an end.
pub(super) fn check(topic: &Topic, qos: &Qos) -> Result<(), DdsError> {
    topic.check()?;
    qos.check()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_pass_once_each_and_only_with_a_match() {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let qos = Qos {
            deadline_ms: 100,
            ..Qos::default()
        };
        let mut deadline = Deadline::new(&qos, begun);
        assert_eq!(deadline.next(), Some(at(100)));
        assert_eq!(deadline.count_missed(at(99), 0, 1), 0);
        assert_eq!(deadline.count_missed(at(350), 0, 1), 3);
        assert_eq!(deadline.count_missed(at(399), 0, 1), 0);
        assert_eq!(deadline.count_missed(at(400), 0, 1), 1);
        assert_eq!(deadline.count_missed(at(900), 5, 1), 0);
        assert_eq!(deadline.count_missed(at(999), 0, 1), 0);
        assert_eq!(deadline.count_missed(at(5_000), 0, 0), 0);
        assert_eq!(deadline.count_missed(at(5_100), 0, 1), 1);
        let mut none = Deadline::new(&Qos::default(), begun);
        assert_eq!((none.count_missed(at(9_000), 0, 1), none.next()), (0, None));
    }
}
