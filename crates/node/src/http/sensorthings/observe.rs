//! Creates observations: elements of streams, acknowledged once they have the level of their stream.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use chappe_identity::Role;
use chappe_sensorthings::body::{Group, Linked, NewObservation, data_arrays, new_observation};
use chappe_sensorthings::{EntityType, Fault, ResourcePath, Source as _, quoted};
use chappe_stream::{
    Epoch, Position, Quality, StoreError, StreamElement, StreamSchema, Timestamp, Value,
};
use chappe_wrappers::{BATCH_BYTES_MAX, element_weight};
use serde_json::{Value as Json, json};

use super::super::parts;
use super::super::problem::Problem;
use super::super::write::busy::store_problem;
use super::super::write::memory;
use super::create::Plan;
use super::reading::Reading;
use super::snapshot::feature_of_location;
use super::streams::{Datastream, parse_datastream_id, value_of_result};
use super::{document, entities_of, problem, store, with_entities};
use crate::accounts::{Caller, Shares, Unchanged, View};
use crate::clock;
use crate::permits::RequestKind;
use crate::shared::App;
use crate::written;

/// Memory that an observation takes besides its text, about.
const OBSERVATION_BYTES: usize = 256;

/// Bytes of elements that are appended at once; reason: the log refuses more than some megabytes.
const PIECE_BYTES: usize = BATCH_BYTES_MAX / 2;

/// An observation that is ready to be stored.
struct Ready {
    datastream: Arc<Datastream>,
    element: StreamElement,
}

/// Creates one observation.
pub(super) async fn create_one(
    app: &App,
    caller: &Caller,
    root: &str,
    path: &ResourcePath,
    body: &Json,
) -> Result<Response, Problem> {
    let _permit = parts::permit(app, caller, RequestKind::Write)?;
    let bytes = body.to_string().len();
    let _memory = memory(app, caller, bytes + OBSERVATION_BYTES)?;
    let new = new_observation(body).map_err(problem)?;
    let (path, future) = (path.clone(), future_ns(app));
    let stream = stream_of(&path, &new);
    let prepared = with_entities(app, caller, stream, move |reading| {
        let (parent, _) = entities_of(reading, &path)?;
        let mut plan = Plan::default();
        let (mut of, mut feature) = (None, None);
        match parent {
            Some(parent) if parent.kind == EntityType::Datastream => of = Some(parent.id),
            Some(parent) => feature = Some(parent.id),
            None => {}
        }
        let of = match (of, &new.datastream) {
            (Some(id), _) => id,
            (None, Some(Linked::Existing(id))) => id.clone(),
            (None, Some(Linked::New(_))) => {
                let detail = "Observation: create its Datastream first, and link it by @iot.id";
                return Err(Fault::unsupported(detail));
            }
            (None, None) => {
                return Err(Fault::invalid("Observation: \"Datastream\" is missing"));
            }
        };
        let datastream = datastream(reading, &of)?;
        let element = element(reading, &mut plan, &datastream, new, feature, future)?;
        Ok::<_, Fault>((
            plan,
            Ready {
                datastream,
                element,
            },
        ))
    });
    let (plan, ready) = prepared.await?.map_err(problem)?;
    check_writable(app, caller, &ready.datastream)?;
    if !plan.documents.is_empty() {
        store::check_role(caller, Role::Write)?;
        plan.store(app, caller).await?;
    }
    let stored = append(app, caller, vec![ready], bytes).await?;
    let id = stored.into_iter().next();
    let id = id.unwrap_or_else(|| Err(Problem::internal("the observation was not stored")))?;
    let kind = EntityType::Observation;
    let address = format!("{root}/{}({})", kind.set_name(), quoted(&id));
    let mut response = (StatusCode::CREATED, [(header::LOCATION, address)]).into_response();
    // The log of elements is its own record.
    response.extensions_mut().insert(Unchanged);
    Ok(response)
}

