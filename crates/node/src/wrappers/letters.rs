//! Dead letters of wrappers: decoded again by the present settings, or discarded.

use std::sync::Arc;

use chappe_links::LinkError;
use chappe_wrappers::WrapperFile;

use super::store::{check_size, refusal};
use super::{WrapperHandle, wrapper_key};
use crate::clock;
use crate::completeness::{Loss, LossKind};
use crate::shared::App;
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
    let _turn = handle.resending.lock().await;
    let letters = handle.letters.clone();
    let message = tokio::task::spawn_blocking(move || letters.message(number)).await;
    let message = message.map_err(|_| LetterError::StillDead("interrupted".to_owned()))??;
    let batch = decode(&handle.file, &message.bytes).map_err(LetterError::StillDead)?;
    let still = |text: String| LetterError::StillDead(text);
    let mut entries = Vec::with_capacity(batch.parts.len());
    for part in &batch.parts {
        let refusal = refusal(app, &handle.file, &part.stream);
        refusal.map_or(Ok(()), |reason| Err(still(reason)))?;
        let spec = StreamSpec {
            name: part.stream.to_string(),
            schema: part.definition.schema.clone(),
            source: wrapper_key(&handle.file.name),
            level: part.definition.level,
        };
        let entry = spec.define(app).await;
        let entry = entry.map_err(|error| still(error.to_string()))?;
        let schema = entry.log.schema();
        for element in &part.elements {
            let checked = schema.check(element).map_err(|error| error.to_string());
            checked.and_then(|()| check_size(element)).map_err(still)?;
        }
        entries.push(entry);
    }
    for (part, entry) in batch.parts.iter().zip(entries) {
        // Without a position at the origin, as the batch to which they belonged is past.
        let appended = entry.append(&part.elements).await;
        let appended = appended.map_err(|error| still(error.to_string()))?;
        appended.await.map_err(|error| still(error.to_string()))?;
        let ledger = &app.observability.ledger;
        ledger.note(Loss::now(&part.stream, LossKind::Restored, "sent_again", 1));
    }
    Ok(handle.letters.sent_again(number).await?)
}

fn decode(file: &Arc<WrapperFile>, message: &[u8]) -> Result<chappe_wrappers::Batch, String> {
    file.decode(message, clock::now())
}

/// Discards a dead letter.
pub(crate) async fn discard(
    letters: &Arc<chappe_links::DeadLetters>,
    number: u64,
) -> Result<(), LetterError> {
    let letters = letters.clone();
    let discarded = tokio::task::spawn_blocking(move || letters.discard(Some(&[number]))).await;
    discarded.map_err(|_| LetterError::StillDead("interrupted".to_owned()))??;
    Ok(())
}
