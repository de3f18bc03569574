//! Loops: a processor whose inputs are made of its own output, perhaps by other processors and virtual
//! sensors, would never come to rest.

use std::collections::HashSet;

use super::wrapper_name;
use crate::shared::Shared;

/// Streams that are visited; reason: the check repeats each second.
const VISITED_MAX: usize = 10_000;

/// The stream of the source `key` of which some of these streams are made.
pub(super) fn find<'s>(
    app: &Shared,
    key: &str,
    streams: impl Iterator<Item = &'s str>,
) -> Option<String> {
    let mut waiting: Vec<String> = streams.map(str::to_owned).collect();
    let (mut visited, mut sources) = (HashSet::new(), HashSet::new());
    while let Some(stream) = waiting.pop() {
        if visited.len() >= VISITED_MAX {
            return None;
        }
        let Some(entry) = app.catalogue.get(&stream) else {
            continue;
        };
        if !visited.insert(stream) {
            continue;
        }
        let source = entry.source();
        if source == key {
            return Some(entry.name.clone());
        }
        if sources.insert(source.clone()) {
            waiting.extend(read_by(app, &source));
        }
    }
    None
}

/// The streams that a source of streams reads.
fn read_by(app: &Shared, source: &str) -> Vec<String> {
    if let Some(wrapper) = wrapper_name(source) {
        let row = app.wrappers.get(wrapper);
        let inputs = row.into_iter().flat_map(|row| row.inputs);
        return inputs.map(|input| input.stream).collect();
    }
    let sensor = app.sensors.get(source);
    let sources = sensor.into_iter().flat_map(|sensor| sensor.sources);
    let bound = sources.flat_map(|source| source.bound);
    bound.map(|bound| bound.stream).collect()
}
