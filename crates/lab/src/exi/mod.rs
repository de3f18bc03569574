//! EXI compared with EXIficient, with parsing the same text and with general compression of it.
//!
//! Three documents (a notification, 100 integers, 64 kB of text) in every layout, schema-less, with
//! a schema, and strict. Encoding reads typed events and decoding returns them, as in a program;
//! one encoder and one decoder are reused from message to message. A figure is the median of
//! batches.

mod documents;
mod peer;
mod recorded;
mod reference;

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chappe_exi::{Alignment, Decoder, Encoder, HeaderOptions, Options, Schema, XsdSource, text};

use crate::process::Folder;
use crate::{Error, Limit, Reference, Report, Settings, timing};
use documents::Document;
use recorded::{Recorded, weight};

/// Batches of which the median counts.
const BATCHES: usize = 9;

/// A layout by the name that it has in rows and for the peer.
const LAYOUTS: [(&str, Alignment, bool); 4] = [
    ("bit", Alignment::BitPacked, false),
    ("byte", Alignment::ByteAligned, false),
    ("pre", Alignment::PreCompression, false),
    ("compressed", Alignment::BitPacked, true),
];

/// The use of a schema.
#[derive(Clone, Copy, PartialEq)]
enum Informed {
    Not,
    Schema,
    Strict,
}

const INFORMED: [(&str, Informed); 3] = [
    ("schema-less", Informed::Not),
    ("schema", Informed::Schema),
    ("strict", Informed::Strict),
];

/// The time of one combination.
struct Measured {
    document: &'static str,
    informed: Informed,
    layout: &'static str,
    bytes: usize,
    encode_us: f64,
    decode_us: f64,
}

/// Runs the scenario.
pub(crate) fn run(settings: &Settings) -> Result<Report, Error> {
    let mut report = Report::new("exi", settings.seed);
    let batch = Duration::from_millis(if settings.quick { 3 } else { 20 });
    let folder = Folder::new("exi")?;
    let schema = schema(folder.path())?;
    compiled(&schema, &mut report)?;
    let documents = documents::all(settings.seed);
    let mut all = Vec::new();
    for document in &documents {
        (settings.progress)(document.name);
        reference::rows(document, batch, &mut report)?;
        for (name, informed) in INFORMED {
            for layout in LAYOUTS {
                let schema = match informed {
                    Informed::Not => Arc::new(Schema::none()),
                    _ => schema.clone(),
                };
                all.push(measure(document, schema, (name, informed), layout, batch)?);
            }
        }
    }
    for one in &all {
        row(&mut report, "", one);
    }
    peer::rows(&folder, &documents, &all, settings, &mut report)?;
    targets(&all, &documents, batch, &mut report)?;
    Ok(report)
}

fn label(one: &Measured) -> String {
    let informed = INFORMED
        .iter()
        .find(|(_, informed)| *informed == one.informed);
    let informed = informed.map_or("", |(name, _)| name);
    format!("{}, {informed}, {}", one.document, one.layout)
}

fn row(report: &mut Report, peer: &str, one: &Measured) {
    let label = label(one);
    let note = format!("{} bytes", one.bytes);
    report.row(&format!("{peer}{label}: encode"), one.encode_us, "µs", note);
    report.row(&format!("{peer}{label}: decode"), one.decode_us, "µs", "");
}

/// The median of batches, in microseconds per run.
fn median_us(batch: Duration, mut work: impl FnMut()) -> f64 {
    let mut runs = 1u32;
    loop {
        let begin = Instant::now();
        (0..runs).for_each(|_| work());
        if begin.elapsed() >= batch || runs > 1 << 28 {
            break;
        }
        runs *= 2;
    }
    timing::median_s(BATCHES, runs, work) * 1e6
}

/// Writes the schema documents to a folder and compiles them.
fn schema(folder: &Path) -> Result<Arc<Schema>, Error> {
    for (name, text) in documents::SCHEMAS {
        let file = folder.join(name);
        std::fs::write(&file, text).map_err(Error::io(format!("writing {}", file.display())))?;
    }
    let source = |name: &str| {
        let found = documents::SCHEMAS.iter().find(|(known, _)| *known == name);
        found.map(|(name, text)| XsdSource {
            name: (*name).to_owned(),
            document: text.as_bytes().to_vec(),
        })
    };
    let first = source(documents::WHOLE).into_iter().collect();
    let schema = Schema::from_xsd(first, &mut |_, location| source(location));
    Ok(Arc::new(
        schema.map_err(Error::failed("compiling the schema"))?,
    ))
}

