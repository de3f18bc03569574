//! Why a value does not arrive: its path followed hop by hop, from the device over subscription, mapping and
//! stream to virtual sensors, links and topics, with the first hop that stands in its way.
//!
//! It joins what the parts of the node know: the table of devices, dropped messages, bindings, the
//! status of links, the record of losses, and notices. It changes nothing and contacts nobody.

mod device;
mod link;
mod sensor;
mod stream;
mod wrapper;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::catalogue::{AUDIT, Entry};
use crate::config::nearest;
use crate::notices::Notice;
use crate::shared::Shared;

/// Notices about the subjects of a path that are shown, the newest.
const NOTICES_MAX: usize = 10;
/// Streams, sensors and links on one path; reason: a device may have thousands of streams.
const SUBJECTS_MAX: usize = 64;

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SubjectKind {
    /// A stream.
    Stream,
    /// A device, by its key, endpoint, name or address.
    Device,
    /// A virtual sensor.
    Sensor,
    /// A link.
    Link,
    /// A wrapper.
    Wrapper,
    /// An exporter.
    Exporter,
}

impl SubjectKind {
    const ALL: [Self; 6] = [
        Self::Stream,
        Self::Device,
        Self::Sensor,
        Self::Link,
        Self::Wrapper,
        Self::Exporter,
    ];
}

/// The path of a value and what stands in its way.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Why {
    /// The name in question.
    pub(crate) name: String,
    /// What it stands for; null when nothing has this name.
    pub(crate) kind: Option<SubjectKind>,
    /// The first hop that stands in the way of values; null when nothing does.
    pub(crate) obstacle: Option<Hop>,
    /// All hops in the order of the path.
    pub(crate) hops: Vec<Hop>,
    /// Whether hops were left out, because the path has too many.
    pub(crate) truncated: bool,
    /// Recent notices about these hops, oldest first.
    pub(crate) notices: Vec<Notice>,
}

/// One hop of the path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Hop {
    /// `node`, `discovery`, `description`, `subscription`, `mapping`, `stream`, `completeness`, `binding`,
    /// `sensor`, `link`, `wrapper`, `origin`, `storing`, `reader`, `exporter` or `topic`.
    pub(crate) hop: &'static str,
    /// The device, stream, sensor, link or reader at this hop.
    pub(crate) subject: String,
    /// Whether values pass.
    pub(crate) state: HopState,
    /// The observation.
    pub(crate) detail: String,
    /// What to do.
    pub(crate) hint: Option<String>,
}

/// Whether values pass a hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HopState {
    /// They pass.
    Ok,
    /// They pass late, or not all of them.
    Degraded,
    /// None passes.
    Blocked,
}

/// Follows the value that a name stands for; the audit stream is one only with `sees_audit`. Reads the
/// disk, so it may take long.
pub(crate) fn why(app: &Shared, name: &str, kind: Option<SubjectKind>, sees_audit: bool) -> Why {
    let mut path = Path::new(app, sees_audit);
    path.node();
    let kinds = kind.map_or(SubjectKind::ALL.to_vec(), |kind| vec![kind]);
    let found = kinds.into_iter().find(|kind| path.begin(name, *kind));
    if found.is_none() {
        path.unknown(name, kind);
    }
    path.finish(name, found)
}

/// The hops found so far.
struct Path<'a> {
    app: &'a Shared,
    hops: Vec<Hop>,
    /// Streams, sensors and links that were followed.
    seen: BTreeSet<(&'static str, String)>,
    truncated: bool,
    sees_audit: bool,
}

impl<'a> Path<'a> {
    fn new(app: &'a Shared, sees_audit: bool) -> Self {
        Self {
            app,
            hops: Vec::new(),
            seen: BTreeSet::new(),
            truncated: false,
            sees_audit,
        }
    }

    /// Whether a subject is to be followed: once, and as long as there is room.
    fn enter(&mut self, kind: &'static str, name: &str) -> bool {
        if self.seen.len() >= SUBJECTS_MAX {
            self.truncated = true;
            return false;
        }
        self.seen.insert((kind, name.to_owned()))
    }

    fn add(
        &mut self,
        hop: &'static str,
        subject: &str,
        state: HopState,
        detail: impl Into<String>,
        hint: Option<String>,
    ) {
        self.hops.push(Hop {
            hop,
            subject: subject.to_owned(),
            state,
            detail: detail.into(),
            hint,
        });
    }

