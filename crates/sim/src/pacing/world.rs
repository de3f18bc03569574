//! The run itself: senders, their shared bottleneck, and receivers.
//!
//! The events wait in the queue of [`crate::network`]; the bottleneck is not one of its links.
//! There a message is carried or dropped whole and each sender has its own rate. Here all senders
//! share one queue, a sample that does not fit takes up as many packets as there is room for, and
//! missing samples are named and retransmitted as in RTPS.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use chappe_flow::pacer::{Pace, Pacer, Receivers};
use chappe_machine::Instant;

use super::{Change, Moment, Outcome, Service, Settings};
use crate::Distribution;
use crate::network::Queue;

/// Bytes of a packet: of a sample that does not fit, whole packets are sent in vain.
const PACKET: u64 = 1_400;
/// Samples that one acknowledgement can name, from the first missing one on, as in RTPS.
const NAMED_MAX: u64 = 256;
/// Most latencies that are kept.
const LATENCIES_MAX: usize = 1 << 20;
const MOMENT: u64 = 100_000_000;

#[derive(Debug)]
enum Event {
    Change(usize),
    Moment,
    Begin(usize),
    /// The sender's timer; only the last that was set counts.
    Timer {
        sender: usize,
        number: u64,
    },
    Arrives {
        sender: usize,
        receiver: usize,
        sample: u64,
        /// Whether a frame begins with it.
        first: bool,
    },
    /// Samples handled before this commit are stored.
    Committed {
        receiver: usize,
    },
    Handled {
        sender: usize,
        receiver: usize,
        sample: u64,
    },
    AcknowledgeDelay {
        sender: usize,
        receiver: usize,
        number: u64,
    },
    Acknowledged {
        sender: usize,
        receiver: usize,
        next: u64,
        missing: Vec<u64>,
    },
    Heartbeat {
        sender: usize,
        number: u64,
    },
    Asked {
        sender: usize,
        receiver: usize,
        next: u64,
    },
}

/// First in, first out, at a rate: samples wait while earlier ones are processed.
#[derive(Debug, Clone, Default)]
struct Line {
    busy_until: u64,
}

struct SendingSide {
    pacer: Box<dyn Pacer>,
    receivers: Receivers<usize>,
    begun: bool,
    written: Vec<u64>,
    /// Rate of samples, the time at which the rate began, and the count until then.
    offered: Option<(f64, u64, u64)>,
    timer: u64,
    heartbeat: u64,
    outcome: Outcome,
    latencies: Vec<f32>,
    delivered: u64,
    moment: Collected,
}

/// The figures collected for a moment.
#[derive(Default)]
struct Collected {
    delivered: u64,
    sent_again: u64,
    latencies: Vec<f32>,
}

/// One receiver's state for one sender.
struct ReceivingSide {
    service: Service,
    factor: f64,
    dead: bool,
    line: Line,
    /// In the buffer, with the time at which each is done.
    buffered: VecDeque<u64>,
    next: u64,
    /// The end of the running commit, and of the stored samples.
    committing: u64,
    stored: u64,
    highest: u64,
    ahead: BTreeSet<u64>,
    /// The sender's knowledge of it.
    known: u64,
    since_acknowledged: u64,
    delay: u64,
    delay_until: Option<u64>,
    named_at: Option<u64>,
}

