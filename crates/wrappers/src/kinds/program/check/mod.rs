//! Does a program keep the rules of docs/reference/programs.md?

mod processor;

use std::time::{Duration, Instant};

use chappe_stream::{StreamElement, Value};

use super::process::Process;
use super::settings::{Settings, first_line, settings};
use super::wrapper::WRAPPER;
use crate::{Batch, Condition, Mark, Notes, WrapperError, WrapperFile, WrapperOpening};

/// One rule, and whether the program keeps it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ProgramCheck {
    /// The rule.
    pub rule: &'static str,
    /// Whether the program keeps it.
    pub is_kept: bool,
    /// What was seen.
    pub detail: String,
}

/// What a run of the program printed.
#[derive(Default)]
struct Run {
    elements: Vec<(String, StreamElement)>,
    first_after: Option<Duration>,
    undecodable: Vec<(String, Vec<u8>)>,
    mark: Option<Mark>,
    error: Option<WrapperError>,
}

/// Runs the program of a wrapper's file for `time`, and again from its mark; stores nothing. A processor is
/// passed `elements`: JSON objects, one a line, as the node shows elements.
///
/// # Errors
/// The file is not one of a program, or names settings that cannot work, or the elements are missing.
pub async fn check_program(
    file: &WrapperFile,
    elements: Option<&str>,
    time: Duration,
) -> Result<Vec<ProgramCheck>, WrapperError> {
    let settings = settings(file).map_err(|error| WrapperError::settings(error.to_string()))?;
    let mut checks = match settings.inputs() {
        Some(inputs) => processor::check(file, &inputs, elements, time).await?,
        None => check_wrapper(file, &settings, time).await?,
    };
    checks.push(check_end(file, &settings).await?);
    Ok(checks)
}

async fn check_wrapper(
    file: &WrapperFile,
    settings: &Settings,
    time: Duration,
) -> Result<Vec<ProgramCheck>, WrapperError> {
    let mut checks = Vec::new();
    let mut check = |rule, is_kept, detail: String| {
        checks.push(ProgramCheck {
            rule,
            is_kept,
            detail,
        });
    };
    let run = run(file, None, time).await?;
    match (run.first_after, &run.error) {
        (Some(after), _) => {
            let (count, ms) = (run.elements.len(), after.as_millis());
            check(
                "it prints elements",
                true,
                format!("{count}; the first after {ms} ms"),
            );
        }
        (None, Some(error)) => check("it prints elements", false, error.to_string()),
        (None, None) => {
            let text = format!("none within {} s", time.as_secs_f64());
            check("it prints elements", false, text);
        }
    }
    if let (Some(error), Some(_)) = (&run.error, run.first_after) {
        check("it runs until it is stopped", false, error.to_string());
    }
    let (is_kept, detail) = run.fits();
    check(FITS, is_kept, detail);
    if settings.marks {
        match &run.mark {
            None => check("it prints marks", false, "none was printed".to_owned()),
            Some(mark) => {
                let shown = String::from_utf8_lossy(mark.bytes()).into_owned();
                check("it prints marks", true, format!("the last is {shown}"));
                let next = self::run(file, Some(mark.clone()), time).await?;
                let (is_kept, detail) = continues(&run, &next);
                check("it continues after its mark", is_kept, detail);
            }
        }
    }
    Ok(checks)
}

/// Whether the program ends when it is asked to.
async fn check_end(file: &WrapperFile, settings: &Settings) -> Result<ProgramCheck, WrapperError> {
    let (directory, notes) = (file.path("".as_ref()), Notes::default());
    let mut process = Process::start(&settings.program, &directory, &file.name, &notes)?;
    let first = first_line(file, settings, None);
    process
        .write(&first, settings.program.answer_time())
        .await?;
    let ended = process.stop().await;
    let detail = match ended {
        Some(time) => format!("after {} ms", time.as_millis()),
        None => "it does not; its process group would be killed".to_owned(),
    };
    Ok(ProgramCheck {
        rule: "it ends after `stop` and the end of its input",
        is_kept: ended.is_some(),
        detail,
    })
}

async fn run(file: &WrapperFile, mark: Option<Mark>, time: Duration) -> Result<Run, WrapperError> {
    let mut wrapper = (WRAPPER.open)(WrapperOpening {
        file,
        mark,
        condition: Condition::default(),
        notes: Default::default(),
        drops: Default::default(),
        inbox: tokio::sync::mpsc::channel(1).1,
    })?;
    let (start, mut first_after) = (Instant::now(), None);
    let mut run = Run::default();
    let reading = async {
        loop {
            match wrapper.next().await {
                Ok(batch) => {
                    if batch.elements() > 0 {
                        first_after.get_or_insert_with(|| start.elapsed());
                    }
                    let mark = batch.mark.clone();
                    run.add(batch);
                    if let Err(error) = wrapper.stored(&mark).await {
                        return error;
                    }
                }
                Err(error) => return error,
            }
        }
    };
    let error = tokio::time::timeout(time, reading).await.ok();
    (run.error, run.first_after) = (error, first_after);
    Ok(run)
}

/// Most elements and wrong lines of a run that are kept.
const KEPT: usize = 100_000;
/// The rule of lines.
const FITS: &str = "each line is a message that fits";

impl Run {
    /// Whether each line was a message that fits.
    fn fits(&self) -> (bool, String) {
        let wrong = self.undecodable.first().map(|(reason, line)| {
            let (count, line) = (self.undecodable.len(), String::from_utf8_lossy(line));
            format!("{count}; the first: {reason}, in {line:.200}")
        });
        let is_kept = wrong.is_none();
        (is_kept, wrong.unwrap_or_else(|| "none is wrong".to_owned()))
    }

    fn add(&mut self, batch: Batch) {
        if !batch.mark.bytes().is_empty() {
            self.mark = Some(batch.mark);
        }
        for part in batch.parts {
            let room = KEPT.saturating_sub(self.elements.len());
            let elements = part.elements.into_iter().take(room);
            self.elements
                .extend(elements.map(|one| (part.stream.to_string(), one)));
        }
        let room = KEPT.saturating_sub(self.undecodable.len());
        let wrong = batch.undecodable.into_iter().take(room);
        self.undecodable
            .extend(wrong.map(|one| (one.reason, one.message)));
    }
}

/// What makes an element the same as that of another run.
fn shown((stream, element): &(String, StreamElement)) -> (&str, Option<&str>, &[Value]) {
    (stream, element.key.as_deref(), &element.values)
}

/// Whether the second run starts after the mark of the first one: not with its first element again.
fn continues(first: &Run, second: &Run) -> (bool, String) {
    if let Some(error) = &second.error {
        return (false, error.to_string());
    }
    let changes = first
        .elements
        .windows(2)
        .any(|pair| shown(&pair[0]) != shown(&pair[1]));
    match (first.elements.first(), second.elements.first()) {
        (Some(a), Some(b)) if changes && shown(a) == shown(b) => {
            (false, "it starts with its first element again".to_owned())
        }
        (_, Some(_)) => (true, format!("{} elements follow", second.elements.len())),
        (_, None) => (true, "nothing new came".to_owned()),
    }
}
