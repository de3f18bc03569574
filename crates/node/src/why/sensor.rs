//! The hops of a virtual sensor: its file, its bindings, its evaluation.

use chappe_registry::Principal;
use chappe_stream::descriptor::Source as Described;
use chappe_stream::{Descriptor, Selection, StreamQuery};

use super::stream::earlier_version;
use super::{HopState, Path};
use crate::catalogue::Entry;
use crate::config::nearest;
use crate::sensors::{Sensor, SensorState};

impl Path<'_> {
    /// A sensor with its sources and its output.
    pub(super) fn sensor_with_output(&mut self, sensor: &Sensor) {
        self.sensor(sensor);
        if let Some(entry) = self.app.catalogue.get(&sensor.stream) {
            self.stream_after_source(&entry);
        }
    }

    /// A sensor after its sources.
    pub(super) fn sensor(&mut self, sensor: &Sensor) {
        if !self.enter("sensor", &sensor.name) {
            return;
        }
        let name = sensor.name.as_str();
        if sensor.state == SensorState::Failed {
            let error = sensor.error.clone().unwrap_or_default();
            let detail = error.in_file(&sensor.file);
            return self.add("sensor", name, HopState::Blocked, detail, error.hint);
        }
        if let Some(error) = &sensor.refused {
            let detail = earlier_version(&sensor.file, error);
            let hint = error.hint.clone();
            self.add("sensor", name, HopState::Degraded, detail, hint);
        }
        let described = Descriptor::parse(&sensor.file, &sensor.toml).ok();
        let sources = described.as_ref().map_or(&[][..], |it| &it.sources);
        for source in &sensor.sources {
            for bound in &source.bound {
                if let Some(entry) = self.app.catalogue.get(&bound.stream) {
                    self.source(&entry);
                }
                let detail = format!(
                    "{} is bound to {}: {}",
                    source.alias,
                    self.app.catalogue.names().current(&bound.stream),
                    bound.why
                );
                self.add("binding", name, HopState::Ok, detail, None);
            }
            if let Some(reason) = &source.unbound_reason {
                let of_alias = |it: &&Described| it.alias == source.alias;
                let found = sources.iter().find(of_alias);
                let (detail, hint) = match found.map(|it| &it.selection) {
                    Some(Selection::Query(query)) => self.unmatched(query),
                    Some(Selection::Wrapper(_)) => self.inline_wrapper(source.wrapper.as_deref()),
                    Some(named) => {
                        let stream = described.as_ref().and_then(|it| it.stream_of(named));
                        self.missing_stream(&stream.unwrap_or_default())
                    }
                    None => (String::new(), None),
                };
                let detail = format!("{}: {reason}{detail}", source.alias);
                self.add("binding", name, HopState::Blocked, detail, hint);
            }
        }
        self.evaluation(sensor);
    }

    fn evaluation(&mut self, sensor: &Sensor) {
        let is_running = sensor.state == SensorState::Running;
        let failure = sensor.error.as_ref().filter(|_| is_running);
        // The fault of a changed file has its own hop.
        if let Some(failure) = failure.filter(|it| Some(*it) != sensor.refused.as_ref()) {
            let detail = failure.message.clone();
            let file = &sensor.file;
            let hint = failure.hint.clone().or_else(|| {
                Some(format!(
                    "correct the statement in {file}; chappe try evaluates it"
                ))
            });
            return self.add("sensor", &sensor.name, HopState::Blocked, detail, hint);
        }
        let dropped: Vec<String> = sensor
            .dropped
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(|(reason, count)| format!("{reason} {count}"))
            .collect();
        let (state, detail, hint) = match (sensor.state, dropped.is_empty()) {
            (SensorState::Waiting, _) => {
                let detail = "waits for a stream for each of its sources".to_owned();
                (HopState::Blocked, detail, None)
            }
            (_, true) => (HopState::Ok, format!("evaluates {}", sensor.window), None),
            (_, false) => (
                HopState::Degraded,
                format!("did not use elements: {}", dropped.join(", ")),
                Some("docs/reference/virtual-sensors.md explains each reason".to_owned()),
            ),
        };
        self.add("sensor", &sensor.name, state, detail, hint);
    }

    /// Why the wrapper of a source has not written its stream.
    fn inline_wrapper(&self, name: Option<&str>) -> (String, Option<String>) {
        let row = name.and_then(|name| self.app.wrappers.get(name));
        let Some(row) = row else {
            return ("; its wrapper does not run".to_owned(), None);
        };
        let peer = &row.peer;
        let (name, reason) = (
            &peer.name,
            peer.reason.as_deref().unwrap_or("no element yet"),
        );
        let hint = peer
            .hint
            .clone()
            .or(Some(format!("chappe wrapper show {name}")));
        (format!("; its wrapper {name}: {reason}"), hint)
    }

    fn missing_stream(&self, stream: &str) -> (String, Option<String>) {
        if self.app.catalogue.get(stream).is_some() {
            let text = format!("; the stream {stream} is stored, but its source is away");
            return (text, Some(format!("chappe why {stream}")));
        }
        let streams = self.app.catalogue.by_current_name();
        let names = streams.iter().map(|(name, _)| name.as_str());
        let hint = nearest(stream, names).map(|near| format!("did you mean {near:?}?"));
        (format!("; there is no stream {stream}"), hint)
    }

    /// Which condition of a query no stream meets: conditions are added one after another.
    fn unmatched(&self, query: &StreamQuery) -> (String, Option<String>) {
        let registry = &self.app.registry;
        let entries = self.app.catalogue.entries();
        let total = entries.len();
        let registered = |entry: &Entry| registry.get(&entry.key(), &Principal::Operator);
        let mut left: Vec<_> = entries
            .iter()
            .filter_map(|entry| Some((entry, registered(entry)?)))
            .collect();
        let mut text = format!(
            "; of {total} streams, {} have a source that is here",
            left.len()
        );
        let local = |name: &str| name.rsplit_once('}').map_or(name, |(_, it)| it).to_owned();
        let mut narrow = |what: &str,
                          wanted: &Option<String>,
                          meets: &dyn Fn(&Entry, &chappe_registry::Entity, &str) -> bool|
         -> Option<String> {
            let wanted = wanted.as_deref()?;
            let before = left.len();
            left.retain(|(entry, entity)| meets(entry, entity, wanted));
            text.push_str(&format!(", {} of these {what} {wanted}", left.len()));
            (left.is_empty() && before > 0)
                .then(|| format!("none of the remaining streams {what} {wanted}"))
        };
        let observes = |entry: &Entry, _: &chappe_registry::Entity, wanted: &str| {
            let schema = entry.log.schema();
            let mut fields = schema.fields.iter();
            fields.any(|field| field.observed_property.as_deref() == Some(wanted))
        };
        let in_unit = |entry: &Entry, _: &chappe_registry::Entity, wanted: &str| {
            let schema = entry.log.schema();
            let property = query.observed_property.as_deref();
            let mut fields = schema.fields.iter();
            fields.any(|field| {
                field.unit.as_deref() == Some(wanted)
                    && property.is_none_or(|it| field.observed_property.as_deref() == Some(it))
            })
        };
        let has_type = |_: &Entry, entity: &chappe_registry::Entity, wanted: &str| {
            let mut types = entity.types.iter();
            types.any(|known| known == wanted || local(known) == wanted)
        };
        let in_scope = |_: &Entry, entity: &chappe_registry::Entity, wanted: &str| {
            let under = format!("{}/", wanted.trim_end_matches('/'));
            let mut scopes = entity.scopes.iter();
            scopes.any(|scope| scope == wanted || scope.starts_with(&under))
        };
        let prefixed = |entry: &Entry, _: &chappe_registry::Entity, wanted: &str| {
            entry
                .name
                .to_lowercase()
                .starts_with(&wanted.to_lowercase())
        };
        let failed = [
            narrow("observe", &query.observed_property, &observes),
            narrow("are in unit", &query.unit, &in_unit),
            narrow("have type", &query.entity_type, &has_type),
            narrow("are in scope", &query.scope, &in_scope),
            narrow("have the name prefix", &query.name_prefix, &prefixed),
        ];
        let hint = match failed.into_iter().flatten().next() {
            Some(failed) => format!("{failed}: correct the query, or the device's description"),
            None if !query.metadata.is_empty() => {
                "GET /api/v1/registry/metadata shows who annotated the stream or its device"
                    .to_owned()
            }
            None if query.sparql.is_some() => {
                "try the SPARQL query with chappe query --sparql".to_owned()
            }
            None => "chappe find shows the devices of the network".to_owned(),
        };
        (text, Some(hint))
    }
}
