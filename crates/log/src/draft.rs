//! Drafts: frames that are queued for the writer and have no offset in the log yet.

use crate::Level;
use crate::frame::{Body, Bookmark, CURSOR_MARK_BYTES, Definition, HEADER_BYTES, Kind, mark_body};

/// A frame to be written, without its offset.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) kind: Kind,
    pub(crate) stream: u32,
    pub(crate) epoch: u64,
    /// First number of records, or first number kept of a trim mark.
    pub(crate) first: u64,
    pub(crate) body: Body,
    pub(crate) level: Level,
    /// See [`crate::frame::Header::derived`].
    pub(crate) derived: bool,
    /// The stream's cursor from here on.
    pub(crate) bookmark: Option<Bookmark>,
}

impl Draft {
    /// The mark of opening or closing.
    pub(crate) fn mark(kind: Kind) -> Draft {
        let body = Body::from_bytes(Vec::new());
        Draft {
            kind,
            stream: 0,
            epoch: 0,
            first: 0,
            body,
            level: Level::Power,
            derived: false,
            bookmark: None,
        }
    }

    /// A stream's definition.
    pub(crate) fn definition(stream: u32, definition: &Definition) -> Draft {
        let epoch = definition.epochs.last().map_or(0, |(epoch, _)| *epoch);
        let body = Body::from_bytes(definition.encode());
        Draft {
            kind: Kind::Definition,
            stream,
            epoch,
            first: 0,
            body,
            level: Level::Power,
            derived: false,
            bookmark: None,
        }
    }

    /// The mark that a stream's records before a number (0: none) are trimmed. The writer adds the
    /// stream's cursor.
    pub(crate) fn trim(stream: u32, epoch: u64, before: u64, level: Level) -> Draft {
        Draft {
            kind: Kind::Trim,
            stream,
            epoch,
            first: before,
            body: Body::from_bytes(mark_body(before, None)),
            level,
            derived: false,
            bookmark: None,
        }
    }

    /// The mark that missing records were given up.
    pub(crate) fn lost(stream: u32, epoch: u64, from: u64, next: u64) -> Draft {
        Draft {
            kind: Kind::Lost,
            stream,
            epoch,
            first: from,
            body: Body::from_bytes(next.to_le_bytes().to_vec()),
            level: Level::Power,
            derived: false,
            bookmark: None,
        }
    }

    /// Number of copies written: frames that describe an entire stream must survive a bad
    /// sector.
    pub(crate) fn copies(&self) -> u64 {
        match self.kind {
            Kind::Definition | Kind::Trim => 2,
            Kind::Records | Kind::Fill | Kind::Lost | Kind::Open | Kind::Close => 1,
        }
    }

    /// Maximum length of its frames in bytes.
    pub(crate) fn written_bytes(&self) -> u64 {
        let body = match self.kind {
            Kind::Trim => CURSOR_MARK_BYTES as usize,
            _ => self.body.bytes.len(),
        };
        (HEADER_BYTES + body) as u64 * self.copies()
    }

    /// Whether it only sets a stream's cursor.
    pub(crate) fn sets_cursor(&self) -> bool {
        self.kind == Kind::Trim && self.first == 0
    }

    /// Whether it removes a stream.
    pub(crate) fn is_removal(&self) -> bool {
        self.kind == Kind::Definition
            && Definition::decode(&self.body.bytes).is_some_and(|it| it.is_removal())
    }

    /// Whether it may free space on the disk, and so may be written before other drafts.
    pub(crate) fn makes_room(&self) -> bool {
        (self.kind == Kind::Trim && self.first > 0) || self.is_removal()
    }
}
