//! The exporter of kind `dds`: a stream that is published to a topic, with many samples on their way. The one of kind
//! `dds_any` has other samples, and is the same otherwise.

use std::collections::BTreeMap;
use std::sync::Arc;

use chappe_dds::topics::{AnyPublication, Publication, Publisher, StreamNow};
use chappe_dds::types::Structure;
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
    written: "all reliable readers have it in memory, or as many Chappe nodes as `readers` specifies have stored it (`acknowledge`)",
    may_double: "elements delivered within the last fifth of a second before a crash, or in flight to a reader that left; a Chappe node drops them",
    check: |file| settings(file).map(drop),
    open,
    schema: || schemars::schema_for!(Publication),
};

fn settings(file: &ExporterFile) -> Result<(Publication, String), DescriptorError> {
    let publication: Publication = file.settings()?;
    publication.check().map_err(|error| fault(file, &error))?;
    Ok((publication, only_stream(file)?))
}

/// The one stream of a topic.
pub(super) fn only_stream(file: &ExporterFile) -> Result<String, DescriptorError> {
    match &*file.keys.streams {
        [stream] if !stream.ends_with('*') => Ok(stream.clone()),
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
    Ok(Box::new(TopicExporter::new(
        Target::Own(publication),
        stream,
    )))
}

/// What is published.
pub(super) enum Target {
    /// Samples of Chappe's type for the stream.
    Own(Publication),
    /// Samples of a type of others.
    Foreign(AnyPublication, Arc<Structure>),
}

pub(super) struct TopicExporter {
    target: Target,
    /// The name of the stream in its samples.
    stream: String,
    /// The name of the stream in batches.
    name: String,
    /// From the first step on.
    publisher: Option<Publisher>,
}

impl TopicExporter {
    /// Publishes a stream from its first step on.
    pub(super) fn new(target: Target, stream: String) -> Self {
        Self {
            target,
            name: stream.clone(),
            stream,
            publisher: None,
        }
    }
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
            if let Target::Foreign(publication, of) = &self.target {
                let fits = publication.check_schema(of, &now.schema);
                fits.map_err(|error| WrapperError::settings(error.to_string()))?;
            }
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
        let stream = &self.stream;
        let publisher = match &self.target {
            Target::Own(publication) => {
                topics.publisher(publication.clone(), stream, delivered, look_up)
            }
            Target::Foreign(publication, of) => {
                topics.any_publisher(publication, of, stream, delivered, look_up)
            }
        };
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
        let hint = error.hint.unwrap_or_default();
        assert!(hint.contains("fixed_window:16"), "{hint}");
        let error = check("flood", ("[\"a\"]", "[\"a\", \"c\"]")).unwrap_err();
        assert_eq!((error.line, &*error.key), (2, "streams"), "{error}");
        let error = check("flood", ("\"b\"", "\"a b\"")).unwrap_err();
        assert_eq!((error.line, &*error.key), (3, "topic"), "{error}");
        let error = check("flood", ("topic", "readers = 2000\ntopic")).unwrap_err();
        assert_eq!((error.line, &*error.key), (3, "readers"), "{error}");
    }
}
