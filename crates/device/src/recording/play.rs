//! Replaying.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use chappe_dpws::Dialect;
use chappe_dpws::hosting::HostedService;
use chappe_dpws::metadata::{Metadata, ThisDevice, ThisModel};
use chappe_soap::wsdl::Wsdl;
use chappe_transport::Drops;
use chappe_xml::{Element, Name};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::text::{DeviceText, Reader, inside, name};
use super::{DESCRIPTION, EVENTS_MAX, RecordingError};
use crate::file::FileDevice;
use crate::{DeviceHost, Error, HostOptions};

/// The pause between the last event and the first again. Reason: a recording of events without distance must not
/// flood its sinks.
const PAUSE: Duration = Duration::from_secs(1);

/// A recorded device.
#[derive(Debug)]
pub struct Recorded {
    /// Its stable endpoint.
    pub endpoint: String,
    /// The dialect in which it was recorded.
    pub dialect: Dialect,
    /// Its types.
    pub types: Vec<Name>,
    /// Its scopes.
    pub scopes: Vec<String>,
    version: u32,
    repeat: bool,
    model: ThisModel,
    device: ThisDevice,
    services: Vec<RecordedService>,
}

#[derive(Debug)]
struct RecordedService {
    id: String,
    path: String,
    wsdl: Wsdl,
    /// By the action of the request.
    answers: Vec<(String, Element)>,
    events: Vec<RecordedEvent>,
}

#[derive(Debug)]
struct RecordedEvent {
    at: Duration,
    action: String,
    body: Element,
}

impl Recorded {
    /// Reads a recording.
    ///
    /// # Errors
    /// The first file that cannot be used, with the reason.
    pub fn read(folder: &Path) -> Result<Self, RecordingError> {
        let mut reader = Reader::new();
        let path = folder.join(DESCRIPTION);
        let text = reader.read(&path)?;
        let text: DeviceText = toml::from_str(&text)
            .map_err(|error| RecordingError::new(&path, error.to_string().trim_end().to_owned()))?;
        let dialect = match text.dialect.as_str() {
            "2005" => Dialect::V2005,
            "2009" => Dialect::V2009,
            other => {
                let problem = format!("dialect {other:?} is neither 2005 nor 2009");
                return Err(RecordingError::new(&path, problem));
            }
        };
        let mut types = Vec::new();
        for one in &text.types {
            let name = name(one).ok_or_else(|| {
                RecordingError::new(&path, format!("type {one:?} has {{ without }}"))
            })?;
            // The host adds it.
            if Dialect::ALL
                .iter()
                .all(|dialect| name != dialect.device_type())
            {
                types.push(name);
            }
        }
        let file = folder.join("metadata.xml");
        let metadata = element(&mut reader, &file)?;
        let (metadata, ..) = Metadata::from_element(&metadata)
            .ok_or_else(|| RecordingError::new(&file, "is not the metadata of a device"))?;
        let mut services = Vec::new();
        for service in &text.service {
            let folder = inside(folder, &service.folder)?;
            let path = format!("/{}", service.folder);
            services.push(RecordedService::read(
                &mut reader,
                &folder,
                &service.id,
                path,
            )?);
        }
        Ok(Self {
            endpoint: text.endpoint,
            dialect,
            types,
            scopes: text.scopes,
            version: text.metadata_version,
            repeat: text.repeat,
            model: metadata.this_model.unwrap_or_default(),
            device: metadata.this_device.unwrap_or_default(),
            services,
        })
    }

    /// Its friendly name, else its endpoint.
    #[must_use]
    pub fn name(&self) -> &str {
        let names = &self.device.friendly_name;
        chappe_dpws::metadata::localized(names, "en").unwrap_or(&self.endpoint)
    }

    /// The number of its events.
    #[must_use]
    pub fn events(&self) -> usize {
        self.services
            .iter()
            .map(|service| service.events.len())
            .sum()
    }

