//! The metrics of one SDC device: read once, then changed by the reports that the device sends.
//!
//! A description changes by reports, in the order in which they come; the answer to GetMdib replaces
//! it as a whole. Metrics that are removed are remembered for reports that were sent before.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

use chappe_stream::Timestamp;
use chappe_xml::{Element, Name};

use super::description::{Described, HANDLE, HANDLE_BYTES_MAX, Metric};
use super::meta_data::MetaData;
use super::report::{self, number};
use super::tree::Tree;
use super::versions::{Judged, StateVersions};
use super::{MESSAGE, PARTICIPANT};
use crate::mapping::mapped::{Mapped, Trouble};
use crate::mapping::offers::Offers;

/// Metrics of one device that become streams. Reason: each costs a stream, an entity and a chart;
/// the largest anaesthesia workstations describe a few hundred.
pub(crate) const METRICS_MAX: usize = 512;
/// Removed metrics that are remembered. Reason: all of a device's metrics may be replaced at once.
const REMOVED_MAX: usize = METRICS_MAX;
/// Handles that are remembered because they have no stream; further ones are counted all the same.
const LEFT_OUT_MAX: usize = 4_096;

/// Bytes of a sequence's identifier. Reason: it is kept, and named in troubles; it is a `urn:uuid`.
const SEQUENCE_BYTES_MAX: usize = 256;

/// The mapping of one SDC device.
#[derive(Debug, Default)]
pub struct SdcMapping {
    /// Which description it is; `None`: none was read.
    mdib: Option<Mdib>,
    meta_data: Option<MetaData>,
    /// By handle.
    metrics: BTreeMap<String, Known>,
    removed: RemovedMetrics,
    tree: Tree,
    /// Handles that have no stream, as far as the description says.
    left_out: BTreeSet<String>,
}

/// Which state of the medical device information base is known (11073-10207, MdibVersionGroup).
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mdib {
    /// Versions count within this sequence: another one begins when the device restarts.
    sequence: String,
    /// The version of the description.
    described: u64,
    /// The newest version of anything.
    newest: u64,
}

/// A metric with its stream.
#[derive(Debug)]
struct Known {
    metric: Metric,
    /// The number of its stream.
    offer: usize,
    /// The version from which on states are those of this descriptor.
    since: u64,
    versions: StateVersions,
}

/// A metric that the device had before a version.
#[derive(Debug)]
struct Removed {
    known: Known,
    before: u64,
}

/// Metrics that the device had, and their streams.
#[derive(Debug, Default)]
struct RemovedMetrics {
    /// By handle, of each the oldest first.
    metrics: BTreeMap<String, VecDeque<Removed>>,
    /// The handles of all, the oldest first.
    order: VecDeque<String>,
}

impl RemovedMetrics {
    fn clear(&mut self) {
        *self = Self::default();
    }

    /// Remembers one; the oldest is forgotten when there are too many.
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

    /// The metric of this handle that the device had at `version`.
    fn at(&self, handle: &str, version: u64) -> Option<&Removed> {
        let mut of_handle = self.metrics.get(handle)?.iter();
        of_handle.find(|removed| version < removed.before)
    }

    fn at_mut(&mut self, handle: &str, version: u64) -> Option<&mut Removed> {
        let mut of_handle = self.metrics.get_mut(handle)?.iter_mut();
        of_handle.find(|removed| version < removed.before)
    }
}

/// What a report or an answer changed.
#[derive(Debug, Default, PartialEq)]
pub struct Outcome {
    /// Elements and troubles; the elements are of streams as they are now.
    pub mapped: Mapped,
    /// The device offers other streams than before.
    pub offers_changed: bool,
    /// Reports before this one were missed.
    pub missed_reports: bool,
}

/// What became of a report.
#[derive(Debug, PartialEq)]
pub enum Reported {
    /// It was mapped.
    Mapped(Outcome),
    /// It needs a description that was not read; then it can be tried again.
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

    /// The streams, by their numbers.
    pub fn offers(&self) -> impl Iterator<Item = usize> {
        self.metrics.values().map(|known| known.offer)
    }

    /// Takes the description in the answer to GetMdib; see [`SdcMapping::current`] for the states.
    ///
    /// # Errors
    /// When the answer holds no description. Nothing has changed then.
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
        let mut described = Described::default();
        described.take(description, None);
        let same_sequence = |mdib: &&Mdib| mdib.sequence == sequence;
        let known = self.mdib.as_ref().filter(same_sequence);
        let newest = known.map_or(version, |mdib| mdib.newest.max(version));
        if known.is_none() {
            self.begin_sequence();
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
        self.put_all(described, None, version, offers, &mut outcome);
        self.mdib = Some(Mdib {
            sequence: sequence.to_owned(),
            described: version,
            newest,
        });
        Ok(outcome)
    }

