//! A preview of a virtual sensor: what a descriptor would make of elements that the log has. Nothing is changed.
//!
//! Sources are bound as those of a running sensor would be, but only to their first choice, and wrappers in the
//! descriptor are not started: a source that reads one is bound to the stream that it already wrote.

use std::time::{Duration, Instant};

use chappe_stream::binding::BindingLimits;
use chappe_stream::trial::{Trial, TrialError, TrialStream};
use chappe_stream::{Binding, Descriptor, SensorLimits, StoreError, StreamLog, Timestamp};
use tokio::sync::oneshot;

use super::interrupt::Computation;
use super::{candidates, files};
use crate::config::Problem;
use crate::shared::App;

/// Time of a preview; reason: a person waits for it, and a thread is busy.
const TIME_MAX: Duration = Duration::from_secs(5);
/// Pause before an evaluation is interrupted again; reason: SQLite forgets an interrupt that comes between two of them.
const INTERRUPT_PAUSE: Duration = Duration::from_millis(50);
/// Elements of a preview; reason: five minutes at 30 elements a second.
const ELEMENTS_MAX: usize = 10_000;
/// Bytes of these elements in memory; reason: a few seconds of waveforms, for as many previews as there may be queries.
const ELEMENT_BYTES_MAX: usize = 32 << 20;

/// The name of a descriptor in messages.
const FILE: &str = "sensor.toml";

/// A preview.
pub(crate) struct Preview {
    /// The descriptor.
    pub(crate) descriptor: Descriptor,
    /// The streams that are bound.
    pub(crate) streams: Vec<TrialStream>,
    /// The course of the evaluation.
    pub(crate) trial: Trial,
}

/// Whoever waits for a preview: when it is dropped, the preview is interrupted.
pub(crate) struct Waiting {
    _waits: oneshot::Sender<()>,
}

/// The time of a preview.
pub(crate) struct Time {
    until: Instant,
    computation: Computation,
    _runs: oneshot::Sender<()>,
}

/// Begins the time of a preview, which is interrupted at its end.
pub(crate) fn begin() -> (Waiting, Time) {
    let until = Instant::now() + TIME_MAX;
    let (waits, gone) = oneshot::channel();
    let (runs, ended) = oneshot::channel();
    let computation = Computation::default();
    tokio::spawn(interrupt(computation.clone(), until, gone, ended));
    let waiting = Waiting { _waits: waits };
    let time = Time {
        until,
        computation,
        _runs: runs,
    };
    (waiting, time)
}

/// Interrupts the computation at `until`, or when who waits is gone, until it has ended.
async fn interrupt(
    computation: Computation,
    until: Instant,
    gone: oneshot::Receiver<()>,
    mut ended: oneshot::Receiver<()>,
) {
    tokio::select! {
        _ = &mut ended => return,
        _ = gone => {}
        () = tokio::time::sleep_until(until.into()) => {}
    }
    loop {
        computation.interrupt();
        if tokio::time::timeout(INTERRUPT_PAUSE, &mut ended)
            .await
            .is_ok()
        {
            return;
        }
    }
}

/// A preview that is not possible.
pub(crate) enum PreviewError {
    /// The descriptor is invalid.
    Invalid(Box<Problem>),
    /// A source has no stream, for this reason.
    Unbound(String),
    /// There are too many elements.
    TooMany,
    /// It cannot be evaluated.
    Trial(TrialError),
    /// The log does not read.
    Store(StoreError),
}

/// Evaluates a descriptor that was sent over the elements that are newer than `last` before the newest one. Blocks.
pub(crate) fn preview(
    app: &App,
    text: &str,
    last: Duration,
    time: &Time,
) -> Result<Preview, PreviewError> {
    let read = files::descriptor(FILE, text, app.config.access.read);
    let descriptor = read.map_err(PreviewError::Invalid)?;
    let sent = files::check_sent(&descriptor, FILE.as_ref(), text);
    sent.map_err(PreviewError::Invalid)?;
    let bound = bound(app, &descriptor)?;
    let mut newest = None;
    for (_, _, log) in &bound {
        let element = log.newest(1).map_err(PreviewError::Store)?;
        newest = newest.max(element.first().map(|element| element.source_time));
    }
    let last = i64::try_from(last.as_nanos()).unwrap_or(i64::MAX);
    let from = newest.map(|newest| Timestamp(newest.0.saturating_sub(last)));
    let (mut count, mut bytes) = (0, 0);
    let mut streams = Vec::with_capacity(bound.len());
    for (alias, name, log) in bound {
        let mut stream = TrialStream {
            alias,
            stream: name.into(),
            schema: log.schema(),
            elements: Vec::new(),
        };
        let mut scan = log.scan(0, from.map(|from| from..Timestamp(i64::MAX)));
        while from.is_some()
            && let Some(piece) = scan
                .next_undamaged(ELEMENTS_MAX)
                .map_err(PreviewError::Store)?
        {
            count += piece.len();
            bytes += piece.iter().map(|it| it.size_bytes()).sum::<usize>();
            if count > ELEMENTS_MAX || bytes > ELEMENT_BYTES_MAX || Instant::now() >= time.until {
                return Err(PreviewError::TooMany);
            }
            stream.elements.extend(piece);
        }
        streams.push(stream);
    }
    let computation = &time.computation;
    let mut trial =
        Trial::run_interruptible(&descriptor, &streams, SensorLimits::default(), |sensor| {
            computation.begin(sensor)
        });
    computation.end();
    if computation.is_interrupted() {
        // The evaluation that was interrupted may have been the last one.
        trial = Err(TrialError::Stopped);
    }
    Ok(Preview {
        trial: trial.map_err(PreviewError::Trial)?,
        descriptor,
        streams,
    })
}

/// The streams of the sources, each with its alias and name.
fn bound(
    app: &App,
    descriptor: &Descriptor,
) -> Result<Vec<(String, String, StreamLog)>, PreviewError> {
    let mut bound = Vec::new();
    for source in &descriptor.sources {
        let alias = &source.alias;
        let unbound = |why: &str| PreviewError::Unbound(format!("source {alias:?}: {why}"));
        let named = descriptor.stream_of(&source.selection);
        let output = &descriptor.output.stream;
        let found = candidates::candidates(app, &source.selection, named.as_deref(), output);
        let found = found.map_err(|why| unbound(&why))?;
        let mut binding = Binding::new(alias.clone(), source.policy, BindingLimits::default());
        binding.update(Timestamp::default(), &found);
        if !binding.is_bound() {
            return Err(match named {
                Some(name) => unbound(&format!("there is no stream {name:?}")),
                None => unbound("no stream matches"),
            });
        }
        for one in binding.bound() {
            let name = one.candidate.stream.clone();
            // A stream that was removed meanwhile has no elements.
            if let Some(entry) = app.catalogue.get(&name) {
                bound.push((alias.clone(), name, entry.log.clone()));
            }
        }
    }
    Ok(bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_preview_for_which_nobody_waits_is_interrupted() {
        let (waiting, time) = begin();
        assert!(!time.computation.is_interrupted());
        drop(waiting);
        let interrupted = async {
            while !time.computation.is_interrupted() {
                tokio::task::yield_now().await;
            }
        };
        let limit = TIME_MAX / 2; // Before the end of its time.
        tokio::time::timeout(limit, interrupted).await.unwrap();
    }
}