    /// Whether the node stores anything.
    fn node(&mut self) {
        let reasons = self.app.reasons_not_ready();
        let name = self.app.identity.name.clone();
        match reasons.is_empty() {
            true => self.add("node", &name, HopState::Ok, "accepts data", None),
            false => {
                let hint = "free space on its disk, or restart it if its log has failed";
                let detail = reasons.join("; ");
                self.add(
                    "node",
                    &name,
                    HopState::Blocked,
                    detail,
                    Some(hint.to_owned()),
                );
            }
        }
    }

    /// Follows the subject of this name and kind; returns whether there is one.
    fn begin(&mut self, name: &str, kind: SubjectKind) -> bool {
        match kind {
            SubjectKind::Stream => match self.visible(name) {
                Some(entry) => self.stream(&entry),
                None => return false,
            },
            SubjectKind::Device => match device::find(self.app, name) {
                Some(device) => self.device_with_streams(&device),
                None => return false,
            },
            SubjectKind::Sensor => match self.app.sensors.get(name) {
                Some(sensor) => self.sensor_with_output(&sensor),
                None => return false,
            },
            SubjectKind::Link => match link::find(self.app, name) {
                Some(status) => self.link_with_streams(&status),
                None => return false,
            },
            SubjectKind::Wrapper => match self.app.wrappers.get(name) {
                Some(wrapper) => self.wrapper_with_streams(&wrapper),
                None => return false,
            },
            SubjectKind::Exporter => match self.app.exporters.get(name) {
                Some(exporter) => self.exporter_with_streams(&exporter),
                None => return false,
            },
        }
        true
    }

    /// Nothing has this name: it may be a device that is not found.
    fn unknown(&mut self, name: &str, kind: Option<SubjectKind>) {
        if kind.is_none_or(|kind| kind == SubjectKind::Device) {
            self.unknown_device(name);
            return;
        }
        let mut known = self.names();
        known.sort();
        let near = nearest(name, known.iter().map(String::as_str));
        let hint = match near {
            Some(near) if near == name => {
                format!("something of another kind has this name: chappe why {name}")
            }
            Some(near) => format!("did you mean {near:?}?"),
            None => "the console lists all names".to_owned(),
        };
        let hop = match kind {
            Some(SubjectKind::Sensor) => "sensor",
            Some(SubjectKind::Link) => "link",
            Some(SubjectKind::Wrapper) => "wrapper",
            Some(SubjectKind::Exporter) => "exporter",
            _ => "stream",
        };
        let detail = format!("there is no {hop} of this name");
        self.add(hop, name, HopState::Blocked, detail, Some(hint));
    }

    /// The stream of this name, if the reader may see it.
    fn visible(&self, name: &str) -> Option<Arc<Entry>> {
        let is_visible = name != AUDIT || self.sees_audit;
        is_visible.then(|| self.app.catalogue.get(name)).flatten()
    }

    /// All names of streams, devices, sensors, wrappers, exporters and links.
    fn names(&self) -> Vec<String> {
        let app = self.app;
        let streams = app.catalogue.by_current_name().into_iter();
        let names = streams.map(|(name, _)| name);
        let mut names: Vec<String> = names.filter(|name| *name != AUDIT).collect();
        names.extend(app.devices.all().into_iter().map(|device| device.name));
        names.extend(app.sensors.all().into_iter().map(|sensor| sensor.name));
        names.extend(
            app.wrappers
                .all()
                .into_iter()
                .map(|wrapper| wrapper.peer.name),
        );
        let exporters = app.exporters.all().into_iter();
        names.extend(exporters.map(|exporter| exporter.peer.name));
        let links = app.exchange.get().map(|exchange| exchange.links().list());
        names.extend(links.into_iter().flatten().map(|link| link.name));
        names
    }

    fn finish(self, name: &str, kind: Option<SubjectKind>) -> Why {
        let of = |state: HopState| self.hops.iter().find(|hop| hop.state == state);
        let obstacle = of(HopState::Blocked).or_else(|| of(HopState::Degraded));
        let subjects: BTreeSet<&str> = self.hops.iter().map(|hop| hop.subject.as_str()).collect();
        let history = self.app.observability.notices.history();
        let concerns = |notice: &Notice| subjects.contains(notice.subject.as_str());
        let mut notices: Vec<Notice> = history.into_iter().filter(concerns).collect();
        notices.drain(..notices.len().saturating_sub(NOTICES_MAX));
        Why {
            name: name.to_owned(),
            kind,
            obstacle: obstacle.cloned(),
            hops: self.hops,
            truncated: self.truncated,
            notices,
        }
    }
}
