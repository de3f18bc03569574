//! The body of one request: consecutive records of the input, with their lines.

use chappe_stream::lines::Format;

/// Records and bytes of one batch; reason: an answer comes within some hundred milliseconds, and a lost
/// one costs little.
const RECORDS_MAX: usize = 5_000;
const BYTES_MAX: usize = 512 << 10;

/// A batch.
pub(super) struct Batch {
    format: Format,
    /// The first record of a CSV, which every body begins with.
    header: Option<Vec<u8>>,
    body: Vec<u8>,
    /// The line of each record in the body and in the input.
    lines: Vec<(u64, u64)>,
    /// Lines in the body so far.
    count: u64,
    first: u64,
}

impl Batch {
    pub(super) fn new(format: Format) -> Self {
        Self {
            format,
            header: None,
            body: Vec::new(),
            lines: Vec::new(),
            count: 0,
            first: 1,
        }
    }

    /// Keeps the first record of a CSV as its header.
    pub(super) fn takes_as_header(&mut self, record: &[u8]) -> bool {
        let is_header = self.format == Format::Csv && self.header.is_none();
        if is_header {
            self.header = Some(record.to_vec());
        }
        is_header
    }

    /// Appends the record with this number, which is on `line` of the input.
    pub(super) fn push(&mut self, number: u64, line: u64, record: &[u8]) {
        if self.lines.is_empty() {
            self.first = number;
            if let Some(header) = &self.header {
                self.body.extend_from_slice(header);
                self.body.push(b'\n');
                self.count = lines_of(header);
            }
        }
        self.lines.push((self.count + 1, line));
        self.body.extend_from_slice(record);
        self.body.push(b'\n');
        self.count += lines_of(record);
    }

    /// The number of its first record.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    pub(super) fn body(&self) -> &[u8] {
        &self.body
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.lines.len() >= RECORDS_MAX || self.body.len() >= BYTES_MAX
    }

    pub(super) fn clear(&mut self) {
        self.body.clear();
        self.lines.clear();
        self.count = 0;
    }

    /// The line of the input that is `line` of the body.
    pub(super) fn input_line(&self, line: u64) -> u64 {
        let before = self.lines.partition_point(|(body, _)| *body <= line);
        let record = before
            .checked_sub(1)
            .and_then(|index| self.lines.get(index));
        // The header is the first line of both.
        record.map_or(1, |(_, input)| *input)
    }
}

/// Lines that a record takes, with its line break.
fn lines_of(record: &[u8]) -> u64 {
    1 + record.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// A cell of a CSV.
pub(super) fn cell(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_line_is_found_in_the_input() {
        let mut batch = Batch::new(Format::Csv);
        assert!(batch.takes_as_header(b"a,\"b\nc\""));
        assert!(!batch.takes_as_header(b"1,2"));
        batch.push(7, 30, b"1,\"x\ny\"");
        batch.push(8, 33, b"2,z");
        assert_eq!(batch.body(), b"a,\"b\nc\"\n1,\"x\ny\"\n2,z\n");
        assert_eq!(batch.first(), 7);
        assert_eq!(
            [1, 3, 4, 5].map(|line| batch.input_line(line)),
            [1, 30, 30, 33]
        );
    }
}
