//! The publisher's loop: phase after phase, at the pace of a pacer.

use std::collections::VecDeque;
use std::time::Duration;

use chappe_flow::pacer::{Choice, InFlight, NapaConfig, Pace, Pacer};
use chappe_machine::Instant;
use chappe_transport::{Clock, monotonic_ns};

use crate::carrier::{Acknowledged, Counters, Outlet};
use crate::histogram::Histogram;
use crate::outcome::{Event, Method, Published, PublisherInterval, PublisherPhase};
use crate::sample::{Head, host};
use crate::usage::Usage;
use crate::{Error, PublishSettings, SAMPLE_BYTES_MIN, stopped, warn_of_mismatch};

/// Time limit for all samples to be acknowledged after a phase.
const DRAIN_MAX: Duration = Duration::from_secs(30);
/// Time limit for subscribers to leave after the last sample.
const LEAVE_MAX: Duration = Duration::from_secs(5);
/// Interval at which the number of subscribers is checked.
const LOOK: Duration = Duration::from_millis(20);
/// Time limit for a sample to be sent back; reason: a subscriber does not send back what does not fit its window.
const BACK_MAX: Duration = Duration::from_secs(1);
/// Interval at which the last sample is repeated without acknowledgements.
const AGAIN: Duration = Duration::from_millis(100);

/// Runs all phases and sends the last sample.
pub(super) fn run(
    settings: &PublishSettings,
    outlet: &mut dyn Outlet,
    tell: &mut dyn FnMut(Event),
) -> Result<Published, Error> {
    let clock = Clock::process();
    await_subscribers(settings, outlet, tell)?;
    let mut publisher = Publisher {
        settings,
        outlet,
        tell,
        clock,
        begun: clock.now(),
        run: chappe_transport::seed_number().map_err(Error::io("drawing the run's number"))?,
        number: 0,
        looked: clock.now(),
        awaited: VecDeque::new(),
        interval: Tally::new(Counters::default(), clock.now()),
    };
    let mut phases = Vec::new();
    for _ in 0..settings.repeats {
        for size in &settings.sizes {
            for pacing in &settings.pacings {
                if !stopped(&settings.stop) {
                    phases.push(publisher.phase(phases.len(), *size, pacing)?);
                }
            }
        }
    }
    publisher.last_word(phases.len())?;
    let echoed = phases.iter().any(|phase| phase.latency.is_some());
    Ok(Published {
        phases,
        latency_by: echoed.then_some(Method::RoundTripHalved),
        resident_bytes: chappe_transport::resident_bytes(),
        criteria: Vec::new(),
    })
}

fn await_subscribers(
    settings: &PublishSettings,
    outlet: &mut dyn Outlet,
    tell: &mut dyn FnMut(Event),
) -> Result<(), Error> {
    let clock = Clock::process();
    let wanted = settings.subscribers;
    let patience = clock.now() + settings.wait;
    if outlet.subscribers() < wanted {
        let what = format!("{wanted} subscribers");
        tell(Event::Waiting { what });
    }
    while outlet.subscribers() < wanted {
        if clock.now() >= patience || stopped(&settings.stop) {
            let there = outlet.subscribers();
            let text = format!(
                "{there} of {wanted} subscribers connected within {:?}",
                settings.wait
            );
            return Err(
                Error::new(text).hint("start `chappe perf sub` (over DDS beyond this host both need --address), or wait longer: --wait 60s")
            );
        }
        outlet.wait((clock.now() + LOOK).min(patience))?;
        warn_of_mismatch(outlet.mismatch(), tell);
    }
    tell(Event::Begun {
        subscribers: outlet.subscribers(),
        phases: settings.sizes.len() * settings.pacings.len() * settings.repeats,
    });
    Ok(())
}

struct Publisher<'a> {
    settings: &'a PublishSettings,
    outlet: &'a mut dyn Outlet,
    tell: &'a mut dyn FnMut(Event),
    clock: Clock,
    begun: Instant,
    run: u64,
    /// Of the last sample.
    number: u64,
    /// When the subscribers were last counted.
    looked: Instant,
    /// Numbers of samples that are not back, and when they were written, if all are sent back.
    awaited: VecDeque<(u64, Instant)>,
    interval: Tally,
}

/// A phase in progress.
struct Phase {
    number: usize,
    pacing: String,
    pacer: Box<dyn Pacer>,
    sample: Vec<u8>,
    measure_from: Instant,
    until: Instant,
    warm_up: bool,
    /// The time at which the next sample is due.
    due: Option<Instant>,
    tally: Tally,
}