    /// Maps the states in the answer to GetMdib, as far as they are newer than those of reports.
    pub fn current(&mut self, answer: &Element, received: Timestamp) -> Mapped {
        let mut mapped = Mapped::default();
        report::for_each_state(answer, &mut |handle, state| {
            // States of other things (systems, channels, alerts) have no metric of their handle.
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

    /// Whether an answer to GetMdib is of another sequence than a report.
    #[must_use]
    pub fn contradicts(answer: &Element, report: &Element) -> bool {
        let [answer, report] = [answer, report].map(sequence);
        answer
            .zip(report)
            .is_some_and(|(answer, report)| answer != report)
    }

    /// Maps a report; `is_complete` says whether the reports of all changes come, in their order.
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
            let detail = format!(
                "a report of sequence {other:?}, known is {:?}",
                mdib.sequence
            );
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

    /// Maps what can be mapped of a report that needs a description which cannot be had.
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

    /// Versions of states begin anew.
    fn begin_sequence(&mut self) {
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
            let mut described = Described::default();
            for descriptor in part.elements().filter(of_message("Descriptor")) {
                if !is_removed {
                    described.take(descriptor, parent);
                } else if let Some(handle) = descriptor.attribute(&HANDLE) {
                    outcome.offers_changed |= self.remove_below(handle, version, offers);
                }
            }
            outcome.mapped.troubles.append(&mut described.troubles);
            self.put_all(described, Some(version), version, offers, outcome);
        }
        if let Some(mdib) = &mut self.mdib {
            mdib.described = version;
        }
    }

    /// Puts what a description holds; new metrics have states since a version, or since ever.
    fn put_all(
        &mut self,
        described: Described,
        since: Option<u64>,
        version: u64,
        offers: &mut Offers,
        outcome: &mut Outcome,
    ) {
        for (handle, parent) in described.parents {
            self.tree.put(handle, parent);
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
        let room = LEFT_OUT_MAX.saturating_sub(self.left_out.len());
        let handles = handles.into_iter();
        let handles = handles.filter(|handle| handle.len() <= HANDLE_BYTES_MAX);
        self.left_out.extend(handles.take(room));
    }

    /// Puts a metric; says whether its stream is another one now.
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
            // What was sent before a change of the unit must not be stored in the new one.
            since = match known.metric.means_the_same(&metric) {
                true => known.since,
                false => version,
            };
            versions = known.versions;
            offers.retire(known.offer);
        }
        let known = Known {
            offer: offers.add(&metric.offer()),
            since,
            versions,
            metric,
        };
        self.metrics.insert(known.metric.handle.clone(), known);
        true
    }

    /// Removes a metric, which the device had before `version`; says whether there was one.
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

    /// Removes a descriptor with all that it contains.
    fn remove_below(&mut self, handle: &str, version: u64, offers: &mut Offers) -> bool {
        self.left_out.remove(handle);
        let mut changed = false;
        for handle in self.tree.take(handle) {
            changed |= self.remove(&handle, version, offers);
        }
        changed
    }

    /// The first metric of a report that the description should have, and has not.
    fn unknown_handle(&self, body: &Element, version: u64) -> Option<String> {
        if self.left_out.len() >= LEFT_OUT_MAX {
            return None;
        }
        let mut unknown = None;
        report::for_each_state(body, &mut |handle, _| {
            // No description has one that is too long.
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
                    // A description has states of other things, too.
                    None if !is_of_metrics && !is_late => return,
                    None => {
                        let reason = if is_late {
                            "sdc_late_state"
                        } else {
                            "sdc_no_descriptor"
                        };
                        mapped.troubles.push(Trouble::new(reason, handle));
                        let is_handle = handle.len() <= HANDLE_BYTES_MAX;
                        if !is_late && is_handle && self.left_out.len() < LEFT_OUT_MAX {
                            self.left_out.insert(handle.to_owned());
                        }
                        return;
                    }
                },
            };
            match report::state_version(state).map(|version| known.versions.report(version)) {
                Some(Judged::Repeated) => {
                    mapped
                        .troubles
                        .push(Trouble::new("sdc_state_not_newer", handle));
                    return;
                }
                Some(Judged::New { missed }) if missed > 0 => {
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

impl Known {
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

/// The sequence that the versions belong to. One that is longer than a URI counts as none.
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
