//! The wrapper of kind `dds_any`: a topic of a type that others defined is read into a stream.

use std::sync::Arc;

use chappe_dds::topics::{AnySubscriber, AnySubscription};
use chappe_dds::types::Structure;
use chappe_stream::DescriptorError;

use super::{NO_TOPICS, failed, fault, idl};
use crate::clock::now;
use crate::{
    Batch, Condition, Delivery, Mark, NodeParts, Notes, Part, Step, StreamDefinition, Undecodable,
    Wrapper, WrapperError, WrapperFile, WrapperKind, WrapperOpening,
};

/// Bytes of a sample that are kept if it is no element.
const KEPT_BYTES: usize = 64 << 10;

/// The kind.
pub(crate) const WRAPPER: WrapperKind = WrapperKind {
    name: "dds_any",
    about: "reads a DDS topic of any type into a stream",
    delivery: Delivery {
        acknowledges: "when the library has the sample in memory",
        resumes: "nothing",
        may_double: "samples that a `transient_local` writer sends again after a restart",
        may_miss: "samples that were written while the node was down, unless their writer keeps them",
        back_pressure: "the reader keeps `max_samples`; then the oldest are dropped and counted",
    },
    check: |file| settings(file).map(drop),
    open,
    schema: || schemars::schema_for!(AnySubscription),
    browse: None,
};

struct Settings {
    subscription: AnySubscription,
    stream: String,
    expected: Option<Arc<Structure>>,
}

fn settings(file: &WrapperFile) -> Result<Settings, DescriptorError> {
    let subscription: AnySubscription = file.settings()?;
    subscription.check().map_err(|error| fault(file, &error))?;
    if file.keys.format.is_some() {
        let message = "samples of a topic are CDR, and have no other format".to_owned();
        return Err(file.fault("format", message, Some("remove it".to_owned())));
    }
    if !file.keys.streams.is_empty() {
        let message = "the fields come from the type of the topic".to_owned();
        let hint = "remove [[stream]]; `into` names the stream".to_owned();
        return Err(file.fault("stream", message, Some(hint)));
    }
    let stream = subscription.into.clone();
    let stream = stream.unwrap_or_else(|| file.name.clone());
    chappe_stream::check_name(&stream)
        .map_err(|error| file.fault("into", error.to_string(), None))?;
    let expected = match &subscription.idl {
        Some(path) => Some(idl::structure(
            file,
            path,
            subscription.type_name.as_deref(),
        )?),
        None if subscription.type_name.is_some() => {
            let message = "it names a struct of the file in `idl`, which is missing".to_owned();
            return Err(file.fault("type_name", message, None));
        }
        None => None,
    };
    Ok(Settings {
        subscription,
        stream,
        expected,
    })
}

fn open(opening: WrapperOpening<'_>) -> Result<Box<dyn Wrapper>, WrapperError> {
    let invalid = |error: DescriptorError| WrapperError::settings(error.to_string());
    let settings = settings(opening.file).map_err(invalid)?;
    Ok(Box::new(AnyWrapper {
        subscription: settings.subscription,
        expected: settings.expected,
        stream: settings.stream.as_str().into(),
        definition: None,
        level: opening.file.keys.level,
        condition: opening.condition,
        notes: opening.notes,
        subscriber: None,
    }))
}

struct AnyWrapper {
    subscription: AnySubscription,
    expected: Option<Arc<Structure>>,
    stream: Arc<str>,
    /// That of the last elements.
    definition: Option<Arc<StreamDefinition>>,
    level: Option<chappe_log::Level>,
    condition: Condition,
    notes: Notes,
    /// From the first step on.
    subscriber: Option<AnySubscriber>,
}

impl Wrapper for AnyWrapper {
    fn repeats(&self) -> bool {
        false
    }

    fn attach(&mut self, node: &NodeParts) -> Result<(), WrapperError> {
        let topics = node.topics.as_ref();
        let topics = topics.ok_or_else(|| WrapperError::settings(NO_TOPICS))?;
        let subscription = self.subscription.clone();
        let expected = self.expected.clone();
        let subscriber = topics.any_subscriber(subscription, expected, &self.stream, now);
        self.subscriber = Some(subscriber.map_err(|error| failed(&error))?);
        self.condition.runs();
        Ok(())
    }

