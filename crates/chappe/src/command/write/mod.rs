//! `chappe write STREAM`: stores elements from the command line or from an input of any length.
//!
//! The input is sent in batches, and each is numbered for its producer: a batch whose answer was lost is
//! sent again, and the node stores it once. With `--producer` a later run does the same with the whole
//! input.

mod batch;
mod send;

use std::fs::File;
use std::io::{IsTerminal, Read};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use chappe_stream::lines::{Format, Splitter};
use chappe_terminal::counted;
use serde_json::json;
use tokio::sync::mpsc;

use super::network;
use super::node_client::NodeClient;
use crate::cli::Write;
use crate::output::{self, Failure, Outcome};

use batch::{Batch, cell};
use send::{Sender, Totals};

/// Bytes that are read at once.
const READ_BYTES: usize = 64 << 10;
/// Pieces that wait while a batch is on its way.
const PIECES_MAX: usize = 8;
/// Refused lines that are printed; the others are counted.
const PRINTED_MAX: u64 = 20;
/// Time between two lines of progress.
const PROGRESS_PERIOD: Duration = Duration::from_secs(1);

/// Runs the command.
pub(crate) fn run(flags: Write, json: bool) -> Outcome {
    network::block_on(async move {
        tokio::select! {
            result = write(flags, json) => result,
            result = network::interrupted() => result,
        }
    })
}

async fn write(flags: Write, json: bool) -> Outcome {
    let node = NodeClient::new(&flags.node)?;
    let producer = match flags.producer {
        Some(producer) => producer,
        None => format!("chappe-{:016x}", chappe_transport::seed_number()?),
    };
    let format = match flags.ndjson {
        true => Format::Ndjson,
        false => Format::Csv,
    };
    let sender = Sender::new(node, &flags.stream, &producer, format, flags.retry_for);
    let mut writer = Writer {
        sender,
        totals: Totals::default(),
        batch: Batch::new(format),
        next: 1,
        is_input: flags.values.is_empty(),
        printed: 0,
        started: Instant::now(),
        shown: Instant::now(),
    };
    if flags.values.is_empty() {
        let pieces = read(flags.file)?;
        writer.copy(format, pieces).await?;
    } else {
        let text = row(&flags.values)?;
        writer
            .split(&mut Splitter::new(format), text.as_bytes(), true)
            .await?;
        writer.flush().await.map_err(|failure| {
            // The row that was made of the values has a header, the command line has none.
            match failure.message.strip_prefix("the header: ") {
                Some(reason) => Failure {
                    message: reason.to_owned(),
                    ..failure
                },
                None => failure,
            }
        })?;
    }
    writer.end(&flags.stream, json)
}

/// The values of one element as CSV.
fn row(values: &[String]) -> Result<String, Failure> {
    let (mut names, mut cells) = (Vec::new(), Vec::new());
    for value in values {
        let (name, text) = value.split_once('=').ok_or_else(|| {
            Failure::new(format!("{value:?} is not FIELD=VALUE"))
                .coded("argument_invalid")
                .hint("to read an input, give --csv or --ndjson")
        })?;
        names.push(cell(name));
        cells.push(cell(text));
    }
    Ok(format!("{}\n{}\n", names.join(","), cells.join(",")))
}

type Pieces = mpsc::Receiver<std::io::Result<Vec<u8>>>;

