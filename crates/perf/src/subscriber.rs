//! The subscriber's loop: takes samples, and determines from their headers which are missing and
//! how long they were in flight.

use std::time::Duration;

use chappe_machine::Instant;
use chappe_transport::{Clock, monotonic_ns, sleep_until};

use crate::carrier::Inlet;
use crate::histogram::Histogram;
use crate::outcome::{Event, Method, Subscribed, SubscriberInterval, SubscriberPhase};
use crate::sample::{Head, host};
use crate::usage::Usage;
use crate::{Error, PHASES_MAX, SubscribeSettings, stopped, warn_of_mismatch};

/// Takes samples until the last.
pub(super) fn run(
    settings: &SubscribeSettings,
    inlet: &mut dyn Inlet,
    patience: Instant,
    tell: &mut dyn FnMut(Event),
) -> Result<Subscribed, Error> {
    let clock = Clock::process();
    let mut subscriber = Subscriber::new(clock.now());
    let what = "samples".to_owned();
    tell(Event::Waiting { what });
    let mut give_up = patience;
    let mut first = None;
    while !subscriber.complete && !stopped(&settings.stop) {
        let row = subscriber.interval.begun + settings.interval;
        let open = inlet.wait(row.min(give_up))?;
        warn_of_mismatch(inlet.mismatch(), tell);
        let mut more = false;
        while let Some(sample) = inlet.take()? {
            let (head, bytes) = (Head::read(sample), sample.len());
            let now = clock.now();
            first.get_or_insert_with(|| {
                subscriber.begin(now);
                now
            });
            give_up = now + settings.idle;
            if subscriber.take(head, bytes, now) {
                inlet.echo()?;
            }
            if !settings.take_for.is_zero() {
                let slows = settings.slows_after.zip(first);
                let is_slower = slows.is_some_and(|(after, first)| now >= first + after);
                let take_for = settings.take_for * (1 + u32::from(is_slower));
                sleep_until(clock.at(now + take_for), Duration::ZERO);
            }
            let row = subscriber.interval.begun + settings.interval;
            if subscriber.complete || clock.now() >= row {
                more = true;
                break;
            }
        }
        let now = clock.now();
        if let Some(first) = first
            && now >= subscriber.interval.begun + settings.interval
        {
            subscriber.tell_interval(now - first, now, tell);
        } else if first.is_none() {
            subscriber.interval.begun = now;
        }
        // Samples that arrived before the publisher left are taken.
        if now >= give_up || !open && !more {
            break;
        }
    }
    inlet.finish();
    if first.is_none() {
        let text = format!("no sample arrived within {:?}", settings.wait);
        return Err(
            Error::new(text).hint("does `chappe perf pub` run there, over the same carrier? Over DDS beyond this host both need --address")
        );
    }
    Ok(subscriber.outcome())
}

/// The measurements in an interval, or in a phase.
struct Tally {
    begun: Instant,
    ended: Instant,
    usage: Usage,
    size: usize,
    received: u64,
    bytes: u64,
    lost: u64,
    repeated: u64,
    latency: Histogram,
    processor_percent: f64,
}

struct Subscriber {
    /// The run being measured: that of the first sample.
    run: Option<u64>,
    /// The next number.
    next: u64,
    phase: u16,
    warm_up: bool,
    interval: Tally,
    phases: Vec<(u16, Tally)>,
    one_clock: bool,
    received: u64,
    lost: u64,
    repeated: u64,
    foreign: u64,
    complete: bool,
}

impl Tally {
    fn new(now: Instant, size: usize) -> Self {
        Self {
            begun: now,
            ended: now,
            usage: Usage::now(),
            size,
            received: 0,
            bytes: 0,
            lost: 0,
            repeated: 0,
            latency: Histogram::default(),
            processor_percent: 0.0,
        }
    }

    fn add(&mut self, bytes: usize, latency: Option<u64>, now: Instant) {
        self.received += 1;
        self.bytes += bytes as u64;
        self.size = bytes;
        self.ended = now;
        if let Some(latency) = latency {
            self.latency.add(latency);
        }
    }
}

