//! `chappe exi info`: the header of a stream, and the bytes of each kind of item.

use std::collections::BTreeMap;

use chappe_exi::{
    Alignment, Decoder, Encoder, Event, Header, Metadata, Options, SchemaId, StreamReader, text,
};
use serde_json::json;

use super::flags::Info;
use crate::output::{self, Outcome, Table};

/// Kinds of events.
const KINDS: [&str; 7] = [
    "start of elements",
    "attributes",
    "character data",
    "end of elements",
    "namespaces",
    "comments and instructions",
    "document",
];

/// Events and bits of a kind or a name.
#[derive(Default, Clone, Copy)]
struct Share {
    count: u64,
    bits: u64,
}

/// Bits by kind, and by name.
#[derive(Default)]
struct Shares {
    kinds: [Share; KINDS.len()],
    names: BTreeMap<(String, &'static str), Share>,
    open: Vec<String>,
}

impl Shares {
    /// The counters of an event: its kind, and its name with the part of it.
    fn counters(&mut self, event: &Event<'_>) -> (usize, Option<(String, &'static str)>) {
        match event {
            Event::StartElement(name) => {
                self.open.push(name.local.to_owned());
                (0, Some((name.local.to_owned(), "element")))
            }
            Event::Attribute(name, _) => (1, Some((name.local.to_owned(), "attribute"))),
            Event::Characters(_) => (2, self.open.last().map(|name| (name.clone(), "value"))),
            Event::EndElement => (3, self.open.pop().map(|name| (name, "element"))),
            Event::Namespace { .. } => (4, None),
            Event::Comment(_) | Event::ProcessingInstruction { .. } => (5, None),
            _ => (6, None),
        }
    }