/// The stream of the datastream that an observation is for.
fn stream_of(path: &ResourcePath, new: &NewObservation) -> Option<String> {
    let first = path.steps.first()?;
    let id = match (first.link.target, &new.datastream) {
        (EntityType::Datastream, _) => first.id.as_deref()?,
        (_, Some(Linked::Existing(id))) => id,
        _ => return None,
    };
    parse_datastream_id(id).map(|(stream, _)| stream.to_owned())
}

/// Creates observations of several datastreams; the answer has an address or an error for each (18-088, clause
/// 12.2), also when only some of them could be stored. If none could be, the answer is why.
pub(super) async fn create_many(
    app: &App,
    caller: &Caller,
    root: &str,
    body: &Json,
) -> Result<Response, Problem> {
    let _permit = parts::permit(app, caller, RequestKind::Write)?;
    let bytes = body.to_string().len();
    let groups = data_arrays(body).map_err(problem)?;
    let count: usize = groups.iter().map(|group| group.observations.len()).sum();
    let _memory = memory(app, caller, bytes + count * OBSERVATION_BYTES)?;
    let future = future_ns(app);
    let prepared = with_entities(app, caller, None, move |reading| {
        prepare_groups(reading, groups, future)
    });
    let mut ready: Vec<Result<Ready, String>> = Vec::new();
    for one in prepared.await? {
        ready.push(match one {
            Ok(one) => match check_writable(app, caller, &one.datastream) {
                Ok(()) => Ok(one),
                Err(problem) => Err(problem.detail),
            },
            Err(fault) => Err(fault.to_string()),
        });
    }
    let mut answers: Vec<Json> = Vec::new();
    let mut elements = Vec::new();
    let mut places = Vec::new();
    for (at, one) in ready.into_iter().enumerate() {
        match one {
            Ok(one) => {
                places.push(at);
                elements.push(one);
                answers.push(Json::Null);
            }
            Err(reason) => answers.push(json!(format!("error: {reason}"))),
        }
    }
    let mut stored = append(app, caller, elements, bytes).await?;
    if !stored.iter().any(Result::is_ok)
        && let Some(Err(problem)) = stored.pop()
    {
        return Err(problem);
    }
    for (at, stored) in places.into_iter().zip(stored) {
        answers[at] = json!(match stored {
            Ok(id) => format!("{root}/Observations({})", quoted(&id)),
            Err(problem) => format!("error: {}", problem.detail),
        });
    }
    let mut response = document(&json!(answers));
    *response.status_mut() = StatusCode::CREATED;
    response.extensions_mut().insert(Unchanged);
    Ok(response)
}

fn prepare_groups(reading: &Reading, groups: Vec<Group>, future: i64) -> Vec<Result<Ready, Fault>> {
    let mut ready = Vec::new();
    for group in groups {
        let found = datastream(reading, &group.datastream);
        for new in group.observations {
            let prepared = new.and_then(|new| {
                let datastream = found.clone()?;
                let mut plan = Plan::default();
                let element = element(reading, &mut plan, &datastream, new, None, future)?;
                Ok(Ready {
                    datastream,
                    element,
                })
            });
            ready.push(prepared);
        }
    }
    ready
}

/// How far ahead of the clock a time may be, in nanoseconds.
pub(super) fn future_ns(app: &App) -> i64 {
    let seconds = i64::try_from(app.config.limits.future_s).unwrap_or(i64::MAX);
    seconds.saturating_mul(1_000_000_000)
}

fn datastream(reading: &Reading, id: &str) -> Result<Arc<Datastream>, Fault> {
    let found = reading.snapshot.datastreams.get(id).cloned();
    let id: String = id.chars().take(80).collect();
    found.ok_or_else(|| Fault::Invalid(format!("there is no Datastream {id:?}")))
}

