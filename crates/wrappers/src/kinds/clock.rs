//! The node's clock: an element at each whole multiple of a period, for statements that join a time.

use std::sync::Arc;
use std::time::Duration;

use chappe_stream::{
    DescriptorError, Field, FieldType, Quality, StreamElement, StreamSchema, Timestamp, Value,
    check_name,
};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::clock::now;
use crate::{
    Batch, Delivery, Mark, Step, StreamDefinition, Wrapper, WrapperError, WrapperFile, WrapperKind,
    WrapperOpening,
};

const NS_PER_MS: i64 = 1_000_000;

/// The kind.
pub(crate) const WRAPPER: WrapperKind = WrapperKind {
    name: "clock",
    about: "the node's clock: an element at each whole multiple of a period",
    delivery: Delivery {
        acknowledges: "never: it is a clock",
        resumes: "the next multiple of the period",
        may_double: "no, unless the clock is set back",
        may_miss: "times while the node is down or storing lags",
        back_pressure: "no element is made while storing lags",
    },
    check: |file| settings(file).map(drop),
    open,
    schema: || schemars::schema_for!(Settings),
    browse: None,
};

/// The keys of a wrapper of kind `clock`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// The name of its stream. Default: the name of the wrapper.
    stream_name: Option<String>,
    /// The period. Default: 1000.
    #[serde(default = "period_default")]
    #[schemars(range(min = 10, max = 86_400_000), extend("x-unit" = "milliseconds"))]
    period_ms: u64,
}

fn period_default() -> u64 {
    1_000
}

/// The name of the stream, and the period in nanoseconds.
fn settings(file: &WrapperFile) -> Result<(String, i64), DescriptorError> {
    let settings: Settings = file.settings()?;
    if !file.keys.streams.is_empty() || file.keys.format.is_some() {
        let message = "the kind `clock` has a stream of its own".to_owned();
        return Err(file.fault("stream", message, None));
    }
    let period_ms = i64::try_from(settings.period_ms).unwrap_or(i64::MAX);
    if !(10..=86_400_000).contains(&period_ms) {
        let message = "it is not within 10 to 86400000".to_owned();
        return Err(file.fault("period_ms", message, None));
    }
    let name = file.name.replace('_', "-");
    let name = settings
        .stream_name
        .unwrap_or_else(|| name.trim_matches('-').to_owned());
    check_name(&name).map_err(|error| file.fault("stream_name", error.to_string(), None))?;
    Ok((name, period_ms * NS_PER_MS))
}

fn open(opening: WrapperOpening<'_>) -> Result<Box<dyn Wrapper>, WrapperError> {
    let (name, period_ns) =
        settings(opening.file).map_err(|error| WrapperError::settings(error.to_string()))?;
    let tick = Field {
        name: "tick".to_owned(),
        field_type: FieldType::Integer,
        unit: None,
        observed_property: None,
        description: Some("The number of periods since 1970".to_owned()),
    };
    let definition = StreamDefinition {
        schema: StreamSchema {
            fields: vec![tick],
            key: None,
        },
        level: opening.file.keys.level,
        description: None,
    };
    Ok(Box::new(ClockWrapper {
        stream: name.into(),
        definition: Arc::new(definition),
        period_ns,
        last: now().0.div_euclid(period_ns),
    }))
}

struct ClockWrapper {
    stream: Arc<str>,
    definition: Arc<StreamDefinition>,
    period_ns: i64,
    /// The period of the last element, or that in which it was opened.
    last: i64,
}

impl Wrapper for ClockWrapper {
    fn repeats(&self) -> bool {
        false
    }

    fn next(&mut self) -> Step<'_, Result<Batch, WrapperError>> {
        Box::pin(async {
            loop {
                let now = now();
                let tick = now.0.div_euclid(self.period_ns);
                if tick != self.last {
                    self.last = tick;
                    return Ok(self.element(tick, now));
                }
                let next = (tick + 1).saturating_mul(self.period_ns);
                let rest = u64::try_from(next - now.0).unwrap_or(0);
                tokio::time::sleep(Duration::from_nanos(rest)).await;
            }
        })
    }
}

impl ClockWrapper {
    fn element(&self, tick: i64, now: Timestamp) -> Batch {
        let mut batch = Batch {
            mark: Mark::default(),
            ..Batch::default()
        };
        let element = StreamElement {
            position: Default::default(),
            source_time: Timestamp(tick.saturating_mul(self.period_ns)),
            receive_time: now,
            key: None,
            values: vec![Value::Integer(tick)],
            quality: Quality::Good,
            origin: None,
        };
        batch.push(&self.stream, &self.definition, element);
        batch
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::{open, wrapper_file};
    use chappe_stream::Value;

    #[tokio::test]
    async fn elements_come_at_multiples_of_the_period() {
        let file = wrapper_file("kind = \"clock\"\nperiod_ms = 20\nstream_name = \"a.b\"");
        let mut wrapper = open(&file, None);
        let mut last = 0;
        for _ in 0..3 {
            let batch = wrapper.next().await.unwrap();
            let [part] = &batch.parts[..] else {
                panic!("one stream");
            };
            assert_eq!(&*part.stream, "a.b");
            let element = &part.elements[0];
            let Value::Integer(tick) = element.values[0] else {
                panic!("an integer");
            };
            assert_eq!(element.source_time.0, tick * 20_000_000);
            assert!(element.receive_time >= element.source_time && tick > last);
            last = tick;
        }
    }

    #[test]
    fn faults_are_found() {
        for wrong in ["period_ms = 5", "stream_name = \"A\"", "periods = 1"] {
            let file = wrapper_file(&format!("kind = \"clock\"\n{wrong}"));
            let error = file.kind().err().unwrap();
            assert_eq!(error.line, 2, "{error}");
        }
    }
}
