//! Calls and events whose messages are Rust types.

use std::fmt;
use std::marker::PhantomData;
use std::time::{Duration, SystemTime};

use chappe_dpws::eventing::EndReason;
use chappe_soap::Body;
use chappe_soap::message::{Faults, Message, ReadError, Reader};
use chappe_soap::wsdl::{Operation, OperationKind, OperationMessage};
use chappe_transport::http::Error as HttpError;
use chappe_xml::{Element, Limits, Name};

use super::{Caller, Delivery, DeviceClient, HostedService, Subscription};
use crate::Error;

/// Names in an error. Reason: more do not fit on a screen.
const SHOWN_MAX: usize = 32;

/// A call failed.
#[derive(Debug)]
pub enum CallError<E> {
    /// The device answered with a fault of the operation.
    Refused(E),
    /// Anything else, faults that the operation does not declare among it.
    Failed(Error),
}

impl<E: fmt::Debug> fmt::Display for CallError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(fault) => write!(f, "the device refused the call: {fault:?}"),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl<E: fmt::Debug> std::error::Error for CallError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused(_) => None,
            Self::Failed(error) => Some(error),
        }
    }
}

impl<E> From<Error> for CallError<E> {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// What a subscription to one event receives.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Received<T> {
    /// The event, and the time of its arrival.
    Event(T, SystemTime),
    /// The device granted the subscription: events follow.
    Subscribed {
        /// The granted lease; it is renewed in time.
        granted: Duration,
    },
    /// The device granted the subscription again after it had ended, for example because the device
    /// restarted: events in between are missing.
    SubscribedAgain {
        /// The granted lease; it is renewed in time.
        granted: Duration,
    },
    /// An event arrived that is not of this type.
    Unreadable(ReadError),
    /// The subscription ended; unless it was unsubscribed, it is retried.
    Ended(EndReason),
    /// The subscription cannot be established or kept for now; it is retried.
    Trouble(String),
}

/// A subscription to one event of a service; it ends when it is dropped.
#[derive(Debug)]
pub struct Events<T> {
    subscription: Subscription,
    action: String,
    element: Name,
    was_subscribed: bool,
    message: PhantomData<fn() -> T>,
}

impl<T: Message> Events<T> {
    /// The next event, or news of the subscription; `None` after the client has closed.
    pub async fn next(&mut self) -> Option<Received<T>> {
        loop {
            return Some(match self.subscription.next().await? {
                Delivery::Notification(event) if event.action == self.action => {
                    match read(&self.element, &event.body) {
                        Ok(message) => Received::Event(message, event.received_at),
                        Err(error) => Received::Unreadable(error),
                    }
                }
                Delivery::Subscribed { granted } => {
                    match std::mem::replace(&mut self.was_subscribed, true) {
                        false => Received::Subscribed { granted },
                        true => Received::SubscribedAgain { granted },
                    }
                }
                Delivery::Ended(reason) => Received::Ended(reason),
                Delivery::Trouble { detail, .. } => Received::Trouble(detail),
                Delivery::Notification(_) | Delivery::Renewed { .. } => continue,
            });
        }
    }
}

impl DeviceClient {
    /// Calls an operation of a service by its name in the WSDL.
    ///
    /// A device may be newer than this program: elements of its answer that `A` does not have are
    /// ignored.
    ///
    /// # Errors
    /// The device refuses the call, cannot be reached or its answer is not of this type; or the service
    /// has no such operation.
    pub async fn invoke<Q: Message, A: Message, E: Faults>(
        &self,
        service: &HostedService,
        operation: &str,
        request: &Q,
    ) -> Result<A, CallError<E>> {
        self.caller().invoke(service, operation, request).await
    }

    /// Calls an operation without an answer, as [`DeviceClient::invoke`] does.
    ///
    /// # Errors
    /// The device cannot be reached or refuses the message, or the service has no such operation.
    pub async fn send<Q: Message>(
        &self,
        service: &HostedService,
        operation: &str,
        request: &Q,
    ) -> Result<(), Error> {
        let (_, input) = first(service, operation, OperationKind::OneWay)?;
        let name = element(service, input)?;
        let body = Body::of(&name.namespace, &name.local, request);
        let caller = self.caller();
        caller.call_body(service, &input.action, body).await?;
        Ok(())
    }

