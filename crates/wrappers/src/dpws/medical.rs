//! The reader of a medical device: when its description is read, and which events wait for that.
//!
//! The description is read when all subscriptions have been answered, and again when one was granted
//! again or a report needs a description that is not known. Events wait while it is read. When it
//! cannot be read, it is tried again, and events are mapped with the description that is known.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use chappe_device::client::{Caller, Description, HostedService, Notification};
use chappe_device::mapping::sdc::{self, Outcome, Reported, SdcMapping};
use chappe_device::mapping::{Offers, Trouble};
use chappe_xml::Element;
use tokio::time::Sleep;

use super::{RETRY, Yield, timestamp, yields};

/// Events that wait while the description is read. Reason: 25 s of a waveform each 25 ms.
pub(super) const HELD_MAX: usize = 1_024;
/// Bytes of XML of the events that wait. Reason: as many events of the usual size.
const HELD_BYTES_MAX: usize = 8 << 20;
/// Answers in a row that do not fit the events, before events are mapped all the same.
const UNFIT_MAX: u32 = 3;
/// The reason for which the description could not be had.
const GET_MDIB: &str = "sdc_get_mdib";
/// The reason for which a report does not fit the description that is known.
const OTHER_SEQUENCE: &str = "sdc_other_sequence";

/// The reader of one medical device.
#[derive(Debug)]
pub(super) struct Medical {
    client: Caller,
    /// Where the description is read.
    service: Option<HostedService>,
    /// One subscription has the reports of all changes.
    is_complete: bool,
    mapping: SdcMapping,
    reading: Reading,
    /// States in the answer may be ones that no report brings.
    takes_states: bool,
    /// The next pause after an attempt that was of no use.
    pause: Duration,
    /// The next pause before it is read because reports were missed.
    missed_pause: Duration,
    unfit: u32,
    held: VecDeque<(Notification, usize)>,
    held_bytes: usize,
    /// Why the description is not known.
    trouble: Option<Trouble>,
    /// Nothing is read any more.
    is_closing: bool,
}

type Answer = Pin<Box<dyn Future<Output = Result<Element, Trouble>> + Send>>;

/// What is being done to read the description.
enum Reading {
    Idle,
    /// It is to be read as soon as all subscriptions have been answered.
    Wanted,
    /// It was asked for.
    Asked(Answer),
    /// It is read again after a pause.
    Paused(Pin<Box<Sleep>>),
}