pub(super) struct World<'a> {
    settings: &'a Settings,
    now: u64,
    events: Queue<Event>,
    random: fastrand::Rng,
    bottleneck: Line,
    senders: Vec<SendingSide>,
    /// By sender, then receiver.
    receivers: Vec<Vec<ReceivingSide>>,
    /// By receiver, if shared.
    processors: Vec<Line>,
    /// By receiver: whether a commit runs.
    commits: Vec<bool>,
    warm_up: u64,
    end: u64,
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn nanos_of(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

impl<'a> World<'a> {
    pub(super) fn new(settings: &'a Settings) -> Self {
        let mut senders = Vec::new();
        let mut receivers = Vec::new();
        for (choice, _) in &settings.senders {
            let mut known = Receivers::new(settings.waits);
            for index in 0..settings.receivers.len() {
                known.add(Instant::ZERO, index);
            }
            senders.push(SendingSide {
                pacer: choice.build(),
                receivers: known,
                begun: false,
                written: Vec::new(),
                offered: settings.offered_per_s.map(|per_s| (per_s, 0, 0)),
                timer: 0,
                heartbeat: 0,
                outcome: Outcome::default(),
                latencies: Vec::new(),
                delivered: 0,
                moment: Collected::default(),
            });
            let sides = settings.receivers.iter().map(ReceivingSide::new);
            receivers.push(sides.collect());
        }
        let mut world = Self {
            settings,
            now: 0,
            events: Queue::default(),
            random: fastrand::Rng::with_seed(settings.seed),
            bottleneck: Line::default(),
            senders,
            receivers,
            processors: vec![Line::default(); settings.receivers.len()],
            commits: vec![false; settings.receivers.len()],
            warm_up: nanos(settings.warm_up),
            end: nanos(settings.duration),
        };
        for (index, (_, begin)) in settings.senders.iter().enumerate() {
            world.at(nanos(*begin), Event::Begin(index));
        }
        for (index, (at, _)) in settings.changes.iter().enumerate() {
            world.at(nanos(*at), Event::Change(index));
        }
        world.at(MOMENT, Event::Moment);
        world
    }

    fn at(&mut self, time: u64, event: Event) {
        self.events
            .put(Instant::from_nanos(time.max(self.now)), event);
    }

    pub(super) fn run(mut self) -> Vec<Outcome> {
        while let Some((time, event)) = self.events.take() {
            if time.as_nanos() > self.end {
                break;
            }
            self.now = time.as_nanos();
            self.event(event);
        }
        let seconds = (self.end - self.warm_up.min(self.end)) as f64 / 1e9;
        let receivers = self.settings.receivers.len().max(1) as f64;
        let bytes = self.settings.size_bytes as f64;
        let finish = |side: SendingSide| {
            let latencies = Distribution::of(side.latencies);
            let at = |percent| latencies.percentile(percent);
            Outcome {
                throughput_bytes_per_s: side.delivered as f64 * bytes
                    / receivers
                    / seconds.max(1e-9),
                latency_p50_s: at(50.0),
                latency_p99_s: at(99.0),
                latency_max_s: at(100.0),
                ..side.outcome
            }
        };
        self.senders.into_iter().map(finish).collect()
    }

    fn instant(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Begin(sender) => {
                self.senders[sender].begun = true;
                self.go_on(sender);
            }
            Event::Change(index) => self.change(index),
            Event::Moment => self.moment(),
            Event::Timer { sender, number } => {
                if self.senders[sender].timer == number {
                    self.go_on(sender);
                }
            }
            Event::Arrives {
                sender,
                receiver,
                sample,
                first,
            } => self.arrives(sender, receiver, sample, first),
            Event::Committed { receiver } => self.committed(receiver),
            Event::Handled {
                sender,
                receiver,
                sample,
            } => self.handled(sender, receiver, sample),
            Event::AcknowledgeDelay {
                sender,
                receiver,
                number,
            } => {
                let side = &self.receivers[sender][receiver];
                if side.delay == number && side.delay_until.is_some() {
                    self.acknowledge(sender, receiver);
                }
            }
            Event::Acknowledged {
                sender,
                receiver,
                next,
                missing,
            } => {
                self.acknowledged(sender, receiver, next, missing);
            }
            Event::Heartbeat { sender, number } => self.heartbeat(sender, number),
            Event::Asked {
                sender,
                receiver,
                next,
            } => {
                let side = &mut self.receivers[sender][receiver];
                if !side.dead {
                    side.highest = side.highest.max(next);
                    side.named_at = None;
                    self.acknowledge(sender, receiver);
                }
            }
        }
    }

    fn change(&mut self, index: usize) {
        let settings = self.settings;
        match &settings.changes[index].1 {
            Change::Offered { sender, per_s } => {
                let now = self.now;
                let side = &mut self.senders[*sender];
                let came = side.offered_until(now, self.settings.offered_at_once);
                side.offered = Some((*per_s, now, came));
                self.go_on(*sender);
            }
            Change::Pause { receiver, time } => {
                let until = self.now + nanos(*time);
                for sides in &mut self.receivers {
                    let line = &mut sides[*receiver].line;
                    line.busy_until = line.busy_until.max(until);
                }
                let line = &mut self.processors[*receiver];
                line.busy_until = line.busy_until.max(until);
            }
            Change::Slower { receiver, factor } => {
                for sides in &mut self.receivers {
                    sides[*receiver].factor = *factor;
                }
            }
            Change::Dead { receiver } => {
                for sides in &mut self.receivers {
                    sides[*receiver].dead = true;
                }
            }
            Change::Pacer { sender, choice } => {
                self.senders[*sender].pacer = choice.build();
                self.go_on(*sender);
            }
        }
    }

    /// Writes as many samples as are allowed now.
    fn go_on(&mut self, sender: usize) {
        let now = self.instant();
        let size = self.settings.size_bytes;
        loop {
            let side = &mut self.senders[sender];
            if !side.begun {
                return;
            }
            let in_flight = side.receivers.in_flight(now);
            side.outcome.occupation_max = side.outcome.occupation_max.max(in_flight.elements);
            let room = self.settings.window.saturating_sub(in_flight.elements);
            if room == 0 {
                return;
            }
            let mut count = self.settings.frame_samples.max(1).min(room);
            if side.offered.is_some() {
                let written = side.written.len() as u64;
                let waiting = side
                    .offered_until(self.now, self.settings.offered_at_once)
                    .saturating_sub(written);
                if waiting == 0 {
                    let due = side.due(written, self.settings.offered_at_once);
                    return self.set_timer(sender, due);
                }
                count = count.min(waiting);
            }
            match side.pacer.next(now, in_flight) {
                Pace::Now => {}
                Pace::At(at) => return self.set_timer(sender, at.as_nanos()),
                Pace::AfterAcknowledgement => return,
            }
            let first = side.written.len() as u64;
            side.written
                .extend(std::iter::repeat_n(self.now, count as usize));
            side.receivers.sent(now, size * count, count);
            side.pacer.sent(now, size * count, count);
            side.outcome.sent += count;
            if side.heartbeat == 0 {
                self.set_heartbeat(sender);
            }
            for sample in first..first + count {
                if let Some(departs) = self.through_bottleneck(sender, size) {
                    for receiver in 0..self.settings.receivers.len() {
                        self.travel((sender, receiver), sample, departs, sample == first);
                    }
                }
            }
        }
    }

    fn set_timer(&mut self, sender: usize, at: u64) {
        let side = &mut self.senders[sender];
        side.timer += 1;
        let number = side.timer;
        let step = nanos(self.settings.timer).max(1);
        let at = at.max(self.now + 1).div_ceil(step).saturating_mul(step);
        self.at(at, Event::Timer { sender, number });
    }

    /// The time at which a sample has passed, or nothing if it did not fit.
    fn through_bottleneck(&mut self, sender: usize, size: u64) -> Option<u64> {
        let bottleneck = &self.settings.bottleneck;
        let waits = self.bottleneck.busy_until.saturating_sub(self.now) as f64 / 1e9;
        let queued = (waits * bottleneck.bytes_per_s) as u64;
        let room = bottleneck.queue_bytes.max(2 * size).saturating_sub(queued);
        let fits = if room >= size {
            size
        } else {
            room / PACKET * PACKET
        };
        let takes = nanos_of(fits as f64 / bottleneck.bytes_per_s);
        self.bottleneck.busy_until = self.bottleneck.busy_until.max(self.now) + takes;
        if fits < size {
            self.senders[sender].outcome.dropped += 1;
            return None;
        }
        Some(self.bottleneck.busy_until)
    }

    fn travel(
        &mut self,
        (sender, receiver): (usize, usize),
        sample: u64,
        departs: u64,
        first: bool,
    ) {
        let bottleneck = &self.settings.bottleneck;
        if self.random.f64() < bottleneck.loss {
            return;
        }
        let at = departs + nanos(bottleneck.latency);
        self.at(
            at,
            Event::Arrives {
                sender,
                receiver,
                sample,
                first,
            },
        );
    }

    fn arrives(&mut self, sender: usize, receiver: usize, sample: u64, first: bool) {
        let size = self.settings.size_bytes;
        let share = self.random.f64() * 2.0 - 1.0;
        let side = &mut self.receivers[sender][receiver];
        if side.dead {
            return;
        }
        while side.buffered.front().is_some_and(|done| *done <= self.now) {
            side.buffered.pop_front();
        }
        let room = side.service.buffer_bytes.max(2 * size);
        if (side.buffered.len() as u64 + 1) * size > room {
            self.senders[sender].outcome.dropped += 1;
            return;
        }
        let mut service =
            side.service.per_sample.as_secs_f64() + size as f64 / side.service.bytes_per_s;
        if first {
            service += side.service.per_frame.as_secs_f64();
        }
        let takes = service * side.factor * (1.0 + side.service.jitter * share);
        let line = match self.settings.one_processor {
            true => &mut self.processors[receiver],
            false => &mut side.line,
        };
        line.busy_until = line.busy_until.max(self.now) + nanos_of(takes);
        let done = line.busy_until;
        side.buffered.push_back(done);
        self.at(
            done,
            Event::Handled {
                sender,
                receiver,
                sample,
            },
        );
    }

    fn handled(&mut self, sender: usize, receiver: usize, sample: u64) {
        let every = self.settings.acknowledging.every.max(1);
        let side = &mut self.receivers[sender][receiver];
        if side.dead {
            return;
        }
        side.highest = side.highest.max(sample + 1);
        if sample >= side.next {
            side.ahead.insert(sample);
        }
        let mut delivered = side.next..side.next;
        while side.ahead.remove(&side.next) {
            side.next += 1;
            delivered.end = side.next;
        }
        let stores = self.settings.acknowledging.commit.is_some();
        if !stores {
            side.since_acknowledged += 1;
            side.stored = side.next;
        }
        let hole = side.highest > side.next;
        let interval = nanos(self.settings.acknowledging.missing_interval);
        let may_name = side.named_at.is_none_or(|at| at + interval <= self.now);
        let at_once = side.since_acknowledged >= every || (hole && may_name);
        for sample in delivered {
            self.delivered(sender, sample);
        }
        if stores && !self.commits[receiver] {
            self.commit(receiver);
        }
        if at_once {
            return self.acknowledge(sender, receiver);
        }
        let at = self.now + nanos(self.settings.acknowledging.delay);
        self.acknowledge_until(sender, receiver, at);
    }

    /// A receiver begins to store the samples it has handled.
    fn commit(&mut self, receiver: usize) {
        let Some((least, most)) = self.settings.acknowledging.commit else {
            return;
        };
        let mut some = false;
        for sides in &mut self.receivers {
            let side = &mut sides[receiver];
            side.committing = side.next;
            some |= side.committing > side.stored;
        }
        self.commits[receiver] = some;
        if some {
            let takes = self.random.u64(nanos(least)..=nanos(most.max(least)));
            self.at(self.now + takes, Event::Committed { receiver });
        }
    }

    fn committed(&mut self, receiver: usize) {
        let every = self.settings.acknowledging.every.max(1);
        for sender in 0..self.senders.len() {
            let side = &mut self.receivers[sender][receiver];
            side.since_acknowledged += side.committing - side.stored;
            side.stored = side.committing;
            if side.since_acknowledged >= every {
                self.acknowledge(sender, receiver);
            } else if side.since_acknowledged > 0 {
                let at = self.now + nanos(self.settings.acknowledging.delay);
                self.acknowledge_until(sender, receiver, at);
            }
        }
        self.commit(receiver);
    }

    /// A receiver acknowledges at that time, unless it does before.
    fn acknowledge_until(&mut self, sender: usize, receiver: usize, at: u64) {
        let side = &mut self.receivers[sender][receiver];
        if side.delay_until.is_some_and(|until| until <= at) {
            return;
        }
        side.delay_until = Some(at);
        side.delay += 1;
        let number = side.delay;
        let event = Event::AcknowledgeDelay {
            sender,
            receiver,
            number,
        };
        self.at(at, event);
    }

    fn delivered(&mut self, sender: usize, sample: u64) {
        let side = &mut self.senders[sender];
        let since = match side.offered {
            Some(_) => Some(side.due(sample, self.settings.offered_at_once)),
            None => side.written.get(sample as usize).copied(),
        };
        let latency = self.now.saturating_sub(since.unwrap_or(self.now)) as f32 / 1e9;
        side.moment.delivered += 1;
        side.moment.latencies.push(latency);
        if self.now >= self.warm_up {
            side.delivered += 1;
            if side.latencies.len() < LATENCIES_MAX {
                side.latencies.push(latency);
            }
        }
    }

    /// The receiver acknowledges, and now and then names missing samples.
    fn acknowledge(&mut self, sender: usize, receiver: usize) {
        let interval = nanos(self.settings.acknowledging.missing_interval);
        let side = &mut self.receivers[sender][receiver];
        side.since_acknowledged = 0;
        side.delay_until = None;
        let mut missing = Vec::new();
        let may_name = side.named_at.is_none_or(|at| at + interval <= self.now);
        if side.highest > side.next && may_name {
            side.named_at = Some(self.now);
            let range = side.next..side.highest.min(side.next + NAMED_MAX);
            missing.extend(range.filter(|sample| !side.ahead.contains(sample)));
        }
        let next = side.stored;
        // Missing samples are named repeatedly until they arrive.
        let again = side.named_at.filter(|_| side.highest > side.next);
        if let Some(named_at) = again {
            self.acknowledge_until(sender, receiver, named_at + interval);
        }
        let at = self.now + nanos(self.settings.bottleneck.latency);
        let event = Event::Acknowledged {
            sender,
            receiver,
            next,
            missing,
        };
        self.at(at, event);
    }

    fn acknowledged(&mut self, sender: usize, receiver: usize, next: u64, missing: Vec<u64>) {
        let now = self.instant();
        let size = self.settings.size_bytes;
        let known = &mut self.receivers[sender][receiver].known;
        let more = next.saturating_sub(*known);
        *known = (*known).max(next);
        let side = &mut self.senders[sender];
        let before = side.receivers.in_flight(now);
        side.receivers
            .acknowledged(now, &receiver, more * size, more);
        let after = side.receivers.in_flight(now);
        let elements = before.elements.saturating_sub(after.elements);
        for sample in missing {
            let side = &mut self.senders[sender];
            side.outcome.sent_again += 1;
            side.moment.sent_again += 1;
            let receivers = self.settings.receivers.len().max(1) as u64;
            side.pacer.sent_again(now, size / receivers);
            if let Some(departs) = self.through_bottleneck(sender, size) {
                self.travel((sender, receiver), sample, departs, true);
            }
        }
        if elements > 0 {
            let side = &mut self.senders[sender];
            let newest = side.written.len() as u64 - after.elements;
            let newest = side.written.get(newest.saturating_sub(1) as usize);
            let delay = newest.map(|at| Duration::from_nanos(self.now - at));
            let bytes = elements * size;
            side.pacer.acknowledged(now, bytes, elements, delay, after);
            self.set_heartbeat(sender);
        }
        self.go_on(sender);
    }

    fn set_heartbeat(&mut self, sender: usize) {
        let side = &mut self.senders[sender];
        side.heartbeat += 1;
        let number = side.heartbeat;
        let at = self.now + nanos(self.settings.acknowledging.heartbeat);
        self.at(at, Event::Heartbeat { sender, number });
    }

    /// Nothing was acknowledged for long: the sender asks.
    fn heartbeat(&mut self, sender: usize, number: u64) {
        let now = self.instant();
        let side = &self.senders[sender];
        if side.heartbeat != number {
            return;
        }
        if side.receivers.in_flight(now).elements > 0 {
            let next = side.written.len() as u64;
            let at = self.bottleneck.busy_until.max(self.now);
            let at = at + nanos(self.settings.bottleneck.latency);
            for receiver in 0..self.settings.receivers.len() {
                self.at(
                    at,
                    Event::Asked {
                        sender,
                        receiver,
                        next,
                    },
                );
            }
        }
        self.set_heartbeat(sender);
        self.go_on(sender);
    }

    fn moment(&mut self) {
        let now = self.instant();
        let bytes = self.settings.size_bytes as f64 / self.settings.receivers.len().max(1) as f64;
        for side in &mut self.senders {
            let collected = std::mem::take(&mut side.moment);
            let latencies = Distribution::of(collected.latencies);
            side.outcome.moments.push(Moment {
                at_s: self.now as f64 / 1e9,
                throughput_bytes_per_s: collected.delivered as f64 * bytes * 1e9 / MOMENT as f64,
                latency_p50_s: latencies.percentile(50.0),
                sent_again: collected.sent_again,
                occupation: side.receivers.in_flight(now).elements,
                period_s: side.pacer.status().period.as_secs_f64(),
            });
        }
        self.at(self.now + MOMENT, Event::Moment);
    }
}

