//! The metrics of one SDC device: read once, then updated by the device's reports.
//!
//! Reports change the description in the order of their arrival; the answer to GetMdib replaces it. Removed
//! metrics are remembered for reports that were sent before the removal.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

use chappe_stream::Timestamp;
use chappe_xml::{Element, Name};

use super::description::{Descriptors, HANDLE, HANDLE_BYTES_MAX, Metric};
use super::meta_data::MetaData;
use super::report::{self, number};
use super::tree::Tree;
use super::versions::{StateFreshness, StateVersions};
use super::{MESSAGE, PARTICIPANT};
use crate::mapping::mapped::{Mapped, Trouble};
use crate::mapping::offers::Offers;

/// The largest number of metrics of one device with a stream. Reason: each costs a stream, an entity and a
/// chart; the largest anaesthesia workstations describe a few hundred.
pub(crate) const METRICS_MAX: usize = 512;
/// Removed metrics that are remembered. Reason: a device may replace all its metrics at once.
const REMOVED_MAX: usize = METRICS_MAX;
/// Remembered handles without a stream; further ones are still counted.
const SKIPPED_HANDLES_MAX: usize = 4_096;
/// The largest size of a sequence's identifier. Reason: it is stored, and troubles name it; it is usually a
/// `urn:uuid`.
const SEQUENCE_BYTES_MAX: usize = 256;

/// The mapping of one SDC device.
#[derive(Debug, Default)]
pub struct SdcMapping {
    /// The version of the description; `None` if none was read.
    mdib: Option<Mdib>,
    meta_data: Option<MetaData>,
    /// By handle.
    metrics: BTreeMap<String, KnownMetric>,
    removed: RemovedMetrics,
    tree: Tree,
    /// Handles without a stream according to the description.
    left_out: BTreeSet<String>,
}

/// The known version of the medical device information base (11073-10207, MdibVersionGroup).
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mdib {
    /// The sequence of the versions: a restarted device starts another one.
    sequence: String,
    /// The version of the description.
    described: u64,
    /// The newest version.
    newest: u64,
}

/// A metric with its stream.
#[derive(Debug)]
struct KnownMetric {
    metric: Metric,
    /// The number of its stream.
    offer: usize,
    /// The first version whose states belong to this descriptor.
    since: u64,
    versions: StateVersions,
}

/// A metric that the device had before some version.
#[derive(Debug)]
struct Removed {
    known: KnownMetric,
    before: u64,
}

/// Removed metrics and their streams.
#[derive(Debug, Default)]
struct RemovedMetrics {
    /// By handle, the oldest first.
    metrics: BTreeMap<String, VecDeque<Removed>>,
    /// All handles, the oldest first.
    order: VecDeque<String>,
}

impl RemovedMetrics {
    fn clear(&mut self) {
        *self = Self::default();
    }

    /// Remembers a metric; forgets the oldest if there are too many.
    fn push(&mut self, removed: Removed) {
        let handle = removed.known.metric.handle.clone();
        self.order.push_back(handle.clone());
        self.metrics.entry(handle).or_default().push_back(removed);
        if self.order.len() <= REMOVED_MAX {
            return;
        }
        if let Some(oldest) = self.order.pop_front()
            && let Entry::Occupied(mut of_handle) = self.metrics.entry(oldest)
        {
            of_handle.get_mut().pop_front();
            if of_handle.get().is_empty() {
                of_handle.remove();
            }
        }
    }

    /// The metric with this handle at `version`.
    fn at(&self, handle: &str, version: u64) -> Option<&Removed> {
        let mut of_handle = self.metrics.get(handle)?.iter();
        of_handle.find(|removed| version < removed.before)
    }

    fn at_mut(&mut self, handle: &str, version: u64) -> Option<&mut Removed> {
        let mut of_handle = self.metrics.get_mut(handle)?.iter_mut();
        of_handle.find(|removed| version < removed.before)
    }
}

/// The effect of a report or an answer.
#[derive(Debug, Default, PartialEq)]
pub struct Outcome {
    /// Elements and problems; the elements belong to the current streams.
    pub mapped: Mapped,
    /// Whether the streams have changed.
    pub offers_changed: bool,
    /// Whether earlier reports were missed.
    pub missed_reports: bool,
}

/// The result of a report.
#[derive(Debug, PartialEq)]
pub enum Reported {
    /// It was mapped.
    Mapped(Outcome),
    /// It needs a description that was not read; retry it afterwards.
    NeedsDescription(Trouble),
}

impl SdcMapping {
    /// Whether a description was read.
    #[must_use]
    pub fn is_read(&self) -> bool {
        self.mdib.is_some()
    }

