//! The preview of a virtual sensor, for editors of its file.

use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use chappe_stream::StreamElement;
use chappe_stream::trial::{TrialError, TrialStep};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::params::{self, Name, Params};
use super::parts;
use super::problem::Problem;
use super::sensors::{invalid, needs_administer};
use super::streams::store_problem;
use crate::accounts::Caller;
use crate::permits::RequestKind;
use crate::sensors::{self, Preview, PreviewError};
use crate::shared::App;
use crate::view::{ElementShape, ElementView, FieldView};

/// Seconds of elements without `last_s`.
const LAST_S: u32 = 300;
/// Most seconds of elements: a day.
const LAST_S_MAX: u32 = 86_400;
/// Steps of an answer; reason: a person reads a table of some hundred rows.
const STEPS_MAX: usize = 500;
/// Bytes of the elements of an answer; reason: some hundred blocks of a waveform.
const STEP_BYTES_MAX: usize = 4 << 20;

/// What the preview reads.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PreviewParams {
    /// Seconds to go back from the newest element; later elements are read. Default: 300.
    #[param(minimum = 1, maximum = 86400)]
    last_s: Option<u32>,
}

/// What a virtual sensor would make of elements that streams have.
#[derive(Serialize, ToSchema)]
pub(crate) struct SensorPreview {
    /// The sensor.
    sensor: String,
    /// The streams that its sources would be bound to.
    inputs: Vec<PreviewInput>,
    /// The fields of the output.
    fields: Vec<FieldView>,
    /// The newest elements, each with the results that it causes, oldest first.
    steps: Vec<PreviewStep>,
    /// Older steps, which are left out.
    left_out: usize,
    /// Elements that the sources took.
    elements_in: u64,
    /// Results.
    elements_out: usize,
    /// Elements that do not fit the fields of their stream.
    misfits: u64,
    /// Elements that came too late or too early and would be dead letters.
    dead_letters: u64,
    /// Elements and results that the sensor would not use.
    unused: Vec<PreviewUnused>,
    /// Why evaluations failed.
    failures: Vec<String>,
}

/// Elements or results that the sensor would not use.
#[derive(Serialize, ToSchema)]
pub(crate) struct PreviewUnused {
    /// The source; null if the reason does not concern a source.
    source: Option<String>,
    /// The reason, such as `late`, `early` or `too_soon`.
    reason: &'static str,
    /// How many there are.
    count: u64,
}

/// A stream of a source.
#[derive(Serialize, ToSchema)]
pub(crate) struct PreviewInput {
    /// The source.
    source: String,
    /// The stream.
    stream: String,
    /// Its fields.
    fields: Vec<FieldView>,
}

/// An element and its results.
#[derive(Serialize, ToSchema)]
pub(crate) struct PreviewStep {
    /// The source of the element; null if a turn ended while the sources were silent.
    source: Option<String>,
    /// The element; null likewise.
    #[schema(value_type = Option<ElementShape>)]
    element: Value,
    /// The results, without numbers.
    #[schema(value_type = Vec<ElementShape>)]
    outputs: Vec<Value>,
}

/// Evaluates the file of a virtual sensor over the newest elements of the streams that it would be bound to, for at most
/// five seconds. Nothing is changed, and the sensor need not exist.
#[utoipa::path(post, path = "/api/v1/virtual-sensors/{name}/preview", tag = "virtual sensors",
    params(("name" = String, Path, description = "The sensor's name"), PreviewParams),
    request_body(content((String = "application/toml"), (Vec<u8> = "application/octet-stream")),
        description = "the file"),
    responses((status = 200, body = SensorPreview), (status = 400, body = Problem), (status = 401, body = Problem),
        (status = 403, body = Problem, description = "the file has wrappers, which needs `administer`"),
        (status = 422, body = Problem, description = "the file is invalid, a source has no stream, there are too \
            many elements, or the time limit was reached"),
        (status = 429, body = Problem), (status = 503, body = Problem)))]
