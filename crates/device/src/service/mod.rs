//! Services whose messages are Rust types.

mod describe;
mod event;
mod requester;

use std::future::Future;
use std::sync::Arc;

use chappe_dpws::hosting::Invocation;
use chappe_soap::message::{Faults, Message, ReadError, Types};
use chappe_soap::wsdl::{self, ServiceOperation};
use chappe_soap::{Body, Fault};
use chappe_xml::{Element, Name, Namespace};

use crate::host::Operation;

pub use event::Event;
pub(crate) use event::Outlet;
pub use requester::Requester;

/// The subcode of the fault for a request that its type cannot take.
const INVALID: &str = "InvalidMessage";

/// A service of a [`Device`](crate::Device): events to subscribe to and operations to call, whose
/// messages are Rust types. Its WSDL is made from them.
///
/// The namespace of all messages and port types is the IRI of the service. The message of an event has
/// the event's name; the request of an operation has the operation's name, its answer that name and
/// `Response`.
///
/// ```
/// use chappe_device::{Device, Fault, Key, Message, Service};
/// #[derive(Message)]
/// struct Level { #[unit("%")] percent: f64 }
/// #[derive(Fault)]
/// enum Refused { OutOfRange }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), chappe_device::Error> {
/// let mut service = Service::new("https://example.org/valve", "Valve");
/// let moved = service.event::<Level>("Moved");
/// service.operation("Open", async move |asked: Level| match asked.percent {
///     0.0..=100.0 => Ok(asked),
///     _ => Err(Refused::OutOfRange),
/// });
/// # let key = Key::from(chappe_identity::Key::from_seed([1; 32]));
/// let device = Device::new(key).model("Example", "V1").name("main valve").service(service);
/// // Without the network; `start` puts it there.
/// let mut bench = device.bench()?;
/// let open: Result<Level, Fault> = bench.call("Valve", "Open", &Level { percent: 40.0 }).await;
/// assert_eq!(open.unwrap().percent, 40.0);
/// let open: Result<Level, Fault> = bench.call("Valve", "Open", &Level { percent: 140.0 }).await;
/// assert_eq!(open.err().unwrap().subcode.unwrap().local, "OutOfRange");
/// moved.send(Level { percent: 40.0 }).await?;
/// # Ok(())
/// # }
/// ```
/// A closure that changes what it owns does not compile, since calls may be answered at the same time:
/// share it, for example by `Arc<Mutex<_>>`.
/// ```compile_fail
/// # let mut service = chappe_device::Service::new("https://example.org/valve", "Valve");
/// let mut calls = 0;
/// service.operation("Open", async move |(): ()| {
///     calls += 1;
///     Ok::<(), std::convert::Infallible>(())
/// });
/// ```
pub struct Service {
    namespace: Namespace,
    name: String,
    types: Types,
    port_types: Vec<(String, Vec<Entry>)>,
    outlet: Outlet,
}

/// An operation or event.
struct Entry {
    operation: ServiceOperation,
    faults: Vec<&'static str>,
    handler: Option<Operation>,
}

impl Service {
    /// A service with this namespace, an absolute IRI without fragment, and name.
    #[must_use]
    pub fn new(iri: &str, name: &str) -> Self {
        let namespace = Namespace::from(iri.to_owned());
        Self {
            types: Types::new(namespace.clone()),
            namespace,
            name: name.to_owned(),
            port_types: vec![(name.to_owned(), Vec::new())],
            outlet: Outlet::default(),
        }
    }

    /// Its name, also that of its first port type.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds an event, and returns where it is sent from.
    pub fn event<T: Message>(&mut self, name: &str) -> Event<T> {
        self.add_event(0, name)
    }

    /// Adds an operation with an answer.
    ///
    /// The closure owns what it uses, and is cloned for each call.
    pub fn operation<Q, A, E, F, R>(&mut self, name: &str, answer: F)
    where
        Q: Message + Send + 'static,
        A: Message,
        E: Faults,
        F: AsyncFn(Q) -> Result<A, E> + FnOnce(Q) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = Result<A, E>> + Send + 'static,
    {
        self.add_operation(0, name, answer);
    }