    /// The identifiers of the device, if its description has any.
    pub fn meta_data(&self) -> Option<&MetaData> {
        self.meta_data.as_ref()
    }

    /// The streams, by number.
    pub fn offers(&self) -> impl Iterator<Item = usize> {
        self.metrics.values().map(|known| known.offer)
    }

    /// Reads the description in the answer to GetMdib; for the states see [`SdcMapping::current`].
    ///
    /// # Errors
    /// The answer has no description. Nothing has changed then.
    pub fn read(&mut self, answer: &Element, offers: &mut Offers) -> Result<Outcome, Trouble> {
        let description = find(answer, "MdDescription").ok_or_else(|| {
            Trouble::new(
                "sdc_no_description",
                "the answer to GetMdib has no MdDescription",
            )
            .hint("check that the provider publishes an MdDescription with metrics")
        })?;
        let sequence = sequence(answer).unwrap_or_default();
        let version = number(answer, "MdibVersion").unwrap_or_default();
        self.meta_data = MetaData::read(description);
        let mut described = Descriptors::default();
        described.add(description, None);
        let same_sequence = |mdib: &&Mdib| mdib.sequence == sequence;
        let known = self.mdib.as_ref().filter(same_sequence);
        let newest = known.map_or(version, |mdib| mdib.newest.max(version));
        if known.is_none() {
            self.restart_sequence();
        }
        let mut outcome = Outcome::default();
        outcome.mapped.troubles.append(&mut described.troubles);
        if described.metrics.is_empty() {
            let detail = "the description holds no usable metric";
            outcome
                .mapped
                .troubles
                .push(Trouble::new("sdc_no_metrics", detail));
        }
        let listed = described.metrics.iter().map(|one| one.handle.as_str());
        let listed: HashSet<&str> = listed.collect();
        let vanished: Vec<String> = self
            .metrics
            .keys()
            .filter(|one| !listed.contains(one.as_str()))
            .cloned()
            .collect();
        for handle in vanished {
            outcome.offers_changed |= self.remove(&handle, version, offers);
        }
        self.tree.clear();
        self.left_out.clear();
        self.add_all(described, None, version, offers, &mut outcome);
        self.mdib = Some(Mdib {
            sequence: sequence.to_owned(),
            described: version,
            newest,
        });
        Ok(outcome)
    }

    /// Maps the states in the answer to GetMdib that are newer than those of reports.
    pub fn current(&mut self, answer: &Element, received: Timestamp) -> Mapped {
        let mut mapped = Mapped::default();
        report::for_each_state(answer, &mut |handle, state| {
            // States of systems, channels and alerts have no metric with their handle.
            let Some(known) = self.metrics.get_mut(handle) else {
                return;
            };
            let version = report::state_version(state);
            if version.is_none_or(|version| known.versions.read(version)) {
                known.map(state, received, &mut mapped);
            }
        });
        mapped
    }

    /// Whether an answer to GetMdib has another sequence than a report.
    #[must_use]
    pub fn contradicts(answer: &Element, report: &Element) -> bool {
        let [answer, report] = [answer, report].map(sequence);
        answer
            .zip(report)
            .is_some_and(|(answer, report)| answer != report)
    }

    /// Maps a report; `is_complete`: reports of all changes arrive in order.
    pub fn report(
        &mut self,
        body: &Element,
        received: Timestamp,
        is_complete: bool,
        offers: &mut Offers,
    ) -> Reported {
        let Some(mdib) = &self.mdib else {
            let detail = format!("{} before the description was read", body.name.local);
            return Reported::NeedsDescription(Trouble::new("sdc_not_read", detail));
        };
        if let Some(other) = sequence(body).filter(|sequence| *sequence != mdib.sequence) {
            let detail = format!("a report of sequence {other:?}, not {:?}", mdib.sequence);
            return Reported::NeedsDescription(Trouble::new("sdc_other_sequence", detail));
        }
        let (described, newest) = (mdib.described, mdib.newest);
        let version = number(body, "MdibVersion");
        if is_report_of_metrics(body)
            && let Some(version) = version.filter(|version| *version > described)
            && let Some(handle) = self.unknown_handle(body, version)
        {
            return Reported::NeedsDescription(Trouble::new("sdc_no_descriptor", handle));
        }
        let mut outcome = Outcome::default();
        if let Some(version) = version {
            if is_complete && version > newest.saturating_add(1) {
                outcome.missed_reports = true;
                let detail = format!("MdibVersion {newest} is followed by {version}");
                outcome
                    .mapped
                    .troubles
                    .push(Trouble::new("sdc_reports_missed", detail));
            }
            if let Some(mdib) = &mut self.mdib {
                mdib.newest = newest.max(version);
            }
        }
        match &*body.name.local {
            "DescriptionModificationReport" => {
                let version = version.unwrap_or(described);
                if version > described {
                    self.modify(body, version, offers, &mut outcome);
                }
                self.states(body, version, received, &mut outcome.mapped);
            }
            _ if is_report_of_metrics(body) => {
                let version = version.unwrap_or(u64::MAX);
                self.states(body, version, received, &mut outcome.mapped);
            }
            "EpisodicAlertReport"
            | "EpisodicComponentReport"
            | "EpisodicContextReport"
            | "EpisodicOperationalStateReport" => {}
            _ => {
                let trouble = Trouble::new("sdc_unknown_report", body.name.to_string());
                outcome.mapped.troubles.push(trouble);
            }
        }
        Reported::Mapped(outcome)
    }