/// Whether the caller may write a datastream, and clients at all.
fn check_writable(app: &App, caller: &Caller, datastream: &Datastream) -> Result<(), Problem> {
    if !View::new(app, caller, Role::Write).has(&datastream.entry) {
        let extent = format!("not for the stream {:?}", datastream.entry.current_name());
        return Err(super::super::guard::outside_problem(
            caller,
            Role::Write,
            &extent,
        ));
    }
    let source = datastream.entry.source();
    match source == written::SOURCE {
        true => Ok(()),
        false => Err(Problem::new(
            StatusCode::CONFLICT,
            format!("the Datastream {:?} is written by {source}", datastream.id),
        )
        .hint("create a Datastream for observations of your own")),
    }
}

/// The element that has an observation.
fn element(
    reading: &Reading,
    plan: &mut Plan,
    datastream: &Datastream,
    new: NewObservation,
    feature: Option<String>,
    future: i64,
) -> Result<StreamElement, Fault> {
    let now = clock::now();
    let (start, end) = new.phenomenon_time.unwrap_or((now, now));
    if start.0 > now.0.saturating_add(future) {
        return Err(Fault::Invalid(format!(
            "Observation: phenomenonTime {start} is too far ahead of the node's clock (limits.future_s)"
        )));
    }
    let schema = datastream.entry.log.schema();
    let mut values = vec![Value::Null; schema.fields.len()];
    let place = datastream.place(&schema);
    let place = place.ok_or_else(|| Fault::missing("the Datastream has no field any more"))?;
    values[place] = value_of_result(datastream, &new.result)?;
    let key = match (
        &schema.key,
        new.parameters.as_ref().and_then(|it| it.get("key")),
    ) {
        (None, _) => None,
        (Some(_), Some(Json::String(key))) => Some(key.clone()),
        (Some(key), _) => {
            return Err(Fault::Invalid(format!(
                "Observation: the elements of this stream have a key ({key}); name it in parameters.key"
            )));
        }
    };
    let feature = match (feature, new.feature) {
        (Some(id), _) | (None, Some(Linked::Existing(id))) => Some(id),
        (None, Some(Linked::New(new))) => Some(plan.add(reading, *new, None)?),
        // Where the thing is now (18-088, clause 10.2.1.2).
        (None, None) if datastream.document.is_none() => None,
        (None, None) => {
            let locations = reading.snapshot.locations(&datastream.thing);
            locations.first().map(|id| feature_of_location(id))
        }
    };
    let is_new = |id: &str| plan.documents.iter().any(|document| document.id == id);
    if let Some(id) = feature.as_deref().filter(|id| !is_new(id))
        && reading.get(EntityType::FeatureOfInterest, id)?.is_none()
    {
        let id: String = id.chars().take(80).collect();
        return Err(Fault::Invalid(format!(
            "there is no FeatureOfInterest {id:?}"
        )));
    }
    let text = |time: Timestamp| Some(time.to_string());
    let period = |(from, to): (Timestamp, Timestamp)| format!("{from}/{to}");
    let further = [
        ("result_time", new.result_time.and_then(text)),
        (
            "phenomenon_end",
            Some(end).filter(|end| *end != start).and_then(text),
        ),
        ("valid_time", new.valid_time.map(period)),
        (
            "result_quality",
            new.result_quality.as_ref().map(Json::to_string),
        ),
        (
            "parameters",
            new.parameters
                .filter(|_| key.is_none())
                .map(|members| Json::Object(members).to_string()),
        ),
        ("feature_of_interest", feature),
    ];
    put_further(datastream, &schema, &mut values, further)?;
    Ok(StreamElement {
        position: Position {
            epoch: Epoch(0),
            sequence: 0,
        },
        source_time: start,
        receive_time: now,
        key,
        values,
        quality: Quality::Good,
        origin: None,
    })
}

