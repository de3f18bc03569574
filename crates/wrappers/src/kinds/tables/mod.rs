//! The exporters to files in a directory, each with the elements of one stream: Parquet, Arrow, CSV.
//!
//! A file is written under a temporary name. Once it is large or old enough it is synced and gets its name, which has
//! stream, epoch, first and last number; only then the host's cursor moves past it. A new start removes what was not
//! finished, and reads from the names how far each stream is.

mod names;
mod rolling;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use chappe_stream::{DescriptorError, Position};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::{Instant, sleep_until};

use crate::kinds::pipeline::{Batches, Pipeline, Reports};
use crate::table_file::TableForm;
use crate::{
    Batch, Delivered, Exporter, ExporterFile, ExporterKind, ExporterOpening, NodeParts, Step,
    WrapperError, Written,
};
use rolling::{Limits, Rolling};

/// Time after which a file is finished, unless the exporter's file sets another.
const ROLL_S: u64 = 3_600;
/// Bytes after which a file is finished, unless the exporter's file sets another number.
const ROLL_BYTES: u64 = 128 << 20;
/// Time that an earlier run of the exporter has to finish what it was writing.
const LOCK_TIME: Duration = Duration::from_secs(30);
/// Time between two attempts to get the directory.
const LOCK_PAUSE: Duration = Duration::from_millis(50);
/// When an element counts as written.
const WRITTEN: &str = "the file that has it is complete, synced and has its final name";
/// When an element may arrive twice.
const DOUBLE: &str =
    "no, unless a new file is moved away within a fifth of a second, before a crash";

macro_rules! kind {
    ($name:literal, $about:literal, $form:expr) => {
        ExporterKind {
            name: $name,
            about: $about,
            written: WRITTEN,
            may_double: DOUBLE,
            check: |file| settings(file).map(drop),
            open: |opening| open(opening, $form),
            schema: || schemars::schema_for!(Settings),
        }
    };
}

/// The kind for CSV.
pub(crate) const CSV: ExporterKind =
    kind!("csv", "writes CSV files into a directory", TableForm::Csv);
/// The kind for Parquet.
#[cfg(feature = "parquet")]
pub(crate) const PARQUET: ExporterKind = kind!(
    "parquet",
    "writes Parquet files into a directory",
    TableForm::Parquet
);
/// The kind for Arrow.
#[cfg(feature = "parquet")]
pub(crate) const ARROW: ExporterKind = kind!(
    "arrow",
    "writes Arrow files into a directory",
    TableForm::Arrow
);

/// The keys of an exporter of kind `csv`, `parquet` or `arrow`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// The directory, which is created if necessary. Relative to this file.
    directory: PathBuf,
    /// Time after which a file is finished, counted from its first element. Default: 3600.
    #[serde(default = "roll_s")]
    #[schemars(range(min = 1, max = 604_800), extend("x-unit" = "seconds"))]
    roll_s: u64,
    /// Bytes after which a file is finished. Default: 134217728.
    #[serde(default = "roll_bytes")]
    #[schemars(range(min = 65_536, max = 17_179_869_184_u64), extend("x-unit" = "bytes"))]
    roll_bytes: u64,
}

fn roll_s() -> u64 {
    ROLL_S
}

fn roll_bytes() -> u64 {
    ROLL_BYTES
}

fn settings(file: &ExporterFile) -> Result<Settings, DescriptorError> {
    let settings: Settings = file.settings()?;
    let ranges = [
        ("roll_s", settings.roll_s, 1, 604_800),
        ("roll_bytes", settings.roll_bytes, 65_536, 16 << 30),
    ];
    for (key, value, low, high) in ranges {
        if !(low..=high).contains(&value) {
            let message = format!("{value} is not within {low} to {high}");
            return Err(file.fault(key, message, None));
        }
    }
    Ok(settings)
}

fn open(opening: ExporterOpening<'_>, form: TableForm) -> Result<Box<dyn Exporter>, WrapperError> {
    let file = opening.file;
    let settings = settings(file).map_err(|error| WrapperError::settings(error.to_string()))?;
    Ok(Box::new(TablesExporter {
        directory: file.path(&settings.directory),
        name: file.name.clone(),
        form,
        limits: Limits {
            time: Duration::from_secs(settings.roll_s),
            bytes: settings.roll_bytes,
        },
        node: NodeParts::default(),
        exported: BTreeMap::new(),
        pipeline: None,
    }))
}