    /// Maps a report as far as possible without the description that it needs.
    pub fn report_without(
        &mut self,
        body: &Element,
        received: Timestamp,
        trouble: &Trouble,
    ) -> Mapped {
        let mut mapped = Mapped::default();
        if trouble.reason == "sdc_no_descriptor" {
            let version = number(body, "MdibVersion");
            if let (Some(mdib), Some(version)) = (&mut self.mdib, version) {
                mdib.newest = mdib.newest.max(version);
            }
            self.states(body, version.unwrap_or(u64::MAX), received, &mut mapped);
            return mapped;
        }
        report::for_each_state(body, &mut |handle, _| {
            let detail = format!("{handle}: {}", trouble.detail);
            mapped.troubles.push(Trouble::new(trouble.reason, detail));
        });
        mapped
    }

    /// Restarts the versions of states.
    fn restart_sequence(&mut self) {
        self.removed.clear();
        for known in self.metrics.values_mut() {
            (known.versions, known.since) = (StateVersions::default(), 0);
        }
    }

    /// Applies a DescriptionModificationReport.
    fn modify(&mut self, body: &Element, version: u64, offers: &mut Offers, outcome: &mut Outcome) {
        let of_message = |local| move |one: &&Element| one.name.is(MESSAGE, local);
        for part in body.elements().filter(of_message("ReportPart")) {
            let attribute = |local| part.attribute(&Name::local(local));
            let parent = attribute("ParentDescriptor");
            let is_removed = attribute("ModificationType") == Some("Del");
            let mut described = Descriptors::default();
            for descriptor in part.elements().filter(of_message("Descriptor")) {
                if !is_removed {
                    described.add(descriptor, parent);
                } else if let Some(handle) = descriptor.attribute(&HANDLE) {
                    outcome.offers_changed |= self.remove_below(handle, version, offers);
                }
            }
            outcome.mapped.troubles.append(&mut described.troubles);
            self.add_all(described, Some(version), version, offers, outcome);
        }
        if let Some(mdib) = &mut self.mdib {
            mdib.described = version;
        }
    }

    /// Adds the content of a description; states of new metrics count from a version, or from the start.
    fn add_all(
        &mut self,
        described: Descriptors,
        since: Option<u64>,
        version: u64,
        offers: &mut Offers,
        outcome: &mut Outcome,
    ) {
        for (handle, parent) in described.parents {
            self.tree.insert(handle, parent);
        }
        self.leave_out(described.left_out);
        let mut seen = BTreeSet::new();
        for metric in described.metrics {
            if !seen.insert(metric.handle.clone()) {
                let trouble = Trouble::new("sdc_handle_repeats", metric.handle);
                outcome.mapped.troubles.push(trouble);
            } else if self.metrics.len() == METRICS_MAX
                && !self.metrics.contains_key(&metric.handle)
            {
                let detail = format!("{}: more than {METRICS_MAX} metrics", metric.handle);
                outcome
                    .mapped
                    .troubles
                    .push(Trouble::new("sdc_metrics_limit", detail));
                self.leave_out([metric.handle]);
            } else {
                outcome.offers_changed |= self.put(metric, since, version, offers);
            }
        }
    }

    fn leave_out(&mut self, handles: impl IntoIterator<Item = String>) {
        let room = SKIPPED_HANDLES_MAX.saturating_sub(self.left_out.len());
        let handles = handles.into_iter();
        let handles = handles.filter(|handle| handle.len() <= HANDLE_BYTES_MAX);
        self.left_out.extend(handles.take(room));
    }

