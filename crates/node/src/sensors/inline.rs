//! Wrappers in the file of a sensor: the host of wrappers runs each while the sensor runs.

use std::path::Path;

use chappe_stream::{Descriptor, DescriptorError, Selection};
use chappe_wrappers::{TableStep, WrapperFile};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::shared::App;
use crate::wrappers;

/// The wrappers in the file of a sensor, checked. The keys of GSN's descriptors are those that were made of them.
///
/// # Errors
/// The first fault, with its place in the file, as far as the file is a TOML.
pub(super) fn read(
    descriptor: &Descriptor,
    path: &Path,
    text: &str,
) -> Result<Vec<WrapperFile>, DescriptorError> {
    if !has_any(descriptor) {
        return Ok(Vec::new());
    }
    let made;
    let text = match super::files::is_xml(path) {
        true => {
            made = descriptor.to_toml();
            made.as_str()
        }
        false => text,
    };
    let top = toml::from_str::<toml::Table>(text).unwrap_or_default();
    let has_statements = top.contains_key("statement");
    let mut files = Vec::new();
    let mut before = (0, 0);
    for source in &descriptor.sources {
        // Its index among the sources of its statement.
        let index = match before {
            (statement, next) if statement == source.statement => next,
            _ => 0,
        };
        before = (source.statement, index + 1);
        for (choice, selection) in source.choices().enumerate() {
            if !matches!(selection, Selection::Wrapper(_)) {
                continue;
            }
            let mut steps = Vec::new();
            if has_statements {
                steps.extend([
                    TableStep::Key("statement"),
                    TableStep::Item(source.statement),
                ]);
            }
            steps.extend([TableStep::Key("source"), TableStep::Item(index)]);
            if choice > 0 {
                steps.extend([TableStep::Key("fallback"), TableStep::Item(choice - 1)]);
            }
            steps.push(TableStep::Key("wrapper"));
            let name = descriptor.wrapper_name(source, choice);
            let file = WrapperFile::parse_table(path, text, &name, steps)?;
            file.kind()?;
            files.push(file);
        }
    }
    Ok(files)
}

/// Whether the file of a sensor has wrappers.
pub(super) fn has_any(descriptor: &Descriptor) -> bool {
    let mut choices = descriptor
        .sources
        .iter()
        .flat_map(|source| source.choices());
    choices.any(|choice| matches!(choice, Selection::Wrapper(_)))
}

/// The wrappers of a sensor that runs.
pub(super) struct OwnWrappers {
    stop: watch::Sender<bool>,
    tasks: Vec<(String, JoinHandle<()>)>,
}

impl OwnWrappers {
    /// Starts them.
    pub(super) fn start(app: &App, sensor: &str, files: Vec<WrapperFile>) -> Self {
        let (stop, stopped) = watch::channel(false);
        let start = |file: WrapperFile| {
            let name = file.name.clone();
            (
                name,
                wrappers::start_of_sensor(app, sensor, file, stopped.clone()),
            )
        };
        Self {
            tasks: files.into_iter().map(start).collect(),
            stop,
        }
    }

    /// Stops them.
    pub(super) async fn stop(self, app: &App) {
        self.stop.send_replace(true);
        for (name, task) in self.tasks {
            // A failed task has ended as well.
            let _ = task.await;
            app.wrappers.remove(&name);
        }
    }
}
