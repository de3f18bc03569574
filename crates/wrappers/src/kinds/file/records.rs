//! Divides the bytes of a file into records: lines, or in a CSV the rows, whose cells in quotes may contain
//! line ends.

use chappe_format::config::CsvConfig;

/// Longest record in bytes; a longer one becomes a dead letter.
pub(super) const RECORD_BYTES_MAX: usize = 256 << 10;
/// Bytes of a longer one that are kept.
const KEPT_BYTES: usize = 4 << 10;

/// How the rows of a CSV are written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows {
    delimiter: u8,
    quote: Option<u8>,
    comment: Option<u8>,
    skip_lines: u32,
    has_header: bool,
}

impl Rows {
    pub(super) fn of(config: &CsvConfig) -> Self {
        let byte = |text: &str| text.bytes().next();
        let option = |option: &Option<toml::Spanned<String>>| {
            option.as_ref().map(|text| byte(text.get_ref()))
        };
        Self {
            delimiter: option(&config.delimiter).flatten().unwrap_or(b','),
            quote: option(&config.quote).unwrap_or(Some(b'"')),
            comment: option(&config.comment).flatten(),
            skip_lines: config.skip_lines,
            has_header: match &config.header {
                Some(header) => *header.get_ref(),
                None => config.columns.is_none(),
            },
        }
    }
}

/// A complete record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Record {
    /// The bytes before the first row: skipped lines and the header.
    Prologue(Vec<u8>),
    /// A line or a row, with its end.
    Row(Vec<u8>),
    /// The beginning of one that is too long.
    Long(Vec<u8>),
}

/// The divider of one file.
#[derive(Debug)]
pub(super) struct Records {
    rows: Option<Rows>,
    bytes: Vec<u8>,
    is_long: bool,
    is_in_quotes: bool,
    /// Lines to skip before the header, and whether the header is to come.
    skips: u32,
    awaits_header: bool,
    prologue: Vec<u8>,
}

impl Records {
    pub(super) fn new(rows: Option<Rows>) -> Self {
        Self {
            rows,
            bytes: Vec::new(),
            is_long: false,
            is_in_quotes: false,
            skips: rows.map_or(0, |rows| rows.skip_lines),
            awaits_header: rows.is_some_and(|rows| rows.has_header),
            prologue: Vec::new(),
        }
    }

    /// Whether rows follow, not the prologue.
    pub(super) fn is_past_prologue(&self) -> bool {
        self.skips == 0 && !self.awaits_header
    }

    /// Takes bytes up to a line end at most; returns the record that they complete.
    pub(super) fn push(&mut self, part: &[u8]) -> Option<Record> {
        let room = match self.is_long {
            true => KEPT_BYTES.saturating_sub(self.bytes.len()),
            false => RECORD_BYTES_MAX - self.bytes.len(),
        };
        if part.len() > room {
            self.is_long = true;
            self.bytes.extend_from_slice(&part[..room]);
            self.bytes.truncate(KEPT_BYTES);
            // A quote without an end costs this record and no more.
            self.is_in_quotes = false;
        } else {
            self.bytes.extend_from_slice(part);
            self.follow_quotes(part);
        }
        match part.ends_with(b"\n") && !self.is_in_quotes {
            true => self.finish(),
            false => None,
        }
    }

    fn follow_quotes(&mut self, part: &[u8]) {
        let Some((delimiter, quote)) = self.rows.and_then(|it| Some((it.delimiter, it.quote?)))
        else {
            return;
        };
        if self.skips > 0 {
            return;
        }
        let mut before = self.bytes[..self.bytes.len() - part.len()].last().copied();
        for byte in part {
            let is_cell_start = before.is_none_or(|it| it == delimiter || it == b'\n');
            if *byte == quote && (self.is_in_quotes || is_cell_start || before == Some(quote)) {
                self.is_in_quotes = !self.is_in_quotes;
            }
            before = Some(*byte);
        }
    }

