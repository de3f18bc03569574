//! The mapping of a medical device: schedules reads of its description, and holds events meanwhile.
//!
//! The description is read once all subscriptions have been answered, and again after a subscription was renewed or
//! a report needs an unknown description. Events are held while it is read. If it cannot be read, the read is
//! retried, and events are mapped with the known description.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use chappe_device::client::{Caller, Description, HostedService, Notification};
use chappe_device::mapping::sdc::{self, Outcome, Reported, SdcMapping};
use chappe_device::mapping::{Offers, Trouble};
use chappe_xml::Element;
use tokio::time::Sleep;

use super::{AttachmentEvent, RETRY, events_of, timestamp};

/// Events held while the description is read. Reason: 25 s of a waveform with an event each 25 ms.
pub(super) const HELD_MAX: usize = 1_024;
/// XML bytes of held events. Reason: the same number of events of the usual size.
const HELD_BYTES_MAX: usize = 8 << 20;
/// Consecutive answers of another sequence than the events, before events are mapped regardless.
const CONTRADICTIONS_MAX: u32 = 3;
/// The reason of a failed GetMdib.
const GET_MDIB: &str = "sdc_get_mdib";
/// The reason of an answer with another sequence than the reports.
const OTHER_SEQUENCE: &str = "sdc_other_sequence";

/// The state of one medical device.
#[derive(Debug)]
pub(super) struct Medical {
    client: Caller,
    /// The service that returns the description.
    service: Option<HostedService>,
    /// Whether one subscription has the reports of all changes.
    is_complete: bool,
    mapping: SdcMapping,
    reading: Reading,
    /// Whether the answer may have states that no report contains.
    needs_states: bool,
    /// The pause after the next useless attempt.
    pause: Duration,
    /// The pause before the next read because of missed reports.
    missed_pause: Duration,
    contradictions: u32,
    held: VecDeque<(Notification, usize)>,
    held_bytes: usize,
    /// The reason why the description is unknown.
    trouble: Option<Trouble>,
    /// Whether no further description is read.
    is_closing: bool,
}

type Answer = Pin<Box<dyn Future<Output = Result<Element, Trouble>> + Send>>;

/// The state of reading the description.
enum Reading {
    Idle,
    /// To be read once all subscriptions have been answered.
    Due,
    /// Requested.
    Requested(Answer),
    /// To be read after a pause.
    Paused(Pin<Box<Sleep>>),
}

impl std::fmt::Debug for Reading {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Idle => "Idle",
            Self::Due => "Due",
            Self::Requested(_) => "Requested",
            Self::Paused(_) => "Paused",
        })
    }
}

/// The service of a medical device with this port type.
pub(super) fn of_type<'a>(description: &'a Description, local: &str) -> Option<&'a HostedService> {
    let is = |name: &chappe_xml::Name| name.is(sdc::SERVICES, local);
    let mut services = description.services.iter();
    services.find(|service| service.types.iter().any(is))
}

/// The services whose events are subscribed, with the actions.
pub(super) fn wanted(description: &Description) -> Vec<(&HostedService, Vec<String>)> {
    let mut wanted: Vec<(&HostedService, Vec<String>)> = Vec::new();
    let mut add = |local: &str, action: &str, is_optional: bool| {
        let Some(service) = of_type(description, local) else {
            return;
        };
        if is_optional && !service.events().iter().any(|event| event == action) {
            return;
        }
        let action = action.to_owned();
        match wanted
            .iter_mut()
            .find(|(known, _)| std::ptr::eq(*known, service))
        {
            Some((_, actions)) => actions.push(action),
            None if is_optional => {}
            None => wanted.push((service, vec![action])),
        }
    };
    sdc::EVENTS
        .iter()
        .for_each(|(local, action)| add(local, action, false));
    sdc::OTHER_EVENTS
        .iter()
        .for_each(|(local, action)| add(local, action, true));
    wanted
}

impl Medical {
    pub(super) fn new(client: Caller) -> Self {
        Self {
            client,
            service: None,
            is_complete: false,
            mapping: SdcMapping::default(),
            reading: Reading::Due,
            needs_states: true,
            pause: RETRY.0,
            missed_pause: RETRY.0,
            contradictions: 0,
            held: VecDeque::new(),
            held_bytes: 0,
            trouble: Some(Trouble::new("sdc_not_read", "its metrics are being read")),
            is_closing: false,
        }
    }

    /// Sets the service that returns the description.
    pub(super) fn describe(&mut self, reader: &HostedService, is_complete: bool) {
        self.service = Some(reader.without_documents());
        self.is_complete = is_complete;
    }

