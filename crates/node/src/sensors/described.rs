//! A sensor as it is shown before it runs.

use chappe_stream::{Descriptor, Extent, Selection, WindowClock};

use super::candidates;
use super::command_view;
use super::table::{Sensor, Source};
use crate::view::FieldView;

/// The entry of a sensor before it runs.
pub(super) fn describe(descriptor: &Descriptor, file: &str, toml: &str) -> Sensor {
    let extents = descriptor.sources.iter().map(|source| {
        let (window, slide) = (extent(source.window), extent(source.slide));
        let per = source.per.as_ref();
        let per = per.map_or(String::new(), |per| format!(" per {}", per.column));
        let clock = match source.timing.clock {
            WindowClock::Source => "",
            WindowClock::Node => " of the node's clock",
        };
        format!("{}: {window}{per} every {slide}{clock}", source.alias)
    });
    let source = |source: &chappe_stream::descriptor::Source| {
        let (query, stream) = match &source.selection {
            Selection::Query(query) => (Some(candidates::describe(query)), None),
            named => (None, descriptor.stream_of(named)),
        };
        Source {
            alias: source.alias.clone(),
            wrapper: match &source.selection {
                Selection::Wrapper(_) => Some(descriptor.wrapper_name(source, 0)),
                _ => None,
            },
            query,
            stream,
            unbound_reason: Some("the search has not finished".to_owned()),
            ..Source::default()
        }
    };
    Sensor {
        name: descriptor.name.clone(),
        stream: descriptor.output.stream.clone(),
        file: file.to_owned(),
        sql: descriptor.sql(),
        window: extents.collect::<Vec<_>>().join("; "),
        fields: descriptor
            .output
            .schema
            .fields
            .iter()
            .map(FieldView::of)
            .collect(),
        sources: descriptor.sources.iter().map(source).collect(),
        commands: command_view::views(descriptor),
        wrappers: wrappers_of(descriptor),
        toml: toml.to_owned(),
        ..Sensor::default()
    }
}

/// The names of the wrappers in the file of a sensor.
fn wrappers_of(descriptor: &Descriptor) -> Vec<String> {
    let mut names = Vec::new();
    for source in &descriptor.sources {
        for (choice, selection) in source.choices().enumerate() {
            if matches!(selection, Selection::Wrapper(_)) {
                names.push(descriptor.wrapper_name(source, choice));
            }
        }
    }
    names
}

fn extent(extent: Extent) -> String {
    match extent {
        Extent::Count(1) => "1 element".to_owned(),
        Extent::Count(count) => format!("{count} elements"),
        Extent::Time(length) => format!("{length:?}"),
    }
}
