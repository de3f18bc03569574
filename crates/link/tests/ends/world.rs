//! Seeded runs: two streams over a connection that is lost repeatedly.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use chappe_flow::{Channel, SessionCommand, SessionEvent};
use chappe_link::{OriginCommand, OriginEvent, StorageOutcome, SubscriberCommand, SubscriberEvent};
use chappe_machine::Instant;

use crate::logs::{Change, CopyLog, OriginLog};
use crate::pair::Pair;

const TICK: Duration = Duration::from_millis(1);
const STREAMS: u32 = 2;
/// Virtual time with faults.
const FAULTS: Duration = Duration::from_secs(4);
/// Virtual time for everything to arrive afterwards.
const RECOVERY: Duration = Duration::from_secs(60);

/// Counts of each kind of event.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    cuts: u64,
    busy: u64,
    defining: u64,
    trims: u64,
    damaged: u64,
    put_back: u64,
    lost: u64,
    rollbacks: u64,
    epochs: u64,
    stored: u64,
}

impl Seen {
    pub(crate) fn add(&mut self, other: &Self) {
        let own = self.counts();
        for (count, more) in own.into_iter().zip(other.values()) {
            *count += more;
        }
    }

    fn counts(&mut self) -> [&mut u64; 10] {
        [
            &mut self.cuts,
            &mut self.busy,
            &mut self.defining,
            &mut self.trims,
            &mut self.damaged,
            &mut self.put_back,
            &mut self.lost,
            &mut self.rollbacks,
            &mut self.epochs,
            &mut self.stored,
        ]
    }

    fn values(&self) -> [u64; 10] {
        [
            self.cuts,
            self.busy,
            self.defining,
            self.trims,
            self.damaged,
            self.put_back,
            self.lost,
            self.rollbacks,
            self.epochs,
            self.stored,
        ]
    }

    /// Fails if some kind of event never happened: the run would show nothing.
    pub(crate) fn assert_all(&self) {
        assert!(self.values().iter().all(|count| *count > 0), "{self:?}");
    }
}