    /// Adds an operation without an answer: the client hears only that the message arrived.
    pub fn one_way<Q, F, R>(&mut self, name: &str, act: F)
    where
        Q: Message + Send + 'static,
        F: AsyncFn(Q) + FnOnce(Q) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        self.add_one_way(0, name, act);
    }

    /// Adds a port type, a group of further events and operations under another type.
    pub fn port_type(&mut self, name: &str) -> PortType<'_> {
        let index = match self.port_types.iter().position(|(known, _)| known == name) {
            Some(index) => index,
            None => {
                self.port_types.push((name.to_owned(), Vec::new()));
                self.port_types.len() - 1
            }
        };
        PortType {
            service: self,
            index,
        }
    }

    /// The port type as a description of its own, to name its actions.
    fn port(&self, index: usize) -> wsdl::Service {
        let (name, entries) = &self.port_types[index];
        let operations = entries.iter().map(|entry| entry.operation.clone());
        wsdl::Service {
            target_namespace: self.namespace.to_string(),
            name: name.clone(),
            operations: operations.collect(),
            schemas: Vec::new(),
            address: None,
        }
    }

    fn add(&mut self, index: usize, entry: Entry) {
        self.port_types[index].1.push(entry);
    }

    fn add_event<T: Message>(&mut self, index: usize, name: &str) -> Event<T> {
        let element = self.types.element::<T>(name, "");
        let operation = ServiceOperation::event(name, element);
        let action = self.port(index).output_action(&operation);
        self.add(
            index,
            Entry {
                operation,
                faults: Vec::new(),
                handler: None,
            },
        );
        Event::new(
            self.outlet.clone(),
            action.unwrap_or_default(),
            name,
            &self.namespace,
        )
    }

    fn add_operation<Q, A, E, F, R>(&mut self, index: usize, name: &str, answer: F)
    where
        Q: Message + Send + 'static,
        A: Message,
        E: Faults,
        F: AsyncFn(Q) -> Result<A, E> + FnOnce(Q) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = Result<A, E>> + Send + 'static,
    {
        let input = self.types.element::<Q>(name, "");
        let response: Arc<str> = format!("{name}Response").into();
        let output = self.types.element::<A>(&response, "");
        let faults = E::declare(&mut self.types);
        let (namespace, request) = (self.namespace.clone(), name.to_owned());
        let handler: Operation = Arc::new(move |invocation: Invocation| {
            let asked = read::<Q>(&namespace, &request, invocation.body.as_ref());
            let (answer, namespace) = (answer.clone(), namespace.clone());
            let response = Arc::clone(&response);
            let requester = Requester::of(&invocation);
            Box::pin(requester.answering(async move {
                let asked = asked?;
                match answer(asked).await {
                    Ok(answered) => Ok(Some(Body::of(&namespace, &response, &answered))),
                    Err(refused) => Err(refused.into_fault(&namespace)),
                }
            }))
        });
        let operation = ServiceOperation::request(name, input, output);
        let handler = Some(handler);
        self.add(
            index,
            Entry {
                operation,
                faults,
                handler,
            },
        );
    }

    fn add_one_way<Q, F, R>(&mut self, index: usize, name: &str, act: F)
    where
        Q: Message + Send + 'static,
        F: AsyncFn(Q) + FnOnce(Q) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let input = self.types.element::<Q>(name, "");
        let (namespace, request) = (self.namespace.clone(), name.to_owned());
        let handler: Operation = Arc::new(move |invocation: Invocation| {
            let asked = read::<Q>(&namespace, &request, invocation.body.as_ref());
            let act = act.clone();
            let requester = Requester::of(&invocation);
            Box::pin(requester.answering(async move {
                act(asked?).await;
                Ok(None)
            }))
        });
        let entry = Entry {
            operation: ServiceOperation::one_way(name, input),
            faults: Vec::new(),
            handler: Some(handler),
        };
        self.add(index, entry);
    }
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service")
            .field("namespace", &self.namespace)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// A further port type of a service. Names of operations and events differ in the whole service.
#[derive(Debug)]
pub struct PortType<'s> {
    service: &'s mut Service,
    index: usize,
}

impl PortType<'_> {
    /// As [`Service::event`].
    pub fn event<T: Message>(&mut self, name: &str) -> Event<T> {
        self.service.add_event(self.index, name)
    }

    /// As [`Service::operation`].
    pub fn operation<Q, A, E, F, R>(&mut self, name: &str, answer: F)
    where
        Q: Message + Send + 'static,
        A: Message,
        E: Faults,
        F: AsyncFn(Q) -> Result<A, E> + FnOnce(Q) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = Result<A, E>> + Send + 'static,
    {
        self.service.add_operation(self.index, name, answer);
    }

    /// As [`Service::one_way`].
    pub fn one_way<Q, F, R>(&mut self, name: &str, act: F)
    where
        Q: Message + Send + 'static,
        F: AsyncFn(Q) + FnOnce(Q) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        self.service.add_one_way(self.index, name, act);
    }
}

/// Reads a request, or returns the fault that names the wrong field. A missing body is an empty one.
fn read<Q: Message>(namespace: &Namespace, name: &str, body: Option<&Body>) -> Result<Q, Fault> {
    let empty = || Body::from(Element::new(Name::inside(namespace, name)));
    let read = match body {
        Some(body) => body.read(namespace, name),
        None => empty().read(namespace, name),
    };
    read.map_err(|error: ReadError| {
        Fault::sender(Name::inside(namespace, INVALID), error.to_string())
    })
}
