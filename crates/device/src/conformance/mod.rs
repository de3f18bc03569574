//! Checks whether a device keeps the clauses of DPWS and of the specifications under it, as far as a client sees it.
//!
//! [`check`] sends each kind of question once, most of the faults on purpose, and judges what comes: the answers by
//! HTTP, the answers to multicast, the notifications of one event source. It calls only operations of the
//! specifications: Get, GetMetadata, Probe, Resolve and those of WS-Eventing, so the device does nothing that it was
//! built for. Questions, time and the bytes of each answer are bounded.
//!
//! [`CLAUSES`] are the rules; [`Report`] has the state of each, and every violation with its messages. `network`
//! questions go through the module `wire`, everything else is a judgement of texts.
//!
//! Not checked: certificates, attachments, the operations of the device's own services, rules for clients.

mod clause;
mod description;
mod discovery;
mod eventing;
mod messaging;
mod report;
#[cfg(test)]
mod tests;
mod wire;

use std::time::Duration;

use chappe_dpws::Dialect;
use chappe_dpws::discovery::AppSequence;
use chappe_dpws::exchange;
use chappe_identity::{Contact, Proof, Scheme};
use chappe_soap::{EndpointReference, Envelope, Fault, FaultCode};
use chappe_transport::http::Security;
use chappe_xml::Name;
use tokio::time::timeout;

use crate::Error;

pub use clause::{CLAUSES, Clause, Severity};
pub use report::{Finding, Report, State};

use clause::{
    FAULT_ACTION, FAULT_RELATED, FAULT_STATUS, MEDIA_TYPE, ON_CONNECTION, RELATED, SOAP_12,
};
use report::Seen;
use wire::{Got, Network, Post, Wire};

/// The media type of SOAP 1.2 messages.
const SOAP: &str = "application/soap+xml; charset=utf-8";

/// What is checked, and for how long.
#[derive(Debug, Clone)]
pub struct Options {
    /// The transport address of the device.
    pub device: Contact,
    /// The dialect; `None` takes the newer one that the device answers.
    pub dialect: Option<Dialect>,
    /// The endpoint that discovery found, if it did.
    pub endpoint: Option<String>,
    /// TLS with a device that has it. Default `None`. Without a certificate, the events of such a device are not
    /// checked.
    pub tls: Option<Security>,
    /// Time to wait for answers to multicast. Default 3.5 s: the longest delay of a device (DPWS 1.1,
    /// APP_MAX_DELAY) and a second for the way.
    pub answers: Duration,
    /// Time to wait for events. Default 5 s.
    pub events: Duration,
    /// The longest time of all. Default two minutes.
    pub limit: Duration,
}

impl Options {
    /// The defaults for the device at this address.
    #[must_use]
    pub fn new(device: Contact) -> Self {
        Self {
            device,
            dialect: None,
            endpoint: None,
            tls: None,
            answers: Duration::from_millis(3_500),
            events: Duration::from_secs(5),
            limit: Duration::from_secs(120),
        }
    }
}

/// Checks a device.
///
/// # Errors
/// [`Error::Answer`] if the device does not answer a Get by HTTP at all; no port can be opened for its events.
pub async fn check(options: &Options) -> Result<Report, Error> {
    let device = Contact {
        proof: Proof {
            endpoint: options.endpoint.clone(),
            ..options.device.proof.clone()
        },
        ..options.device.clone()
    };
    let mut network = Network::open(device, options.tls.as_ref())?;
    check_over(options, &mut network).await
}

async fn check_over<W: Wire>(options: &Options, wire: &mut W) -> Result<Report, Error> {
    let mut check = Check::new(options, wire)?;
    let reached = match timeout(options.limit, check.run()).await {
        Ok(reached) => reached,
        Err(_) if !check.report.has_seen() => Err(Error::Silent(options.limit)),
        Err(_) => {
            let seconds = options.limit.as_secs();
            let note = format!("the check is incomplete: its time of {seconds} s is over");
            check.report.notes.push(note);
            Ok(())
        }
    };
    reached.map(|()| check.report)
}

