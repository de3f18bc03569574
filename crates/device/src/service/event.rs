//! The handle from which an event is sent.

use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use chappe_dpws::eventing::SourceCommand;
use chappe_dpws::hosting::{Device, DeviceCommand};
use chappe_machine::Input;
use chappe_soap::Body;
use chappe_soap::message::Message;
use chappe_xml::{Namespace, Str};
use tokio::sync::mpsc;

use crate::Error;
use crate::driver::InputOf;

/// The inputs of the machine of a running device; unset before the start.
#[derive(Clone, Default)]
pub(crate) struct Outlet(Arc<OnceLock<mpsc::Sender<Option<InputOf<Device>>>>>);

impl Outlet {
    /// Connects it to a machine; `false` if it is connected already.
    pub(crate) fn connect(&self, inputs: mpsc::Sender<Option<InputOf<Device>>>) -> bool {
        self.0.set(inputs).is_ok()
    }
}

/// An event of a service. Clones send the same event.
pub struct Event<T> {
    outlet: Outlet,
    action: Str,
    name: Arc<str>,
    namespace: Namespace,
    message: PhantomData<fn(T)>,
}

impl<T> Clone for Event<T> {
    fn clone(&self) -> Self {
        Self {
            outlet: self.outlet.clone(),
            action: self.action.clone(),
            name: Arc::clone(&self.name),
            namespace: self.namespace.clone(),
            message: PhantomData,
        }
    }
}

impl<T> std::fmt::Debug for Event<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Event").field(&self.action).finish()
    }
}

impl<T: Message> Event<T> {
    pub(super) fn new(outlet: Outlet, action: String, name: &str, namespace: &Namespace) -> Self {
        Self {
            outlet,
            action: action.into(),
            name: name.into(),
            namespace: namespace.clone(),
            message: PhantomData,
        }
    }

    /// Its action, by which clients subscribe.
    #[must_use]
    pub fn action(&self) -> &str {
        &self.action
    }

    /// Sends the event to all subscribers. It waits for room in the queue of the device, not for them.
    ///
    /// # Errors
    /// The device is not started yet, or stopped.
    pub async fn send(&self, message: T) -> Result<(), Error> {
        let Some(inputs) = self.outlet.0.get() else {
            let name = &self.name;
            let what = format!("the event {name} is sent before its device is started");
            return Err(Error::Misuse(what));
        };
        let command = SourceCommand::Notify {
            action: self.action.clone(),
            body: Body::of(&self.namespace, &self.name, &message),
        };
        let input = Input::Command(DeviceCommand::Eventing(command));
        inputs.send(Some(input)).await.map_err(|_| Error::Closed)
    }
}
