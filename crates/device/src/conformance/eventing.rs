//! WS-Eventing, at the first service that offers events.

use std::time::Duration;

use chappe_dpws::dialect::EVENTING;
use chappe_dpws::eventing::message::{
    Expiration, Filter, Lease, Subscribe, SubscribeResponse, action,
};
use chappe_soap::{AddressingVersion, EndpointReference, Envelope, FaultCode};
use chappe_xml::{Element, Name, Str};
use tokio::time::{Instant, sleep};

use super::clause::{
    DISTINCT, DURATION, EXPIRED, FILTERED, MANAGER_HTTP, NO_SINK, NO_SUCH_ACTION, NO_TIME,
    NOTIFY_ACTION, NOTIFY_TO, OTHER_FILTER, OTHER_MODE, PARAMETERS, PARAMETERS_MARKED, PUSH,
    RENEWED, SILENT, STATUS, SUBSCRIBED, UNKNOWN, UNSUBSCRIBED,
};
use super::description::Service;
use super::wire::{Got, Posted, Wire};
use super::{Check, Exchange, read, so};

/// The lease of the subscriptions, long enough for the whole check.
const LEASE: Duration = Duration::from_secs(60);
/// The lease of the subscription that is to expire.
const SHORT: Duration = Duration::from_secs(1);
/// The longest lease whose end is waited for. Reason: devices grant at least some seconds.
const SHORT_MAX: Duration = Duration::from_secs(10);
/// A device may notice the end of a lease later than it comes.
const GRACE: Duration = Duration::from_millis(1_500);
/// Notifications that may be on their way when an Unsubscribe is answered.
const IN_FLIGHT: Duration = Duration::from_secs(1);
/// Notifications that are judged. Reason: the first of a waveform show what the others do.
const NOTIFICATIONS_MAX: usize = 32;

/// The header that comes back as a reference parameter.
fn mark() -> Name {
    Name::new("urn:chappe:conformance", "Mark")
}

/// A granted subscription.
struct Granted {
    manager: EndpointReference,
    expires: Expiration,
}

