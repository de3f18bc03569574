//! Splits standard output into lines, wherever the reads divide it.

use super::protocol::LINE_BYTES_MAX;

/// Bytes for which there is room before each read.
const READ_BYTES: usize = 64 << 10;

/// Bytes of standard output that have arrived and were not taken as lines yet.
#[derive(Debug, Default)]
pub struct Lines {
    buffer: Vec<u8>,
    /// Bytes of the buffer that were taken.
    start: usize,
    /// Bytes after `start` that have no line end.
    searched: usize,
    /// Whether the rest of a line that is too long is to be skipped.
    is_skipping: bool,
    end: Option<End>,
}

/// How standard output ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The program ended it: a last line may lack its line end.
    Whole,
    /// The program failed or was killed: a last line without a line end is a part of one.
    Cut,
}

/// A line of standard output, without its line end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line<'b> {
    /// A whole one.
    Whole(&'b [u8]),
    /// The first bytes of one that is longer than the limit.
    TooLong(&'b [u8]),
    /// The part of a line that was printed when the program failed or was killed.
    Cut(&'b [u8]),
}

impl Lines {
    /// Adds bytes that have arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.room().extend_from_slice(bytes);
    }

    /// No more bytes follow: what remains is the last line.
    pub fn end(&mut self, end: End) {
        self.end = Some(end);
    }

    /// Whether no more bytes follow.
    pub(super) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// The buffer to append arriving bytes to, with room for some.
    pub(super) fn room(&mut self) -> &mut Vec<u8> {
        self.buffer.drain(..self.start);
        self.start = 0;
        self.buffer.reserve(READ_BYTES);
        &mut self.buffer
    }

    /// The number of bytes that were not taken.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// The next line that is not blank, if it has arrived.
    pub fn take(&mut self) -> Option<Line<'_>> {
        let (start, end, kind): (_, _, fn(_) -> _) = loop {
            let rest = &self.buffer[self.start..];
            let found = rest[self.searched..].iter().position(|byte| *byte == b'\n');
            let (length, taken, is_whole) = match found {
                Some(found) => {
                    let length = self.searched + found;
                    (length, length + 1, true)
                }
                None => (rest.len(), rest.len(), self.end.is_some()),
            };
            let is_too_long = length > LINE_BYTES_MAX;
            if taken == 0 || !(is_whole || is_too_long) {
                self.searched = rest.len();
                return None;
            }
            let start = self.start;
            self.start += taken;
            self.searched = 0;
            let was_skipping = std::mem::replace(&mut self.is_skipping, !is_whole);
            let line = &self.buffer[start..start + length.min(LINE_BYTES_MAX)];
            let line = match is_too_long {
                true => line,
                false => line.strip_suffix(b"\r").unwrap_or(line),
            };
            if !was_skipping && !line.iter().all(u8::is_ascii_whitespace) {
                let is_cut = found.is_none() && self.end == Some(End::Cut);
                let kind = match is_too_long {
                    true => Line::TooLong,
                    false if is_cut => Line::Cut,
                    false => Line::Whole,
                };
                break (start, start + line.len(), kind);
            }
        };
        Some(kind(&self.buffer[start..end]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The lines of bytes that arrive in pieces, taken after each.
    fn lines<'b>(pieces: impl IntoIterator<Item = &'b [u8]>) -> Vec<(bool, Vec<u8>)> {
        lines_until(pieces, End::Whole)
    }

    fn lines_until<'b>(
        pieces: impl IntoIterator<Item = &'b [u8]>,
        end: End,
    ) -> Vec<(bool, Vec<u8>)> {
        let (mut lines, mut taken) = (Lines::default(), Vec::new());
        let mut take = |lines: &mut Lines| {
            while let Some(line) = lines.take() {
                taken.push(match line {
                    Line::Whole(line) => (true, line.to_vec()),
                    Line::TooLong(line) | Line::Cut(line) => (false, line.to_vec()),
                });
            }
        };
        for piece in pieces {
            lines.push(piece);
            take(&mut lines);
        }
        lines.end(end);
        take(&mut lines);
        assert_eq!(lines.held_bytes(), 0);
        taken
    }

    #[test]
    fn blank_lines_and_carriage_returns_are_dropped() {
        let taken = lines([&b"a\r\n\n  \n\r\nb \n c"[..]]);
        let expected = [&b"a"[..], b"b ", b" c"].map(|line| (true, line.to_vec()));
        assert_eq!(taken, expected);
    }

    #[test]
    fn only_the_end_of_a_killed_program_cuts_a_line() {
        for (text, last) in [("a\nb", "b"), ("a\nb\n", "")] {
            let taken = lines_until([text.as_bytes()], End::Cut);
            let cut: Vec<_> = taken.iter().filter(|(is_whole, _)| !is_whole).collect();
            assert_eq!(cut.len(), usize::from(!last.is_empty()), "{text:?}");
            assert!(
                cut.iter().all(|(_, line)| line == last.as_bytes()),
                "{text:?}"
            );
            assert!(
                lines([text.as_bytes()])
                    .iter()
                    .all(|(is_whole, _)| *is_whole)
            );
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_cut_and_its_rest_is_skipped() {
        for length in [LINE_BYTES_MAX, LINE_BYTES_MAX + 1, 3 * LINE_BYTES_MAX] {
            let mut text = vec![b'x'; length];
            text.extend(b"\nnext\n");
            let expected = [
                (
                    length <= LINE_BYTES_MAX,
                    vec![b'x'; length.min(LINE_BYTES_MAX)],
                ),
                (true, b"next".to_vec()),
            ];
            assert!(lines([&text[..]]) == expected, "{length} at once");
            assert!(
                lines(text.chunks(100_000)) == expected,
                "{length} in pieces"
            );
            let last = &text[..length];
            assert!(
                lines(last.chunks(100_000)) == expected[..1],
                "{length} at the end"
            );
        }
    }

    #[test]
    fn a_line_without_an_end_is_not_held() {
        let mut lines = Lines::default();
        let piece = vec![b'x'; 1 << 20];
        for _ in 0..64 {
            lines.push(&piece);
            while lines.take().is_some() {}
            assert!(lines.held_bytes() <= LINE_BYTES_MAX);
        }
    }

    proptest! {
        #[test]
        fn pieces_give_the_same_lines(
            text in "[ab \r\n{}:é]{0,300}",
            cuts in proptest::collection::vec(0_usize..300, 0..20),
        ) {
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|at| at.min(bytes.len())).collect();
            cuts.sort_unstable();
            let starts = [0].into_iter().chain(cuts.iter().copied());
            let ends = cuts.iter().copied().chain([bytes.len()]);
            let pieces = starts.zip(ends).map(|(start, end)| &bytes[start..end]);
            let expected: Vec<(bool, Vec<u8>)> = text
                .split('\n')
                .map(|line| line.strip_suffix('\r').unwrap_or(line))
                .filter(|line| !line.bytes().all(|byte| byte.is_ascii_whitespace()))
                .map(|line| (true, line.as_bytes().to_vec()))
                .collect();
            prop_assert_eq!(lines(pieces), expected);
        }
    }
}