    fn next(&mut self) -> Step<'_, Result<Batch, WrapperError>> {
        Box::pin(async {
            let subscriber = self.subscriber.as_mut();
            let subscriber = subscriber.ok_or_else(|| WrapperError::settings(NO_TOPICS))?;
            let ended = |error: chappe_dds::Ended| WrapperError::peer(error.to_string());
            let received = subscriber.next().await.map_err(ended)?;
            for member in received.left_out {
                self.notes.add(format!("left out: {member}"));
            }
            let mut batch = Batch::default();
            if let Some(schema) = received.schema {
                let known = self.definition.take();
                let known = known.filter(|known| known.schema == schema);
                let definition = known.unwrap_or_else(|| {
                    Arc::new(StreamDefinition {
                        schema,
                        level: self.level,
                        description: None,
                    })
                });
                self.definition = Some(definition.clone());
                batch.parts.push(Part {
                    stream: self.stream.clone(),
                    definition,
                    elements: received.elements,
                });
            }
            for sample in received.refused {
                let size = sample.bytes.len().min(KEPT_BYTES);
                batch.undecodable.push(Undecodable {
                    stream: Some(self.stream.to_string()),
                    reason: sample.reason,
                    message: sample.bytes[..size].to_vec(),
                    is_cut: true,
                });
            }
            Ok(batch)
        })
    }

    fn stored<'a>(&'a mut self, _: &'a Mark) -> Step<'a, Result<(), WrapperError>> {
        if let Some(subscriber) = &mut self.subscriber {
            subscriber.stored();
        }
        Box::pin(std::future::ready(Ok(())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_from_a_file_is_checked_with_line_and_column() {
        let folder = tempfile::tempdir().unwrap();
        let check = |idl: &str, more: &str| {
            std::fs::write(folder.path().join("pose.idl"), idl).unwrap();
            let text = format!("kind = \"dds_any\"\ntopic = \"a\"\nidl = \"pose.idl\"\n{more}");
            let file = WrapperFile::parse(&folder.path().join("test.toml"), &text)?;
            settings(&file).map(|it| it.expected.unwrap().name.clone())
        };
        let idl = "module m { struct A { long x; }; struct B { long x; }; };";
        assert_eq!(check(idl, "").unwrap(), "m::B");
        assert_eq!(check(idl, "type_name = \"m/A\"").unwrap(), "m::A");
        let error = check(idl, "type_name = \"A\"").unwrap_err();
        assert_eq!(
            (error.line, error.hint.as_deref()),
            (4, Some("it has m::A, m::B"))
        );
        let error = check("struct A {\n  long;\n};", "").unwrap_err();
        assert_eq!(error.line, 3);
        assert!(
            error.to_string().contains("pose.idl:2:7: expected a name"),
            "{error}"
        );
    }

    #[test]
    fn the_example_of_the_documentation_is_valid() {
        let document = include_str!("../../../../../docs/reference/dds.md");
        let start = document.find("# wrappers/imu.toml").unwrap();
        let example = document[start..].split("```").next().unwrap();
        let file = WrapperFile::parse("imu.toml".as_ref(), example).unwrap();
        file.kind().unwrap();
        let settings = settings(&file).unwrap();
        assert_eq!(settings.stream, "robot.imu");
    }

    #[test]
    fn invalid_topics_are_refused() {
        let text = "kind = \"dds_any\"\ntopic = \"/imu\"\ninto = \"robot.imu\"\ntime = \"header.stamp\"\n\
                    qos = { partitions = [\"north\"] }\n";
        let check = |text: &str| {
            let file = WrapperFile::parse("test.toml".as_ref(), text)?;
            file.kind().map(drop)
        };
        check(text).unwrap();
        let cases = [
            ("/imu", "a b", 2, "topic"),
            ("robot.imu", "Robot", 3, "into"),
            ("time", "times", 4, "times"),
            ("north", "", 5, "qos"),
        ];
        for (from, to, line, key) in cases {
            let error = check(&text.replace(from, to)).unwrap_err();
            assert_eq!((error.line, &*error.key), (line, key), "{to}: {error}");
        }
    }
}
