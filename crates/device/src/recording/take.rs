//! Recording.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use chappe_dpws::Dialect;
use chappe_dpws::metadata::{Host, Hosted, Metadata, Relationship};
use chappe_soap::EndpointReference;
use chappe_soap::wsdl::{Operation, OperationKind};
use chappe_xml::Element;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::pretty::pretty;
use super::text::{DeviceText, ServiceText, cell, safe};
use super::{BYTES_MAX, DESCRIPTION, EVENTS_MAX, RecordingError};
use crate::DeviceClient;
use crate::client::{Delivery, Description, HostedService, Notification};

/// Events that wait to be written. Reason: devices wait for the answers to their events where it is full.
const EVENTS_QUEUED: usize = 256;
/// The longest time to be subscribed before the recording begins.
const SUBSCRIBING_MAX: Duration = Duration::from_secs(10);

/// What is recorded.
#[derive(Debug, Clone)]
pub struct RecordOptions {
    /// The time to record events. Default 10 s.
    pub events: Duration,
    /// Operations that are called besides those whose name begins with `Get`.
    pub calls: Vec<String>,
    /// Whether the events begin again after the last when they are replayed. Default true.
    pub repeat: bool,
}

impl Default for RecordOptions {
    fn default() -> Self {
        Self {
            events: Duration::from_secs(10),
            calls: Vec::new(),
            repeat: true,
        }
    }
}

/// What was recorded.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Documents: WSDL and schemas.
    pub documents: usize,
    /// Answers.
    pub answers: usize,
    /// Events.
    pub events: usize,
    /// Parts that could not be recorded, with the reason.
    pub notes: Vec<String>,
}

/// Records a described device in this folder, which must not have a recording.
///
/// # Errors
/// A file cannot be written, or the folder has a recording.
pub async fn record(
    client: &DeviceClient,
    description: &Description,
    folder: &Path,
    options: &RecordOptions,
) -> Result<Summary, RecordingError> {
    let mut files = Files::new(folder)?;
    let mut folders = Vec::new();
    for (index, service) in description.services.iter().enumerate() {
        let last = service.id.rsplit(['/', ':']).find(|part| !part.is_empty());
        let name = format!("{}-{}", index + 1, safe(last.unwrap_or("service")));
        files.folder(&name)?;
        files.documents(&name, service)?;
        folders.push(name);
    }
    files.description(description, &folders, options)?;
    let mut events = subscribe(client, description, &mut files.summary).await;
    for (service, folder) in description.services.iter().zip(&folders) {
        files
            .answers(client, service, folder, &options.calls)
            .await?;
    }
    // Events that came meanwhile are the first: none is missing between answers and events.
    files.events(&mut events, &folders, options.events).await?;
    Ok(files.summary)
}

/// An event of a service.
#[derive(Debug)]
struct Heard {
    /// The index of the service.
    service: usize,
    /// When it was received. The clock of the host may be set meanwhile, this one not.
    at: Instant,
    event: Notification,
}

/// What arrives from a service before its subscription is granted.
#[derive(Debug, Default)]
struct Early {
    events: Vec<Heard>,
    left_out: usize,
}

impl Early {
    /// Keeps an event; whether the subscription is granted.
    fn take(&mut self, service: usize, delivery: Delivery) -> bool {
        match delivery {
            Delivery::Subscribed { .. } => return true,
            Delivery::Notification(_) if self.events.len() == EVENTS_QUEUED => self.left_out += 1,
            Delivery::Notification(event) => self.events.push(Heard {
                service,
                at: Instant::now(),
                event,
            }),
            _ => {}
        }
        false
    }
}

/// Subscribes to all events, and waits until the device has granted them.
async fn subscribe(
    client: &DeviceClient,
    description: &Description,
    summary: &mut Summary,
) -> (mpsc::Receiver<Heard>, JoinSet<()>) {
    let (sender, receiver) = mpsc::channel(EVENTS_QUEUED);
    let mut listening = JoinSet::new();
    let until = Instant::now() + SUBSCRIBING_MAX;
    for (index, service) in description.services.iter().enumerate() {
        if service.events().is_empty() {
            continue;
        }
        let mut subscription = match client.subscribe(service, &[]).await {
            Ok(subscription) => subscription,
            Err(error) => {
                summary
                    .notes
                    .push(format!("{}: no events: {error}", service.id));
                continue;
            }
        };
        let mut early = Early::default();
        let granted = async {
            while let Some(delivery) = subscription.next().await {
                if early.take(index, delivery) {
                    return true;
                }
            }
            false
        };
        if !timeout_at(until, granted).await.unwrap_or(false) {
            let note = format!("{}: the subscription is not granted", service.id);
            summary.notes.push(note);
            continue;
        }
        if early.left_out > 0 {
            let note = format!(
                "{}: {} events before the subscription was granted are left out",
                service.id, early.left_out
            );
            summary.notes.push(note);
        }
        let sender = sender.clone();
        listening.spawn(async move {
            for heard in early.events {
                if sender.send(heard).await.is_err() {
                    return;
                }
            }
            while let Some(delivery) = subscription.next().await {
                let Delivery::Notification(event) = delivery else {
                    continue;
                };
                let heard = Heard {
                    service: index,
                    at: Instant::now(),
                    event,
                };
                if sender.send(heard).await.is_err() {
                    return;
                }
            }
        });
    }
    (receiver, listening)
}

