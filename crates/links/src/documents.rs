//! Applies documents to the copy of a stream, for every kind of link: elements, structures, losses
//! and rollbacks.

use std::collections::VecDeque;
use std::time::Duration;

use chappe_stream::{StreamElement, StreamSchema, StreamStore};
use tokio::time::Instant;

use super::inlet::{Arrival, Inlet, InletError, Pending};
use super::serialization::{Document, Elements};

/// How long a change waits for the log before the sender has to resend it; reason: five seconds are
/// several syncs of a slow disk, and less than a sender waits for its response.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Delay before a change is retried while its stream is being defined; reason: a definition takes
/// one sync.
const DEFINING_PAUSE: Duration = Duration::from_millis(2);

/// The stream of a document.
pub(crate) fn stream_of(document: &Document) -> Option<&str> {
    match document {
        Document::Structure(structure) => Some(&structure.stream),
        Document::Elements(elements) => Some(&elements.stream),
        Document::Lost(lost) => Some(&lost.stream),
        Document::Rollback(rollback) => Some(&rollback.stream),
        Document::Alive(_) => None,
    }
}

/// Retries a change each time that a full queue of the log has room again, and while the stream is
/// being defined. Each wait is limited by [`WAIT_MAX`].
///
/// # Errors
/// See [`InletError`].
pub(crate) async fn retry_until_room(
    store: &StreamStore,
    mut change: impl FnMut() -> Result<(), InletError>,
) -> Result<(), InletError> {
    let (mut full_until, mut defining_until) = (None, None);
    loop {
        match change() {
            Err(InletError::Busy(bytes)) if has_time(&mut full_until) => {
                let until = full_until.unwrap_or_else(Instant::now);
                // If there is no room in time, the last attempt returns the error.
                let _ = tokio::time::timeout_at(until, store.room(bytes)).await;
                tokio::task::yield_now().await;
            }
            Err(InletError::Defining) if has_time(&mut defining_until) => {
                tokio::time::sleep(DEFINING_PAUSE).await;
            }
            other => return other,
        }
    }
}

/// Whether there is time left, counted from the first call.
fn has_time(until: &mut Option<Instant>) -> bool {
    *until.get_or_insert_with(|| Instant::now() + WAIT_MAX) > Instant::now()
}

/// Applies a document; returns when its elements are stored. Elements that do not fit become dead
/// letters.
pub(crate) async fn apply(inlet: &mut Inlet, document: Document) -> Result<(), InletError> {
    let mut pending = VecDeque::new();
    let taken = take(inlet, document, &mut pending).await;
    stored(inlet, pending, taken).await
}

/// Waits until everything queued is stored; then returns `taken`.
pub(crate) async fn stored(
    inlet: &mut Inlet,
    pending: VecDeque<Pending>,
    taken: Result<(), InletError>,
) -> Result<(), InletError> {
    let stored = match pending.is_empty() {
        // They were queued for a request that was dropped since.
        true => inlet.replica().all_stored().await,
        // Elements queued before an error are stored anyway.
        false => settle(inlet, pending).await,
    };
    let outcome = stored.and(taken);
    if outcome.as_ref().is_err_and(InletError::is_retracted) {
        inlet.resume().await?;
    }
    outcome
}

/// The newest element's number at the origin, according to a document of elements.
pub(crate) fn last_of(document: &Document) -> Option<u64> {
    match document {
        Document::Elements(elements) => elements
            .last
            .or_else(|| Some(elements.elements.last()?.position.sequence)),
        _ => None,
    }
}

/// Applies a document, and appends its queued changes to `pending`, even if it returns an error.
/// Elements that do not fit become dead letters.
pub(crate) async fn take(
    inlet: &mut Inlet,
    document: Document,
    pending: &mut VecDeque<Pending>,
) -> Result<(), InletError> {
    let store = inlet.replica().store();
    match document {
        Document::Structure(structure) => {
            retry_until_room(&store, || {
                inlet.structure(structure.version, &structure.schema)
            })
            .await
        }
        Document::Elements(elements) => {
            let schema = inlet.schema(elements.schema).cloned();
            let schema = schema.ok_or(InletError::UnknownSchema(elements.schema))?;
            let at_origin = elements.schema;
            let arrivals = shaped(elements, &schema);
            retry_until_room(&store, || {
                inlet.take_elements(at_origin, arrivals.clone(), pending)
            })
            .await
        }
        Document::Lost(lost) => {
            let sequence = lost.from;
            let from = chappe_stream::Position {
                epoch: lost.epoch,
                sequence,
            };
            retry_until_room(&store, || inlet.lost(from, lost.next, lost.reason)).await
        }
        Document::Rollback(rollback) => {
            let Some(have) = inlet.have() else {
                return Ok(());
            };
            retry_until_room(&store, || {
                inlet.rollback(have, rollback.kept, rollback.next)
            })
            .await
        }
        Document::Alive(after) => match after {
            Some(after) => retry_until_room(&store, || inlet.begin(after)).await,
            None => Ok(()),
        },
    }
}

/// The elements of a document in the shape of their schema; each one that does not fit becomes a
/// misfit of its own.
fn shaped(elements: Elements, schema: &StreamSchema) -> Vec<Arrival> {
    if let Ok(shaped) = elements.clone().shape(schema) {
        return shaped.into_iter().map(Arrival::fitting).collect();
    }
    let Elements {
        names,
        elements: all,
        ..
    } = elements;
    let known: Vec<String> = schema.fields.iter().map(|it| it.name.clone()).collect();
    let one = |element: StreamElement| {
        let alone = Elements {
            names: names.clone(),
            elements: vec![element.clone()],
            ..Elements::default()
        };
        match alone.shape(schema) {
            Ok(mut shaped) => Arrival::fitting(shaped.pop().unwrap_or(element)),
            Err(error) => Arrival {
                names: Some(if names.is_empty() { &known } else { &names }.clone()),
                why: error.to_string(),
                element,
            },
        }
    };
    all.into_iter().map(one).collect()
}

/// Waits until everything is on disk.
async fn settle(inlet: &Inlet, pending: VecDeque<Pending>) -> Result<(), InletError> {
    for one in pending {
        let (Pending::Stored(position, appended) | Pending::Letter(position, _, appended)) = one;
        let count = u64::from(appended.count);
        appended.await.map_err(chappe_stream::StoreError::from)?;
        inlet.replica().stored(position, count);
    }
    Ok(())
}
