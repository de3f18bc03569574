//! A message: one or more frames, sent and delivered as a unit (37/ZMTP, section Messages).

use bytes::Bytes;

/// One or more frames.
///
/// ```
/// use chappe_zmtp::Message;
/// let message = Message::from_frames([&b"topic"[..], b"payload"]).unwrap();
/// assert_eq!(message.len(), 2);
/// assert_eq!(message.first(), "topic");
/// assert_eq!(message.bytes(), 12);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    first: Bytes,
    // Separate, so that a message of one frame, the usual one, needs no allocation for a list.
    rest: Vec<Bytes>,
}

impl Message {
    /// A message of one frame.
    #[must_use]
    pub fn new(frame: impl Into<Bytes>) -> Self {
        Self {
            first: frame.into(),
            rest: Vec::new(),
        }
    }

    /// A message of these frames; `None` without a frame.
    pub fn from_frames<F: Into<Bytes>>(frames: impl IntoIterator<Item = F>) -> Option<Self> {
        let mut frames = frames.into_iter().map(Into::into);
        Some(Self {
            first: frames.next()?,
            rest: frames.collect(),
        })
    }

    /// Adds a frame at the end.
    pub fn push(&mut self, frame: impl Into<Bytes>) {
        self.rest.push(frame.into());
    }

    /// The first frame: the topic of a publication.
    #[must_use]
    pub const fn first(&self) -> &Bytes {
        &self.first
    }

    /// The last frame, which may be the first one.
    #[must_use]
    pub fn last(&self) -> &Bytes {
        self.rest.last().unwrap_or(&self.first)
    }

    /// The frame at `index`.
    #[must_use]
    pub fn frame(&self, index: usize) -> Option<&Bytes> {
        match index.checked_sub(1) {
            None => Some(&self.first),
            Some(index) => self.rest.get(index),
        }
    }

    /// The frames in order.
    pub fn frames(&self) -> impl ExactSizeIterator<Item = &Bytes> + Clone {
        Frames {
            message: self,
            next: 0,
        }
    }

    /// The frames in order, without copying.
    #[must_use]
    pub fn into_frames(mut self) -> Vec<Bytes> {
        self.rest.insert(0, self.first);
        self.rest
    }

    /// The number of frames; at least one.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a message is never empty")]
    pub fn len(&self) -> usize {
        1 + self.rest.len()
    }

    /// The size of all frames together.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.first.len() + self.rest.iter().map(Bytes::len).sum::<usize>()
    }
}

impl<F: Into<Bytes>> From<F> for Message {
    fn from(frame: F) -> Self {
        Self::new(frame)
    }
}

#[derive(Clone)]
struct Frames<'a> {
    message: &'a Message,
    next: usize,
}

impl<'a> Iterator for Frames<'a> {
    type Item = &'a Bytes;
    fn next(&mut self) -> Option<&'a Bytes> {
        let frame = self.message.frame(self.next)?;
        self.next += 1;
        Some(frame)
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.message.len() - self.next;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Frames<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_keep_their_order() {
        let mut message = Message::from(&b"a"[..]);
        message.push(&b""[..]);
        message.push(&b"c"[..]);
        let frames: Vec<_> = message.frames().cloned().collect();
        assert_eq!(frames, ["a", "", "c"]);
        assert_eq!(message.last(), "c");
        assert_eq!(message.frame(3), None);
        assert_eq!(Message::from_frames(frames.clone()), Some(message.clone()));
        assert_eq!(message.into_frames(), frames);
        assert_eq!(Message::from_frames(Vec::<Bytes>::new()), None);
    }
}
