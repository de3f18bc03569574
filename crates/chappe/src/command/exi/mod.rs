//! `chappe exi`: converts text XML to EXI and back, explains streams, compiles schemas.

mod flags;
mod info;
mod schema;

use std::io::{IsTerminal, Read};
use std::path::Path;
use std::sync::Arc;

use chappe_exi::{
    CanonicalOptions, Cause, Decoder, Encoder, HeaderOptions, Options, Schema, SchemaId, text,
};
use serde_json::json;

use crate::output::{self, Failure, Outcome};
pub(crate) use flags::Exi;
use flags::{Coding, Decode, Encode};
use schema::Chosen;

/// Runs a verb of `exi`.
pub(crate) fn run(verb: Exi, json: bool) -> Outcome {
    match verb {
        Exi::Encode(flags) => encode(&flags, json),
        Exi::Decode(flags) => decode(&flags),
        Exi::Info(flags) => info::run(&flags, json),
        Exi::Schema(flags::Schema::Compile(flags)) => schema::compile(&flags, json),
    }
}

fn encode(flags: &Encode, json: bool) -> Outcome {
    let document = read(&flags.input)?;
    let Chosen { schema, id } = match schema::chosen(&flags.coding)? {
        Some(chosen) => chosen,
        None => Chosen {
            schema: Arc::new(Schema::none()),
            id: SchemaId::Absent,
        },
    };
    let options = flags.coding.options(id);
    let mut encoder = Encoder::new(schema);
    let stream = if flags.canonical {
        let canonical = CanonicalOptions {
            omit_options_document: flags.omit_options,
            utc_time: flags.utc_time,
        };
        text::encode_canonical(&mut encoder, &options, canonical, &document)
    } else {
        let header = HeaderOptions {
            cookie: flags.cookie,
            options: !flags.omit_options,
        };
        text::encode(&mut encoder, &options, header, &document)
    };
    let stream = stream.map_err(|error| in_file(&flags.input, error))?;
    let to_terminal = flags.output == Path::new("-") && std::io::stdout().is_terminal();
    if to_terminal {
        return Err(
            Failure::new("an EXI stream is binary, and standard output is a terminal")
                .coded("argument_invalid")
                .hint("name a file: -o FILE.exi, or pipe it: | ..."),
        );
    }
    write(&flags.output, stream)?;
    if json && flags.output != Path::new("-") {
        output::json(&json!({ "xml_bytes": document.len(), "exi_bytes": stream.len() }));
    }
    Ok(())
}

fn decode(flags: &Decode) -> Outcome {
    let stream = read(&flags.input)?;
    let (schema, options) = of_stream(&flags.coding, &stream)?;
    let mut decoder = Decoder::new(schema);
    let document = text::decode(&mut decoder, &stream, options.as_ref());
    let document = document.map_err(|error| in_file(&flags.input, error))?;
    write(&flags.output, document.as_bytes())
}

/// The schema of a stream, from the flags or its header, and the options of a stream without any.
fn of_stream(coding: &Coding, stream: &[u8]) -> Result<(Arc<Schema>, Option<Options>), Failure> {
    let options = |id| Some(coding.options(id));
    if let Some(Chosen { schema, id }) = schema::chosen(coding)? {
        return Ok((schema, options(id)));
    }
    let none = Arc::new(Schema::none());
    let begun = Decoder::new(none.clone())
        .begin(stream, options(SchemaId::Absent).as_ref())
        .err();
    let schema = match begun.map(|error| error.cause) {
        Some(Cause::Schema { wanted, .. }) if wanted.is_empty() => {
            Arc::new(Schema::built_in_types())
        }
        Some(Cause::Schema { wanted, .. }) => match schema::built_in(&wanted) {
            Ok(schema) => Arc::new(schema),
            // The decoder reports the error.
            Err(_) => none,
        },
        _ => none,
    };
    Ok((schema, options(SchemaId::Absent)))
}

/// An error with its file, and the remedy if it is known.
fn in_file(file: &Path, error: text::Error) -> Failure {
    let shown = match file == Path::new("-") {
        true => "standard input".into(),
        false => file.to_string_lossy(),
    };
    let failure = Failure::new(format!("{shown}: {error}")).coded("file_unreadable");
    let text::Error::Exi(error) = error else {
        return failure;
    };
    match error.cause {
        Cause::Schema { .. } => failure.hint(
            "name the schema of the encoder with --schema FILE; if it only has another name, set \
             the stream's with --schemaId",
        ),
        Cause::OptionsMissing => failure
            .hint("give the encoder's options: --strict, --alignment, --schema, ..."),
        Cause::NotExi("text XML") => failure.hint("it is text XML; to encode it: chappe exi encode"),
        Cause::NotExi("gzip") => failure.hint("decompress it first: gzip -d"),
        Cause::EventCode(_) | Cause::Identifier { .. } | Cause::Truncated => failure.hint(
            "a stream without options in its header needs the encoder's options and schema: --strict, \
             --alignment, --schema, ...",
        ),
        Cause::NotAllowed(_) | Cause::NotTyped { .. } => {
            failure.hint("without --strict the stream may contain items that the schema does not declare")
        }
        _ => failure,
    }
}

fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    if file == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes)?;
        return Ok(bytes);
    }
    std::fs::read(file).map_err(|error| {
        Failure::new(format!("{}: {error}", file.display())).coded("file_unreadable")
    })
}

fn write(file: &Path, bytes: &[u8]) -> Outcome {
    if file == Path::new("-") {
        output::bytes(bytes);
        return Ok(());
    }
    std::fs::write(file, bytes).map_err(|error| {
        Failure::new(format!("{}: {error}", file.display())).coded("file_unreadable")
    })
}
