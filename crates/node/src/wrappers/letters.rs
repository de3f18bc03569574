//! Dead letters of wrappers: decoded again by the present settings, or discarded.

use std::sync::Arc;

use chappe_links::{DeadLetters, LinkError, PeerLetter, RefusedElement};
use chappe_stream::StreamElement;
use chappe_wrappers::{Batch, StreamDefinition, WrapperFile, element_weight};

use super::store::{self, DEAD_LETTER, PIECE_BYTES, check_size, refusal, stream_entity};
use super::{WrapperHandle, wrapper_key};
use crate::completeness::{Loss, LossKind};
use crate::shared::{App, Shared};
use crate::streams::StreamSpec;

/// An action on a dead letter failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum LetterError {
    /// The store of dead letters, or there is no such letter.
    #[error(transparent)]
    Letters(#[from] LinkError),
    /// It cannot be stored as things are.
    #[error("{0}")]
    StillDead(String),
}

/// Decodes a dead letter again, and stores its elements in their streams: all of them or none, one letter of
/// the wrapper after another. The caller must not drop this, or elements may be stored whose letter stays.
pub(crate) async fn resend(
    app: &App,
    handle: &WrapperHandle,
    number: u64,
) -> Result<(), LetterError> {
    let _turn = handle.shared.resending.lock().await;
    let letters = handle.letters.clone();
    let letter = tokio::task::spawn_blocking(move || letters.peer_letter(number)).await;
    let letter = letter.map_err(|_| LetterError::StillDead("interrupted".to_owned()))??;
    let batch = batch(app, &handle.file, &letter).map_err(LetterError::StillDead)?;
    let still = |text: String| LetterError::StillDead(text);
    let mut entries = Vec::with_capacity(batch.parts.len());
    for part in &batch.parts {
        let refusal = refusal(app, &handle.file, &part.stream);
        refusal.map_or(Ok(()), |reason| Err(still(reason)))?;
        let spec = StreamSpec {
            name: part.stream.to_string(),
            schema: part.definition.schema.clone(),
            source: wrapper_key(&handle.file.name),
            level: part.definition.level.or(handle.file.keys.level),
        };
        let spec = spec.of_renamed(app);
        let is_new = app.catalogue.get(&spec.name).is_none();
        let entry = spec.define(app).await;
        let entry = entry.map_err(|error| still(error.to_string()))?;
        if is_new {
            let device = app.devices.announced_with(&entry.name);
            let entity = stream_entity(
                &handle.file,
                &entry.name,
                &part.definition,
                device.as_deref(),
            );
            app.registrar.publish(vec![entity]).await;
        }
        let schema = entry.log.schema();
        for element in &part.elements {
            let checked = schema.check(element).map_err(|error| error.to_string());
            checked.and_then(|()| check_size(element)).map_err(still)?;
        }
        entries.push(entry);
    }
    // All are queued before the first is waited for: the log takes them together, or refuses the later ones.
    let mut queued = Vec::new();
    for (part, entry) in batch.parts.iter().zip(entries) {
        for piece in pieces(&part.elements) {
            // Without a position at the origin, as the batch to which they belonged is past.
            let appended = entry.append(piece).await;
            queued.push(appended.map_err(|error| still(error.to_string()))?);
        }
    }
    for appended in queued {
        appended.await.map_err(|error| still(error.to_string()))?;
    }
    if let Some(stream) = letter.stream() {
        let received = letter.received().0;
        let mut loss = Loss::now(stream, LossKind::Restored, DEAD_LETTER, 1);
        loss.times = Some((received, received));
        app.observability.ledger.note(loss);
    }
    Ok(handle.letters.sent_again(number).await?)
}

/// The elements of a dead letter, at least one.
fn batch(app: &Shared, file: &Arc<WrapperFile>, letter: &PeerLetter) -> Result<Batch, String> {
    let batch = match letter {
        PeerLetter::Message(message) => file.decode(&message.bytes, message.received)?,
        PeerLetter::Beginning(_) => {
            let text = "only the beginning of the message is kept, because it is too long \
                (hint: let its sender send it again in parts, and discard the letter)";
            return Err(text.to_owned());
        }
        PeerLetter::Element(refused) => {
            let definition = definition(app, file, refused);
            let element = refused.element_for(&definition.schema)?;
            let mut batch = Batch::default();
            batch.push(
                &refused.stream.as_str().into(),
                &Arc::new(definition),
                element,
            );
            batch
        }
    };
    if batch.elements() == 0 {
        let text = "the message has no element by the present file of the wrapper \
            (hint: discard the letter if nothing of it is to be stored)";
        return Err(text.to_owned());
    }
    Ok(batch)
}

/// The present definition of the stream that refused an element: that of the file, or of the stream if it is of this
/// wrapper, or else the one that the element came with.
fn definition(app: &Shared, file: &WrapperFile, refused: &RefusedElement) -> StreamDefinition {
    let name = &refused.stream;
    let mut fixed = file.fixed_streams().into_iter();
    if let Some((_, definition)) = fixed.find(|(fixed, _)| fixed == name) {
        return definition;
    }
    let key = wrapper_key(&file.name);
    let own = app
        .catalogue
        .get(name)
        .filter(|entry| entry.source() == key);
    StreamDefinition {
        schema: own.map_or_else(|| refused.schema.clone(), |entry| entry.log.schema()),
        ..StreamDefinition::default()
    }
}

/// Elements in pieces that the log takes at once.
fn pieces(elements: &[StreamElement]) -> impl Iterator<Item = &[StreamElement]> {
    let mut left = elements;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = left.iter().take_while(|element| {
            bytes += element_weight(element);
            bytes <= PIECE_BYTES
        });
        let count = fits.count().max(1).min(left.len());
        let piece;
        (piece, left) = left.split_at(count);
        (!piece.is_empty()).then_some(piece)
    })
}

/// An element that its stream refused, as JSON.
pub(crate) fn shown(refused: &RefusedElement) -> String {
    match refused.element() {
        Ok(element) => store::shown(&element, &refused.schema),
        Err(error) => error,
    }
}

/// Discards a dead letter.
pub(crate) async fn discard(letters: &Arc<DeadLetters>, number: u64) -> Result<(), LetterError> {
    let letters = letters.clone();
    let discarded = tokio::task::spawn_blocking(move || letters.discard(Some(&[number]))).await;
    discarded.map_err(|_| LetterError::StillDead("interrupted".to_owned()))??;
    Ok(())
}
