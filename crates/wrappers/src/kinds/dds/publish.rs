//! The exporter of kind `dds`: a stream that is published to a topic, with many samples on their way.

use std::collections::BTreeMap;
use std::sync::Arc;

use chappe_dds::topics::{Publication, Publisher, StreamNow};
use chappe_stream::{DescriptorError, Position};

use super::{NO_TOPICS, failed, fault};
use crate::{
    Batch, Delivered, Exporter, ExporterFile, ExporterKind, ExporterOpening, NodeParts, Refused,
    Step, WrapperError, Written,
};

/// The kind.
pub(crate) const EXPORTER: ExporterKind = ExporterKind {
    name: "dds",
    about: "publishes a stream to a DDS topic",
    written: "all reliable readers have it in memory, or so many Chappe nodes as `readers` have stored it (`acknowledge`)",
    may_double: "elements delivered within the last fifth of a second before a crash; a Chappe node drops them",
    check: |file| settings(file).map(drop),
    open,
    schema: || schemars::schema_for!(Publication),
};

fn settings(file: &ExporterFile) -> Result<(Publication, String), DescriptorError> {
    let publication: Publication = file.settings()?;
    publication.check().map_err(|error| fault(file, &error))?;
    match &*file.keys.streams {
        [stream] if !stream.ends_with('*') => Ok((publication, stream.clone())),
        _ => {
            let message = "a topic has exactly one stream".to_owned();
            let hint = "make a file for each stream".to_owned();
            Err(file.fault("streams", message, Some(hint)))
        }
    }
}

fn open(opening: ExporterOpening<'_>) -> Result<Box<dyn Exporter>, WrapperError> {
    let invalid = |error: DescriptorError| WrapperError::settings(error.to_string());
    let (publication, stream) = settings(opening.file).map_err(invalid)?;
    Ok(Box::new(TopicExporter {
        publication,
        name: stream.clone(),
        stream,
        publisher: None,
    }))
}

struct TopicExporter {
    publication: Publication,
    /// The name of the stream in its samples.
    stream: String,
    /// The name of the stream in batches.
    name: String,
    /// From the first step on.
    publisher: Option<Publisher>,
}

impl Exporter for TopicExporter {
    fn attach(
        &mut self,
        node: &NodeParts,
        exported: &BTreeMap<String, Position>,
    ) -> Result<(), WrapperError> {
        let topics = node.topics.as_ref();
        let topics = topics.ok_or_else(|| WrapperError::settings(NO_TOPICS))?;
        let (look_up, stream) = (node.stream.clone(), self.stream.clone());
        if let Some(now) = look_up(&stream) {
            self.name = now.name;
        }
        let delivered = exported.get(&self.name).copied();
        let look_up = move || {
            let now = look_up(&stream)?;
            Some(StreamNow {
                schema: now.schema,
                level: now.level,
                last: now.last,
            })
        };
        let publication = self.publication.clone();
        let publisher = topics.publisher(publication, &self.stream, delivered, look_up);
        self.publisher = Some(publisher.map_err(|error| failed(&error))?);
        Ok(())
    }

    fn write<'a>(&'a mut self, batch: &'a Batch) -> Step<'a, Result<Written, WrapperError>> {
        Box::pin(async {
            let publisher = self.publisher.as_mut();
            let publisher = publisher.ok_or_else(|| WrapperError::settings(NO_TOPICS))?;
            for part in &batch.parts {
                self.name = part.stream.to_string();
                let schema = Arc::new(part.definition.schema.clone());
                publisher.take(&schema, &part.elements);
            }
            Ok(Written::default())
        })
    }

    fn is_pipelined(&self) -> bool {
        true
    }

    fn has_room(&self) -> bool {
        self.publisher.as_ref().is_some_and(Publisher::has_room)
    }

    fn delivered(&mut self) -> Step<'_, Result<Delivered, WrapperError>> {
        Box::pin(async {
            let publisher = self.publisher.as_mut();
            let publisher = publisher.ok_or_else(|| WrapperError::settings(NO_TOPICS))?;
            let advance = publisher.advance().await.map_err(|error| failed(&error))?;
            let name = || self.name.clone();
            let positions = advance.delivered.map(|at| (name(), at));
            let refused = advance.refused.into_iter().map(|one| Refused {
                stream: name(),
                position: one.position,
                reason: one.reason,
            });
            Ok(Delivered {
                positions: positions.into_iter().collect(),
                refused: refused.collect(),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_publication_is_refused_with_its_line() {
        let text = "kind = \"dds\"\nstreams = [\"a\"]\ntopic = \"b\"\npacer = \"PACER\"\n";
        let check = |pacer: &str, (from, to): (&str, &str)| {
            let text = text.replace("PACER", pacer).replace(from, to);
            let file = ExporterFile::parse("test.toml".as_ref(), &text)?;
            file.kind()?;
            settings(&file).map(|(publication, _)| publication)
        };
        for pacer in ["fixed_window:4", "fixed_period:200us", "napa:25000000:10"] {
            let publication = check(pacer, ("", "")).unwrap();
            assert_eq!(publication.pacer, pacer.parse().unwrap());
        }
        let error = check("fixed_window", ("", "")).unwrap_err();
        assert_eq!((error.line, &*error.key), (4, "pacer"), "{error}");
        assert!(error.to_string().contains("fixed_window:16"), "{error}");
        let error = check("flood", ("[\"a\"]", "[\"a\", \"c\"]")).unwrap_err();
        assert_eq!((error.line, &*error.key), (2, "streams"), "{error}");
        let error = check("flood", ("\"b\"", "\"a b\"")).unwrap_err();
        assert_eq!((error.line, &*error.key), (3, "topic"), "{error}");
        let error = check("flood", ("topic", "readers = 2000\ntopic")).unwrap_err();
        assert_eq!((error.line, &*error.key), (3, "readers"), "{error}");
    }
}
