//! The source side: what a protocol implements so that its messages become elements.

use std::future::Future;
use std::pin::Pin;

use serde_json::{Map, Value};

use crate::{Batch, Inputs, Mark, NodeParts, ShareExceeded};

/// The future of one step of a wrapper or an exporter.
pub type Step<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A step failed. The host ends the wrapper or exporter, and opens it again from the last stored mark
/// after a pause that grows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WrapperError {
    /// The peer cannot be reached, ended the connection, or broke its protocol.
    #[error("{text}")]
    Peer {
        /// What failed, with the peer's address or path.
        text: String,
        /// How to repair it, if known.
        hint: Option<String>,
    },
    /// The settings cannot work as they are.
    #[error("{text}")]
    Settings {
        /// The fault.
        text: String,
        /// How to repair it, if known.
        hint: Option<String>,
    },
    /// The command does not exist, or its arguments do not fit.
    #[error("{0}")]
    Command(String),
}

impl WrapperError {
    /// A fault of the peer without a hint.
    pub fn peer(text: impl Into<String>) -> Self {
        let (text, hint) = (text.into(), None);
        Self::Peer { text, hint }
    }

    /// A fault of the settings without a hint.
    pub fn settings(text: impl Into<String>) -> Self {
        let (text, hint) = (text.into(), None);
        Self::Settings { text, hint }
    }

    /// A mark that begins with its version, up to `known`, and cannot be read.
    pub(crate) fn unreadable_mark(mark: &Mark, known: u8, of: &str) -> Self {
        let text = format!("the stored mark is not one of {of}");
        match mark.bytes().first() {
            Some(found) if *found > known => Self::settings(format!(
                "{text} that this program reads: it has version {found}, known are versions up to {known}"
            ))
            .with_hint(
                "use the program that wrote it, or a newer one; under another name the wrapper starts over",
            ),
            _ => Self::settings(text),
        }
    }

    /// The same error with a hint.
    #[must_use]
    pub fn with_hint(mut self, text: impl Into<String>) -> Self {
        if let Self::Peer { hint, .. } | Self::Settings { hint, .. } = &mut self {
            *hint = Some(text.into());
        }
        self
    }

    /// How to repair it, if known.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Peer { hint, .. } | Self::Settings { hint, .. } => hint.as_deref(),
            Self::Command(_) => None,
        }
    }
}

/// A call of one of the `[[command]]`s of a wrapper's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Its name in the file.
    pub name: String,
    /// The arguments.
    pub arguments: Map<String, Value>,
}

/// A source of elements: one connection to a peer, in one protocol.
///
/// The host calls one step at a time:
/// 1. [`Wrapper::next`], unless the bytes of batches that are not stored yet reach the host's bound. A
///    wrapper whose peer can wait reads from it only here, so the bound holds the peer back.
/// 2. [`Wrapper::stored`], in the order of the batches, once a batch has reached the level of its
///    streams. Only here may the peer's messages be acknowledged.
/// 3. [`Wrapper::command`], at any time in between.
///
/// Marks: the host opens a wrapper with the mark of the last stored batch, or without one if there is
/// none. Where the peer can repeat what it sent after a mark, elements are stored exactly once.
///
/// The elements of a batch get their position at the origin from the host, unless they have one: a peer that numbers
/// its elements keeps its numbers.
///
/// A processor is a wrapper whose elements are made of those of other streams, its [`Wrapper::inputs`].
/// The host passes them by [`Wrapper::input`], one batch at a time; the next batch that
/// [`Wrapper::next`] returns is what became of them. The host stores it together with the positions of
/// the inputs. Its mark is the state that the processor is opened with again, or empty.
pub trait Wrapper: Send {
    /// The node that hosts it; called once, before the first step.
    ///
    /// # Errors
    /// The node lacks a part that the wrapper needs.
    fn attach(&mut self, node: &NodeParts) -> Result<(), WrapperError> {
        let _ = node;
        Ok(())
    }

    /// The streams that it reads, if it is a processor.
    fn inputs(&self) -> Option<&Inputs> {
        None
    }

    /// Passes elements of its inputs, with their positions, to a processor.
    ///
    /// # Errors
    /// The peer failed. The host opens the wrapper again and repeats the batch.
    fn input<'a>(&'a mut self, batch: &'a Batch) -> Step<'a, Result<(), WrapperError>> {
        let _ = batch;
        Box::pin(std::future::ready(Ok(())))
    }

    /// The next batch, at most [`crate::BATCH_BYTES_MAX`]. Dropping the future loses nothing: the next
    /// call continues where it was.
    ///
    /// # Errors
    /// The peer failed; see [`WrapperError`].
    fn next(&mut self) -> Step<'_, Result<Batch, WrapperError>>;

    /// Whether the peer repeats what was returned by [`Wrapper::next`] and not stored. If it does not, the host
    /// counts that as lost.
    fn repeats(&self) -> bool;

    /// So many elements of the batch with this mark do not fit their streams: they are dead letters now. Called
    /// before [`Wrapper::stored`] for this mark.
    fn refused(&mut self, mark: &Mark, elements: u64) {
        let _ = (mark, elements);
    }

    /// Like [`Wrapper::refused`], with the reason of the first one.
    fn refused_because(&mut self, mark: &Mark, elements: u64, reason: &str) {
        let _ = reason;
        self.refused(mark, elements);
    }

    /// The batch with this mark is not stored: its new streams exceed the share of its sender.
    fn exceeded(&mut self, mark: &Mark, exceeded: ShareExceeded) {
        let _ = (mark, exceeded);
    }

    /// The batch with this mark and all batches before it have reached the level of their streams.
    ///
    /// # Errors
    /// The peer cannot be reached.
    fn stored<'a>(&'a mut self, mark: &'a Mark) -> Step<'a, Result<(), WrapperError>> {
        let _ = mark;
        Box::pin(std::future::ready(Ok(())))
    }

    /// Calls a command at the peer; returns the peer's answer.
    ///
    /// # Errors
    /// There is no such command, the peer refused it, or it cannot be reached. The host goes on after
    /// [`WrapperError::Command`], and opens the wrapper again after any other.
    fn command<'a>(&'a mut self, command: &'a Command) -> Step<'a, Result<Value, WrapperError>> {
        let text = format!("this wrapper has no command {:?}", command.name);
        Box::pin(std::future::ready(Err(WrapperError::Command(text))))
    }

    /// Calls an operation of a device that the peer announced; returns what the peer answered.
    ///
    /// # Errors
    /// Like those of [`Wrapper::command`].
    fn operate<'a>(
        &'a mut self,
        device: &'a str,
        command: &'a Command,
    ) -> Step<'a, Result<Value, WrapperError>> {
        let text = format!("no device {device:?} has an operation {:?}", command.name);
        Box::pin(std::future::ready(Err(WrapperError::Command(text))))
    }
}
