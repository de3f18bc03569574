//! The conditions for exit code 0, like ddsperf's `-Q`.

use std::time::Duration;

use crate::outcome::{Criterion, PublisherPhase, SubscriberPhase, Times};
use crate::{Error, Published, Subscribed};

/// Conditions; each one given must hold, in every phase if it concerns phases.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Criteria {
    /// Minimum number of samples, including warm-up.
    pub require_samples: Option<u64>,
    /// Maximum number of missing samples, including warm-up. With 0, nothing may be repeated
    /// either, and the publisher's last sample must have arrived. Otherwise a reliable carrier has
    /// lost samples.
    pub max_lost: Option<u64>,
    /// Maximum median latency.
    pub max_p50: Option<Duration>,
    /// Maximum 99th percentile of latency.
    pub max_p99: Option<Duration>,
    /// Minimum samples per second.
    pub min_rate_per_s: Option<f64>,
    /// Minimum bytes of samples per second.
    pub min_bytes_per_s: Option<f64>,
}

/// A row that is judged.
struct Phase<'a> {
    number: usize,
    rate_per_s: f64,
    bytes_per_s: f64,
    latency: Option<&'a Times>,
}

impl Criteria {
    /// Rejects criteria that a publisher cannot check.
    ///
    /// # Errors
    /// The criterion, and the option that makes it possible.
    pub(super) fn for_publisher(&self, echo: bool) -> Result<(), Error> {
        let latency = self.max_p50.is_some() || self.max_p99.is_some();
        if latency && !echo {
            let error =
                Error::new("a publisher knows only the latency of samples that are sent back");
            return Err(error.hint("use --echo 10, or set it at `chappe perf sub`"));
        }
        if self.max_lost.is_some() {
            let error = Error::new("a publisher does not know the number of lost samples");
            return Err(error.hint("set --max-lost at `chappe perf sub`"));
        }
        Ok(())
    }

    pub(super) fn judge_publisher(&self, outcome: &Published) -> Vec<Criterion> {
        let sent: u64 = outcome.phases.iter().map(|phase| phase.sent).sum();
        let mut judged = self.totals(sent, None, true);
        let phases = outcome.phases.iter().map(|it: &PublisherPhase| Phase {
            number: it.phase,
            rate_per_s: it.rate_per_s,
            bytes_per_s: it.bytes_per_s,
            latency: it.latency.as_ref(),
        });
        phases.for_each(|phase| self.phase(&phase, &mut judged));
        judged
    }

    pub(super) fn judge_subscriber(&self, outcome: &Subscribed, reliable: bool) -> Vec<Criterion> {
        let (lost, repeated) = (outcome.lost, outcome.repeated);
        let broken = reliable && lost > 0 && self.max_lost.is_none();
        let all = Self {
            max_lost: self.max_lost.or(broken.then_some(0)),
            ..*self
        };
        let mut judged = all.totals(outcome.received, Some((lost, repeated)), outcome.complete);
        let phases = outcome.phases.iter().map(|it: &SubscriberPhase| Phase {
            number: it.phase,
            rate_per_s: it.rate_per_s,
            bytes_per_s: it.bytes_per_s,
            latency: it.latency.as_ref(),
        });
        phases.for_each(|phase| self.phase(&phase, &mut judged));
        judged
    }

    fn totals(&self, count: u64, lost: Option<(u64, u64)>, complete: bool) -> Vec<Criterion> {
        let mut judged = Vec::new();
        let mut total = |name, measured: u64, bound: u64, unit, met| {
            judged.push(Criterion {
                name,
                phase: None,
                measured: Some(measured as f64),
                bound: bound as f64,
                unit,
                met,
            });
        };
        if let Some(least) = self.require_samples {
            total("require-samples", count, least, "samples", count >= least);
        }
        if let (Some(most), Some((lost, repeated))) = (self.max_lost, lost) {
            let exact = most > 0 || (repeated == 0 && complete);
            total("max-lost", lost, most, "samples", lost <= most && exact);
        }
        judged
    }