/// A check in progress.
struct Check<'a, W> {
    options: &'a Options,
    wire: &'a mut W,
    report: Report,
    /// The URL of the device.
    url: String,
    dialect: Dialect,
    /// The endpoint in the device's metadata, else the one that discovery found.
    endpoint: Option<EndpointReference>,
    /// The sequences of its messages to the multicast group, by message.
    sequences: Vec<(String, AppSequence)>,
    next_id: u128,
}

/// A question, and what came of it.
struct Exchange {
    sent: String,
    request: String,
    came: String,
    response: String,
    /// 0 without an answer.
    status: u16,
    media_type: String,
    envelope: Option<Envelope>,
    fault: Option<Fault>,
}

impl Exchange {
    fn seen(&self) -> Seen<'_> {
        Seen {
            sent: &self.sent,
            came: &self.came,
            request: &self.request,
            response: &self.response,
        }
    }

    /// The answer, if it is not a fault and has this action.
    fn answer(&self, action: &str) -> Option<&Envelope> {
        let envelope = self.envelope.as_ref()?;
        (self.fault.is_none() && envelope.addressing.action == action).then_some(envelope)
    }
}

/// A verdict.
fn so(kept: bool, problem: impl FnOnce() -> String) -> Result<(), String> {
    match kept {
        true => Ok(()),
        false => Err(problem()),
    }
}

impl<'a, W: Wire> Check<'a, W> {
    fn new(options: &'a Options, wire: &'a mut W) -> Result<Self, Error> {
        let failed = |source| Error::Listen { at: None, source };
        let seed = chappe_transport::seed_number().map_err(failed)?;
        Ok(Self {
            options,
            wire,
            report: Report::default(),
            url: options.device.to_string(),
            dialect: options.dialect.unwrap_or_default(),
            endpoint: options.endpoint.clone().map(EndpointReference::new),
            sequences: Vec::new(),
            next_id: u128::from(seed) << 64,
        })
    }

    async fn run(&mut self) -> Result<(), Error> {
        let services = self.description().await?;
        self.messaging().await;
        self.probe_by_http().await;
        match self.has_sink() {
            true => self.eventing(&services).await,
            false => self
                .note("events are not checked: a device with TLS sends them only to a certificate"),
        }
        self.discovery().await;
        Ok(())
    }

    /// Whether the device can send events: those of a device with TLS need a certificate at this end, too.
    fn has_sink(&self) -> bool {
        let serves = self.options.tls.as_ref().is_some_and(Security::serves);
        serves || self.options.device.scheme == Scheme::Http
    }

    fn id(&mut self) -> String {
        self.next_id += 1;
        uuid::Builder::from_random_bytes(self.next_id.to_be_bytes())
            .into_uuid()
            .urn()
            .to_string()
    }

    /// The device as the destination of a message.
    fn device(&self) -> EndpointReference {
        let url = || EndpointReference::new(self.url.clone());
        self.endpoint.clone().unwrap_or_else(url)
    }

    /// A request with a new identifier.
    fn request(&mut self, to: &EndpointReference, action: &str) -> Envelope {
        let id = self.id();
        exchange::request(self.dialect.addressing(), to, action.to_owned(), id)
    }

    /// Posts a message, and judges what holds for every answer.
    async fn ask(&mut self, sent: &str, url: &str, envelope: &Envelope) -> Exchange {
        let id = envelope.addressing.message_id.as_deref().map(str::to_owned);
        self.ask_text(sent, url, envelope.to_text(), id.as_deref())
            .await
    }

    /// As [`ask`](Self::ask), for a text; `id` if the answer can be expected to relate to it.
    async fn ask_text(
        &mut self,
        sent: &str,
        url: &str,
        body: String,
        id: Option<&str>,
    ) -> Exchange {
        let post = Post {
            url: url.to_owned(),
            content_type: SOAP,
            body,
            chunked: false,
        };
        self.post(sent, post, id).await
    }

    async fn post(&mut self, sent: &str, post: Post, id: Option<&str>) -> Exchange {
        self.report.questions += 1;
        let got = self.wire.post(&post).await;
        let exchange = read(sent, post.body, got);
        self.judge_answer(&exchange, id);
        exchange
    }

    fn judge(&mut self, clause: &'static Clause, seen: &Exchange, verdict: Result<(), String>) {
        self.report.judge(clause, &seen.seen(), verdict);
    }