impl<W: Wire> Check<'_, W> {
    /// Subscribes, judges the notifications, and ends the subscriptions.
    pub(super) async fn eventing(&mut self, services: &[Service]) {
        let source = services.iter().find_map(|service| {
            let events = service.wsdl.as_ref()?.events();
            let actions: Vec<String> = events.map(|(action, _)| action.to_owned()).collect();
            (!actions.is_empty()).then_some((service.endpoint.clone(), actions))
        });
        let Some((source, actions)) = source else {
            self.note("no service offers events in its WSDL: eventing is not checked");
            return;
        };
        self.refusals(&source, &actions).await;
        let Some(all) = self.granted(&source, "all", &actions, LEASE, true).await else {
            return;
        };
        let one = &actions[..1];
        let second = self.granted(&source, "one", one, LEASE, false).await;
        if let Some(second) = &second {
            let problem = || "both have the same".to_owned();
            let seen = Exchange::words("two Subscribes", format!("{:?}", second.manager.address));
            self.judge(&DISTINCT, &seen, so(second.manager != all.manager, problem));
        }
        let count = self.notifications(&actions).await;
        self.leases(&all).await;
        if let Some(second) = &second {
            self.unsubscribe(second, "one").await;
        }
        self.unsubscribe(&all, "all").await;
        self.after_the_end(count).await;
        self.renew_unknown(&all).await;
        self.expire(&source, &actions).await;
    }

    fn subscribe(&mut self, source: &EndpointReference, path: &str, asked: Subscribe) -> Envelope {
        let version = self.dialect.addressing();
        let parameter = Element::new(mark()).with_namespace("c", mark().namespace);
        let sink = EndpointReference {
            address: format!("{}/{path}", self.wire.sink()).into(),
            reference_parameters: vec![parameter.with_text(path.to_owned())],
        };
        let notify_to = asked.notify_to.map(|_| sink);
        let asked = Subscribe { notify_to, ..asked };
        let envelope = self.request(source, action::SUBSCRIBE);
        envelope.with_body(asked.to_element(version))
    }

    fn usual(&self, actions: &[String], lease: Duration) -> Subscribe {
        let actions = actions.iter().cloned().map(Str::Owned).collect();
        Subscribe {
            end_to: None,
            mode: None,
            notify_to: Some(EndpointReference::default()),
            expires: Some(Expiration::After(lease)),
            filter: Some(Filter::actions(self.dialect, actions)),
            tree: Ok(None),
        }
    }

    /// Subscriptions that have to be refused.
    async fn refusals(&mut self, source: &EndpointReference, actions: &[String]) {
        let url = source.address.to_string();
        let nothing = ["urn:chappe:conformance/NoSuchEvent".to_owned()];
        let usual = |check: &Self| check.usual(&nothing, LEASE);

        let asked = usual(self);
        let envelope = self.subscribe(source, "refused", asked);
        let sent = "Subscribe to an action that is not offered";
        let seen = self.ask(sent, &url, &envelope).await;
        let names = [self.dialect.dpws_name("FilterActionNotSupported")];
        self.expect_fault(&NO_SUCH_ACTION, &seen, &names);
        self.forget(&seen).await;

        let mode = Some("urn:chappe:conformance/mode".into());
        let asked = Subscribe {
            mode,
            ..self.usual(actions, LEASE)
        };
        let envelope = self.subscribe(source, "refused", asked);
        let sent = "Subscribe with an unknown delivery mode";
        let seen = self.ask(sent, &url, &envelope).await;
        let names = [Name::new(EVENTING, "DeliveryModeRequestedUnavailable")];
        self.expect_fault(&OTHER_MODE, &seen, &names);
        self.forget(&seen).await;

        let filter = Some(Filter {
            dialect: Some("urn:chappe:conformance/filter".into()),
            actions: vec!["x".into()],
        });
        let asked = Subscribe {
            filter,
            ..usual(self)
        };
        let envelope = self.subscribe(source, "refused", asked);
        let sent = "Subscribe with an unknown filter dialect";
        let seen = self.ask(sent, &url, &envelope).await;
        let locals = ["FilteringRequestedUnavailable", "FilteringNotSupported"];
        let names = locals.map(|local| Name::new(EVENTING, local));
        self.expect_fault(&OTHER_FILTER, &seen, &names);
        self.forget(&seen).await;

        let expires = Some(Expiration::After(Duration::ZERO));
        let filter = None;
        let asked = Subscribe {
            expires,
            filter,
            ..usual(self)
        };
        let envelope = self.subscribe(source, "refused", asked);
        let seen = self.ask("Subscribe for no time", &url, &envelope).await;
        let names = [Name::new(EVENTING, "InvalidExpirationTime")];
        self.expect_fault(&NO_TIME, &seen, &names);
        self.forget(&seen).await;

        let notify_to = None;
        let asked = Subscribe {
            notify_to,
            filter: None,
            ..usual(self)
        };
        let envelope = self.subscribe(source, "refused", asked);
        let seen = self
            .ask("Subscribe without NotifyTo", &url, &envelope)
            .await;
        let code = seen.fault.as_ref().map(|fault| fault.code);
        let problem = || "no fault of the sender".to_owned();
        let is_refused = code == Some(FaultCode::Sender);
        self.judge(&NO_SINK, &seen, so(is_refused, problem));
        self.forget(&seen).await;
    }

    /// Ends a subscription that should not have been granted.
    async fn forget(&mut self, seen: &Exchange) {
        if let Ok(granted) = response(seen, self.dialect.addressing()) {
            self.about(&granted, Lease::Unsubscribe, action::UNSUBSCRIBE, None)
                .await;
        }
    }

    /// Subscribes; judges the answer.
    async fn granted(
        &mut self,
        source: &EndpointReference,
        path: &str,
        actions: &[String],
        lease: Duration,
        is_first: bool,
    ) -> Option<Granted> {
        let asked = self.usual(actions, lease);
        let envelope = self.subscribe(source, path, asked);
        let url = source.address.to_string();
        let seen = self.ask("Subscribe", &url, &envelope).await;
        if is_first {
            let is_refused = seen.fault.is_some() || seen.status != 200;
            let problem = || "it is not granted".to_owned();
            self.judge(&PUSH, &seen, so(!is_refused, problem));
            if is_refused {
                return None;
            }
        }
        let granted = response(&seen, self.dialect.addressing());
        let problem = granted.as_ref().err().cloned();
        self.judge(&SUBSCRIBED, &seen, problem.map_or(Ok(()), Err));
        let granted = granted.ok()?;
        let address = &granted.manager.address;
        let problem = || format!("it is {address}");
        self.judge(
            &MANAGER_HTTP,
            &seen,
            so(address.starts_with("http"), problem),
        );
        let is_duration = matches!(granted.expires, Expiration::After(_));
        let problem = || "it is granted as a date".to_owned();
        self.judge(&DURATION, &seen, so(is_duration, problem));
        Some(granted)
    }

    /// Judges what comes in the time for events; returns the number.
    async fn notifications(&mut self, actions: &[String]) -> usize {
        let until = Instant::now() + self.options.events;
        let mut count = 0;
        let mut others = 0;
        let mut chosen = 0;
        while count < NOTIFICATIONS_MAX {
            let left = until.saturating_duration_since(Instant::now());
            let Some(posted) = self.wire.posted(left).await else {
                break;
            };
            let seen = notification(posted);
            let (path, seen) = (seen.0, seen.1);
            count += 1;
            let Some(found) = self.judge_notification(&path, &seen, actions) else {
                continue;
            };
            let is_chosen = actions.first() == Some(&found);
            match (path.as_str(), is_chosen) {
                ("/one", false) => {
                    let problem = format!("{found} was not asked for");
                    self.judge(&FILTERED, &seen, Err(problem));
                }
                ("/one", true) => chosen += 1,
                (_, false) => others += 1,
                (_, true) => {}
            }
        }
        if chosen + others > 0 {
            let seen = Exchange::words("a filter with one action", format!("{chosen} events"));
            self.judge(&FILTERED, &seen, Ok(()));
        }
        if count == 0 {
            let seconds = self.options.events.as_secs_f64();
            let note = format!("no event came within {seconds} s: notifications are not checked");
            self.report.notes.push(note);
        }
        count
    }

    fn judge_notification(
        &mut self,
        path: &str,
        seen: &Exchange,
        actions: &[String],
    ) -> Option<String> {
        self.judge_answer(seen, None);
        let envelope = seen.envelope.as_ref()?;
        let addressing = &envelope.addressing;
        if addressing.action == action::SUBSCRIPTION_END {
            return None;
        }
        let is_listed = actions.iter().any(|one| addressing.action == *one);
        let problem = || format!("the WSDL has no event {}", addressing.action);
        self.judge(&NOTIFY_ACTION, seen, so(is_listed, problem));
        let due = format!("{}{path}", self.wire.sink());
        let problem = || format!("To is {:?} instead of {due}", addressing.to.as_deref());
        let kept = addressing.to.as_deref() == Some(&*due);
        self.judge(&NOTIFY_TO, seen, so(kept, problem));
        let header = envelope.header(&mark());
        let text = header.map(|header| header.text().trim().to_owned());
        let problem = || "the reference parameter is missing".to_owned();
        let kept = text.as_deref() == path.strip_prefix('/');
        self.judge(&PARAMETERS, seen, so(kept, problem));
        if let (Some(header), AddressingVersion::V200508) = (header, addressing.version) {
            let name = addressing.version.name("IsReferenceParameter");
            let is_marked = matches!(header.attribute(&name), Some("true" | "1"));
            let problem = || "it is not marked".to_owned();
            self.judge(&PARAMETERS_MARKED, seen, so(is_marked, problem));
        }
        Some(addressing.action.to_string())
    }

    /// GetStatus and Renew of a living subscription.
    async fn leases(&mut self, granted: &Granted) {
        let lease = Some(Expiration::After(LEASE));
        let seen = self
            .about(granted, Lease::Renew, action::RENEW, lease)
            .await;
        let renewed = expires(&seen, action::RENEW_RESPONSE, Lease::RenewResponse);
        let problem = || "it is not, or without a lease".to_owned();
        self.judge(&RENEWED, &seen, so(renewed.is_some(), problem));
        let granted_for = renewed.unwrap_or(granted.expires);

        let seen = self
            .about(granted, Lease::GetStatus, action::GET_STATUS, None)
            .await;
        let rest = expires(&seen, action::GET_STATUS_RESPONSE, Lease::GetStatusResponse);
        if let (Some(Expiration::After(rest)), Expiration::After(whole)) = (rest, granted_for) {
            let problem = || format!("{} s are left of {} s", rest.as_secs(), whole.as_secs());
            self.judge(&STATUS, &seen, so(rest <= whole, problem));
        }
    }

    async fn unsubscribe(&mut self, granted: &Granted, path: &str) {
        let seen = self
            .about(granted, Lease::Unsubscribe, action::UNSUBSCRIBE, None)
            .await;
        let kept = seen.answer(action::UNSUBSCRIBE_RESPONSE).is_some();
        let problem = || format!("that of /{path} is not");
        self.judge(&UNSUBSCRIBED, &seen, so(kept, problem));
    }

    /// Notifications after the end of all subscriptions.
    async fn after_the_end(&mut self, count: usize) {
        let until = Instant::now() + IN_FLIGHT;
        while let Some(left) = left(until)
            && self.wire.posted(left).await.is_some()
        {}
        let late = self.wire.posted(IN_FLIGHT).await;
        if let Some(posted) = late {
            let (_, seen) = notification(posted);
            let problem = "it came more than a second after the answer to Unsubscribe";
            self.judge(&SILENT, &seen, Err(problem.to_owned()));
        } else if count > 0 {
            let seen = Exchange::words("Unsubscribe", "silence".to_owned());
            self.judge(&SILENT, &seen, Ok(()));
        }
    }

    async fn renew_unknown(&mut self, ended: &Granted) {
        let lease = Some(Expiration::After(LEASE));
        let seen = self.about(ended, Lease::Renew, action::RENEW, lease).await;
        let problem = || "no fault".to_owned();
        self.judge(&UNKNOWN, &seen, so(seen.fault.is_some(), problem));
    }

    /// A subscription that is left to expire.
    async fn expire(&mut self, source: &EndpointReference, actions: &[String]) {
        let Some(granted) = self.granted(source, "short", actions, SHORT, false).await else {
            return;
        };
        match granted.expires {
            Expiration::After(lease) if lease <= SHORT_MAX => {
                sleep(lease + GRACE).await;
                let lease = Some(Expiration::After(LEASE));
                let seen = self
                    .about(&granted, Lease::Renew, action::RENEW, lease)
                    .await;
                let problem = || "no fault".to_owned();
                self.judge(&EXPIRED, &seen, so(seen.fault.is_some(), problem));
                if seen.fault.is_none() {
                    self.about(&granted, Lease::Unsubscribe, action::UNSUBSCRIBE, None)
                        .await;
                }
            }
            _ => {
                self.note("the shortest lease is above 10 s: its end is not checked");
                self.unsubscribe(&granted, "short").await;
            }
        }
    }

    /// A message about a subscription.
    async fn about(
        &mut self,
        granted: &Granted,
        lease: Lease,
        action: &str,
        expires: Option<Expiration>,
    ) -> Exchange {
        let envelope = self.request(&granted.manager, action);
        let envelope = envelope.with_body(lease.to_element(expires));
        let url = granted.manager.address.to_string();
        let sent = action.rsplit('/').next().unwrap_or(action).to_owned();
        self.ask(&sent, &url, &envelope).await
    }
}