    fn phase(&self, phase: &Phase<'_>, judged: &mut Vec<Criterion>) {
        let mut one = |name, measured: Option<f64>, bound: Option<f64>, unit, most: bool| {
            let Some(bound) = bound else { return };
            let met = measured.is_some_and(|it| if most { it <= bound } else { it >= bound });
            judged.push(Criterion {
                name,
                phase: Some(phase.number),
                measured,
                bound,
                unit,
                met,
            });
        };
        let us = |time: Option<Duration>| time.map(|time| time.as_secs_f64() * 1e6);
        let (p50, p99) = (
            phase.latency.map(|it| it.p50_us),
            phase.latency.map(|it| it.p99_us),
        );
        one("max-p50", p50, us(self.max_p50), "us", true);
        one("max-p99", p99, us(self.max_p99), "us", true);
        one(
            "min-rate",
            Some(phase.rate_per_s),
            self.min_rate_per_s,
            "1/s",
            false,
        );
        let bytes = Some(phase.bytes_per_s);
        one("min-throughput", bytes, self.min_bytes_per_s, "B/s", false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subscribed() -> Subscribed {
        Subscribed {
            phases: vec![SubscriberPhase {
                phase: 0,
                size_bytes: 100,
                seconds: 1.0,
                received: 10,
                rate_per_s: 10.0,
                bytes_per_s: 1_000.0,
                lost: 0,
                repeated: 0,
                latency: None,
                cpu_percent: 0.0,
            }],
            latency_by: None,
            received: 12,
            lost: 0,
            repeated: 0,
            foreign: 0,
            complete: true,
            resident_bytes: 0,
            criteria: Vec::new(),
        }
    }

    #[test]
    fn each_condition_is_judged_on_its_side() {
        let seen = subscribed();
        let met = |criteria: Criteria, seen: &Subscribed| {
            let judged = criteria.judge_subscriber(seen, true);
            assert_eq!(judged.len(), 1, "{criteria:?}");
            judged[0].met
        };
        let none = Criteria::default();
        assert!(met(
            Criteria {
                require_samples: Some(12),
                ..none
            },
            &seen
        ));
        assert!(!met(
            Criteria {
                require_samples: Some(13),
                ..none
            },
            &seen
        ));
        assert!(met(
            Criteria {
                min_rate_per_s: Some(10.0),
                ..none
            },
            &seen
        ));
        assert!(!met(
            Criteria {
                min_rate_per_s: Some(10.1),
                ..none
            },
            &seen
        ));
        assert!(!met(
            Criteria {
                min_bytes_per_s: Some(2e3),
                ..none
            },
            &seen
        ));
        // An unknown latency is not below any limit.
        assert!(!met(
            Criteria {
                max_p99: Some(Duration::from_secs(9)),
                ..none
            },
            &seen
        ));
        let lost = Criteria {
            max_lost: Some(0),
            ..none
        };
        assert!(met(lost, &seen));
        assert!(!met(
            lost,
            &Subscribed {
                lost: 1,
                ..seen.clone()
            }
        ));
        assert!(!met(
            lost,
            &Subscribed {
                repeated: 1,
                ..seen.clone()
            }
        ));
        assert!(!met(
            lost,
            &Subscribed {
                complete: false,
                ..seen.clone()
            }
        ));
    }

    #[test]
    fn a_reliable_carrier_that_lost_something_has_missed_what_nobody_had_to_ask_for() {
        let lost = Subscribed {
            lost: 1,
            ..subscribed()
        };
        let judged = |criteria: Criteria, seen: &Subscribed, reliable| {
            let judged = criteria.judge_subscriber(seen, reliable);
            judged.iter().map(|it| it.met).collect::<Vec<_>>()
        };
        let none = Criteria::default();
        assert_eq!(judged(none, &lost, true), [false]);
        assert!(judged(none, &lost, false).is_empty());
        assert!(judged(none, &subscribed(), true).is_empty());
        let allowed = Criteria {
            max_lost: Some(1),
            ..none
        };
        assert_eq!(judged(allowed, &lost, true), [true]);
    }

    #[test]
    fn a_publisher_refuses_what_it_cannot_know() {
        let p99 = Criteria {
            max_p99: Some(Duration::from_millis(1)),
            ..Criteria::default()
        };
        assert!(p99.for_publisher(false).unwrap_err().hint.is_some());
        assert!(p99.for_publisher(true).is_ok());
        let lost = Criteria {
            max_lost: Some(0),
            ..Criteria::default()
        };
        assert!(lost.for_publisher(true).is_err());
    }
}