    /// The reason why the description is unknown.
    pub(super) fn missing(&self) -> Option<&Trouble> {
        self.trouble.as_ref()
    }

    /// The identifiers of the device, if its description has any.
    pub(super) fn meta_data(&self) -> Option<&sdc::MetaData> {
        self.mapping.meta_data()
    }

    /// Whether it waits for its description.
    pub(super) fn is_reading(&self) -> bool {
        !matches!(self.reading, Reading::Idle)
    }

    /// Whether its description is requested.
    pub(super) fn is_requested(&self) -> bool {
        matches!(self.reading, Reading::Requested(_))
    }

    /// Retires the streams of a device that is no longer medical.
    pub(super) fn leave(self, offers: &mut Offers) {
        let numbers: Vec<usize> = self.mapping.offers().collect();
        numbers.into_iter().for_each(|number| offers.retire(number));
    }

    /// A subscription was granted: earlier states have to be read, and a pending answer may be too old.
    pub(super) fn on_granted(&mut self) {
        self.needs_states = true;
        self.reading = Reading::Due;
    }

    /// Reads the description when it is due.
    pub(super) fn poll(
        &mut self,
        all_answered: bool,
        offers: &mut Offers,
        context: &mut Context<'_>,
    ) -> Poll<Vec<AttachmentEvent>> {
        loop {
            match &mut self.reading {
                Reading::Due if all_answered => self.reading = Reading::Requested(self.ask()),
                Reading::Idle | Reading::Due => return Poll::Pending,
                Reading::Paused(sleep) => match sleep.as_mut().poll(context) {
                    Poll::Ready(()) => self.reading = Reading::Due,
                    Poll::Pending => return Poll::Pending,
                },
                Reading::Requested(answer) => match answer.as_mut().poll(context) {
                    Poll::Ready(answer) => return Poll::Ready(self.on_answer(answer, offers)),
                    Poll::Pending => return Poll::Pending,
                },
            }
        }
    }

    fn ask(&self) -> Answer {
        let (client, service) = (self.client.clone(), self.service.clone());
        Box::pin(async move {
            let error =
                |detail: String| Trouble::new(GET_MDIB, detail).hint("it is retried automatically");
            let service =
                service.ok_or_else(|| error("the device has no GetService".to_owned()))?;
            let answer = client.call(&service, sdc::GET_MDIB, sdc::get_mdib()).await;
            let answer = answer.map_err(|failure| error(failure.to_string()))?;
            answer.ok_or_else(|| error("the answer is empty".to_owned()))
        })
    }

    fn on_answer(
        &mut self,
        answer: Result<Element, Trouble>,
        offers: &mut Offers,
    ) -> Vec<AttachmentEvent> {
        self.reading = Reading::Idle;
        let newest = self.held.back();
        let answer = answer.and_then(|answer| match newest {
            Some((event, _))
                if self.contradictions < CONTRADICTIONS_MAX
                    && SdcMapping::contradicts(&answer, &event.body) =>
            {
                self.contradictions += 1;
                let detail = "the answer to GetMdib has another sequence than the reports";
                Err(Trouble::new(OTHER_SEQUENCE, detail))
            }
            _ => Ok(answer),
        });
        let read = answer.and_then(|answer| Ok((self.mapping.read(&answer, offers)?, answer)));
        match read {
            Err(trouble) => self.failed(trouble, offers),
            Ok((outcome, answer)) => {
                self.trouble = None;
                let mut all = self.outcome(outcome);
                // They were sent before the answer, or are newer.
                all.extend(self.release(offers));
                let is_last = !matches!(self.reading, Reading::Due);
                if is_last && std::mem::take(&mut self.needs_states) {
                    let now = timestamp(std::time::SystemTime::now());
                    let current = self.mapping.current(&answer, now);
                    all.extend(events_of(current, Some, AttachmentEvent::Current));
                }
                all.push(AttachmentEvent::Progress);
                all
            }
        }
    }

    /// The description could not be read: retries after a pause.
    fn failed(&mut self, trouble: Trouble, offers: &mut Offers) -> Vec<AttachmentEvent> {
        self.pause();
        self.trouble = Some(trouble.clone());
        let mut all = vec![AttachmentEvent::Trouble(trouble), AttachmentEvent::Progress];
        // Events of a sequence whose description may still be read stay held.
        if self.mapping.is_read()
            && (self.contradictions == 0 || self.contradictions >= CONTRADICTIONS_MAX)
        {
            while let Some(event) = self.pop_held() {
                all.extend(self.map(event, false, offers));
            }
        }
        all
    }

    fn pause(&mut self) {
        let pause = self.pause;
        self.pause = (pause * 2).min(RETRY.1);
        self.read_after(pause);
    }

