//! A described device on the network.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use chappe_dpws::hosting::{HostedService, Invocation};
use chappe_dpws::metadata::{ThisDevice, ThisModel};
use chappe_identity::id_of;
use chappe_soap::Fault;
use chappe_soap::schema::{FlatType, to_schema};
use chappe_soap::wsdl::{Service, ServiceOperation};
use chappe_transport::Drops;
use chappe_transport::tls::Mutual;
use chappe_xml::{Element, Name};
use tokio::task::JoinSet;

use super::{Event, File, Replay, Value, is_valid};
use crate::host::{Builder, urn};
use crate::key::Memory;
use crate::{DeviceHost, Error, HostOptions};

/// The path of the only service.
const SERVICE_PATH: &str = "/service";

/// The values of a device, by name.
type Values = Arc<Mutex<HashMap<String, String>>>;

/// A running device: its recordings are replayed as events until it stops.
#[derive(Debug)]
pub struct FileDevice {
    host: Arc<DeviceHost>,
    replays: JoinSet<()>,
}

impl FileDevice {
    #[cfg(feature = "tools")]
    pub(crate) const fn new(host: Arc<DeviceHost>, replays: JoinSet<()>) -> Self {
        Self { host, replays }
    }

    /// Its host.
    #[must_use]
    pub fn host(&self) -> &DeviceHost {
        &self.host
    }

    /// Stops the replays and says Bye.
    pub async fn stop(mut self) {
        self.replays.shutdown().await;
        // Only the replays held other references.
        if let Some(host) = Arc::into_inner(self.host) {
            host.stop().await;
        }
    }
}

impl File {
    /// The stable endpoint: from the file's `uuid`, else derived from the identifying fields.
    #[must_use]
    pub fn endpoint(&self) -> String {
        if let Some(uuid) = self.uuid {
            return uuid.urn().to_string();
        }
        let serial = self.serial_number.as_deref().unwrap_or_default();
        let texts = [&self.manufacturer, &self.model, &self.name, &self.namespace];
        let [manufacturer, model, name, namespace] = texts.map(String::as_str);
        urn(id_of(&[manufacturer, model, name, namespace, serial]))
    }

    /// Its certificate and trust, if it is served with TLS.
    ///
    /// # Errors
    /// A file cannot be used.
    pub fn mutual(&self) -> Result<Option<Mutual>, Error> {
        let tls = self.tls.as_ref();
        let loaded = tls.map(|tls| tls.load(&self.name, &self.endpoint()));
        Ok(loaded.transpose()?)
    }

    /// The service with the events and operations; its port type is named after the first type.
    #[must_use]
    pub fn service(&self) -> Service {
        let first = self.types.first().map_or("Device", |name| &*name.local);
        let mut elements: Vec<FlatType> = Vec::new();
        let mut operations = Vec::new();
        for event in &self.events {
            elements.push(event.element.clone());
            let element = event.element.name.clone();
            operations.push(ServiceOperation::event(&event.name, element));
        }
        for value in &self.values {
            let kinds = [("Get", true), ("Set", value.settable)];
            for (prefix, _) in kinds.iter().filter(|(_, there)| *there) {
                let operation = format!("{prefix}{}", value.name);
                let element = |local: String, fields| FlatType {
                    name: Name::owned(self.namespace.clone(), local),
                    fields,
                    doc: None,
                };
                let given = match *prefix {
                    "Set" => vec![value.field.clone()],
                    _ => Vec::new(),
                };
                let request = element(operation.clone(), given);
                let response = element(format!("{operation}Response"), vec![value.field.clone()]);
                let names = (request.name.clone(), response.name.clone());
                operations.push(ServiceOperation::request(&operation, names.0, names.1));
                elements.extend([request, response]);
            }
        }
        Service {
            target_namespace: self.namespace.clone(),
            name: format!("{first}Service"),
            operations,
            schemas: vec![to_schema(&self.namespace, &elements)],
            address: None,
        }
    }

    /// The action of an event.
    #[must_use]
    pub fn action(&self, event: &Event) -> String {
        let service = self.service();
        let mut operations = service.operations.iter();
        let operation = operations.find(|operation| operation.name == event.name);
        let action = operation.and_then(|operation| service.output_action(operation));
        action.unwrap_or_default()
    }