/// Puts the further properties of an observation into their fields.
fn put_further(
    datastream: &Datastream,
    schema: &StreamSchema,
    values: &mut [Value],
    further: [(&str, Option<String>); 6],
) -> Result<(), Fault> {
    for (name, text) in further {
        let Some(text) = text else {
            continue;
        };
        if datastream.document.is_none() {
            return Err(Fault::Invalid(format!(
                "Observation: the stream of this Datastream has no field {name}; Datastreams that are created \
                 by POST have it"
            )));
        }
        let at = schema.fields.iter().position(|field| field.name == name);
        if let Some(value) = at.and_then(|at| values.get_mut(at)) {
            *value = Value::Text(text);
        }
    }
    Ok(())
}

/// Appends observations; returns the id of each once it has the level of its stream, or why it is not stored.
async fn append(
    app: &App,
    caller: &Caller,
    ready: Vec<Ready>,
    bytes: usize,
) -> Result<Vec<Result<String, Problem>>, Problem> {
    let (app, caller) = (app.clone(), caller.clone());
    // What has begun runs to its end, even if the client disconnects.
    let storing = tokio::spawn(async move { append_all(&app, &caller, ready, bytes).await });
    storing
        .await
        .map_err(|_| Problem::internal("storing observations failed"))
}

async fn append_all(
    app: &App,
    caller: &Caller,
    ready: Vec<Ready>,
    bytes: usize,
) -> Vec<Result<String, Problem>> {
    let mut by_stream: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (at, one) in ready.iter().enumerate() {
        let stream = one.datastream.entry.name.clone();
        by_stream.entry(stream).or_default().push(at);
    }
    let not_tried = |_: &Ready| Err(Problem::internal("it was not stored"));
    let mut stored: Vec<Result<String, Problem>> = ready.iter().map(not_tried).collect();
    let retractions = app.storage.log.retractions();
    let payer = Shares::payer(caller);
    let mut queued = Vec::new();
    for places in by_stream.values() {
        let entry = &ready[places[0]].datastream.entry;
        let part = (bytes * places.len() / ready.len().max(1)) as u64;
        if app.shares.count(entry, &payer, part) {
            let app = app.clone();
            // The request does not wait: after a crash the stream counts for the account before.
            tokio::task::spawn_blocking(move || app.shares.save());
        }
        for places in pieces(places, &ready) {
            let elements: Vec<StreamElement> =
                places.iter().map(|at| ready[*at].element.clone()).collect();
            match entry.append_after(retractions, &elements).await {
                Ok(appended) => queued.push((places, appended)),
                Err(error) => {
                    for at in places {
                        stored[*at] = Err(store_problem(&error));
                    }
                }
            }
        }
    }
    for (places, mut appended) in queued {
        let outcome = (&mut appended).await.map_err(StoreError::Log);
        let last = appended.last();
        for (index, at) in places.iter().enumerate() {
            let after = (places.len() - 1 - index) as u64;
            stored[*at] = match &outcome {
                Err(error) => Err(store_problem(error)),
                Ok(_) => Ok(ready[*at].datastream.observation_id(Position {
                    epoch: Epoch(last.epoch),
                    sequence: last.sequence - after,
                })),
            };
        }
    }
    stored
}

/// The elements of a stream in pieces that the log takes at once.
fn pieces<'p>(places: &'p [usize], ready: &'p [Ready]) -> impl Iterator<Item = &'p [usize]> {
    let mut left = places;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = left.iter().take_while(|at| {
            bytes += element_weight(&ready[**at].element);
            bytes <= PIECE_BYTES
        });
        // One that is too large is refused alone.
        let count = fits.count().max(1).min(left.len());
        let piece;
        (piece, left) = left.split_at(count);
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::super::streams::{FURTHER, RESULT};

    #[test]
    fn the_field_of_results_is_no_column_that_every_stream_has() {
        assert!(!chappe_stream::RESERVED_COLUMNS.contains(&RESULT));
        for (name, _) in FURTHER {
            assert!(!chappe_stream::RESERVED_COLUMNS.contains(&name), "{name}");
        }
    }
}