    /// Ends the file: what is left is a record.
    pub(super) fn finish(&mut self) -> Option<Record> {
        self.is_in_quotes = false;
        let bytes = std::mem::take(&mut self.bytes);
        if std::mem::take(&mut self.is_long) {
            return Some(Record::Long(bytes));
        }
        let is_blank = bytes.iter().all(u8::is_ascii_whitespace);
        if !self.is_past_prologue() {
            let comment = self.rows.and_then(|rows| rows.comment);
            let is_comment = comment.is_some() && bytes.first().copied() == comment;
            self.prologue.extend(bytes);
            if self.skips > 0 {
                self.skips -= 1;
            } else if !is_blank && !is_comment {
                self.awaits_header = false;
            }
            let is_complete = self.is_past_prologue();
            return is_complete.then(|| Record::Prologue(std::mem::take(&mut self.prologue)));
        }
        (!is_blank).then_some(Record::Row(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rows(toml: &str) -> Rows {
        let config: CsvConfig = toml::from_str(toml).unwrap();
        Rows::of(&config)
    }

    fn divide(rows: Option<Rows>, text: &[u8], cuts: &[usize]) -> Vec<Record> {
        let (mut records, mut found) = (Records::new(rows), Vec::new());
        let mut rest = text;
        let mut cuts = cuts.iter().cycle();
        while !rest.is_empty() {
            let cut = cuts
                .next()
                .map_or(rest.len(), |cut| (*cut).clamp(1, rest.len()));
            let (piece, after) = rest.split_at(cut);
            for part in piece.split_inclusive(|byte| *byte == b'\n') {
                found.extend(records.push(part));
            }
            rest = after;
        }
        found.extend(records.finish());
        found
    }

    #[test]
    fn rows_end_outside_quotes_and_after_the_prologue() {
        let row = |text: &str| Record::Row(text.as_bytes().to_vec());
        let prologue = |text: &str| Record::Prologue(text.as_bytes().to_vec());
        let text = b"skip \"me\n# note\n\na;b\n1;\"x\n\"\"y\"\n2;5\" disk\n3;z";
        let csv = rows("skip_lines = 1\ncomment = \"#\"\ndelimiter = \";\"");
        let expected = [
            prologue("skip \"me\n# note\n\na;b\n"),
            row("1;\"x\n\"\"y\"\n"),
            row("2;5\" disk\n"),
            row("3;z"),
        ];
        assert_eq!(divide(Some(csv), text, &[]), expected);
        assert_eq!(
            divide(Some(rows("columns = [\"a\"]")), b"1\n", &[]),
            [row("1\n")]
        );
        assert_eq!(divide(None, b"{}\n\n[\n", &[]), [row("{}\n"), row("[\n")]);
    }

    proptest! {
        /// However a file is read, its records are the same, and none is longer than the bound.
        #[test]
        fn records_do_not_depend_on_pieces(
            text in prop::collection::vec(
                prop_oneof![
                    Just(b'"'), Just(b','), Just(b'\n'), Just(b'a'), Just(b'#'), any::<u8>(),
                ],
                0..300,
            ),
            cuts in prop::collection::vec(1_usize..20, 1..10),
            is_csv in any::<bool>(),
        ) {
            let rows = is_csv.then(|| rows("comment = \"#\""));
            prop_assert_eq!(divide(rows, &text, &cuts), divide(rows, &text, &[]));
        }

        #[test]
        fn long_records_are_cut(extra in 1_usize..10_000, cut in 1_usize..9_999) {
            let mut text = vec![b'x'; RECORD_BYTES_MAX + extra];
            text.extend(b"\nshort\n");
            let found = divide(None, &text, &[cut]);
            prop_assert_eq!(found.len(), 2);
            let is_cut = matches!(&found[0], Record::Long(bytes) if bytes.len() <= KEPT_BYTES);
            prop_assert!(is_cut);
            prop_assert_eq!(&found[1], &Record::Row(b"short\n".to_vec()));
        }
    }
}