pub(crate) struct World {
    seed: u64,
    random: fastrand::Rng,
    now: Instant,
    pair: Option<Pair>,
    connect_at: Instant,
    logs: BTreeMap<Channel, OriginLog>,
    copies: BTreeMap<Channel, CopyLog>,
    /// Changes in flight to the subscriber's disk.
    queue: VecDeque<Change>,
    has_faults: bool,
    pub(crate) seen: Seen,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let channels = || (0..STREAMS).map(Channel);
        Self {
            seed,
            random: fastrand::Rng::with_seed(seed),
            now: Instant::ZERO,
            pair: None,
            connect_at: Instant::ZERO,
            logs: channels().map(|it| (it, OriginLog::new())).collect(),
            copies: channels().map(|it| (it, CopyLog::default())).collect(),
            queue: VecDeque::new(),
            has_faults: true,
            seen: Seen::default(),
        }
    }

    pub(crate) fn run(&mut self) {
        while self.now < Instant::ZERO + FAULTS {
            self.tick();
        }
        self.has_faults = false;
        for channel in (0..STREAMS).map(Channel) {
            self.append(channel, 1);
        }
        let end = self.now + RECOVERY;
        while self.now < end && !self.is_settled() {
            self.tick();
        }
    }

    fn tick(&mut self) {
        self.now += TICK;
        if self.has_faults {
            self.change_origin();
            if self.chance(0.003) {
                self.cut();
            }
        }
        if self.pair.is_none() && self.now >= self.connect_at {
            self.connect();
        }
        if let Some(pair) = &mut self.pair {
            pair.pass(TICK);
        }
        self.answer();
        if self.chance(0.2) {
            self.store();
            self.answer();
        }
        if self.chance(0.01) {
            self.repair();
            self.answer();
        }
    }

    fn chance(&mut self, share: f64) -> bool {
        self.random.f64() < share
    }

    // -- the origin's log --

    fn change_origin(&mut self) {
        let channel = Channel(self.random.u32(..STREAMS));
        if self.chance(0.05) {
            let count = self.random.u64(1..20);
            self.append(channel, count);
        }
        let log = self.logs.get_mut(&channel).expect("it is there");
        if self.random.f64() < 0.002 {
            let kept = self.random.u64(1..30);
            log.trim((log.last() + 1).saturating_sub(kept).max(1));
            self.seen.trims += 1;
        }
        if self.random.f64() < 0.01 && log.last() > log.first {
            // The newest element stays undamaged, so that the run ends.
            let number = self.random.u64(log.first..log.last());
            log.damaged.insert(number);
            self.seen.damaged += 1;
        }
        let copy = self.copies.get_mut(&channel).expect("it is there");
        if self.random.f64() < 0.01 && !copy.elements.is_empty() {
            let index = self.random.usize(..copy.elements.len());
            copy.damaged.insert(copy.elements[index]);
        }
        // The log does not change during a session: a new epoch comes with a restart.
        if self.random.f64() < 0.002 {
            self.cut();
            let log = self.logs.get_mut(&channel).expect("it is there");
            if self.random.bool() {
                log.begin_epoch();
                self.seen.epochs += 1;
            } else {
                let back = self.random.u64(1..40);
                log.restore(log.last().saturating_sub(back));
            }
        }
    }

    fn append(&mut self, channel: Channel, count: u64) {
        let log = self.logs.get_mut(&channel).expect("it is there");
        for _ in 0..count {
            let number = log.append();
            let Some(pair) = &mut self.pair else { continue };
            let first = log.position_of(number);
            let command = if self.random.bool() {
                OriginCommand::Appended {
                    channel,
                    last: number,
                }
            } else {
                OriginCommand::Live {
                    channel,
                    first,
                    schema_version: crate::logs::schema_version(number),
                    records: [(number as i64, crate::logs::payload(first))]
                        .into_iter()
                        .collect(),
                }
            };
            pair.origin(command);
        }
        self.answer();
    }

    // -- the connection --

    fn cut(&mut self) {
        if self.pair.take().is_some() {
            self.seen.cuts += 1;
        }
        // Some changes that are queued reach the disk, the others are rolled back.
        let kept = self.random.usize(..=self.queue.len());
        self.queue.truncate(kept);
        while let Some(change) = self.queue.pop_front() {
            self.commit(change);
        }
        self.connect_at = self.now + TICK * self.random.u32(1..200);
    }

    fn connect(&mut self) {
        let delay = TICK * self.random.u32(0..20);
        let mut pair = Pair::new(self.now, delay, self.random.u64(..));
        for (channel, copy) in &mut self.copies {
            let (last, subscription) = copy.subscription("stream");
            pair.subscriber(SubscriberCommand::Subscribe {
                channel: *channel,
                last,
                subscription,
            });
        }
        self.pair = Some(pair);
    }

    // -- the programs --

    fn answer(&mut self) {
        loop {
            let Some(pair) = &mut self.pair else { return };
            if let Some(event) = pair.origin_events.pop_front() {
                self.answer_origin(event);
            } else if let Some(event) = pair.subscriber_events.pop_front() {
                self.answer_subscriber(event);
            } else {
                return;
            }
        }
    }

    fn answer_origin(&mut self, event: OriginEvent) {
        let channel = match &event {
            OriginEvent::Open { channel, .. }
            | OriginEvent::Schema { channel, .. }
            | OriginEvent::PutBack { channel, .. } => *channel,
            OriginEvent::Read(request) => request.channel,
            OriginEvent::Session(SessionEvent::Failed(failure)) => {
                panic!("seed {}: {failure}", self.seed)
            }
            _ => return,
        };
        let log = self.logs.get_mut(&channel).expect("it is there");
        let before = log.damaged.len();
        let answer = log.answer(event);
        self.seen.put_back += (before - log.damaged.len()) as u64;
        if let (Some(answer), Some(pair)) = (answer, &mut self.pair) {
            pair.origin(answer);
        }
    }

    fn answer_subscriber(&mut self, event: SubscriberEvent) {
        let Some(pair) = &mut self.pair else { return };
        match event {
            SubscriberEvent::Storage { channel, request } => {
                let outcome = match self.random.u8(..20) {
                    0 if self.has_faults => StorageOutcome::Busy,
                    1 if self.has_faults => StorageOutcome::Defining,
                    _ => StorageOutcome::Done,
                };
                self.seen.busy += u64::from(outcome == StorageOutcome::Busy);
                self.seen.defining += u64::from(outcome == StorageOutcome::Defining);
                if outcome == StorageOutcome::Done {
                    let copy = self.copies.get_mut(&channel).expect("it is there");
                    let queued = copy.change(channel, request, &mut self.queue);
                    queued.into_iter().for_each(|it| pair.subscriber(it));
                }
                pair.subscriber(SubscriberCommand::Outcome(outcome));
            }
            SubscriberEvent::PutBack {
                channel,
                first,
                records,
            } => {
                let copy = self.copies.get_mut(&channel).expect("it is there");
                copy.put_back(first, &records);
            }
            SubscriberEvent::Session(SessionEvent::Fetch {
                request,
                channel,
                epoch,
                from,
                next,
                ..
            }) => {
                let (first, records) = self.copies[&channel].read(epoch, from, next);
                let fetched = SessionCommand::Fetched {
                    request,
                    first,
                    records,
                };
                pair.subscriber(SubscriberCommand::Session(fetched));
            }
            SubscriberEvent::Session(SessionEvent::Failed(failure)) => {
                panic!("seed {}: {failure}", self.seed)
            }
            _ => {}
        }
    }

    /// The oldest change reaches the disk.
    fn store(&mut self) {
        if let Some(change) = self.queue.pop_front()
            && self.commit(change)
            && let Some(pair) = &mut self.pair
        {
            pair.subscriber(SubscriberCommand::Stored { batches: 1 });
        }
    }

    fn commit(&mut self, change: Change) -> bool {
        let copy = self.copies.get_mut(&change.channel()).expect("it is there");
        copy.store(change)
    }

    /// Both ends look for damage.
    fn repair(&mut self) {
        let Some(pair) = &mut self.pair else { return };
        let logs = self.logs.iter();
        let holes = logs.flat_map(|(channel, log)| log.holes(*channel));
        pair.origin(OriginCommand::Repair {
            holes: holes.collect(),
        });
        let copies = self.copies.iter();
        let holes = copies.flat_map(|(channel, copy)| copy.holes(*channel));
        pair.subscriber(SubscriberCommand::Repair {
            holes: holes.collect(),
        });
    }

    // -- the judge --

    fn is_settled(&self) -> bool {
        let repairable = |(channel, log): (&Channel, &OriginLog)| {
            let copy = &self.copies[channel];
            let here = log.damaged.iter().any(|number| {
                let position = log.position_of(*number);
                copy.elements.contains(&position) && !copy.damaged.contains(&position)
            });
            let there = copy.damaged.iter().any(|position| {
                let number = position.sequence;
                log.elements.contains_key(&number)
                    && log.position_of(number) == *position
                    && !log.damaged.contains(&number)
            });
            here || there
        };
        let has_all = |(channel, log): (&Channel, &OriginLog)| {
            self.copies[channel].last == Some(log.position_of(log.last()))
        };
        self.logs.iter().all(has_all) && !self.logs.iter().any(repairable)
    }

    /// Each element of the origin is stored once, in order, or lost once; repairs are done.
    pub(crate) fn judge(&mut self) {
        let seed = self.seed;
        assert!(self.is_settled(), "seed {seed}: it does not end");
        for (channel, log) in &self.logs {
            let copy = &self.copies[channel];
            let named = copy.elements.iter().chain(&copy.lost);
            let first = named.map(|it| it.sequence).min().unwrap_or(u64::MAX);
            for number in 1..=log.last() {
                let position = log.position_of(number);
                let stored = copy.elements.iter().filter(|it| **it == position).count();
                let lost = copy.lost.iter().filter(|it| **it == position).count();
                assert!(
                    stored + lost == usize::from(number >= first),
                    "seed {seed}: {channel}: {position} is stored {stored} times, lost {lost}"
                );
            }
            let mut newest = BTreeMap::new();
            for position in &copy.elements {
                let before = newest.insert(position.epoch, position.sequence);
                assert!(
                    before.is_none_or(|before| before < position.sequence),
                    "seed {seed}: {position} is stored after {before:?}"
                );
            }
            self.seen.lost += copy.lost.len() as u64;
            self.seen.rollbacks += copy.rollbacks;
            self.seen.stored += copy.elements.len() as u64;
        }
    }
}
