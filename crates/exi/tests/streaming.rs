//! A stream read from a source in pieces of any size decodes as from memory, and the drained pieces
//! of an encoder form the whole stream.

use std::sync::Arc;

use chappe_exi::{
    Alignment, Cause, Decoder, Encoder, HeaderOptions, Options, Schema, Source, text,
};

/// Supplies a stream in pieces of `size` bytes.
struct Pieces<'s> {
    rest: &'s [u8],
    size: usize,
    fail: bool,
}

impl Source for Pieces<'_> {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, String> {
        if self.rest.is_empty() && self.fail {
            return Err("the line is dead".to_owned());
        }
        let count = self.size.min(self.rest.len()).min(buffer.len());
        let (piece, rest) = self.rest.split_at(count);
        buffer[..count].copy_from_slice(piece);
        self.rest = rest;
        Ok(count)
    }
}

fn layouts() -> impl Iterator<Item = Options> {
    use Alignment::{BitPacked, ByteAligned, PreCompression};
    let plain = [BitPacked, ByteAligned, PreCompression].map(|alignment| Options {
        alignment,
        block_size: 7,
        ..Options::default()
    });
    let compressed = Options {
        compression: true,
        block_size: 7,
        ..Options::default()
    };
    plain.into_iter().chain([compressed])
}

fn document() -> String {
    let entry = |n: u32| {
        let text = "grün, größer und länger. Plain words behind them, some of them ".repeat(3);
        format!("<entry number='{n}'>{text}{n}</entry>\n")
    };
    let entries: String = (0..60).map(entry).collect();
    format!("<log>{entries}</log>")
}

fn events(
    reading: &mut chappe_exi::StreamReader<'_, '_>,
) -> Result<Vec<String>, chappe_exi::Error> {
    let mut events = Vec::new();
    while let Some(event) = reading.next_event()? {
        events.push(format!("{event:?}"));
    }
    Ok(events)
}

#[test]
fn source_pieces_of_any_size_decode_alike() {
    let schema = Arc::new(Schema::none());
    let mut decoder = Decoder::new(schema.clone());
    let document = document();
    for options in layouts() {
        let header = HeaderOptions {
            cookie: true,
            options: true,
        };
        let mut encoder = Encoder::new(schema.clone());
        let stream = text::encode(&mut encoder, &options, header, document.as_bytes());
        let stream = stream.expect("it is a document").to_vec();
        let mut whole = decoder.begin(&stream, None).expect("the header is whole");
        let whole = events(&mut whole).expect("the stream is whole");
        for size in [1, 2, 7, 300, 100_000] {
            let mut pieces = Pieces {
                rest: &stream,
                size,
                fail: false,
            };
            let mut reading = decoder.begin_source(&mut pieces, None).expect("a header");
            assert_eq!(
                events(&mut reading).as_ref(),
                Ok(&whole),
                "{size} {options:?}"
            );
            assert_eq!(reading.bit_offset().div_ceil(8), stream.len() as u64);
        }
        let (short, failing) = (&stream[..stream.len() / 2], [false, true]);
        for fail in failing {
            let mut pieces = Pieces {
                rest: short,
                size: 5,
                fail,
            };
            let mut reading = decoder.begin_source(&mut pieces, None).expect("a header");
            let cause = events(&mut reading)
                .expect_err("half a stream is incomplete")
                .cause;
            match fail {
                true => assert_eq!(cause, Cause::Source("the line is dead".to_owned())),
                false => assert!(
                    matches!(cause, Cause::Truncated | Cause::Inflate),
                    "{cause}"
                ),
            }
        }
    }
}

#[test]
fn drained_pieces_form_the_stream() {
    let schema = Arc::new(Schema::none());
    let mut encoder = Encoder::new(schema);
    let document = document();
    for options in layouts() {
        let header = HeaderOptions::default();
        let whole = text::encode(&mut encoder, &options, header, document.as_bytes());
        let whole = whole.expect("it is a document").to_vec();
        let mut writing = encoder.begin(&options).expect("valid options");
        let mut pieces = Vec::new();
        let mut drains = 0;
        let read = text::read(
            document.as_bytes(),
            &options,
            Default::default(),
            &mut |event| {
                writing.event(event)?;
                writing.drain(|bytes| {
                    drains += usize::from(!bytes.is_empty());
                    pieces.extend_from_slice(bytes);
                });
                Ok(())
            },
        );
        read.expect("it is a document");
        pieces.extend_from_slice(writing.finish().expect("it has ended"));
        assert_eq!(pieces, whole);
        assert!(drains > 10, "{drains}");
    }
}