impl Subscriber {
    fn new(now: Instant) -> Self {
        Self {
            run: None,
            next: 0,
            phase: 0,
            warm_up: false,
            interval: Tally::new(now, 0),
            phases: Vec::new(),
            one_clock: false,
            received: 0,
            lost: 0,
            repeated: 0,
            foreign: 0,
            complete: false,
        }
    }

    fn begin(&mut self, now: Instant) {
        self.interval = Tally::new(now, 0);
    }

    /// Counts a received sample; returns whether it must be sent back.
    fn take(&mut self, head: Option<Head>, bytes: usize, now: Instant) -> bool {
        let Some(head) = head else {
            self.foreign += 1;
            return false;
        };
        if self.run.is_none() {
            (self.run, self.next) = (Some(head.run), head.number);
            self.one_clock = head.host == host();
        }
        if self.run != Some(head.run) {
            self.foreign += 1;
            return false;
        }
        if head.number < self.next {
            // The last sample may be repeated.
            if !head.last {
                self.repeated += 1;
                self.interval.repeated += 1;
                if let Some((_, phase)) = self.phases.last_mut() {
                    phase.repeated += 1;
                }
            }
            return false;
        }
        let lost = head.number - self.next;
        self.next = head.number.saturating_add(1);
        self.lost += lost;
        self.interval.lost += lost;
        if head.last {
            self.complete = true;
            if let Some((_, phase)) = self.phases.last_mut() {
                phase.lost += lost;
                phase.processor_percent = phase.usage.percent();
            }
            return false;
        }
        let latency = self
            .one_clock
            .then(|| monotonic_ns().saturating_sub(head.written_ns));
        self.received += 1;
        (self.phase, self.warm_up) = (head.phase, head.warm_up);
        self.interval.add(bytes, latency, now);
        if !head.warm_up
            && let Some(phase) = self.phase_of(head.phase, bytes, written(now, latency))
        {
            phase.lost += lost;
            phase.add(bytes, latency, now);
        }
        head.echo
    }

    /// The tally of a phase, created when the phase starts.
    fn phase_of(&mut self, number: u16, bytes: usize, begun: Instant) -> Option<&mut Tally> {
        if self.phases.last().is_none_or(|(last, _)| *last != number) {
            if let Some((_, ended)) = self.phases.last_mut() {
                ended.processor_percent = ended.usage.percent();
            }
            if self.phases.len() < PHASES_MAX {
                self.phases.push((number, Tally::new(begun, bytes)));
            }
        }
        self.phases.last_mut().map(|(_, phase)| phase)
    }

    fn tell_interval(&mut self, at: Duration, now: Instant, tell: &mut dyn FnMut(Event)) {
        let size = self.interval.size;
        let mut tally = std::mem::replace(&mut self.interval, Tally::new(now, size));
        let seconds = (now - tally.begun).as_secs_f64().max(1e-9);
        let latency = tally.latency.summary();
        tell(Event::Subscribed(SubscriberInterval {
            at_s: at.as_secs_f64(),
            phase: usize::from(self.phase),
            size_bytes: size,
            warm_up: self.warm_up,
            received: tally.received,
            rate_per_s: tally.received as f64 / seconds,
            bytes_per_s: tally.bytes as f64 / seconds,
            lost: tally.lost,
            repeated: tally.repeated,
            latency_p50_us: latency.map(|it| it.p50_us),
            latency_p90_us: latency.map(|it| it.p90_us),
            latency_p99_us: latency.map(|it| it.p99_us),
            latency_max_us: latency.map(|it| it.max_us),
            cpu_percent: tally.usage.percent(),
            resident_bytes: chappe_transport::resident_bytes(),
        }));
    }