    fn add(&mut self, (kind, name): (usize, Option<(String, &'static str)>), bits: u64) {
        self.kinds[kind].count += 1;
        self.kinds[kind].bits += bits;
        if let Some(name) = name {
            let share = self.names.entry(name).or_default();
            // The end of an element counts with its start.
            share.count += u64::from(KINDS[kind] != "end of elements");
            share.bits += bits;
        }
    }

    /// All events of a stream without blocks.
    fn of(reading: &mut StreamReader<'_, '_>) -> Result<Self, chappe_exi::Error> {
        let mut shares = Self::default();
        let mut before = reading.bit_offset();
        while let Some(event) = reading.next_event()? {
            let counters = shares.counters(&event);
            let after = reading.bit_offset();
            shares.add(counters, after - before);
            before = after;
        }
        Ok(shares)
    }

    /// Names by bits, most first.
    fn names(&self, most: usize) -> Vec<(&str, &'static str, Share)> {
        let rows = self.names.iter();
        let rows = rows.map(|((name, what), share)| (name.as_str(), *what, *share));
        let mut rows: Vec<_> = rows.collect();
        rows.sort_by_key(|(.., share)| std::cmp::Reverse(share.bits));
        rows.truncate(most);
        rows
    }
}

pub(super) fn run(flags: &Info, json: bool) -> Outcome {
    let stream = super::read(&flags.input)?;
    let (schema, given) = super::of_stream(&flags.coding, &stream)?;
    let failed = |error: chappe_exi::Error| super::in_file(&flags.input, text::Error::Exi(error));
    let mut decoder = Decoder::new(schema.clone());
    let mut reading = decoder.begin(&stream, given.as_ref()).map_err(failed)?;
    let mut summary = Summary {
        bytes: stream.len(),
        header: *reading.header(),
        options: reading.options().clone(),
        header_bits: reading.bit_offset(),
        shares: Shares::default(),
        plain_bytes: None,
    };
    if summary.options.channels() {
        // A block separates values from structure: count the same events in document order, which take
        // as many bytes without compression.
        let plain = Options {
            compression: false,
            alignment: Alignment::ByteAligned,
            ..summary.options.clone()
        };
        let mut encoder = Encoder::new(schema.clone());
        let mut writing = encoder.begin(&plain).map_err(failed)?;
        while let Some(event) = reading.next_event().map_err(failed)? {
            writing.event(event).map_err(failed)?;
        }
        let bytes = writing.finish().map_err(failed)?;
        summary.plain_bytes = Some(bytes.len());
        let mut decoder = Decoder::new(schema);
        let mut reading = decoder.begin(bytes, Some(&plain)).map_err(failed)?;
        summary.shares = Shares::of(&mut reading).map_err(failed)?;
    } else {
        summary.shares = Shares::of(&mut reading).map_err(failed)?;
    }
    if json {
        output::json(&summary.json(flags.top));
    } else {
        summary.print(flags.top);
    }
    Ok(())
}

/// The printed facts of a stream.
struct Summary {
    bytes: usize,
    header: Header,
    options: Options,
    header_bits: u64,
    shares: Shares,
    /// Bytes of the same events in document order, for a stream in blocks.
    plain_bytes: Option<usize>,
}

impl Summary {
    /// Options with other values than the default, by their standard names.
    fn options(&self) -> Vec<(&'static str, String)> {
        let options = &self.options;
        let mut shown = vec![(
            "alignment",
            match (options.compression, options.alignment) {
                (true, _) => "in blocks, compressed",
                (_, Alignment::BitPacked) => "bit-packed",
                (_, Alignment::ByteAligned) => "byte-alignment",
                (_, Alignment::PreCompression) => "pre-compression",
            }
            .to_owned(),
        )];
        for (name, set) in [
            ("compression", options.compression),
            ("strict", options.strict),
            ("fragment", options.fragment),
            ("preserve.comments", options.preserve.comments),
            ("preserve.pis", options.preserve.pis),
            ("preserve.dtd", options.preserve.dtd),
            ("preserve.prefixes", options.preserve.prefixes),
            ("preserve.lexicalValues", options.preserve.lexical_values),
            ("selfContained", options.self_contained),
        ] {
            if set {
                shown.push((name, "true".to_owned()));
            }
        }
        let schema_id = match &options.schema_id {
            SchemaId::Absent => None,
            SchemaId::None => Some("none (xsi:nil)".to_owned()),
            SchemaId::BuiltInTypes => Some("the types of XML Schema alone (empty)".to_owned()),
            SchemaId::Named(id) => Some(id.clone()),
        };
        shown.extend(schema_id.map(|id| ("schemaId", id)));
        let number = |value: Option<u32>| value.map(|value| value.to_string());
        let block_size = Some(options.block_size).filter(|size| *size != Options::BLOCK_SIZE);
        for (name, value) in [
            ("blockSize", number(block_size)),
            ("valueMaxLength", number(options.value_max_length)),
            (
                "valuePartitionCapacity",
                number(options.value_partition_capacity),
            ),
        ] {
            shown.extend(value.map(|value| (name, value)));
        }
        for entry in &options.datatype_representation_map {
            let (from, to) = (&entry.datatype, &entry.representation);
            let text = format!(
                "{{{}}}{} as {{{}}}{}",
                from.namespace, from.local, to.namespace, to.local
            );
            shown.push(("datatypeRepresentationMap", text));
        }
        if let Some(profile) = options.profile {
            shown.push(("profile", format!("{profile:?}")));
        }
        let names = options.metadata.iter().filter_map(|part| match part {
            Metadata::Start(name) => Some(format!("{{{}}}{}", name.namespace, name.local)),
            _ => None,
        });
        let names: Vec<String> = names.collect();
        if !names.is_empty() {
            shown.push(("user-defined metadata", names.join(", ")));
        }
        shown
    }

    fn print(&self, top: usize) {
        let mut table = Table::new(["HEADER", ""]);
        let yes = |set: bool| if set { "yes" } else { "no" }.to_owned();
        table.row(["bytes of the stream".to_owned(), self.bytes.to_string()]);
        table.row(["cookie $EXI".to_owned(), yes(self.header.cookie)]);
        let version = if self.header.preview {
            "preview"
        } else {
            "final, 1"
        };
        table.row(["version".to_owned(), version.to_owned()]);
        let options = if self.header.options {
            "in the header"
        } else {
            "not in the header; from the flags"
        };
        table.row(["options".to_owned(), options.to_owned()]);
        for (name, value) in self.options() {
            table.row([format!("  {name}"), value]);
        }
        output::line(&table);
        output::line("");
        let bits: u64 = self.shares.kinds.iter().map(|share| share.bits).sum();
        if let Some(plain) = self.plain_bytes {
            output::line(format_args!(
                "Uncompressed and in document order the stream has {plain} bytes:"
            ));
        }
        let row = |share: Share| {
            let bytes = share.bits as f64 / 8.0;
            let percent = 100.0 * share.bits as f64 / (bits.max(1)) as f64;
            [
                share.count.to_string(),
                format!("{bytes:.1}"),
                format!("{percent:.1}"),
            ]
        };
        let mut table = Table::new(["KIND", "COUNT", "BYTES", "%"]);
        for (kind, share) in KINDS.iter().zip(&self.shares.kinds) {
            if share.count > 0 {
                table.row([(*kind).to_owned()].into_iter().chain(row(*share)));
            }
        }
        let header = self.header_bits as f64 / 8.0;
        table.row(["header".to_owned(), String::new(), format!("{header:.1}")]);
        output::line(&table);
        output::line("");
        let mut table = Table::new(["NAME", "PART", "COUNT", "BYTES", "%"]);
        for (name, what, share) in self.shares.names(top) {
            let head = [name.to_owned(), what.to_owned()];
            table.row(head.into_iter().chain(row(share)));
        }
        output::line(&table);
    }

    fn json(&self, top: usize) -> serde_json::Value {
        let options: serde_json::Map<String, serde_json::Value> = self
            .options()
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.into()))
            .collect();
        let kinds = KINDS.iter().zip(&self.shares.kinds);
        let kinds = kinds
            .filter(|(_, share)| share.count > 0)
            .map(|(kind, share)| json!({ "what": kind, "count": share.count, "bits": share.bits }));
        let names = self.shares.names(top).into_iter().map(|(name, what, share)| {
            json!({ "name": name, "of_it": what, "count": share.count, "bits": share.bits })
        });
        json!({
            "bytes": self.bytes,
            "cookie": self.header.cookie,
            "preview": self.header.preview,
            "options_in_header": self.header.options,
            "options": options,
            "header_bits": self.header_bits,
            "bytes_before_compression": self.plain_bytes,
            "kinds": kinds.collect::<Vec<_>>(),
            "names": names.collect::<Vec<_>>(),
        })
    }
}
