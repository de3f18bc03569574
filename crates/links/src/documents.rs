//! What documents do to the copy of a stream: elements, structures, losses and rollbacks, by whichever
//! kind of link they arrive.

use std::collections::VecDeque;
use std::time::Duration;

use chappe_stream::{StreamElement, StreamSchema, StreamStore};
use tokio::time::Instant;

use super::inlet::{Arrival, Inlet, InletError, Pending};
use super::serialization::{Document, Elements};

/// How long a change waits for the log before the sender has to send it again; reason: five seconds are
/// several syncs of a slow disk, and less than a sender waits for its answer.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// How long a change waits while its stream is being defined, before it is tried again; reason: a
/// definition takes one sync.
const DEFINING_PAUSE: Duration = Duration::from_millis(2);

/// The stream that a document is about.
pub(crate) fn stream_of(document: &Document) -> Option<&str> {
    match document {
        Document::Structure(structure) => Some(&structure.stream),
        Document::Elements(elements) => Some(&elements.stream),
        Document::Lost(lost) => Some(&lost.stream),
        Document::Rollback(rollback) => Some(&rollback.stream),
        Document::Alive(_) => None,
    }
}

/// Makes a change again whenever the log's queue was full and has room, and while the stream is being
/// defined. Each has [`WAIT_MAX`].
///
/// # Errors
/// See [`InletError`].
pub(crate) async fn when_room(
    store: &StreamStore,
    mut change: impl FnMut() -> Result<(), InletError>,
) -> Result<(), InletError> {
    let (mut full_until, mut defining_until) = (None, None);
    loop {
        match change() {
            Err(InletError::Busy(bytes)) if has_time(&mut full_until) => {
                let until = full_until.unwrap_or_else(Instant::now);
                // Without room in time the last attempt is refused.
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

/// Whether the time is not over that begins with the first call.
fn has_time(until: &mut Option<Instant>) -> bool {
    *until.get_or_insert_with(|| Instant::now() + WAIT_MAX) > Instant::now()
}

/// Does what a document says; returns when its elements are stored. What does not fit becomes a dead
/// letter.
pub(crate) async fn apply(inlet: &mut Inlet, document: Document) -> Result<(), InletError> {
    let mut pending = VecDeque::new();
    let taken = take(inlet, document, &mut pending).await;
    stored(inlet, pending, taken).await
}

/// Waits until what was taken is stored; then `taken` is the outcome.
pub(crate) async fn stored(
    inlet: &mut Inlet,
    pending: VecDeque<Pending>,
    taken: Result<(), InletError>,
) -> Result<(), InletError> {
    let stored = match pending.is_empty() {
        // They were queued for a request that nobody waits for any more.
        true => inlet.replica().all_stored().await,
        // What was taken before an error is stored all the same.
        false => settle(inlet, pending).await,
    };
    let outcome = stored.and(taken);
    if outcome.as_ref().is_err_and(InletError::is_taken_back) {
        inlet.resume().await?;
    }
    outcome
}

/// The number of the newest element at the origin, as a document of elements says it.
pub(crate) fn last_of(document: &Document) -> Option<u64> {
    match document {
        Document::Elements(elements) => elements
            .last
            .or_else(|| Some(elements.elements.last()?.position.sequence)),
        _ => None,
    }
}

/// Does what a document says, and appends to `pending` what of it is queued in the log, also before
/// an error. What does not fit becomes a dead letter.
pub(crate) async fn take(
    inlet: &mut Inlet,
    document: Document,
    pending: &mut VecDeque<Pending>,
) -> Result<(), InletError> {
    let store = inlet.replica().store();
    match document {
        Document::Structure(structure) => {
            when_room(&store, || {
                inlet.structure(structure.version, &structure.schema)
            })
            .await
        }
        Document::Elements(elements) => {
            let schema = inlet.schema(elements.schema).cloned();
            let schema = schema.ok_or(InletError::UnknownSchema(elements.schema))?;
            let at_origin = elements.schema;
            let arrivals = shaped(elements, &schema);
            when_room(&store, || {
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
            when_room(&store, || inlet.lost(from, lost.next, lost.reason)).await
        }
        Document::Rollback(rollback) => {
            let Some(have) = inlet.have() else {
                return Ok(());
            };
            when_room(&store, || {
                inlet.rollback(have, rollback.kept, rollback.next)
            })
            .await
        }
        Document::Alive(after) => match after {
            Some(after) => when_room(&store, || inlet.begin(after)).await,
            None => Ok(()),
        },
    }
}

/// The elements of a document in the shape of their schema; those that have none are misfits, each by
/// itself.
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

/// Waits until everything has reached the disk.
async fn settle(inlet: &Inlet, pending: VecDeque<Pending>) -> Result<(), InletError> {
    for one in pending {
        let (Pending::Stored(position, appended) | Pending::Letter(position, _, appended)) = one;
        let count = u64::from(appended.count);
        appended.await.map_err(chappe_stream::StoreError::from)?;
        inlet.replica().stored(position, count);
    }
    Ok(())
}