    /// Puts the device on the network and repeats its events.
    ///
    /// # Errors
    /// As [`Builder::start`](crate::host::Builder::start).
    pub fn start(self, mut options: HostOptions, drops: Drops) -> Result<FileDevice, Error> {
        options.metadata_version = options.metadata_version.max(self.version);
        let mut builder = DeviceHost::builder(self.endpoint)
            .model(self.model)
            .device(self.device)
            .types(self.types)
            .scopes(self.scopes)
            .options(options);
        let mut all = Vec::new();
        for service in self.services {
            for (action, answer) in service.answers {
                let known = service.wsdl.operation_of(&action).is_some();
                if known {
                    builder = builder.operation(action, move |_| {
                        let answer = answer.clone();
                        async move { Ok(Some(answer)) }
                    });
                }
            }
            all.extend(service.events);
            builder = builder.service(HostedService::new(service.id, service.path, service.wsdl));
        }
        all.sort_by_key(|event| event.at);
        let host = Arc::new(builder.start(drops)?);
        let mut replays = JoinSet::new();
        if !all.is_empty() {
            replays.spawn(replay(Arc::clone(&host), all, self.repeat));
        }
        Ok(FileDevice::new(host, replays))
    }
}

impl RecordedService {
    fn read(
        reader: &mut Reader,
        folder: &Path,
        id: &str,
        path: String,
    ) -> Result<Self, RecordingError> {
        let mut wsdl: Option<Wsdl> = None;
        let mut schemas = Vec::new();
        for [file, _] in reader.list(folder, "documents.tsv")? {
            let file = inside(folder, &file)?;
            let root = element(reader, &file)?;
            if &*root.name.local != "definitions" {
                schemas.push(root);
                continue;
            }
            let failed =
                |error: chappe_soap::wsdl::WsdlError| RecordingError::new(&file, error.to_string());
            let part = Wsdl::from_element(&root).map_err(failed)?;
            match &mut wsdl {
                None => wsdl = Some(part),
                Some(whole) => whole.merge(part).map_err(failed)?,
            }
        }
        let mut wsdl = wsdl.unwrap_or_default();
        // Everything is in one document, served at the new address.
        wsdl.imports.clear();
        wsdl.schemas.append(&mut schemas);
        for port in wsdl
            .services
            .iter_mut()
            .flat_map(|service| &mut service.ports)
        {
            port.address = None;
        }
        let mut answers = Vec::new();
        for [file, action] in reader.list(folder, "answers.tsv")? {
            answers.push((action, element(reader, &inside(folder, &file)?)?));
        }
        let mut events = Vec::new();
        let list = folder.join("events.tsv");
        for [at, file, action] in reader.list(folder, "events.tsv")? {
            let milliseconds = at.parse().map_err(|_| {
                RecordingError::new(&list, format!("{at:?} is not a number of milliseconds"))
            })?;
            if events.len() == EVENTS_MAX {
                let problem = format!("it has more than {EVENTS_MAX} events");
                return Err(RecordingError::new(&list, problem));
            }
            events.push(RecordedEvent {
                at: Duration::from_millis(milliseconds),
                action,
                body: element(reader, &inside(folder, &file)?)?,
            });
        }
        Ok(Self {
            id: id.to_owned(),
            path,
            wsdl,
            answers,
            events,
        })
    }
}

fn element(reader: &mut Reader, path: &Path) -> Result<Element, RecordingError> {
    let text = reader.read(path)?;
    Element::parse(text.as_bytes()).map_err(|error| RecordingError::new(path, error.to_string()))
}

/// Sends the events at their times.
async fn replay(host: Arc<DeviceHost>, events: Vec<RecordedEvent>, repeat: bool) {
    let last = events.last().map_or(Duration::ZERO, |event| event.at);
    let mut begin = Instant::now();
    loop {
        for event in &events {
            sleep_until(begin + event.at).await;
            let sent = host.notify(event.action.clone(), event.body.clone()).await;
            if sent.is_err() {
                return;
            }
        }
        if !repeat {
            return;
        }
        begin += last + PAUSE;
    }
}