/// The files of a recording in progress.
struct Files {
    root: PathBuf,
    bytes: u64,
    summary: Summary,
}

impl Files {
    fn new(root: &Path) -> Result<Self, RecordingError> {
        let description = root.join(DESCRIPTION);
        if description.exists() {
            let error = RecordingError::new(&description, "is there already");
            return Err(error.hint("record into another folder"));
        }
        std::fs::create_dir_all(root).map_err(|error| RecordingError::io(root, &error))?;
        Ok(Self {
            root: root.to_owned(),
            bytes: 0,
            summary: Summary::default(),
        })
    }

    fn folder(&self, name: &str) -> Result<(), RecordingError> {
        let path = self.root.join(name);
        std::fs::create_dir_all(&path).map_err(|error| RecordingError::io(&path, &error))
    }

    /// Writes a file, unless the recording would become too large to be replayed.
    fn write(&mut self, name: &str, text: &str) -> Result<(), RecordingError> {
        let path = self.root.join(name);
        self.bytes += text.len() as u64;
        if self.bytes > BYTES_MAX {
            let problem = format!("the recording would have more than {BYTES_MAX} bytes");
            return Err(RecordingError::new(&path, problem).hint("record a shorter time"));
        }
        std::fs::write(&path, text).map_err(|error| RecordingError::io(&path, &error))
    }

    fn documents(&mut self, folder: &str, service: &HostedService) -> Result<(), RecordingError> {
        let mut list = "# file\tlocation\n".to_owned();
        for (index, document) in service.documents.iter().enumerate() {
            let kind = match Element::parse(document.text.as_bytes()) {
                Ok(root) if &*root.name.local == "definitions" => "wsdl",
                Ok(_) => "xsd",
                Err(error) => {
                    let note = format!("{}: {error}", document.location);
                    self.summary.notes.push(note);
                    continue;
                }
            };
            let last = document
                .location
                .rsplit(['/', '?'])
                .next()
                .unwrap_or_default();
            let last = last.trim_end_matches(".wsdl").trim_end_matches(".xsd");
            let file = format!("{}-{}.{kind}", index + 1, safe(last));
            self.write(&format!("{folder}/{file}"), &document.text)?;
            let _ = writeln!(list, "{file}\t{}", cell(&document.location));
            self.summary.documents += 1;
        }
        if let Some(note) = &service.unread {
            let note = format!("{}: {} {}", service.id, note.reason, note.detail);
            self.summary.notes.push(note);
        }
        self.write(&format!("{folder}/documents.tsv"), &list)
    }

    fn description(
        &mut self,
        described: &Description,
        folders: &[String],
        options: &RecordOptions,
    ) -> Result<(), RecordingError> {
        let hosted = described.services.iter().map(|service| Hosted {
            endpoints: vec![service.endpoint.clone()],
            types: service.types.clone(),
            service_id: service.id.clone(),
        });
        let found = &described.found;
        let metadata = Metadata {
            this_model: Some(described.model.clone()),
            this_device: Some(described.device.clone()),
            relationship: Some(Relationship {
                host: Some(Host {
                    endpoint: EndpointReference::new(found.endpoint.clone()),
                    types: described.types.clone(),
                }),
                hosted: hosted.collect(),
            }),
            ..Metadata::default()
        };
        let metadata = metadata.to_element(described.dialect);
        self.write("metadata.xml", &pretty(&metadata))?;
        let services = described.services.iter().zip(folders);
        let text = DeviceText {
            endpoint: found.endpoint.clone(),
            dialect: match described.dialect {
                Dialect::V2005 => "2005".to_owned(),
                Dialect::V2009 => "2009".to_owned(),
            },
            metadata_version: found.metadata_version,
            types: found.types.iter().map(ToString::to_string).collect(),
            scopes: found.scopes.clone(),
            repeat: options.repeat,
            service: services
                .map(|(service, folder)| ServiceText {
                    id: service.id.clone(),
                    folder: folder.clone(),
                })
                .collect(),
        };
        let text = toml::to_string(&text)
            .map_err(|error| RecordingError::new(&self.root, error.to_string()))?;
        self.write(DESCRIPTION, &text)
    }