    fn outcome(self) -> Subscribed {
        let phases = self.phases.iter().map(|(number, tally)| {
            let seconds = (tally.ended - tally.begun).as_secs_f64();
            // The first sample opens the time, so it is not in the rate.
            let between = tally.received.saturating_sub(1) as f64 / seconds.max(1e-9);
            let rate_per_s = if tally.received > 1 { between } else { 0.0 };
            SubscriberPhase {
                phase: usize::from(*number),
                size_bytes: tally.size,
                seconds,
                received: tally.received,
                rate_per_s,
                bytes_per_s: rate_per_s * tally.size as f64,
                lost: tally.lost,
                repeated: tally.repeated,
                latency: tally.latency.summary(),
                cpu_percent: tally.processor_percent,
            }
        });
        Subscribed {
            phases: phases.collect(),
            latency_by: self.one_clock.then_some(Method::OneClock),
            received: self.received,
            lost: self.lost,
            repeated: self.repeated,
            foreign: self.foreign,
            complete: self.complete,
            resident_bytes: chappe_transport::resident_bytes(),
            criteria: Vec::new(),
        }
    }
}

/// The time when a sample was written, if known: a phase starts with writing, so that delayed
/// samples that arrive all at once do not look like a high rate.
fn written(now: Instant, latency: Option<u64>) -> Instant {
    Instant::from_nanos(now.as_nanos().saturating_sub(latency.unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(number: u64) -> Head {
        Head {
            run: 7,
            host: host(),
            number,
            written_ns: monotonic_ns(),
            ..Head::default()
        }
    }

    #[test]
    fn what_is_missing_repeated_and_foreign_is_counted_as_such() {
        let now = Clock::process().now();
        let mut subscriber = Subscriber::new(now);
        // It joins at 5; 8 and 9 never arrive, 6 arrives twice.
        for number in [5, 6, 7, 6, 10] {
            subscriber.take(Some(head(number)), 100, now);
        }
        subscriber.take(None, 100, now);
        subscriber.take(Some(Head { run: 8, ..head(11) }), 100, now);
        let last = Head {
            last: true,
            ..head(12)
        };
        subscriber.take(Some(last), 100, now);
        assert!(subscriber.complete);
        let outcome = subscriber.outcome();
        let counted = (
            outcome.received,
            outcome.lost,
            outcome.repeated,
            outcome.foreign,
        );
        assert_eq!(counted, (4, 3, 1, 2));
        assert_eq!(outcome.latency_by, Some(Method::OneClock));
        let phase = &outcome.phases[0];
        assert_eq!((phase.received, phase.lost, phase.repeated), (4, 3, 1));
    }

    #[test]
    fn phases_are_told_apart_and_warm_up_is_in_none() {
        let now = Clock::process().now();
        let mut subscriber = Subscriber::new(now);
        let mut number = 0;
        for phase in 0..3 {
            for warm_up in [true, false, false] {
                number += 1;
                let head = Head {
                    phase,
                    warm_up,
                    ..head(number)
                };
                subscriber.take(Some(head), 100 + usize::from(phase), now);
            }
        }
        let outcome = subscriber.outcome();
        let seen: Vec<_> = outcome
            .phases
            .iter()
            .map(|it| (it.phase, it.size_bytes, it.received))
            .collect();
        assert_eq!(seen, [(0, 100, 2), (1, 101, 2), (2, 102, 2)]);
        assert!(!outcome.complete && outcome.received == 9);
    }

    #[test]
    fn samples_that_were_held_up_and_come_at_once_are_no_high_rate() {
        let now = Clock::process().now() + Duration::from_secs(10);
        let mut subscriber = Subscriber::new(now);
        for number in 1..=11 {
            let held_up = Head {
                written_ns: monotonic_ns() - 1_000_000_000,
                ..head(number)
            };
            subscriber.take(Some(held_up), 100, now);
        }
        let phase = &subscriber.outcome().phases[0];
        assert!(
            phase.seconds >= 1.0 && phase.rate_per_s <= 10.0,
            "{phase:?}"
        );
    }

    #[test]
    fn on_two_machines_there_is_no_latency() {
        let now = Clock::process().now();
        let mut subscriber = Subscriber::new(now);
        let elsewhere = host().wrapping_add(1);
        subscriber.take(
            Some(Head {
                host: elsewhere,
                ..head(1)
            }),
            100,
            now,
        );
        let outcome = subscriber.outcome();
        assert_eq!(
            (outcome.latency_by, outcome.phases[0].latency),
            (None, None)
        );
    }
}