/// Reads the input on a thread of its own.
fn read(file: Option<PathBuf>) -> Result<Pieces, Failure> {
    let mut input: Box<dyn Read + Send> = match file {
        Some(path) => Box::new(File::open(&path).map_err(|error| {
            Failure::new(format!("cannot open {}: {error}", path.display()))
                .coded("file_unreadable")
        })?),
        None => {
            if std::io::stdin().is_terminal() {
                output::note("reading standard input; end it with Ctrl-D");
            }
            Box::new(std::io::stdin())
        }
    };
    let (sender, pieces) = mpsc::channel(PIECES_MAX);
    std::thread::spawn(move || {
        loop {
            let mut bytes = vec![0; READ_BYTES];
            let piece = match input.read(&mut bytes) {
                Ok(0) => return,
                Ok(length) => {
                    bytes.truncate(length);
                    Ok(bytes)
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
            let is_last = piece.is_err();
            if sender.blocking_send(piece).is_err() || is_last {
                return;
            }
        }
    });
    Ok(pieces)
}

struct Writer {
    sender: Sender,
    totals: Totals,
    batch: Batch,
    /// The number of the next record.
    next: u64,
    /// Whether the elements have lines; those of the command line have none.
    is_input: bool,
    printed: u64,
    started: Instant,
    shown: Instant,
}

impl Writer {
    /// Sends an input. What has arrived is sent at once: the input may be a sensor's.
    async fn copy(&mut self, format: Format, mut pieces: Pieces) -> Outcome {
        let mut splitter = Splitter::new(format);
        while let Some(piece) = pieces.recv().await {
            self.split(&mut splitter, &piece?, false).await?;
            while let Ok(piece) = pieces.try_recv() {
                self.split(&mut splitter, &piece?, false).await?;
            }
            self.flush().await?;
        }
        self.split(&mut splitter, b"", true).await?;
        self.flush().await
    }

    async fn split(&mut self, splitter: &mut Splitter, bytes: &[u8], is_last: bool) -> Outcome {
        let mut records = Vec::new();
        let mut take = |record: chappe_stream::lines::Record<'_>| {
            records.push((record.line, record.bytes.map(<[u8]>::to_vec)));
            Ok(())
        };
        splitter.push(bytes, &mut take)?;
        if is_last {
            splitter.finish(&mut take)?;
        }
        for (line, record) in records {
            match record {
                Some(record) if self.batch.takes_as_header(&record) => {}
                Some(record) => {
                    self.batch.push(self.next, line, &record);
                    self.next += 1;
                    if self.batch.is_full() {
                        self.flush().await?;
                    }
                }
                None => {
                    // Its number is used up, so that a later run agrees.
                    self.flush().await?;
                    self.next += 1;
                    self.totals.refused += 1;
                    self.print_refusal(line, "it is too long");
                }
            }
        }
        Ok(())
    }

    async fn flush(&mut self) -> Outcome {
        if self.batch.is_empty() {
            return Ok(());
        }
        let refusals = self.sender.send(&self.batch, &mut self.totals).await?;
        for (line, reason) in refusals {
            self.print_refusal(self.batch.input_line(line), &reason);
        }
        self.batch.clear();
        if self.shown.elapsed() >= PROGRESS_PERIOD {
            self.shown = Instant::now();
            let seconds = self.started.elapsed().as_secs_f64();
            let Totals { stored, .. } = self.totals;
            let rate = stored as f64 / seconds;
            let stored = counted(stored, "element");
            output::progress(format_args!("{stored} stored, {rate:.0}/s"));
        }
        Ok(())
    }

    fn print_refusal(&mut self, line: u64, reason: &str) {
        self.printed += 1;
        if !self.is_input {
            output::note(format_args!("refused: {reason}"));
        } else if self.printed <= PRINTED_MAX {
            output::note(format_args!("line {line}: {reason}"));
        }
    }

    fn end(self, stream: &str, json: bool) -> Outcome {
        let Totals {
            stored,
            duplicates,
            refused,
            last,
        } = self.totals;
        if json {
            output::json(&json!({
                "stream": stream, "stored": stored, "duplicates": duplicates, "refused": refused,
                "last": last,
            }));
        } else {
            let mut text = format!("stored {} in {stream}", counted(stored, "element"));
            if let Some(last) = last {
                text.push_str(&format!(", the last at {last}"));
            }
            if duplicates > 0 {
                text.push_str(&format!("; stored already: {duplicates}"));
            }
            output::line(text);
        }
        if self.printed > PRINTED_MAX {
            let more = self.printed - PRINTED_MAX;
            output::note(format_args!("and {} refused", counted(more, "more line")));
        }
        match refused {
            0 => Ok(()),
            _ => Err(Failure::negative()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_become_a_row() {
        let values = ["a=1", "note=x,\"y\"", "empty="].map(str::to_owned);
        let text = row(&values).unwrap();
        assert_eq!(text, "a,note,empty\n1,\"x,\"\"y\"\"\",\n");
        assert!(row(&["a".to_owned()]).is_err());
    }
}
