//! Generated schemas and documents compared with EXIficient: each implementation decodes the
//! other's streams, and uncompressed streams have the same bytes.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use chappe_exi::{Alignment, Decoder, Encoder, HeaderOptions, Options, Schema, XsdSource, text};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use crate::generated::{document, model, options, xsd};
use crate::infoset::{self, Item};
use crate::peer::items;

/// Number of generated cases.
pub(crate) const TRIED: usize = 300;

struct Own {
    xsd: String,
    document: String,
    options: Options,
    stream: Vec<u8>,
    schema: Arc<Schema>,
}

/// Generates the same cases each time.
fn all() -> Vec<Own> {
    let mut runner = TestRunner::deterministic();
    let drawn = prop::collection::vec(any::<u16>(), 1..60);
    let strategy = (model(), options(), drawn);
    let mut made = Vec::new();
    while made.len() < TRIED {
        let tree = strategy.new_tree(&mut runner).expect("it is drawn");
        let (model, options, drawn) = tree.current();
        let options = Options {
            // The documents have one root and no self-contained elements.
            fragment: false,
            self_contained: false,
            // With a representation map, EXIficient ignores restricted character sets.
            datatype_representation_map: Vec::new(),
            ..options
        };
        let xsd = xsd(&model);
        let source = XsdSource {
            name: "r.xsd".into(),
            document: xsd.clone().into_bytes(),
        };
        let schema = Schema::from_xsd(vec![source], &mut |_, _| None).expect("it is a schema");
        let schema = Arc::new(schema);
        let (document, _) = document(&model, &options, &drawn);
        let mut encoder = Encoder::new(schema.clone());
        let header = HeaderOptions::default();
        let stream = text::encode(&mut encoder, &options, header, document.as_bytes());
        let stream = stream.expect("it is a document").to_vec();
        made.push(Own {
            xsd,
            document,
            options,
            stream,
            schema,
        });
    }
    made
}

/// The options as the letters of the suite, and the other fields of a job.
fn job(options: &Options, schema: &str) -> String {
    let preserve = options.preserve;
    let letters = |pairs: &[(bool, char)]| -> String {
        let set = pairs.iter().filter(|(set, _)| *set);
        set.map(|(_, letter)| letter).collect()
    };
    let kept = letters(&[
        (preserve.comments, 'c'),
        (preserve.dtd, 'd'),
        (preserve.lexical_values, 'l'),
        (preserve.pis, 'p'),
        (preserve.prefixes, 'x'),
    ]);
    let flags = letters(&[
        (options.strict, 'v'),
        (options.compression, 'c'),
        (options.alignment == Alignment::ByteAligned, 'a'),
        (options.alignment == Alignment::PreCompression, 'p'),
    ]);
    let number = |number: Option<u32>| number.map_or(String::new(), |number| number.to_string());
    let (capacity, length) = (options.value_partition_capacity, options.value_max_length);
    let map = options.datatype_representation_map.iter();
    let map = map.map(|one| format!("{}-{}", one.datatype.local, one.representation.local));
    let map: Vec<String> = map.collect();
    [
        kept,
        flags,
        number(capacity),
        number(length),
        options.block_size.to_string(),
        schema.to_owned(),
        map.join(" "),
    ]
    .join("\t")
}

pub(crate) fn jobs(work: &Path, list: &mut String) {
    for (number, own) in all().iter().enumerate() {
        let file = |name: &str| work.join(format!("own-{number}{name}"));
        let (schema, source) = (file(".xsd"), file(".xml"));
        for (path, bytes) in [
            (&schema, own.xsd.as_bytes()),
            (&source, own.document.as_bytes()),
            (&file("-ours.exi"), &own.stream),
        ] {
            std::fs::write(path, bytes).expect("the work directory can be written");
        }
        let job = job(&own.options, &schema.display().to_string());
        for (what, from, to) in [
            ("decode", file("-ours.exi"), file(".txt")),
            ("encode", source.clone(), file("-theirs.exi")),
        ] {
            let (from, to, base) = (from.display(), to.display(), source.display());
            // Writing to a string does not fail.
            let _ = writeln!(
                list,
                "own-{what}-{number}\t{what}\t{job}\t{from}\t{to}\t{base}"
            );
        }
    }
}

/// The number of streams that each side decodes, and of uncompressed streams with the same bytes.
#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) read_by_them: usize,
    pub(crate) read_by_us: usize,
    pub(crate) same: usize,
    pub(crate) not_compressed: usize,
    pub(crate) failures: Vec<String>,
}

fn read(own: &Own, stream: &[u8]) -> Result<Vec<Item>, String> {
    let mut decoder = Decoder::new(own.schema.clone());
    let reading = decoder.begin(stream, Some(&own.options));
    let mut reading = reading.map_err(|error| error.to_string())?;
    let mut found = Vec::new();
    while let Some(event) = reading.next_event().map_err(|error| error.to_string())? {
        found.push(Item::of(&event));
    }
    Ok(found)
}

pub(crate) fn results(work: &Path) -> Results {
    let mut results = Results::default();
    for (number, own) in all().iter().enumerate() {
        let file = |name: &str| work.join(format!("own-{number}{name}"));
        let ours = read(own, &own.stream).expect("what was encoded decodes");
        let text = std::fs::read_to_string(file(".txt")).map_err(|error| error.to_string());
        let they = text
            .and_then(|text| items(&text, false))
            .and_then(|wanted| infoset::compare(&wanted, &ours, &own.options));
        let stream = std::fs::read(file("-theirs.exi")).unwrap_or_default();
        let we = read(own, &stream);
        let we = we.and_then(|found| {
            let wanted: Vec<Item> = ours.iter().map(Item::untyped).collect();
            infoset::compare(&wanted, &found, &own.options)
        });
        results.read_by_them += usize::from(they.is_ok());
        results.read_by_us += usize::from(we.is_ok());
        let failed = [("they read", they.err()), ("we read", we.err())];
        for (what, error) in failed {
            let said = error.map(|error| format!("{what} own-{number}: {error}"));
            results.failures.extend(said);
        }
        if !own.options.compression {
            results.not_compressed += 1;
            results.same += usize::from(stream == own.stream);
            if stream != own.stream {
                let failed = format!("other bytes of own-{number}: {:?}", own.options);
                results.failures.push(failed);
            }
        }
    }
    results
}