    /// What holds for every answer: media type, status, relation and action.
    fn judge_answer(&mut self, seen: &Exchange, id: Option<&str>) {
        let Some(envelope) = &seen.envelope else {
            let is_message = seen.status == 200 && !seen.response.trim().is_empty();
            if is_message {
                let problem = || "the answer is not an envelope of SOAP 1.2".to_owned();
                self.judge(&SOAP_12, seen, so(false, problem));
            }
            return;
        };
        self.judge(&SOAP_12, seen, Ok(()));
        let media_type = seen.media_type.to_ascii_lowercase();
        let is_soap = ["application/soap+xml", "multipart/related"]
            .iter()
            .any(|known| media_type.starts_with(known));
        let problem = || format!("the media type is {media_type:?}");
        self.judge(&MEDIA_TYPE, seen, so(is_soap, problem));
        if let Some(id) = id {
            let relates_to = envelope.addressing.relates_to.as_deref();
            let problem = || format!("RelatesTo is {relates_to:?}, the MessageID was {id:?}");
            let clause = match seen.fault {
                None => &RELATED,
                Some(_) => &FAULT_RELATED,
            };
            self.judge(clause, seen, so(relates_to == Some(id), problem));
        }
        let Some(fault) = &seen.fault else { return };
        let due = match fault.code {
            FaultCode::Sender => 400,
            _ => 500,
        };
        let problem = || format!("the status is {} instead of {due}", seen.status);
        self.judge(&FAULT_STATUS, seen, so(seen.status == due, problem));
        let version = envelope.addressing.version;
        let is_known = fault.subcode.as_ref().is_some_and(|subcode| {
            let namespace = &*subcode.namespace;
            namespace == version.namespace() || namespace == chappe_dpws::dialect::EVENTING
        });
        if is_known {
            let due = exchange::fault_action(version, fault);
            let action = &envelope.addressing.action;
            let problem = || format!("the action is {action} instead of {due}");
            self.judge(&FAULT_ACTION, seen, so(*action == due, problem));
        }
    }

    /// Judges that a question is refused by a fault with one of these subcodes.
    fn expect_fault(&mut self, clause: &'static Clause, seen: &Exchange, subcodes: &[Name]) {
        let subcode = seen.fault.as_ref().and_then(|fault| fault.subcode.as_ref());
        let kept = subcode.is_some_and(|subcode| subcodes.contains(subcode));
        let problem = || {
            let locals: Vec<_> = subcodes.iter().map(|name| name.local.to_string()).collect();
            format!("no fault {}", locals.join(" or "))
        };
        self.judge(clause, seen, so(kept, problem));
    }

    /// Judges that a valid question is answered with this action.
    fn expect_answer(&mut self, clause: &'static Clause, seen: &Exchange, action: &str) -> bool {
        let kept = seen.answer(action).is_some();
        self.judge(
            clause,
            seen,
            so(kept, || format!("no answer with the action {action}")),
        );
        kept
    }

    /// Judges whether a usable answer came at all.
    fn expect_connection(&mut self, seen: &Exchange) {
        let kept = seen.status != 0 && seen.status != 202;
        let problem = || "the connection brings no answer".to_owned();
        self.judge(&ON_CONNECTION, seen, so(kept, problem));
    }
}

/// Makes an answer an exchange.
fn read(sent: &str, request: String, got: Result<Got, String>) -> Exchange {
    let mut exchange = Exchange {
        sent: sent.to_owned(),
        request,
        came: String::new(),
        response: String::new(),
        status: 0,
        media_type: String::new(),
        envelope: None,
        fault: None,
    };
    let got = match got {
        Ok(got) => got,
        Err(why) => {
            exchange.came = format!("no answer: {why}");
            return exchange;
        }
    };
    exchange.status = got.status;
    exchange.envelope = Envelope::parse(got.body.as_bytes()).ok();
    exchange.fault = exchange.envelope.as_ref().and_then(Envelope::fault);
    exchange.came = match (&exchange.fault, &exchange.envelope) {
        (Some(fault), _) => format!("{} {fault}", got.status),
        (None, Some(envelope)) => format!("{} {}", got.status, envelope.addressing.action),
        (None, None) => format!(
            "{} {} ({} bytes)",
            got.status,
            got.content_type,
            got.body.len()
        ),
    };
    exchange.response = got.body;
    exchange.media_type = got.content_type;
    exchange
}