pub(super) async fn preview(
    State(app): State<App>,
    caller: Caller,
    Name(name): Name,
    Params(params): Params<PreviewParams>,
    body: Body,
) -> Result<Json<SensorPreview>, Problem> {
    let last_s = params.last_s.unwrap_or(LAST_S);
    if !(1..=LAST_S_MAX).contains(&last_s) {
        let detail = format!("last_s is {last_s}");
        return Err(Problem::bad_request(detail).hint("it is from 1 to 86400"));
    }
    let bytes = params::body(&app, body).await?;
    let text = String::from_utf8(bytes.into())
        .map_err(|_| Problem::bad_request("the sensor file is not UTF-8"))?;
    if sensors::has_wrappers(&text) && !caller.administers() {
        return Err(needs_administer(&name));
    }
    let permit = parts::permit(&app, &caller, RequestKind::Query)?;
    let (waiting, time) = sensors::begin_preview();
    let work = tokio::task::spawn_blocking(move || {
        let last = Duration::from_secs(u64::from(last_s));
        let made = sensors::preview(&app, &text, last, &time);
        let answer = made.map_err(problem).and_then(|made| answer(&name, &made));
        drop(permit);
        answer
    });
    let answer = work.await;
    drop(waiting);
    answer
        .map_err(|_| Problem::internal("the preview failed"))?
        .map(Json)
}

fn problem(error: PreviewError) -> Problem {
    let unprocessable = |detail: String| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail);
    match error {
        PreviewError::Invalid(fault) => invalid(&fault),
        PreviewError::Unbound(why) => {
            unprocessable(why).hint("GET /api/v1/streams lists the streams")
        }
        PreviewError::TooMany => unprocessable("there are too many elements".to_owned())
            .hint("preview a shorter time: last_s"),
        PreviewError::Trial(error) => {
            let problem = unprocessable(error.to_string());
            match error {
                TrialError::Statement(_) => problem
                    .hint("compare the columns of the statement with the fields of the streams"),
                _ => problem.hint("preview a shorter time: last_s"),
            }
        }
        PreviewError::Store(error) => store_problem(error),
    }
}

fn answer(name: &str, made: &Preview) -> Result<SensorPreview, Problem> {
    let output = &made.descriptor.output.schema;
    if made.descriptor.name != name {
        let detail = format!("the file defines {:?}, not {name:?}", made.descriptor.name);
        let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail);
        return Err(problem.hint("use the same name in the path and in the file"));
    }
    let view = |element: &StreamElement, schema| {
        serde_json::to_value(ElementView {
            stream: None,
            element,
            schema,
        })
        .unwrap_or_default()
    };
    let step = |step: &TrialStep| {
        let input = step.input.map(|(at, index)| {
            let stream = &made.streams[at];
            let element = view(&stream.elements[index], &stream.schema);
            (stream.alias.clone(), element)
        });
        let (source, element) = input.unzip();
        PreviewStep {
            source,
            element: element.unwrap_or_default(),
            outputs: step.outputs.iter().map(|it| view(it, output)).collect(),
        }
    };
    let mut bytes = 0;
    let newest = made.trial.steps.iter().rev().take(STEPS_MAX);
    let newest = newest.take_while(|step| {
        let input = step
            .input
            .map(|(at, index)| &made.streams[at].elements[index]);
        let elements = input.into_iter().chain(&step.outputs);
        bytes += elements.map(StreamElement::size_bytes).sum::<usize>();
        bytes <= STEP_BYTES_MAX
    });
    let mut steps: Vec<PreviewStep> = newest.map(step).collect();
    steps.reverse();
    let inputs = made.streams.iter().map(|one| PreviewInput {
        source: one.alias.clone(),
        stream: one.stream.to_string(),
        fields: one.schema.fields.iter().map(FieldView::of).collect(),
    });
    let unused = made.trial.unused.iter().map(|one| PreviewUnused {
        source: one.source.clone(),
        reason: one.reason,
        count: one.count,
    });
    Ok(SensorPreview {
        sensor: made.descriptor.name.clone(),
        inputs: inputs.collect(),
        fields: output.fields.iter().map(FieldView::of).collect(),
        left_out: made.trial.steps.len() - steps.len(),
        steps,
        elements_in: made.trial.counters.inputs,
        elements_out: made.trial.outputs().count(),
        misfits: made.trial.counters.misfits,
        dead_letters: made.trial.dead_letters,
        unused: unused.collect(),
        failures: made.trial.failures.clone(),
    })
}