impl SendingSide {
    /// The number of samples offered up to a time.
    fn offered_until(&self, now: u64, at_once: u64) -> u64 {
        let Some((per_s, since, before)) = self.offered else {
            return u64::MAX;
        };
        let since = now.saturating_sub(since) as f64 / 1e9;
        // A millionth of a sample early: the clock counts whole nanoseconds.
        let all = before + (since * per_s + 1e-6) as u64 + 1;
        all / at_once.max(1) * at_once.max(1)
    }

    /// The time at which a sample is offered: with the last of its group.
    fn due(&self, sample: u64, at_once: u64) -> u64 {
        let (per_s, since, before) = self.offered.unwrap_or((1.0, 0, 0));
        let last = sample / at_once.max(1) * at_once.max(1) + at_once.max(1) - 1;
        since + nanos_of(last.saturating_sub(before) as f64 / per_s.max(1e-3))
    }
}

impl ReceivingSide {
    fn new(service: &Service) -> Self {
        Self {
            service: service.clone(),
            factor: 1.0,
            dead: false,
            line: Line::default(),
            buffered: VecDeque::new(),
            next: 0,
            committing: 0,
            stored: 0,
            highest: 0,
            ahead: BTreeSet::new(),
            known: 0,
            since_acknowledged: 0,
            delay: 0,
            delay_until: None,
            named_at: None,
        }
    }
}
