//! The wrapper of kind `dds`: a topic that is read into a stream. Its mark is how far it has come, as positions at the
//! source; once a batch is stored, the source is told, for a publication with `acknowledge = "stored"`.

use std::sync::Arc;

use chappe_dds::topics::{Reached, Subscriber, Subscription};
use chappe_stream::{DescriptorError, Epoch, Position};

use super::{NO_TOPICS, failed, fault};
use crate::clock::now;
use crate::{
    Batch, Condition, Delivery, Lost, Mark, NodeParts, Part, Step, StreamDefinition, Wrapper,
    WrapperError, WrapperFile, WrapperKind, WrapperOpening,
};

/// The kind.
pub(crate) const WRAPPER: WrapperKind = WrapperKind {
    name: "dds",
    about: "reads a DDS topic into a stream",
    delivery: Delivery {
        acknowledges: "after the element is stored, on the topic `TOPIC/stored`",
        resumes: "stream, epoch and number, by which repeated elements are dropped",
        may_double: "elements without a number",
        may_miss: "what its source does not repeat: with `acknowledge = \"stored\"` it repeats everything",
        back_pressure: "the reader keeps `max_samples`; then the oldest are dropped and counted",
    },
    check: |file| settings(file).map(drop),
    open,
    schema: || schemars::schema_for!(Subscription),
    browse: None,
};

type Stream = (Arc<str>, Arc<StreamDefinition>);

fn settings(file: &WrapperFile) -> Result<(Subscription, Stream), DescriptorError> {
    let subscription: Subscription = file.settings()?;
    subscription.check().map_err(|error| fault(file, &error))?;
    if file.keys.format.is_some() {
        let message = "samples of a topic are CDR, and have no other format".to_owned();
        return Err(file.fault("format", message, Some("remove it".to_owned())));
    }
    let hint = || Some("write one [[stream]] with a name and fields, without placeholders".into());
    let streams = file.fixed_streams();
    let [(name, definition)] = &*streams else {
        let message = "a topic is read into exactly one stream, whose fields are known".to_owned();
        return Err(file.fault("stream", message, hint()));
    };
    if file.keys.streams.len() != 1 {
        let message = "a topic is read into exactly one stream".to_owned();
        return Err(file.fault("stream", message, hint()));
    }
    chappe_stream::check_name(name)
        .map_err(|error| file.fault("stream", error.to_string(), None))?;
    let of = chappe_dds::ElementType::new(name, definition.schema.clone());
    of.map_err(|error| file.fault("stream", error.to_string(), None))?;
    let stream = (name.as_str().into(), Arc::new(definition.clone()));
    Ok((subscription, stream))
}

fn open(opening: WrapperOpening<'_>) -> Result<Box<dyn Wrapper>, WrapperError> {
    let invalid = |error: DescriptorError| WrapperError::settings(error.to_string());
    let (subscription, stream) = settings(opening.file).map_err(invalid)?;
    Ok(Box::new(TopicWrapper {
        subscription,
        stream,
        reached: opening.mark.as_ref().map(reached).unwrap_or_default(),
        condition: opening.condition,
        subscriber: None,
    }))
}

struct TopicWrapper {
    subscription: Subscription,
    stream: Stream,
    /// The mark at the opening.
    reached: Reached,
    condition: Condition,
    /// From the first step on.
    subscriber: Option<Subscriber>,
}

impl Wrapper for TopicWrapper {
    fn repeats(&self) -> bool {
        true
    }

    fn attach(&mut self, node: &NodeParts) -> Result<(), WrapperError> {
        let topics = node.topics.as_ref();
        let topics = topics.ok_or_else(|| WrapperError::settings(NO_TOPICS))?;
        let (name, definition) = &self.stream;
        let (subscription, reached) = (self.subscription.clone(), self.reached.clone());
        let subscriber = topics.subscriber(subscription, name, &definition.schema, reached, now);
        self.subscriber = Some(subscriber.map_err(|error| failed(&error))?);
        self.condition.runs();
        Ok(())
    }

    fn next(&mut self) -> Step<'_, Result<Batch, WrapperError>> {
        Box::pin(async {
            let subscriber = self.subscriber.as_mut();
            let subscriber = subscriber.ok_or_else(|| WrapperError::settings(NO_TOPICS))?;
            let ended = |error: chappe_dds::Ended| WrapperError::peer(error.to_string());
            let elements = subscriber.next().await.map_err(ended)?;
            let (stream, definition) = self.stream.clone();
            let lost = Lost {
                stream: Some(stream.to_string()),
                reason: "not_published_again",
                messages: subscriber.take_missing(),
            };
            Ok(Batch {
                lost: Some(lost)
                    .filter(|it| it.messages > 0)
                    .into_iter()
                    .collect(),
                parts: vec![Part {
                    stream,
                    definition,
                    elements,
                }],
                mark: mark(subscriber.reached()),
                ..Batch::default()
            })
        })
    }

    fn stored<'a>(&'a mut self, _: &'a Mark) -> Step<'a, Result<(), WrapperError>> {
        if let Some(subscriber) = &mut self.subscriber {
            subscriber.stored();
        }
        Box::pin(std::future::ready(Ok(())))
    }
}

fn mark(reached: &Reached) -> Mark {
    let bytes = |at: &Position| [at.epoch.0.to_le_bytes(), at.sequence.to_le_bytes()].concat();
    // They are few enough for a mark.
    Mark::new(reached.positions().iter().flat_map(bytes).collect()).unwrap_or_default()
}

fn reached(mark: &Mark) -> Reached {
    let (words, _) = mark.bytes().as_chunks();
    let position = |pair: &[[u8; 8]]| Position {
        epoch: Epoch(u64::from_le_bytes(pair[0])),
        sequence: u64::from_le_bytes(pair[1]),
    };
    Reached::new(words.chunks_exact(2).map(position).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_has_positions() {
        let at = |epoch, sequence| Position {
            epoch: Epoch(epoch),
            sequence,
        };
        for positions in [
            vec![],
            vec![at(u64::MAX - 1, 7)],
            vec![at(1, u64::MAX), at(2, 3)],
        ] {
            let expected = Reached::new(positions);
            assert_eq!(reached(&mark(&expected)), expected);
        }
    }

    #[test]
    fn invalid_topics_are_refused() {
        let text = "kind = \"dds\"\ntopic = \"chappe/test\"\nsource = \"a.b\"\n[[stream]]\nname = \"c.d\"\n\
                    fields = [{ name = \"value\", type = \"integer\" }]\n";
        let check = |text: &str| {
            let file = WrapperFile::parse("test.toml".as_ref(), text)?;
            file.kind().map(drop)
        };
        check(text).unwrap();
        let cases = [
            ("chappe/test", "a b", 2, "topic"),
            ("\"c.d\"", "\"c.{d}\"", 4, "stream"),
            ("\"value\"", "\"Value\"", 4, "stream"),
            ("source", "sauce", 3, "sauce"),
        ];
        for (from, to, line, key) in cases {
            let error = check(&text.replace(from, to)).unwrap_err();
            assert_eq!((error.line, &*error.key), (line, key), "{to}: {error}");
        }
    }
}
