//! The exporter of kind `dds_any`: a stream that is published as samples of a type that others defined.

use std::sync::Arc;

use chappe_dds::topics::AnyPublication;
use chappe_dds::types::Structure;
use chappe_stream::DescriptorError;

use super::publish::{Target, TopicExporter, only_stream};
use super::{fault, idl};
use crate::{Exporter, ExporterFile, ExporterKind, ExporterOpening, WrapperError};

/// The kind.
pub(crate) const EXPORTER: ExporterKind = ExporterKind {
    name: "dds_any",
    about: "publishes a stream to a DDS topic with a type from an IDL file",
    written: "all reliable readers have it in memory",
    may_double: "elements delivered within the last fifth of a second before a crash, or in flight to a reader that left",
    check: |file| settings(file).map(drop),
    open,
    schema: || schemars::schema_for!(AnyPublication),
};

struct Settings {
    publication: AnyPublication,
    of: Arc<Structure>,
    stream: String,
}

fn settings(file: &ExporterFile) -> Result<Settings, DescriptorError> {
    let publication: AnyPublication = file.settings()?;
    publication.check().map_err(|error| fault(file, &error))?;
    let of = idl::structure(file, &publication.idl, publication.type_name.as_deref())?;
    Ok(Settings {
        stream: only_stream(file)?,
        publication,
        of,
    })
}

fn open(opening: ExporterOpening<'_>) -> Result<Box<dyn Exporter>, WrapperError> {
    let invalid = |error: DescriptorError| WrapperError::settings(error.to_string());
    let settings = settings(opening.file).map_err(invalid)?;
    let target = Target::Foreign(settings.publication, settings.of);
    Ok(Box::new(TopicExporter::new(target, settings.stream)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDL: &str = "module m { struct Time { long sec; unsigned long nanosec; };
        struct A { Time at; string name; float level; }; };";

    fn check(text: &str) -> Result<Settings, DescriptorError> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("imu.idl"), IDL).unwrap();
        let file = ExporterFile::parse(&folder.path().join("test.toml"), text)?;
        file.kind()?;
        settings(&file)
    }

    #[test]
    fn the_example_of_the_documentation_is_valid() {
        let document = include_str!("../../../../../docs/reference/dds.md");
        let start = document.find("# exporters/imu.toml").unwrap();
        let example = document[start..].split("```").next().unwrap();
        let settings = check(example).unwrap();
        assert_eq!(
            (&*settings.stream, &*settings.of.name),
            ("robot.imu", "m::A")
        );
    }

    #[test]
    fn invalid_files_are_refused_with_their_line() {
        let text = "kind = \"dds_any\"\nstreams = [\"a\"]\ntopic = \"/imu\"\nidl = \"imu.idl\"\n\
                    missing = \"default\"\ntype_name = \"m/A\"\n";
        check(text).map(drop).unwrap();
        let cases = [
            ("[\"a\"]", "[\"a*\"]", 2, "streams"),
            ("/imu", "a b", 3, "topic"),
            ("imu.idl", "none.idl", 4, "idl"),
            ("\"default\"", "\"zero\"", 5, "missing"),
            ("m/A", "m/B", 6, "type_name"),
        ];
        for (from, to, line, key) in cases {
            let error = check(&text.replace(from, to)).map(drop).unwrap_err();
            assert_eq!((error.line, &*error.key), (line, key), "{to}: {error}");
        }
    }
}