/// Time to load compiled grammars.
fn compiled(schema: &Schema, report: &mut Report) -> Result<(), Error> {
    let bytes = schema.to_bytes();
    let loading = Error::failed("loading compiled grammars");
    Schema::from_bytes(&bytes).map_err(loading)?;
    let us = median_us(Duration::from_millis(5), || {
        black_box(Schema::from_bytes(&bytes).is_ok());
    });
    let note = format!(
        "{} bytes, SOAP, addressing, eventing, DPWS and the payloads",
        bytes.len()
    );
    report.row("compiled grammars: load", us, "µs", note);
    Ok(())
}

fn measure(
    document: &Document,
    schema: Arc<Schema>,
    (name, informed): (&str, Informed),
    (layout, alignment, compression): (&'static str, Alignment, bool),
    batch: Duration,
) -> Result<Measured, Error> {
    let options = Options {
        alignment,
        compression,
        strict: informed == Informed::Strict,
        ..Options::default()
    };
    let what = format!("{}, {name}, {layout}", document.name);
    let failed = || Error::failed::<String>(what.clone());
    let mut encoder = Encoder::new(schema.clone());
    let header = HeaderOptions::default();
    let stream = text::encode(&mut encoder, &options, header, document.text.as_bytes());
    let stream = stream
        .map_err(|error| failed()(error.to_string()))?
        .to_vec();
    let mut decoder = Decoder::new(schema);
    let recorded = Recorded::of(&mut decoder, &stream, &options);
    let recorded = recorded.map_err(|error| failed()(error.to_string()))?;
    let mut encode = || -> Result<usize, chappe_exi::Error> {
        let mut writing = encoder.begin(&options)?;
        for event in &recorded.events {
            writing.event(event.borrowed())?;
        }
        Ok(writing.finish()?.len())
    };
    let bytes = encode().map_err(|error| failed()(error.to_string()))?;
    if bytes != stream.len() {
        return Err(failed()(format!(
            "{bytes} bytes from events, {} from text",
            stream.len()
        )));
    }
    let encode_us = median_us(batch, || {
        black_box(encode().unwrap_or_default());
    });
    let decode_us = median_us(batch, || {
        let mut sum = 0;
        if let Ok(mut reading) = decoder.begin(&stream, Some(&options)) {
            while let Ok(Some(event)) = reading.next_event() {
                sum = weight(&event).wrapping_add(sum);
            }
        }
        black_box(sum);
    });
    Ok(Measured {
        document: document.name,
        informed,
        layout,
        bytes,
        encode_us,
        decode_us,
    })
}

fn targets(
    all: &[Measured],
    documents: &[Document],
    batch: Duration,
    report: &mut Report,
) -> Result<(), Error> {
    let find = |document, informed, layout| {
        let mut all = all.iter();
        let found = all.find(|one| {
            one.document == document && one.informed == informed && one.layout == layout
        });
        found.ok_or_else(|| Error::Failed(format!("{document}, {layout} was not measured")))
    };
    let parse = |document: &str, report: &Report| {
        let name = format!("{document}: quick-xml parses the text");
        let row = report.rows.iter().find(|row| row.name == name);
        let missing = || format!("{document} was not parsed by quick-xml");
        let row = row.ok_or_else(missing)?;
        Ok(Reference::new("quick-xml", row.value))
    };
    let both = |one: &Measured| [("encode", one.encode_us), ("decode", one.decode_us)];
    for (document, most) in [(documents::NOTIFICATION, 1.0), (documents::INTEGERS, 0.5)] {
        for (what, us) in both(find(document, Informed::Strict, "bit")?) {
            let name = format!("{document}, strict, bit: {what}");
            let parsed = parse(document, report);
            report.compare(name, (us, "µs"), parsed, Limit::AtMost(most));
        }
    }
    for document in documents.iter().filter(|it| it.name == documents::TEXT) {
        let copy_us = reference::copy(document, batch);
        let name = format!("{}: floor, a copy of the text", document.name);
        report.row(&name, copy_us, "µs", "memcpy of the same bytes");
        for (layout, most) in [("bit", 30.0), ("byte", 12.0)] {
            for (what, us) in both(find(document.name, Informed::Strict, layout)?) {
                let name = format!("{}, strict, {layout}: {what}", document.name);
                let copy = Reference::new("a copy", copy_us);
                report.target(name, (us, "µs"), copy, Limit::AtMost(most));
            }
        }
    }
    for document in documents {
        let compressed = find(document.name, Informed::Schema, "compressed")?;
        let (deflate_us, inflate_us) = reference::deflate(document, batch)?;
        let name = format!("{}, schema, compressed", document.name);
        let note = "the contents of the blocks, by the DEFLATE library alone";
        report.row(&format!("{name}: floor, deflate"), deflate_us, "µs", note);
        report.row(&format!("{name}: floor, inflate"), inflate_us, "µs", note);
        let deflate = Reference::new("deflate alone", deflate_us);
        let encoded = (compressed.encode_us, "µs");
        report.target(
            format!("{name}: encode"),
            encoded,
            deflate,
            Limit::AtMost(1.3),
        );
    }
    Ok(())
}