    /// Puts the device on the network and replays its recordings.
    ///
    /// # Errors
    /// As [`Builder::start`].
    pub fn start(self, mut options: HostOptions, drops: Drops) -> Result<FileDevice, Error> {
        options.metadata_version = options.metadata_version.max(self.metadata_version());
        if let Some(tree) = &mut options.tree {
            let own = |event: &Event| Some((self.action(event), event.deadline?));
            tree.deadlines.extend(self.events.iter().filter_map(own));
        }
        if let Some(tls) = self.mutual()? {
            options.tls = Some(tls.security());
        }
        let host = Arc::new(self.builder().options(options).start(drops)?);
        let mut replays = JoinSet::new();
        let actions: Vec<String> = self.events.iter().map(|event| self.action(event)).collect();
        for (event, action) in self.events.into_iter().zip(actions) {
            replays.spawn(replay(Arc::clone(&host), event, action));
        }
        Ok(FileDevice { host, replays })
    }

    /// The version that the device announces. Where none can be stored, it is the file's modification time.
    fn metadata_version(&self) -> u32 {
        let Some((path, text)) = &self.origin else {
            return self.version;
        };
        let version = Memory::next_to(path).version(id_of(&[text]), self.version);
        version.unwrap_or_else(|error| {
            tracing::warn!("{error}: a change within the same second is not announced");
            self.version
        })
    }

    fn builder(&self) -> Builder {
        let service = self.service();
        let mut builder = DeviceHost::builder(self.endpoint())
            .model(ThisModel {
                manufacturer: vec![self.manufacturer.as_str().into()],
                model_name: vec![self.model.as_str().into()],
                model_number: self.model_number.clone(),
                ..ThisModel::default()
            })
            .device(ThisDevice {
                friendly_name: vec![self.name.as_str().into()],
                firmware_version: self.firmware.clone(),
                serial_number: self.serial_number.clone(),
                ..ThisDevice::default()
            })
            .types(self.types.iter().cloned())
            .scopes(self.scopes.iter().cloned());
        let initial = self.values.iter();
        let initial = initial.map(|value| (value.name.clone(), value.initial.clone()));
        let values: Values = Arc::new(Mutex::new(initial.collect()));
        for operation in &service.operations {
            let of = |value: &&Value| operation.name.get(3..) == Some(value.name.as_str());
            let Some(value) = self.values.iter().find(of).cloned() else {
                continue;
            };
            let Some(action) = service.input_action(operation) else {
                continue;
            };
            let values = Arc::clone(&values);
            builder = builder.operation(action, move |invocation: Invocation| {
                let answer = answer(&values, &value, &invocation);
                async move { answer.map(Some) }
            });
        }
        let id = format!("{}/service", self.namespace);
        builder.service(HostedService::new(id, SERVICE_PATH, service.to_wsdl()))
    }
}

/// Reads a value, or sets it if the request contains one.
fn answer(values: &Values, value: &Value, invocation: &Invocation) -> Result<Element, Fault> {
    let mut values = values.lock().unwrap_or_else(PoisonError::into_inner);
    let namespace = value.field.name.namespace.clone();
    if invocation.operation.starts_with("Set") {
        let body = invocation.element();
        let given = body.as_ref().and_then(|body| body.child(&value.field.name));
        let given = given.map(|given| given.text().trim().to_owned());
        let data_type = value.field.data_type;
        let Some(given) = given.filter(|given| is_valid(data_type, given)) else {
            let reason = format!("the value must be an xs:{}", data_type.local());
            let subcode = Name::inside(&namespace, "InvalidValue");
            return Err(Fault::sender(subcode, reason));
        };
        values.insert(value.name.clone(), given);
    }
    let now = values.get(&value.name).cloned().unwrap_or_default();
    let local = format!("{}Response", invocation.operation);
    let answer = Element::new(Name::inside(&namespace, local));
    Ok(answer.with_child(Element::new(value.field.name.clone()).with_text(now)))
}

/// Sends the events of a recording on schedule. After a pause of the process overdue events follow
/// immediately, so that a waveform has no gap.
async fn replay(host: Arc<DeviceHost>, event: Event, action: String) {
    let mut replay = Replay::new(&event);
    let mut ticks = tokio::time::interval(event.period);
    loop {
        ticks.tick().await;
        let Some(element) = replay.next(SystemTime::now()) else {
            return;
        };
        if host.notify(action.clone(), element).await.is_err() {
            return;
        }
    }
}