impl Exchange {
    /// An exchange of several messages, in words.
    fn words(sent: &str, came: String) -> Self {
        let mut seen = read(sent, String::new(), Ok(Got::default()));
        seen.came = came;
        seen
    }
}

fn left(until: Instant) -> Option<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    (!left.is_zero()).then_some(left)
}

/// A posted message as an exchange, with its path.
fn notification(posted: Posted) -> (String, Exchange) {
    let got = Got {
        status: 202,
        content_type: posted.content_type,
        body: posted.body,
    };
    let seen = read("a subscription", String::new(), Ok(got));
    (posted.path, seen)
}

/// The grant in an answer.
fn response(seen: &Exchange, version: AddressingVersion) -> Result<Granted, String> {
    let envelope = seen.answer(action::SUBSCRIBE_RESPONSE);
    let envelope = envelope.ok_or("the answer has another action")?;
    let body = envelope.body().ok_or("the answer has no body")?;
    let read = SubscribeResponse::from_element(version, body).map_err(|fault| fault.to_string())?;
    Ok(Granted {
        manager: read.manager,
        expires: read.expires,
    })
}

/// The lease in an answer.
fn expires(seen: &Exchange, action: &str, lease: Lease) -> Option<Expiration> {
    let body = seen.answer(action)?.body()?;
    lease.from_element(body).ok().flatten()
}