    /// Calls the operations that read, and stores their answers.
    async fn answers(
        &mut self,
        client: &DeviceClient,
        service: &HostedService,
        folder: &str,
        calls: &[String],
    ) -> Result<(), RecordingError> {
        let mut list = "# file\taction of the request\n".to_owned();
        let operations = service.wsdl.operations().map(|(_, operation)| operation);
        let chosen = operations.filter(|operation| reads(operation, calls));
        for (index, operation) in chosen.enumerate() {
            let Some(input) = &operation.input else {
                continue;
            };
            let Some(element) = service.wsdl.element(input) else {
                continue;
            };
            let body = Element::new(element.clone());
            let answer = match client.call(service, &input.action, body).await {
                Ok(Some(answer)) => answer,
                Ok(None) => continue,
                Err(error) => {
                    self.summary
                        .notes
                        .push(format!("{}: {error}", operation.name));
                    continue;
                }
            };
            let file = format!("{}-{}.xml", index + 1, safe(&operation.name));
            self.write(&format!("{folder}/{file}"), &pretty(&answer))?;
            let _ = writeln!(list, "{file}\t{}", cell(&input.action));
            self.summary.answers += 1;
        }
        self.write(&format!("{folder}/answers.tsv"), &list)
    }

    async fn events(
        &mut self,
        (events, listening): &mut (mpsc::Receiver<Heard>, JoinSet<()>),
        folders: &[String],
        time: Duration,
    ) -> Result<(), RecordingError> {
        let head = "# milliseconds\tfile\taction\n".to_owned();
        let mut lists = vec![head; folders.len()];
        let begin = Instant::now();
        let until = begin + time;
        while !listening.is_empty() && self.summary.events < EVENTS_MAX {
            let Ok(Some(heard)) = timeout_at(until, events.recv()).await else {
                break;
            };
            let Heard { service, at, event } = heard;
            self.summary.events += 1;
            let at = at.saturating_duration_since(begin);
            let last = event.action.rsplit(['/', ':']).next().unwrap_or_default();
            let file = format!("{:05}-{}.xml", self.summary.events, safe(last));
            self.write(
                &format!("{}/{file}", folders[service]),
                &pretty(&event.body),
            )?;
            let _ = writeln!(
                lists[service],
                "{}\t{file}\t{}",
                at.as_millis(),
                cell(&event.action)
            );
        }
        if self.summary.events == EVENTS_MAX {
            let note = format!("the recording ends after {EVENTS_MAX} events");
            self.summary.notes.push(note);
        }
        listening.shutdown().await;
        for (folder, list) in folders.iter().zip(&lists) {
            self.write(&format!("{folder}/events.tsv"), list)?;
        }
        Ok(())
    }
}

/// Whether an operation is called: it reads, by its name, or it was named.
fn reads(operation: &Operation, calls: &[String]) -> bool {
    let is_named = calls.contains(&operation.name);
    let is_request = operation.kind == OperationKind::RequestResponse;
    is_request && (is_named || operation.name.starts_with("Get"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(number: usize) -> Notification {
        Notification {
            action: format!("urn:test/Event{number}"),
            body: Element::new(chappe_xml::Name::new("urn:test", "Event")),
            // A clock that was set back.
            received_at: std::time::SystemTime::UNIX_EPOCH,
        }
    }

    #[test]
    fn all_events_before_the_grant_are_kept() {
        let mut early = Early::default();
        for number in 0..3 {
            assert!(!early.take(1, Delivery::Notification(event(number))));
        }
        let granted = Duration::from_secs(60);
        assert!(early.take(1, Delivery::Subscribed { granted }));
        let actions = early.events.iter().map(|heard| heard.event.action.as_str());
        let actions: Vec<_> = actions.collect();
        assert_eq!(
            actions,
            ["urn:test/Event0", "urn:test/Event1", "urn:test/Event2"]
        );
        assert_eq!(early.left_out, 0);
    }

    #[tokio::test]
    async fn the_time_of_an_event_does_not_depend_on_the_clock_of_the_host() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = Files::new(folder.path()).unwrap();
        files.folder("1-x").unwrap();
        let (sender, receiver) = mpsc::channel(EVENTS_QUEUED);
        let mut listening = JoinSet::new();
        listening.spawn(std::future::pending());
        let now = Instant::now();
        for seconds in [100, 200] {
            let heard = Heard {
                service: 0,
                at: now + Duration::from_secs(seconds),
                event: event(1),
            };
            sender.send(heard).await.unwrap();
        }
        let time = Duration::from_millis(50);
        let folders = ["1-x".to_owned()];
        let recorded = files
            .events(&mut (receiver, listening), &folders, time)
            .await;
        recorded.unwrap();
        let list = std::fs::read_to_string(folder.path().join("1-x/events.tsv")).unwrap();
        let times = list.lines().skip(1).map(|line| {
            let milliseconds = line.split('\t').next().unwrap_or_default();
            milliseconds.parse::<f64>().unwrap()
        });
        let times: Vec<_> = times.map(|time| (time / 1e5).round()).collect();
        assert_eq!(times, [1.0, 2.0]);
    }
}
