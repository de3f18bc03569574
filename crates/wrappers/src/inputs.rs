//! Streams that a peer reads: the inputs of a processor, and the streams of an exporter.

use chappe_stream::check_name;

use crate::descriptor::StartKey;

/// Most bytes of the elements of one batch of inputs, as [`crate::Batch::weight`] estimates them, unless
/// one element alone has more. An eighth of a batch: what a processor makes of them is one batch.
pub const INPUT_BYTES_MAX: usize = crate::BATCH_BYTES_MAX / 8;

/// The streams to read, and where one that was never read starts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Inputs {
    /// Names, or prefixes ending in `*`.
    pub streams: Vec<String>,
    /// Where a stream that was never read starts.
    pub start: StartKey,
}

impl Inputs {
    /// Whether the stream of this name is one of them.
    #[must_use]
    pub fn selects(&self, stream: &str) -> bool {
        let selects = |selection: &String| match selection.strip_suffix('*') {
            Some(prefix) => stream.starts_with(prefix),
            None => stream == selection,
        };
        self.streams.iter().any(selects)
    }

    /// The first selection that is neither a name nor a prefix.
    pub(crate) fn fault(&self) -> Option<String> {
        let is_wrong = |selection: &&String| match selection.strip_suffix('*') {
            None => check_name(selection).is_err(),
            Some(prefix) => prefix.contains('*') || prefix.len() >= 128,
        };
        let wrong = self.streams.iter().find(is_wrong)?;
        Some(format!("{wrong:?} is neither a name nor a prefix"))
    }
}
