//! An origin and a subscriber on a virtual clock, with a connection between them.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use chappe_link::{
    Origin, OriginCommand, OriginConfig, OriginEvent, OriginReceive, Subscriber, SubscriberCommand,
    SubscriberConfig, SubscriberEvent, SubscriberReceive,
};
use chappe_machine::{Input, Instant, Invariant as _, Machine as _, Output, drain};

/// Both ends of one session. Frames arrive in order, after the delay.
pub(crate) struct Pair {
    pub(crate) origin: Origin,
    pub(crate) subscriber: Subscriber,
    pub(crate) origin_events: VecDeque<OriginEvent>,
    pub(crate) subscriber_events: VecDeque<SubscriberEvent>,
    pub(crate) now: Instant,
    pub(crate) delay: Duration,
    to_origin: VecDeque<(Instant, Bytes)>,
    to_subscriber: VecDeque<(Instant, Bytes)>,
}

impl Pair {
    pub(crate) fn new(now: Instant, delay: Duration, seed: u64) -> Self {
        let mut pair = Self {
            origin: Origin::new(OriginConfig::default()),
            subscriber: Subscriber::new(SubscriberConfig::default(), !seed),
            origin_events: VecDeque::new(),
            subscriber_events: VecDeque::new(),
            now,
            delay,
            to_origin: VecDeque::new(),
            to_subscriber: VecDeque::new(),
        };
        pair.give_origin(Input::Timeout);
        pair.subscriber(SubscriberCommand::Open);
        pair
    }

    fn give_origin(&mut self, input: Input<OriginReceive, OriginCommand>) {
        let (frames, events) = (&mut self.to_subscriber, &mut self.origin_events);
        let at = self.now + self.delay;
        drain(&mut self.origin, self.now, input, |output| match output {
            Output::Transmit(frame) => frames.push_back((at, frame)),
            Output::Event(event) => events.push_back(event),
        });
        self.origin.check().expect("the origin's invariants");
    }

    fn give_subscriber(&mut self, input: Input<SubscriberReceive, SubscriberCommand>) {
        let (frames, events) = (&mut self.to_origin, &mut self.subscriber_events);
        let at = self.now + self.delay;
        drain(
            &mut self.subscriber,
            self.now,
            input,
            |output| match output {
                Output::Transmit(frame) => frames.push_back((at, frame)),
                Output::Event(event) => events.push_back(event),
            },
        );
        self.subscriber
            .check()
            .expect("the subscriber's invariants");
    }

    pub(crate) fn origin(&mut self, command: OriginCommand) {
        self.give_origin(Input::Command(command));
    }

    pub(crate) fn subscriber(&mut self, command: SubscriberCommand) {
        self.give_subscriber(Input::Command(command));
    }

    /// Passes time: frames and deadlines that are due.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.now += time;
        let due = |frames: &mut VecDeque<(Instant, Bytes)>, now| {
            let is_due = frames.front().is_some_and(|(at, _)| *at <= now);
            is_due.then(|| frames.pop_front()).flatten()
        };
        while let Some((_, frame)) = due(&mut self.to_origin, self.now) {
            self.give_origin(Input::Receive(OriginReceive::Frame(frame)));
        }
        while !self.subscriber.is_full()
            && let Some((_, frame)) = due(&mut self.to_subscriber, self.now)
        {
            self.give_subscriber(Input::Receive(SubscriberReceive::Frame(frame)));
        }
        if self.origin.deadline().is_some_and(|at| at <= self.now) {
            self.give_origin(Input::Timeout);
        }
        if self.subscriber.deadline().is_some_and(|at| at <= self.now) {
            self.give_subscriber(Input::Timeout);
        }
    }
}
