//! A stretch of time of a stream in buckets, for charts of any length.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use chappe_stream::{RANGE_BUCKETS_MAX, RangeBuckets, StreamSchema, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::params::{self, Name, Params};
use super::parts;
use super::problem::Problem;
use super::streams::{find, store_problem};
use crate::accounts::Caller;
use crate::permits::RequestKind;
use crate::shared::App;

/// Buckets of an answer that does not say how many it wants.
const BUCKETS: usize = 500;

/// The requested stretch of time.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct RangeParams {
    /// The start (RFC 3339); the oldest element if absent.
    from: Option<String>,
    /// The end, which is not included (RFC 3339); after the newest element if absent.
    to: Option<String>,
    /// Maximum number of buckets, 1 to 10,000; 500 if absent.
    #[param(minimum = 1, maximum = 10000)]
    buckets: Option<usize>,
}

/// A stretch of time in buckets of equal width, oldest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct RangeView {
    /// The stream's name.
    stream: String,
    /// The start of the first bucket (RFC 3339).
    from: String,
    /// The end of the last bucket (RFC 3339).
    to: String,
    /// The width of a bucket in seconds.
    width_s: f64,
    /// The number of elements in each bucket.
    count: Vec<u64>,
    /// The fields with numbers.
    fields: Vec<RangeField>,
    /// The number of elements in all buckets.
    elements: u64,
    /// The number of damaged elements that may be missing.
    damaged: u64,
}

/// The values of a field in each bucket, null where there are none. Booleans are 0 and 1; each sample of
/// a waveform is a value at its own time.
#[derive(Serialize, ToSchema)]
pub(crate) struct RangeField {
    /// The field's name.
    name: String,
    /// Its unit as a UCUM code.
    unit: Option<String>,
    /// The number of values.
    count: Vec<u64>,
    /// The least value.
    min: Vec<Option<f64>>,
    /// The greatest value.
    max: Vec<Option<f64>>,
    /// The mean.
    mean: Vec<Option<f64>>,
}

/// A time range of a stream in buckets: count, minimum, maximum and mean of each numeric field.
#[utoipa::path(get, path = "/api/v1/streams/{name}/range", tag = "streams",
    params(("name" = String, Path, description = "The stream's name"), RangeParams),
    responses((status = 200, body = RangeView),
        (status = 400, body = Problem, description = "the time limit was reached"),
        (status = 404, body = Problem), (status = 503, body = Problem)))]
pub(super) async fn range(
    State(app): State<App>,
    caller: Caller,
    Name(name): Name,
    Params(params): Params<RangeParams>,
) -> Result<Json<RangeView>, Problem> {
    let entry = find(&app, &caller, &name)?;
    let buckets = params.buckets.unwrap_or(BUCKETS);
    if !(1..=RANGE_BUCKETS_MAX).contains(&buckets) {
        let detail = format!("buckets: {buckets} is not from 1 to {RANGE_BUCKETS_MAX}");
        return Err(Problem::bad_request(detail));
    }
    let times = params::times(params.from.as_deref(), params.to.as_deref())?;
    let end = |given: &Option<String>, time: Option<Timestamp>| given.as_ref().and(time);
    let from = end(&params.from, times.as_ref().map(|times| times.start));
    let to = end(&params.to, times.as_ref().map(|times| times.end));
    if from.zip(to).is_some_and(|(from, to)| from >= to) {
        return Err(Problem::bad_request("from is not before to"));
    }
    let permit = parts::permit(&app, &caller, RequestKind::Query)?;
    let stopped = Arc::new(AtomicBool::new(false));
    let watched = stopped.clone();
    let time = Duration::from_millis(u64::from(app.config.limits.query_time_ms));
    let watchdog = tokio::spawn(async move {
        tokio::time::sleep(time).await;
        watched.store(true, Ordering::Relaxed);
    });
    let work = tokio::task::spawn_blocking(move || {
        let is_stopped = || stopped.load(Ordering::Relaxed);
        let range = entry.log.range_buckets(from..to, buckets, &is_stopped);
        drop(permit);
        let name = entry.current_name();
        range.map(|range| range.map(|range| view(name, range, &entry.log.schema())))
    });
    let range = work.await;
    watchdog.abort();
    let range = range.map_err(|_| Problem::internal("reading the range failed"))?;
    let range = range.map_err(store_problem)?;
    range.map(Json).ok_or_else(|| {
        Problem::bad_request("the range was stopped at its time limit")
            .hint("ask for a shorter range; limits.query_time_ms sets the time limit")
    })
}

fn view(stream: String, range: RangeBuckets, schema: &StreamSchema) -> RangeView {
    // A span may be wider than a time can be.
    let span = i128::from(range.width_ns).saturating_mul(range.counts.len() as i128);
    let to = i128::from(range.from.0).saturating_add(span);
    let to = i64::try_from(to).unwrap_or(i64::MAX);
    let unit = |name: &str| {
        let mut fields = schema.fields.iter();
        let field = fields.find(|field| field.name == name);
        field.and_then(|field| field.unit.clone())
    };
    let fields = range.fields.into_iter().map(|field| RangeField {
        unit: unit(&field.name),
        name: field.name,
        count: field
            .buckets
            .iter()
            .map(|it| it.map_or(0, |it| it.count))
            .collect(),
        min: field.buckets.iter().map(|it| it.map(|it| it.min)).collect(),
        max: field.buckets.iter().map(|it| it.map(|it| it.max)).collect(),
        mean: field
            .buckets
            .iter()
            .map(|it| it.map(|it| it.mean))
            .collect(),
    });
    RangeView {
        stream,
        from: range.from.to_string(),
        to: Timestamp(to).to_string(),
        width_s: range.width_ns as f64 / 1e9,
        fields: fields.collect(),
        count: range.counts,
        elements: range.elements,
        damaged: range.damaged,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_span_of_centuries_is_exact() {
        let range = RangeBuckets {
            from: Timestamp(-1_000_000_000_000_000_000),
            width_ns: 1_000_000_000_000_000_000,
            counts: vec![0; 10],
            fields: Vec::new(),
            elements: 0,
            damaged: 0,
        };
        let schema = StreamSchema::default();
        let end = Timestamp(9_000_000_000_000_000_000);
        assert_eq!(view("s".into(), range, &schema).to, end.to_string());
    }
}