impl Publisher<'_> {
    fn phase(
        &mut self,
        number: usize,
        size: usize,
        pacing: &Choice,
    ) -> Result<PublisherPhase, Error> {
        let begun = self.clock.now();
        let measure_from = begun + self.settings.warm_up;
        let mut sample = vec![0; size];
        fastrand::Rng::with_seed(number as u64).fill(&mut sample);
        let counters = self.outlet.counters();
        let pacing = self.told(pacing);
        self.interval = Tally::new(counters, begun);
        let mut phase = Phase {
            number,
            pacing: pacing.to_string(),
            pacer: pacing.build(),
            sample,
            measure_from,
            until: measure_from + self.settings.duration,
            warm_up: true,
            due: None,
            tally: Tally::new(counters, begun),
        };
        while !self.is_over(&mut phase) {
            self.step(&mut phase)?;
        }
        let ended = self.clock.now();
        let (counters, cpu_percent) = (self.outlet.counters(), phase.tally.usage.percent());
        let drain_s = self.drain(&mut phase)?;
        let seconds = (ended - phase.measure_from.min(ended)).as_secs_f64();
        let acknowledges = self.settings.carrier.is_reliable();
        Ok(phase.outcome(size, seconds, acknowledges, counters, cpu_percent, drain_s))
    }

    /// A pacer with the settings that its text form does not contain.
    fn told(&self, pacing: &Choice) -> Choice {
        match pacing {
            Choice::Napa(config) if *config == NapaConfig::default() => Choice::Napa(NapaConfig {
                capacity_bytes_per_s: self.settings.capacity_bytes_per_s,
                acknowledged_at_once: self.settings.acknowledged_at_once,
                ..NapaConfig::default()
            }),
            other => other.clone(),
        }
    }

    /// Whether the phase is over; also ends its warm-up and reports its rows.
    fn is_over(&mut self, phase: &mut Phase) -> bool {
        let now = self.clock.now();
        if phase.warm_up && now >= phase.measure_from {
            phase.warm_up = false;
            phase.measure_from = now;
            phase.tally = Tally::new(self.outlet.counters(), now);
        }
        if now >= self.interval.begun + self.settings.interval {
            self.tell_interval(phase, now);
        }
        let counted = self
            .settings
            .count
            .is_some_and(|count| phase.tally.sent >= count);
        now >= phase.until || (counted && !phase.warm_up) || stopped(&self.settings.stop)
    }

    /// Writes a sample if it may be sent, or waits for an event.
    fn step(&mut self, phase: &mut Phase) -> Result<(), Error> {
        let size = phase.sample.len() as u64;
        let now = self.clock.now();
        self.acknowledged(phase, now);
        let on_the_way = self.on_the_way(now);
        let boundary = if phase.warm_up {
            phase.measure_from
        } else {
            phase.until
        };
        let at_latest = boundary.min(self.interval.begun + self.settings.interval);
        match phase
            .pacer
            .next(now, in_flight(on_the_way, size, self.settings.window))
        {
            Pace::Now if on_the_way < self.settings.window => {
                if self.write(phase, now)? {
                    self.sent(phase, now, on_the_way);
                    phase.pacer.sent(now, size, 1);
                    self.outlet.wait(now)
                } else {
                    self.blocked(phase, now, at_latest)
                }
            }
            Pace::Now => self.blocked(phase, now, at_latest),
            Pace::At(at) => {
                phase.due = Some(at);
                self.outlet.wait(at.min(at_latest))
            }
            Pace::AfterAcknowledgement => self.gone_or_wait(at_latest),
        }
    }

    fn write(&mut self, phase: &mut Phase, now: Instant) -> Result<bool, Error> {
        let number = self.number + 1;
        let echo = self.settings.echo;
        let head = Head {
            warm_up: phase.warm_up,
            echo: echo > 0 && number.is_multiple_of(echo),
            last: false,
            phase: u16::try_from(phase.number).unwrap_or(u16::MAX),
            run: self.run,
            host: host(),
            number,
            written_ns: monotonic_ns(),
        };
        head.write(&mut phase.sample);
        let written = self.outlet.write(&phase.sample)?;
        if written {
            self.number = number;
            if self.all_come_back() {
                self.awaited.push_back((number, now));
            }
            if let Some(due) = phase.due.take().filter(|due| *due <= now) {
                let late = u64::try_from((now - due).as_nanos()).unwrap_or(u64::MAX);
                phase.tally.late.add(late);
            }
        }
        Ok(written)
    }

    fn sent(&mut self, phase: &mut Phase, now: Instant, on_the_way: u64) {
        for tally in [&mut phase.tally, &mut self.interval] {
            tally.sent += 1;
            tally.occupation_sum += on_the_way;
            tally.occupation_max = tally.occupation_max.max(on_the_way);
            if let Some(before) = tally.sent_at.replace(now) {
                tally.periods += now - before;
            }
        }
    }

    fn blocked(&mut self, phase: &mut Phase, since: Instant, until: Instant) -> Result<(), Error> {
        self.gone_or_wait(until)?;
        let blocked = self.clock.now() - since;
        phase.tally.blocked += blocked;
        self.interval.blocked += blocked;
        Ok(())
    }

    /// Waits, unless there is no subscriber left.
    fn gone_or_wait(&mut self, until: Instant) -> Result<(), Error> {
        let now = self.clock.now();
        // Over DDS, counting them takes as long as a short sample's round trip.
        if now >= self.looked + LOOK {
            self.looked = now;
            if self.outlet.subscribers() == 0 {
                return Err(Error::new("all subscribers are gone").hint("see their last output"));
            }
        }
        self.outlet.wait(until.min(now + LOOK))
    }

    /// Samples that are not acknowledged. If all are sent back: those that are not back, so that with one in flight the
    /// next is written when the previous one is back.
    fn on_the_way(&mut self, now: Instant) -> u64 {
        if !self.all_come_back() {
            return self.outlet.unacknowledged();
        }
        let is_overdue = |(_, written): &(u64, Instant)| now >= *written + BACK_MAX;
        while self.awaited.front().is_some_and(is_overdue) {
            self.awaited.pop_front();
        }
        self.awaited.len() as u64
    }

    fn all_come_back(&self) -> bool {
        self.settings.echo == 1 && self.settings.carrier.is_reliable()
    }

    fn acknowledged(&mut self, phase: &mut Phase, now: Instant) {
        let (mut samples, mut bytes, mut newest) = (0, 0, None);
        self.outlet.acknowledged(&mut |one: Acknowledged| {
            samples += 1;
            bytes += one.bytes as u64;
            newest = Some(one.delay);
        });
        let retransmitted = self.outlet.retransmitted_bytes();
        if retransmitted > 0 {
            phase.pacer.sent_again(now, retransmitted);
        }
        if samples > 0 {
            let left = self.on_the_way(now);
            let left = in_flight(left, phase.sample.len() as u64, self.settings.window);
            phase.pacer.acknowledged(now, bytes, samples, newest, left);
        }
        let (run, number) = (self.run, u16::try_from(phase.number).unwrap_or(u16::MAX));
        let (interval, awaited) = (&mut self.interval, &mut self.awaited);
        interval.acknowledged += samples;
        phase.tally.acknowledged += samples;
        self.outlet.echoes(&mut |sample| {
            let Some(head) = Head::read(sample) else {
                return;
            };
            let is_back = |(number, _): &(u64, Instant)| *number <= head.number;
            while head.run == run && awaited.front().is_some_and(is_back) {
                awaited.pop_front();
            }
            if head.run == run && head.phase == number && !head.warm_up {
                let halved = monotonic_ns().saturating_sub(head.written_ns) / 2;
                phase.tally.round_trip_halved.add(halved);
                interval.round_trip_halved.add(halved);
            }
        });
    }

    fn tell_interval(&mut self, phase: &Phase, now: Instant) {
        let counters = self.outlet.counters();
        let mut tally = std::mem::replace(&mut self.interval, Tally::new(counters, now));
        let seconds = (now - tally.begun).as_secs_f64().max(1e-9);
        let status = phase.pacer.status();
        let acknowledges = self.settings.carrier.is_reliable();
        let latency = tally.round_trip_halved.summary();
        (self.tell)(Event::Published(PublisherInterval {
            at_s: (now - self.begun).as_secs_f64(),
            phase: phase.number,
            size_bytes: phase.sample.len(),
            pacer: phase.pacing.clone(),
            warm_up: phase.warm_up,
            sent: tally.sent,
            acknowledged: tally.acknowledged,
            rate_per_s: tally.sent as f64 / seconds,
            bytes_per_s: tally.sent as f64 * phase.sample.len() as f64 / seconds,
            occupation_mean: tally.occupation_mean().filter(|_| acknowledges),
            occupation_max: acknowledges.then_some(tally.occupation_max),
            period_us: tally.period_us(),
            pacer_period_us: Some(status.period.as_secs_f64() * 1e6).filter(|period| *period > 0.0),
            pacer_state: status.state.as_str().to_owned(),
            blocked_share: tally.blocked.as_secs_f64() / seconds,
            dropped: since(counters.dropped, tally.counters.dropped),
            latency_p50_us: latency.map(|it| it.p50_us),
            latency_p99_us: latency.map(|it| it.p99_us),
            cpu_percent: tally.usage.percent(),
            resident_bytes: chappe_transport::resident_bytes(),
        }));
    }

    /// Waits until everything is acknowledged, or has at least been sent; returns the time that
    /// took.
    fn drain(&mut self, phase: &mut Phase) -> Result<Option<f64>, Error> {
        let begun = self.clock.now();
        let reliable = self.settings.carrier.is_reliable();
        loop {
            let now = self.clock.now();
            self.outlet.acknowledged(&mut |_| {});
            if self.outlet.is_idle() {
                return Ok(reliable.then(|| (now - begun).as_secs_f64()));
            }
            if now >= begun + DRAIN_MAX {
                let left = self.outlet.unacknowledged();
                let text = format!(
                    "{left} samples are not acknowledged {DRAIN_MAX:?} after the end of phase {} ({})",
                    phase.number, phase.pacing
                );
                return Err(Error::new(text).hint(
                    "a subscriber hangs, or the window is too large for it: try --window 16",
                ));
            }
            self.gone_or_wait(now + LOOK)?;
        }
    }

    /// Announces the end, and lets the subscribers leave.
    fn last_word(&mut self, phases: usize) -> Result<(), Error> {
        let head = Head {
            last: true,
            phase: u16::try_from(phases.saturating_sub(1)).unwrap_or(u16::MAX),
            run: self.run,
            host: host(),
            number: self.number + 1,
            written_ns: monotonic_ns(),
            ..Head::default()
        };
        let mut sample = [0; SAMPLE_BYTES_MIN];
        head.write(&mut sample);
        let until = self.clock.now() + LEAVE_MAX;
        let (mut said, mut again_at) = (false, self.clock.now());
        let reliable = self.settings.carrier.is_reliable();
        while self.outlet.subscribers() > 0 {
            // The acknowledgement is not enough: over DDS the subscriber's library has the sample
            // then, and may drop it when the publisher leaves.
            let now = self.clock.now();
            if now >= until {
                break;
            }
            if !said || (!reliable && now >= again_at) {
                said = self.outlet.write(&sample)?;
                again_at = now + AGAIN;
            }
            self.outlet.acknowledged(&mut |_| {});
            self.outlet.wait(now + LOOK)?;
        }
        Ok(())
    }
}

