//! References for the same text: parsing it, and general compression.

use std::hint::black_box;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use chappe_exi::{Alignment, Encoder, HeaderOptions, Options, text};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};
use quick_xml::events::Event;
use quick_xml::name::ResolveResult;
use quick_xml::{NsReader, XmlVersion};

use super::documents::Document;
use super::{median_us, schema};
use crate::process::Folder;
use crate::{Error, Report};

/// Parses with namespaces, attributes and unescaped values, as a program needs to get the same as
/// from EXI (except types). Returns a value from each event, or None if the text is not
/// well-formed.
fn parse(document: &str) -> Option<usize> {
    let mut reader = NsReader::from_str(document);
    let mut sum = 0usize;
    let of = |resolved: &ResolveResult<'_>| match resolved {
        ResolveResult::Bound(namespace) => namespace.0.len(),
        _ => 0,
    };
    loop {
        let (resolved, event) = reader.read_resolved_event().ok()?;
        match event {
            Event::Start(start) | Event::Empty(start) => {
                sum += of(&resolved) + start.local_name().into_inner().len();
                for attribute in start.attributes() {
                    let attribute = attribute.ok()?;
                    let (namespace, local) = reader.resolver().resolve_attribute(attribute.key);
                    sum += of(&namespace) + local.into_inner().len();
                    sum += attribute
                        .normalized_value(XmlVersion::default())
                        .ok()?
                        .len();
                }
            }
            Event::Text(text) => sum += text.len(),
            Event::Eof => return Some(sum),
            _ => sum += 1,
        }
    }
}

/// Rows of the text itself.
pub(super) fn rows(document: &Document, batch: Duration, report: &mut Report) -> Result<(), Error> {
    let (name, text) = (document.name, document.text.as_str());
    parse(text).ok_or_else(|| Error::Failed(format!("{name} is not well-formed")))?;
    let us = median_us(batch, || {
        black_box(parse(text));
    });
    let note = format!("{} bytes; namespaces, attributes", text.len());
    report.row(
        &format!("{name}: quick-xml parses the text"),
        us,
        "µs",
        note,
    );
    let (compressed, us, back_us) = deflated(text.as_bytes(), Compression::best(), batch)?;
    // Head and tail of a gzip file.
    let note = format!("{} bytes; level 9", compressed + 18);
    report.row(&format!("{name}: gzip of the text"), us, "µs", note);
    report.row(&format!("{name}: gunzip of the text"), back_us, "µs", "");
    match zstd(text.as_bytes()) {
        Some(bytes) => {
            let bytes = bytes as f64;
            report.row(
                &format!("{name}: zstd of the text"),
                bytes,
                "bytes",
                "level 19",
            );
        }
        None => {
            let skipped = format!("zstd of {name}: the program is not installed");
            report.skipped.push(skipped);
        }
    }
    Ok(())
}

/// The output of the program zstd for some bytes.
fn zstd(bytes: &[u8]) -> Option<usize> {
    let mut child = Command::new("zstd")
        .args(["-19", "-c", "-q", "--no-check"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut stdin = child.stdin.take()?;
    stdin.write_all(bytes).ok()?;
    drop(stdin);
    Some(child.wait_with_output().ok()?.stdout.len())
}

/// Microseconds of copying the text.
pub(super) fn copy(document: &Document, batch: Duration) -> f64 {
    let mut copy = vec![0; document.text.len()];
    median_us(batch, || {
        copy.copy_from_slice(black_box(document.text.as_bytes()));
        black_box(&mut copy);
    })
}

/// Size, and microseconds there and back.
fn deflated(bytes: &[u8], level: Compression, batch: Duration) -> Result<(usize, f64, f64), Error> {
    let mut compress = Compress::new(level, false);
    let mut out = Vec::with_capacity(bytes.len() + 1024);
    let mut deflate = |out: &mut Vec<u8>| {
        out.clear();
        compress.reset();
        compress
            .compress_vec(bytes, out, FlushCompress::Finish)
            .is_ok()
    };
    deflate(&mut out);
    let deflate_us = {
        let mut out = out.clone();
        median_us(batch, || {
            black_box(deflate(&mut out));
        })
    };
    let mut decompress = Decompress::new(false);
    let mut back = Vec::with_capacity(bytes.len() + 1024);
    let mut inflate = || {
        back.clear();
        decompress.reset(false);
        decompress
            .decompress_vec(&out, &mut back, FlushDecompress::Finish)
            .is_ok()
            && back.len() == bytes.len()
    };
    if !inflate() {
        return Err(Error::Failed(
            "the deflated bytes do not inflate".to_owned(),
        ));
    }
    let inflate_us = median_us(batch, || {
        black_box(inflate());
    });
    Ok((out.len(), deflate_us, inflate_us))
}

/// Microseconds of the codec's DEFLATE libraries alone for the contents of the blocks of a
/// document, in both directions.
pub(super) fn deflate(document: &Document, batch: Duration) -> Result<(f64, f64), Error> {
    let folder = Folder::new("exi-floor")?;
    let mut encoder = Encoder::new(Arc::clone(&schema(folder.path())?));
    let options = Options {
        alignment: Alignment::PreCompression,
        ..Options::default()
    };
    let header = HeaderOptions::default();
    let plain = text::encode(&mut encoder, &options, header, document.text.as_bytes());
    let plain = plain.map_err(Error::failed(document.name))?;
    let mut compress = zlib_rs::Deflate::new(6, false, 15);
    let mut out = vec![0; plain.len() + 1024];
    let mut deflate = || {
        compress.reset();
        let done = compress.compress(plain, &mut out, zlib_rs::DeflateFlush::Finish);
        matches!(done, Ok(zlib_rs::Status::StreamEnd))
    };
    if !deflate() {
        return Err(Error::Failed("deflate does not finish".to_owned()));
    }
    let deflate_us = median_us(batch, || {
        black_box(deflate());
    });
    let (_, _, inflate_us) = deflated(plain, Compression::new(6), batch)?;
    Ok((deflate_us, inflate_us))
}
