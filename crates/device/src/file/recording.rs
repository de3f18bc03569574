//! Recordings: comma separated text with a line of column names; lines that start with `#` are comments.

use std::path::Path;

/// The largest recording: it is kept in memory.
const RECORDING_BYTES_MAX: u64 = 64 << 20;

/// A recording in memory, as text.
#[derive(Debug, Clone)]
pub struct Recording {
    text: String,
    columns: Vec<String>,
    /// The offset and line number of each row.
    rows: Vec<(u32, u32)>,
}

impl Recording {
    /// Reads a recording.
    ///
    /// # Errors
    /// A text for the error of the description.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let size = std::fs::metadata(path).map_err(|error| format!("{shown}: {error}"))?;
        if !size.is_file() {
            return Err(format!("{shown} is not a file"));
        }
        if size.len() > RECORDING_BYTES_MAX {
            return Err(format!(
                "{shown} is larger than {RECORDING_BYTES_MAX} bytes"
            ));
        }
        let text = std::fs::read_to_string(path).map_err(|error| format!("{shown}: {error}"))?;
        Self::parse(text).map_err(|problem| format!("{shown}: {problem}"))
    }

    fn parse(text: String) -> Result<Self, String> {
        let mut columns = Vec::new();
        let mut rows = Vec::new();
        let mut begin = 0;
        for (index, line) in text.split_inclusive('\n').enumerate() {
            let place = (begin, index + 1);
            begin += line.len();
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if columns.is_empty() {
                columns = line.split(',').map(|name| name.trim().to_owned()).collect();
                continue;
            }
            let cells = line.split(',').count();
            if cells != columns.len() {
                let wanted = columns.len();
                return Err(format!("line {} has {cells} cells, not {wanted}", place.1));
            }
            let narrow = |number| u32::try_from(number).map_err(|_| "too long".to_owned());
            rows.push((narrow(place.0)?, narrow(place.1)?));
        }
        if rows.is_empty() {
            return Err("it has no rows below the line of column names".to_owned());
        }
        Ok(Self {
            text,
            columns,
            rows,
        })
    }

    /// The names of the columns.
    #[must_use]
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// The index of a column.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column == name)
    }

    /// The number of rows; at least one.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// A cell; empty after the end.
    #[must_use]
    pub fn cell(&self, row: usize, column: usize) -> &str {
        let begin = self
            .rows
            .get(row)
            .map_or(self.text.len(), |row| row.0 as usize);
        let line = self.text[begin..].lines().next().unwrap_or_default();
        line.split(',').nth(column).unwrap_or_default().trim()
    }

    /// The line of the file that contains a row.
    pub(super) fn line(&self, row: usize) -> u32 {
        self.rows.get(row).map_or(0, |row| row.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_blank_lines_are_skipped() {
        let text = "# title\n\na, b\r\n1,x\r\n# gap\n 2 , y";
        let recording = Recording::parse(text.to_owned()).unwrap();
        assert_eq!(recording.columns(), ["a", "b"]);
        assert_eq!(recording.rows(), 2);
        assert_eq!(recording.cell(0, 1), "x");
        assert_eq!(recording.cell(1, 0), "2");
        assert_eq!(recording.cell(2, 0), "");
        assert_eq!(recording.line(1), 6);
        for bad in ["", "a,b\n", "a,b\n1\n", "# only\n"] {
            assert!(Recording::parse(bad.to_owned()).is_err(), "{bad:?}");
        }
    }
}
