//! One wrapper or exporter with the smallest host, for `check/gsn`: elements and marks go to a file, one line for each
//! batch, and are synced before the batch counts as stored. It may be killed at any time.
//!
//!     gsn_peer wrap WRAPPER.toml FILE
//!     gsn_peer export EXPORTER.toml STREAM COUNT FILE PAUSE_MS
//!
//! PAUSE_MS is the time between two batches of 500 elements.

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use chappe_stream::{
    Epoch, Field, FieldType, Position, StreamElement, StreamSchema, Timestamp, Value,
};
use chappe_wrappers::{
    Batch, Exporter, ExporterFile, ExporterOpening, Mark, StreamDefinition, Wrapper, WrapperFile,
    WrapperOpening,
};

/// Time before a wrapper or exporter that failed is opened again.
const PAUSE: Duration = Duration::from_millis(500);
/// Elements of a batch of the exporter.
const BATCH: u64 = 500;
/// The time of the element with the number 0, in nanoseconds.
const BEGIN: i64 = 1_700_000_000_000_000_000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["wrap", file, output] => wrap(file, output).await,
        ["export", file, stream, count, output, pause_ms] => {
            let pause = Duration::from_millis(pause_ms.parse()?);
            export(file, stream, count.parse()?, output, pause).await
        }
        _ => Err(
            "gsn_peer wrap WRAPPER.toml FILE | export EXPORTER.toml STREAM COUNT FILE PAUSE_MS"
                .into(),
        ),
    }
}

/// The complete lines of a file, which is cut after the last one.
fn lines(path: &str) -> Result<(File, Vec<String>), Box<dyn Error>> {
    let mut options = OpenOptions::new();
    let options = options.read(true).append(true).create(true);
    let mut file = options.open(path)?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let end = text.rfind('\n').map_or(0, |at| at + 1);
    file.set_len(end as u64)?;
    Ok((file, text[..end].lines().map(str::to_owned).collect()))
}

async fn wrap(file: &str, output: &str) -> Result<(), Box<dyn Error>> {
    let text = std::fs::read_to_string(file)?;
    let file = WrapperFile::parse(Path::new(file), &text)?;
    let (mut output, lines) = lines(output)?;
    let mark = lines.last().and_then(|line| line.split(' ').next());
    let mut mark = mark.map(hex_decode).map(Mark::new).transpose()?;
    println!("ready");
    loop {
        let condition = Default::default();
        let opening = WrapperOpening {
            file: &file,
            mark: mark.clone(),
            condition,
            notes: Default::default(),
            drops: Default::default(),
            inbox: tokio::sync::mpsc::channel(1).1,
        };
        let mut wrapper = (file.kind()?.open)(opening)?;
        let error = store(&mut *wrapper, &mut output, &mut mark).await;
        eprintln!(
            "{}",
            error
                .err()
                .map_or_else(String::new, |error| error.to_string())
        );
        tokio::time::sleep(PAUSE).await;
    }
}

/// Stores batches until the wrapper fails: the mark, and the time in milliseconds and the values of each element.
async fn store(
    wrapper: &mut dyn Wrapper,
    output: &mut File,
    mark: &mut Option<Mark>,
) -> Result<(), Box<dyn Error>> {
    loop {
        let batch = wrapper.next().await?;
        let mut line = hex(batch.mark.bytes());
        for element in batch.parts.iter().flat_map(|part| &part.elements) {
            line += &format!(" {}", element.source_time.0 / 1_000_000);
        }
        for undecodable in &batch.undecodable {
            line += " undecodable";
            eprintln!("undecodable: {}", undecodable.reason);
        }
        line.push('\n');
        output.write_all(line.as_bytes())?;
        output.sync_data()?;
        *mark = Some(batch.mark.clone());
        wrapper.stored(&batch.mark).await?;
    }
}

async fn export(
    file: &str,
    stream: &str,
    count: u64,
    output: &str,
    pause: Duration,
) -> Result<(), Box<dyn Error>> {
    let text = std::fs::read_to_string(file)?;
    let file = ExporterFile::parse(Path::new(file), &text)?;
    let (mut output, lines) = lines(output)?;
    let done = lines.last().map(|line| line.parse()).transpose()?;
    let mut done: u64 = done.unwrap_or(0);
    println!("ready");
    while done < count {
        let mut exporter = (file.kind()?.open)(ExporterOpening {
            file: &file,
            notes: Default::default(),
            drops: Default::default(),
        })?;
        if let Err(error) = deliver(
            &mut *exporter,
            stream,
            (&mut done, count),
            &mut output,
            pause,
        )
        .await
        {
            eprintln!("{error}");
            tokio::time::sleep(PAUSE).await;
        }
    }
    println!("done");
    // A directory may still be asked.
    std::future::pending().await
}

/// Exports until the exporter fails.
async fn deliver(
    exporter: &mut dyn Exporter,
    stream: &str,
    (done, count): (&mut u64, u64),
    output: &mut File,
    pause: Duration,
) -> Result<(), Box<dyn Error>> {
    let definition = Arc::new(definition());
    while *done < count {
        let last = count.min(*done + BATCH);
        let mut batch = Batch::default();
        for number in *done + 1..=last {
            batch.push(&stream.into(), &definition, element(number));
        }
        let written = exporter.write(&batch).await?;
        for refused in written.refused {
            eprintln!("refused: {} {}", refused.position, refused.reason);
        }
        writeln!(output, "{last}")?;
        output.sync_data()?;
        *done = last;
        tokio::time::sleep(pause).await;
    }
    // Keeps the sockets open.
    println!("done");
    std::future::pending().await
}

fn definition() -> StreamDefinition {
    let field = |(name, field_type): (&str, FieldType)| Field {
        name: name.to_owned(),
        field_type,
        unit: None,
        observed_property: None,
        description: None,
    };
    let fields = [
        ("number", FieldType::Integer),
        ("level", FieldType::Double),
        ("note", FieldType::Text),
    ];
    StreamDefinition {
        schema: StreamSchema {
            fields: fields.into_iter().map(field).collect(),
            key: None,
        },
        ..Default::default()
    }
}

fn element(number: u64) -> StreamElement {
    let position = Position {
        epoch: Epoch(1),
        sequence: number,
    };
    StreamElement {
        position,
        source_time: Timestamp(BEGIN + number as i64 * 1_000_000),
        receive_time: Timestamp(0),
        key: None,
        values: vec![
            Value::Integer((1 << 53) + number as i64),
            Value::Double(number as f64 / 8.0),
            Value::Text(format!("größe {number}")),
        ],
        quality: Default::default(),
        origin: None,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hex_decode(text: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    (0..text.len()).step_by(2).filter_map(byte).collect()
}