impl Phase {
    fn outcome(
        self,
        size: usize,
        seconds: f64,
        acknowledges: bool,
        counters: Counters,
        cpu_percent: f64,
        drain_s: Option<f64>,
    ) -> PublisherPhase {
        let tally = self.tally;
        let status = self.pacer.status();
        let rate_per_s = tally.sent as f64 / seconds.max(1e-9);
        PublisherPhase {
            phase: self.number,
            size_bytes: size,
            pacer: self.pacing,
            seconds,
            sent: tally.sent,
            acknowledged: tally.acknowledged,
            rate_per_s,
            bytes_per_s: rate_per_s * size as f64,
            occupation_mean: tally.occupation_mean().filter(|_| acknowledges),
            occupation_max: acknowledges.then_some(tally.occupation_max),
            period_us: tally.period_us(),
            late: tally.late.summary(),
            low_threshold: status.low_threshold,
            high_threshold: status.high_threshold,
            blocked_share: tally.blocked.as_secs_f64() / seconds.max(1e-9),
            dropped: since(counters.dropped, tally.counters.dropped),
            drain_s,
            latency: tally.round_trip_halved.summary(),
            cpu_percent,
        }
    }
}

/// The counts between two times.
struct Tally {
    begun: Instant,
    /// The carrier's counters at the start.
    counters: Counters,
    usage: Usage,
    sent: u64,
    acknowledged: u64,
    occupation_sum: u64,
    occupation_max: u64,
    sent_at: Option<Instant>,
    periods: Duration,
    blocked: Duration,
    late: Histogram,
    round_trip_halved: Histogram,
}

impl Tally {
    fn new(counters: Counters, begun: Instant) -> Self {
        Self {
            begun,
            counters,
            usage: Usage::now(),
            sent: 0,
            acknowledged: 0,
            occupation_sum: 0,
            occupation_max: 0,
            sent_at: None,
            periods: Duration::ZERO,
            blocked: Duration::ZERO,
            late: Histogram::default(),
            round_trip_halved: Histogram::default(),
        }
    }

    fn occupation_mean(&self) -> Option<f64> {
        (self.sent > 0).then(|| self.occupation_sum as f64 / self.sent as f64)
    }

    fn period_us(&self) -> Option<f64> {
        (self.sent > 1).then(|| self.periods.as_secs_f64() * 1e6 / (self.sent - 1) as f64)
    }
}

fn in_flight(samples: u64, size: u64, window: u64) -> InFlight {
    InFlight {
        bytes: samples * size,
        elements: samples,
        window_bytes: window * size,
        reserved_bytes: 0,
    }
}

fn since(now: Option<u64>, then: Option<u64>) -> Option<u64> {
    now.map(|now| now.saturating_sub(then.unwrap_or(0)))
}