    /// Subscribes to an event of a service by its name in the WSDL. The subscription is kept alive, and
    /// renewed if the device loses it.
    ///
    /// # Errors
    /// The service has no such event, or those of [`DeviceClient::subscribe`].
    pub async fn events<T: Message>(
        &self,
        service: &HostedService,
        event: &str,
    ) -> Result<Events<T>, Error> {
        let (_, output) = first(service, event, OperationKind::Notification)?;
        let element = element(service, output)?.clone();
        let action = output.action.clone();
        let subscription = self.subscribe(service, std::slice::from_ref(&action));
        Ok(Events {
            subscription: subscription.await?,
            action,
            element,
            was_subscribed: false,
            message: PhantomData,
        })
    }
}

impl Caller {
    /// Like [`DeviceClient::invoke`].
    ///
    /// # Errors
    /// Those of [`DeviceClient::invoke`].
    pub async fn invoke<Q: Message, A: Message, E: Faults>(
        &self,
        service: &HostedService,
        operation: &str,
        request: &Q,
    ) -> Result<A, CallError<E>> {
        let (found, input) = first(service, operation, OperationKind::RequestResponse)?;
        let name = element(service, input)?;
        let body = Body::of(&name.namespace, &name.local, request);
        let answer = match self.call_body(service, &input.action, body).await {
            Ok(answer) => answer,
            Err(Error::Http(HttpError::Fault { peer, fault })) => {
                return Err(match E::from_fault(&fault, &name.namespace) {
                    Some(refused) => CallError::Refused(refused),
                    None => CallError::Failed(HttpError::Fault { peer, fault }.into()),
                });
            }
            Err(error) => return Err(error.into()),
        };
        let output = found.output.as_ref();
        let output = output.ok_or_else(|| no_operation(service, operation))?;
        let unusable = |what: String| Error::Answer {
            operation: "an operation",
            what,
        };
        let answer = answer.ok_or_else(|| unusable("it has no body".to_owned()))?;
        let name = element(service, output)?;
        let read = answer.read_known(&name.namespace, &name.local);
        read.map_err(|error| unusable(error.to_string()).into())
    }
}

/// Reads a message, and ignores elements that the type does not have.
fn read<T: Message>(name: &Name, element: &Element) -> Result<T, ReadError> {
    let mut events = element.events();
    let reader = Reader::new(&mut events, &name.namespace, Limits::default());
    reader.ignoring_unknown().root(&name.local)
}

/// The operation of this name and kind, and its first message.
fn first<'s>(
    service: &'s HostedService,
    name: &str,
    kind: OperationKind,
) -> Result<(&'s Operation, &'s OperationMessage), Error> {
    let mut operations = service.wsdl.operations();
    let found = operations.find(|(_, known)| known.name == name && known.kind == kind);
    let found = found.map(|(_, found)| found);
    let message = found.and_then(|found| match kind {
        OperationKind::OneWay | OperationKind::RequestResponse => found.input.as_ref(),
        OperationKind::Notification | OperationKind::SolicitResponse => found.output.as_ref(),
    });
    found
        .zip(message)
        .ok_or_else(|| no_operation(service, name))
}

fn no_operation(service: &HostedService, name: &str) -> Error {
    let operations = service.wsdl.operations();
    let known = operations.map(|(_, known)| &*known.name).take(SHOWN_MAX);
    let known: Vec<&str> = known.collect();
    let id = &service.id;
    Error::Misuse(format!(
        "service {id} has no such operation or event {name}, but {known:?}"
    ))
}

/// The element of a message.
fn element<'s>(service: &'s HostedService, message: &OperationMessage) -> Result<&'s Name, Error> {
    let found = service.wsdl.element(message);
    found.ok_or_else(|| Error::Misuse(format!("message {} has no element", message.message)))
}