impl std::fmt::Debug for Reading {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Idle => "Idle",
            Self::Wanted => "Wanted",
            Self::Asked(_) => "Asked",
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
            reading: Reading::Wanted,
            takes_states: true,
            pause: RETRY.0,
            missed_pause: RETRY.0,
            unfit: 0,
            held: VecDeque::new(),
            held_bytes: 0,
            trouble: Some(Trouble::new("sdc_not_read", "its metrics are being read")),
            is_closing: false,
        }
    }

    /// The device describes its services so.
    pub(super) fn describe(&mut self, reader: &HostedService, is_complete: bool) {
        self.service = Some(reader.without_documents());
        self.is_complete = is_complete;
    }

    /// Why the description is not known.
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

    /// Whether its description was asked for.
    pub(super) fn is_asked(&self) -> bool {
        matches!(self.reading, Reading::Asked(_))
    }

    /// The device is no medical one any more.
    pub(super) fn leave(self, offers: &mut Offers) {
        let numbers: Vec<usize> = self.mapping.offers().collect();
        numbers.into_iter().for_each(|number| offers.retire(number));
    }

    /// A subscription was granted: what came before is to be read; an answer that is under way may be
    /// too old.
    pub(super) fn granted(&mut self) {
        self.takes_states = true;
        self.reading = Reading::Wanted;
    }

    /// Reads the description if it is time for that.
    pub(super) fn poll(
        &mut self,
        all_answered: bool,
        offers: &mut Offers,
        context: &mut Context<'_>,
    ) -> Poll<Vec<Yield>> {
        loop {
            match &mut self.reading {
                Reading::Wanted if all_answered => self.reading = Reading::Asked(self.ask()),
                Reading::Idle | Reading::Wanted => return Poll::Pending,
                Reading::Paused(sleep) => match sleep.as_mut().poll(context) {
                    Poll::Ready(()) => self.reading = Reading::Wanted,
                    Poll::Pending => return Poll::Pending,
                },
                Reading::Asked(answer) => match answer.as_mut().poll(context) {
                    Poll::Ready(answer) => return Poll::Ready(self.answered(answer, offers)),
                    Poll::Pending => return Poll::Pending,
                },
            }
        }
    }

    fn ask(&self) -> Answer {
        let (client, service) = (self.client.clone(), self.service.clone());
        Box::pin(async move {
            let error =
                |detail: String| Trouble::new(GET_MDIB, detail).hint("another attempt follows");
            let service = service.ok_or_else(|| error("no service".to_owned()))?;
            let answer = client.call(&service, sdc::GET_MDIB, sdc::get_mdib()).await;
            let answer = answer.map_err(|failure| error(failure.to_string()))?;
            answer.ok_or_else(|| error("no answer".to_owned()))
        })
    }

    fn answered(&mut self, answer: Result<Element, Trouble>, offers: &mut Offers) -> Vec<Yield> {
        self.reading = Reading::Idle;
        let newest = self.held.back();
        let answer = answer.and_then(|answer| match newest {
            Some((event, _))
                if self.unfit < UNFIT_MAX && SdcMapping::contradicts(&answer, &event.body) =>
            {
                self.unfit += 1;
                let detail = "the answer to GetMdib is of another sequence than reports";
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
                // They were sent before the answer, or are newer than it.
                all.extend(self.release(offers));
                let is_last = !matches!(self.reading, Reading::Wanted);
                if is_last && std::mem::take(&mut self.takes_states) {
                    let now = timestamp(std::time::SystemTime::now());
                    let current = self.mapping.current(&answer, now);
                    all.extend(yields(current, Some, Yield::Current));
                }
                all.push(Yield::Progress);
                all
            }
        }
    }

    /// The description could not be read: tries again after a pause.
    fn failed(&mut self, trouble: Trouble, offers: &mut Offers) -> Vec<Yield> {
        self.pause();
        self.trouble = Some(trouble.clone());
        let mut all = vec![Yield::Trouble(trouble), Yield::Progress];
        // Events of a sequence that may yet be read wait on.
        if self.mapping.is_read() && (self.unfit == 0 || self.unfit >= UNFIT_MAX) {
            while let Some(event) = self.unhold() {
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

    /// Maps events that waited, until one needs another description.
    fn release(&mut self, offers: &mut Offers) -> Vec<Yield> {
        let mut all = Vec::new();
        while let Some(event) = self.unhold() {
            let may_read = self.unfit < UNFIT_MAX;
            all.extend(self.map(event, may_read, offers));
            if matches!(self.reading, Reading::Wanted) {
                self.unfit += 1;
                return all;
            }
        }
        if self.trouble.is_none() {
            (self.unfit, self.pause) = (0, RETRY.0);
        }
        all
    }

    /// Takes an event, which may have to wait.
    pub(super) fn take(&mut self, event: Notification, offers: &mut Offers) -> Vec<Yield> {
        let is_awaited = matches!(self.reading, Reading::Wanted | Reading::Asked(_));
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
            let Some(event) = self.unhold() else { break };
            all.extend(self.map(event, false, offers));
        }
        all
    }

    fn unhold(&mut self) -> Option<Notification> {
        let (event, bytes) = self.held.pop_front()?;
        self.held_bytes -= bytes;
        Some(event)
    }

    /// Maps an event; one that needs a description which may be read waits at the head of the others.
    fn map(&mut self, event: Notification, may_read: bool, offers: &mut Offers) -> Vec<Yield> {
        let received = timestamp(event.received_at);
        match self
            .mapping
            .report(&event.body, received, self.is_complete, offers)
        {
            Reported::Mapped(outcome) => {
                let mut all = Vec::new();
                let is_unfit = |trouble: &mut Trouble| trouble.reason != GET_MDIB;
                if self.unfit >= UNFIT_MAX && self.trouble.take_if(is_unfit).is_some() {
                    self.unfit = 0;
                    all.push(Yield::Progress);
                }
                all.extend(self.outcome(outcome));
                all
            }
            Reported::NeedsDescription(trouble) if may_read => {
                self.takes_states |= trouble.reason == OTHER_SEQUENCE;
                let bytes = event.body.to_text().len();
                self.held_bytes += bytes;
                self.held.push_front((event, bytes));
                self.reading = Reading::Wanted;
                Vec::new()
            }
            Reported::NeedsDescription(trouble) => {
                self.takes_states |= trouble.reason == OTHER_SEQUENCE;
                let mapped = self.mapping.report_without(&event.body, received, &trouble);
                let mut all: Vec<Yield> = yields(mapped, Some, Yield::Element).collect();
                if self.unfit >= UNFIT_MAX && self.trouble.is_none() {
                    self.trouble = Some(trouble);
                    all.push(Yield::Progress);
                }
                if matches!(self.reading, Reading::Idle) {
                    self.pause();
                }
                all
            }
        }
    }

    fn outcome(&mut self, outcome: Outcome) -> Vec<Yield> {
        if outcome.missed_reports && matches!(self.reading, Reading::Idle) {
            // A metric may have gone or come with them.
            let pause = self.missed_pause;
            self.missed_pause = (pause * 2).min(RETRY.1);
            self.takes_states = true;
            self.read_after(pause);
        }
        let changed = outcome.offers_changed.then_some(Yield::OffersChanged);
        let mapped = yields(outcome.mapped, Some, Yield::Element);
        changed.into_iter().chain(mapped).collect()
    }

    /// Maps all events that wait with the description that is known.
    pub(super) fn finish(&mut self, offers: &mut Offers) -> Vec<Yield> {
        self.is_closing = true;
        self.reading = Reading::Idle;
        let mut all = Vec::new();
        while let Some(event) = self.unhold() {
            all.extend(self.map(event, false, offers));
        }
        all
    }
}