    fn read_after(&mut self, pause: Duration) {
        if !self.is_closing {
            self.reading = Reading::Paused(Box::pin(tokio::time::sleep(pause)));
        }
    }

    /// Maps held events, until one needs another description.
    fn release(&mut self, offers: &mut Offers) -> Vec<AttachmentEvent> {
        let mut all = Vec::new();
        while let Some(event) = self.pop_held() {
            let may_read = self.contradictions < CONTRADICTIONS_MAX;
            all.extend(self.map(event, may_read, offers));
            if matches!(self.reading, Reading::Due) {
                self.contradictions += 1;
                return all;
            }
        }
        if self.trouble.is_none() {
            (self.contradictions, self.pause) = (0, RETRY.0);
        }
        all
    }

    /// Maps an event, or holds it.
    pub(super) fn map_or_hold(
        &mut self,
        event: Notification,
        offers: &mut Offers,
    ) -> Vec<AttachmentEvent> {
        let is_awaited = matches!(self.reading, Reading::Due | Reading::Requested(_));
        let is_first = !is_awaited && self.held.is_empty();
        if self.is_closing || is_first && self.mapping.is_read() {
            let may_read = !self.is_closing && matches!(self.reading, Reading::Idle);
            return self.map(event, may_read, offers);
        }
        let bytes = event.body.to_text().len();
        self.held_bytes += bytes;
        self.held.push_back((event, bytes));
        let mut all = Vec::new();
        while self.held.len() > HELD_MAX || self.held_bytes > HELD_BYTES_MAX {
            let Some(event) = self.pop_held() else { break };
            all.extend(self.map(event, false, offers));
        }
        all
    }

    fn pop_held(&mut self) -> Option<Notification> {
        let (event, bytes) = self.held.pop_front()?;
        self.held_bytes -= bytes;
        Some(event)
    }

    /// Maps an event; one that needs an unread description returns to the head of the queue.
    fn map(
        &mut self,
        event: Notification,
        may_read: bool,
        offers: &mut Offers,
    ) -> Vec<AttachmentEvent> {
        let received = timestamp(event.received_at);
        match self
            .mapping
            .report(&event.body, received, self.is_complete, offers)
        {
            Reported::Mapped(outcome) => {
                let mut all = Vec::new();
                let is_contradiction = |trouble: &mut Trouble| trouble.reason != GET_MDIB;
                if self.contradictions >= CONTRADICTIONS_MAX
                    && self.trouble.take_if(is_contradiction).is_some()
                {
                    self.contradictions = 0;
                    all.push(AttachmentEvent::Progress);
                }
                all.extend(self.outcome(outcome));
                all
            }
            Reported::NeedsDescription(trouble) if may_read => {
                self.needs_states |= trouble.reason == OTHER_SEQUENCE;
                let bytes = event.body.to_text().len();
                self.held_bytes += bytes;
                self.held.push_front((event, bytes));
                self.reading = Reading::Due;
                Vec::new()
            }
            Reported::NeedsDescription(trouble) => {
                self.needs_states |= trouble.reason == OTHER_SEQUENCE;
                let mapped = self.mapping.report_without(&event.body, received, &trouble);
                let mut all: Vec<AttachmentEvent> =
                    events_of(mapped, Some, AttachmentEvent::Element).collect();
                if self.contradictions >= CONTRADICTIONS_MAX && self.trouble.is_none() {
                    self.trouble = Some(trouble);
                    all.push(AttachmentEvent::Progress);
                }
                if matches!(self.reading, Reading::Idle) {
                    self.pause();
                }
                all
            }
        }
    }

    fn outcome(&mut self, outcome: Outcome) -> Vec<AttachmentEvent> {
        if outcome.missed_reports && matches!(self.reading, Reading::Idle) {
            // The missed reports may have added or removed metrics.
            let pause = self.missed_pause;
            self.missed_pause = (pause * 2).min(RETRY.1);
            self.needs_states = true;
            self.read_after(pause);
        }
        let changed = outcome
            .offers_changed
            .then_some(AttachmentEvent::OffersChanged);
        let mapped = events_of(outcome.mapped, Some, AttachmentEvent::Element);
        changed.into_iter().chain(mapped).collect()
    }

    /// Maps all held events with the known description.
    pub(super) fn finish(&mut self, offers: &mut Offers) -> Vec<AttachmentEvent> {
        self.is_closing = true;
        self.reading = Reading::Idle;
        let mut all = Vec::new();
        while let Some(event) = self.pop_held() {
            all.extend(self.map(event, false, offers));
        }
        all
    }
}