struct TablesExporter {
    directory: PathBuf,
    name: String,
    form: TableForm,
    limits: Limits,
    node: NodeParts,
    /// How far each stream was exported, by the host's cursor.
    exported: BTreeMap<String, Position>,
    pipeline: Option<Pipeline>,
}

impl Exporter for TablesExporter {
    fn attach(
        &mut self,
        node: &NodeParts,
        exported: &BTreeMap<String, Position>,
    ) -> Result<(), WrapperError> {
        self.node = node.clone();
        self.exported = exported.clone();
        Ok(())
    }

    fn resume(&mut self) -> Step<'_, Result<Vec<(String, Position)>, WrapperError>> {
        Box::pin(async {
            let until = Instant::now() + LOCK_TIME;
            let rolling = loop {
                let (directory, name, form) =
                    (self.directory.clone(), self.name.clone(), self.form);
                let (limits, node) = (self.limits, self.node.clone());
                let opened = blocking(move || Rolling::open(&directory, &name, form, limits, node));
                match opened.await? {
                    Some(rolling) => break rolling,
                    None if Instant::now() >= until => {
                        let path = self.directory.display();
                        let text = format!("another process exports {} to {path}", self.name);
                        return Err(WrapperError::peer(text));
                    }
                    None => tokio::time::sleep(LOCK_PAUSE).await,
                }
            };
            let positions = names::reached(&rolling.found, &self.exported);
            let write = |batches, reports| run(rolling, batches, reports);
            self.pipeline = Some(Pipeline::start(write));
            Ok(positions)
        })
    }

    fn write<'a>(&'a mut self, batch: &'a Batch) -> Step<'a, Result<Written, WrapperError>> {
        let passed = match &self.pipeline {
            Some(pipeline) => pipeline.pass(batch),
            None => Err(WrapperError::peer("the directory is not open")),
        };
        Box::pin(std::future::ready(passed.map(|()| Written::default())))
    }

    fn is_pipelined(&self) -> bool {
        true
    }

    fn has_room(&self) -> bool {
        self.pipeline.as_ref().is_none_or(Pipeline::has_room)
    }

    fn delivered(&mut self) -> Step<'_, Result<Delivered, WrapperError>> {
        match &mut self.pipeline {
            Some(pipeline) => Box::pin(pipeline.delivered()),
            None => Box::pin(std::future::pending()),
        }
    }
}

/// Runs something that blocks on the disk.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, WrapperError> + Send + 'static,
) -> Result<T, WrapperError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(WrapperError::peer("writing a file was interrupted")))
}

/// Writes batches, and finishes files when it is time.
async fn run(
    mut rolling: Rolling,
    mut batches: Batches,
    reports: Reports,
) -> Result<(), WrapperError> {
    loop {
        let due = rolling.due();
        let time = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        let batch = tokio::select! {
            batch = batches.recv() => match batch {
                Some(batch) => batch,
                None => return Ok(()),
            },
            () = time => Batch::default(),
        };
        let step = blocking(move || {
            let positions = rolling.step(&batch, Instant::now())?;
            Ok((rolling, positions))
        });
        let (next, positions) = step.await?;
        rolling = next;
        let delivered = Delivered {
            positions,
            ..Delivered::default()
        };
        if !reports.send(delivered) {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::ExporterFile;

    #[test]
    fn the_file_of_the_documentation_is_valid() {
        let examples = crate::tests::examples("parquet`, `arrow` and `csv");
        let text = examples[0].replace("\"parquet\"", "\"csv\"");
        let file = ExporterFile::parse("lake.toml".as_ref(), &text).unwrap();
        file.kind().unwrap();
        let wrong = text.replace("roll_s = 600", "roll_s = 0");
        let file = ExporterFile::parse("lake.toml".as_ref(), &wrong).unwrap();
        assert_eq!(file.kind().err().unwrap().key, "roll_s");
    }
}