    /// Adds or updates a metric. Returns whether its stream has changed.
    fn put(
        &mut self,
        metric: Metric,
        since: Option<u64>,
        version: u64,
        offers: &mut Offers,
    ) -> bool {
        self.left_out.remove(&metric.handle);
        let mut since = since.unwrap_or(0);
        let mut versions = StateVersions::default();
        if let Some(known) = self.metrics.get(&metric.handle) {
            if known.metric == metric {
                return false;
            }
            // States from before a change of unit must not be stored in the new one.
            since = match known.metric.has_same_meaning(&metric) {
                true => known.since,
                false => version,
            };
            versions = known.versions;
            offers.retire(known.offer);
        }
        let known = KnownMetric {
            offer: offers.add(&metric.offer()),
            since,
            versions,
            metric,
        };
        self.metrics.insert(known.metric.handle.clone(), known);
        true
    }

    /// Removes a metric that existed before `version`. Returns whether there was one.
    fn remove(&mut self, handle: &str, version: u64, offers: &mut Offers) -> bool {
        let Some(known) = self.metrics.remove(handle) else {
            return false;
        };
        offers.retire(known.offer);
        self.removed.push(Removed {
            known,
            before: version,
        });
        true
    }

    /// Removes a descriptor with all its descendants.
    fn remove_below(&mut self, handle: &str, version: u64, offers: &mut Offers) -> bool {
        self.left_out.remove(handle);
        let mut changed = false;
        for handle in self.tree.remove(handle) {
            changed |= self.remove(&handle, version, offers);
        }
        changed
    }

    /// The first metric of a report that the description should have but lacks.
    fn unknown_handle(&self, body: &Element, version: u64) -> Option<String> {
        if self.left_out.len() >= SKIPPED_HANDLES_MAX {
            return None;
        }
        let mut unknown = None;
        report::for_each_state(body, &mut |handle, _| {
            // No description contains an oversized handle.
            let is_known = handle.len() > HANDLE_BYTES_MAX
                || self.metrics.contains_key(handle)
                || self.left_out.contains(handle)
                || self.removed.at(handle, version).is_some();
            if !is_known && unknown.is_none() {
                unknown = Some(handle.to_owned());
            }
        });
        unknown
    }

    /// Maps the states of a report.
    fn states(&mut self, body: &Element, version: u64, received: Timestamp, mapped: &mut Mapped) {
        let is_of_metrics = is_report_of_metrics(body);
        report::for_each_state(body, &mut |handle, state| {
            let live = self.metrics.get_mut(handle);
            let is_late = live.as_ref().is_some_and(|known| version < known.since);
            let known = match live {
                Some(known) if !is_late => known,
                _ => match self.removed.at_mut(handle, version) {
                    Some(removed) => &mut removed.known,
                    // A description also has states of other objects.
                    None if !is_of_metrics && !is_late => return,
                    None => {
                        let reason = if is_late {
                            "sdc_late_state"
                        } else {
                            "sdc_no_descriptor"
                        };
                        mapped.troubles.push(Trouble::new(reason, handle));
                        let is_handle = handle.len() <= HANDLE_BYTES_MAX;
                        let has_room = self.left_out.len() < SKIPPED_HANDLES_MAX;
                        if !is_late && is_handle && has_room {
                            self.left_out.insert(handle.to_owned());
                        }
                        return;
                    }
                },
            };
            match report::state_version(state).map(|version| known.versions.report(version)) {
                Some(StateFreshness::Repeated) => {
                    mapped
                        .troubles
                        .push(Trouble::new("sdc_state_not_newer", handle));
                    return;
                }
                Some(StateFreshness::New { missed }) if missed > 0 => {
                    let detail = format!("{handle}: {missed} states were not reported");
                    mapped
                        .troubles
                        .push(Trouble::new("sdc_states_missed", detail));
                }
                _ => {}
            }
            known.map(state, received, mapped);
        });
    }
}

impl KnownMetric {
    fn map(&self, state: &Element, received: Timestamp, mapped: &mut Mapped) {
        match report::state(&self.metric, state, received) {
            Ok(Some(element)) => mapped.elements.push((self.offer, element)),
            Ok(None) => {}
            Err(trouble) => mapped.troubles.push(trouble),
        }
    }
}

fn is_report_of_metrics(body: &Element) -> bool {
    let known = [
        "EpisodicMetricReport",
        "PeriodicMetricReport",
        "WaveformStream",
    ];
    body.name.namespace == MESSAGE && known.contains(&&*body.name.local)
}

/// The sequence of the versions. A longer one than `SEQUENCE_BYTES_MAX` counts as none.
fn sequence(element: &Element) -> Option<&str> {
    let sequence = element.attribute(&Name::local("SequenceId"))?;
    (sequence.len() <= SEQUENCE_BYTES_MAX).then_some(sequence)
}

/// The first element of the participant model with this name.
pub(super) fn find<'a>(element: &'a Element, local: &str) -> Option<&'a Element> {
    if element.name.is(PARTICIPANT, local) {
        return Some(element);
    }
    element.elements().find_map(|child| find(child, local))
}
