//! The columns of virtual sensors, checked against the streams whose fields the configuration states: outputs and commands
//! of sensors, and streams in the files of wrappers.
//!
//! The fields of other streams are known only while the node runs; their sources are listed as not checked.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

use chappe_stream::descriptor::{Place, Source};
use chappe_stream::{Descriptor, Selection, StreamSchema};
use chappe_wrappers::WrapperFile;

use super::files::is_xml;
use super::inline;
use crate::config::Problem;
use crate::reload::problem;

/// A source whose columns cannot be checked without a running node.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct NotChecked {
    /// The virtual sensor.
    pub sensor: String,
    /// The alias of the source.
    pub source: String,
    /// Why its fields are not known.
    pub reason: String,
}

/// The fields of streams that files state.
#[derive(Debug, Default)]
pub(super) struct Stated(BTreeMap<String, Option<StreamSchema>>);

impl Stated {
    /// Adds a stream. Fields that another file states differently are not known.
    fn add(&mut self, stream: String, schema: StreamSchema) {
        let known = self.0.entry(stream).or_insert_with(|| Some(schema.clone()));
        if known
            .as_ref()
            .is_some_and(|known| !known.equals_but_descriptions(&schema))
        {
            *known = None;
        }
    }

    /// Adds the streams of a wrapper's file.
    pub(super) fn add_wrapper(&mut self, file: &WrapperFile) {
        for (stream, definition) in file.fixed_streams() {
            self.add(stream, definition.schema);
        }
    }

    /// Adds the output of a sensor, its commands and the streams of its own wrappers.
    pub(super) fn add_sensor(&mut self, descriptor: &Descriptor, path: &Path, text: &str) {
        let output = &descriptor.output;
        self.add(output.stream.clone(), output.schema.clone());
        for command in &descriptor.commands {
            self.add(descriptor.command_stream(command), command.schema());
        }
        // The file was read before, so its wrappers are valid.
        for file in inline::read(descriptor, path, text).unwrap_or_default() {
            self.add_wrapper(&file);
        }
    }

    /// The fields of a choice of a source, or why they are not known.
    fn of(&self, descriptor: &Descriptor, selection: &Selection) -> Result<StreamSchema, String> {
        let Some(stream) = descriptor.stream_of(selection) else {
            return Err(match selection {
                Selection::Wrapper(_) => "the wrapper names its streams while it runs".to_owned(),
                _ => "the registry of the running node finds its streams".to_owned(),
            });
        };
        match self.0.get(&stream) {
            Some(Some(schema)) => Ok(schema.clone()),
            Some(None) => Err(format!("files state different fields of {stream:?}")),
            None => Err(format!("no file states the fields of {stream:?}")),
        }
    }

    /// Checks the statements of a sensor; returns the sources that were not checked.
    ///
    /// # Errors
    /// The first column that no source has.
    pub(super) fn check(
        &self,
        descriptor: &Descriptor,
        file: &str,
        text: &str,
    ) -> Result<Vec<NotChecked>, Box<Problem>> {
        let made;
        let is_xml = is_xml(Path::new(file));
        let text = match is_xml {
            true => {
                made = descriptor.to_toml();
                made.as_str()
            }
            false => text,
        };
        let not_checked = RefCell::new(BTreeMap::new());
        let fields = |source: &Source, choice: usize| {
            let known = self.of(descriptor, source.choice(choice));
            let known = known.map_err(|reason| {
                let mut all = not_checked.borrow_mut();
                all.entry(source.alias.clone()).or_insert(reason);
            });
            known.ok()
        };
        let checked = descriptor.check_columns(Place { file, text }, fields);
        checked.map_err(|error| {
            let mut fault = problem(error);
            // The lines of an XML file are not those of the keys that were made of it.
            fault.line = fault.line.filter(|_| !is_xml);
            Box::new(fault)
        })?;
        let listed = not_checked.into_inner().into_iter();
        let listed = listed.map(|(source, reason)| NotChecked {
            sensor: descriptor.name.clone(),
            source,
            reason,
        });
        Ok(listed.collect())
    }
}
