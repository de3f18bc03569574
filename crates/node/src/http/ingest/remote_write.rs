//! Prometheus remote write, versions 1.0 and 2.0.
//!
//! Source: the Remote-Write specifications 1.0 and 2.0. A server drops samples on status 429 unless it is told
//! otherwise, so that a node that is busy answers 503.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use chappe_wrappers::Form;
use serde::Deserialize;
use utoipa::IntoParams;

use super::super::params::Params;
use super::super::problem::Problem;
use super::super::wrappers::deliver;
use super::{coding, wrapper};
use crate::accounts::Caller;
use crate::shared::App;

/// The path of servers of Prometheus.
pub(super) const PATH: &str = "/api/v1/write";
/// The kind of the wrapper.
const KIND: &str = "remote_write";
/// What was written, by which a sender of version 2.0 knows that it was understood.
const WRITTEN: [HeaderName; 3] = [
    HeaderName::from_static("x-prometheus-remote-write-samples-written"),
    HeaderName::from_static("x-prometheus-remote-write-histograms-written"),
    HeaderName::from_static("x-prometheus-remote-write-exemplars-written"),
];

/// Where samples go.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct RemoteParams {
    /// The wrapper. Default: the first one of kind `remote_write`.
    wrapper: Option<String>,
}

/// Accepts samples of Prometheus remote write, in version 1.0 or 2.0; responds once they are
/// stored. `X-Prometheus-Remote-Write-Samples-Written` in the response has the number of stored
/// samples; native histograms are refused.
#[utoipa::path(post, path = "/api/v1/write", tag = "ingest", params(RemoteParams),
    request_body(content((Vec<u8> = "application/x-protobuf")),
        description = "a request of remote write, compressed with snappy"),
    responses((status = 204, description = "every sample is stored"),
        (status = 400, body = Problem, description = "some samples are refused, the others are stored"),
        (status = 404, body = Problem, description = "no wrapper accepts the request"), (status = 413, body = Problem),
        (status = 415, body = Problem, description = "the body is not a request of version 1.0 or 2.0, or not \
            compressed with snappy"),
        (status = 503, body = Problem), (status = 507, body = Problem)))]
pub(in crate::http) async fn write(
    State(app): State<App>,
    caller: Caller,
    Params(params): Params<RemoteParams>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let written = take(&app, &caller, params.wrapper.as_deref(), &headers, body).await;
    let (samples, mut answer) = match written {
        Ok(written) => written,
        Err(mut problem) => {
            if problem.status == StatusCode::TOO_MANY_REQUESTS.as_u16() {
                problem.status = StatusCode::SERVICE_UNAVAILABLE.as_u16();
            }
            (0, problem.into_response())
        }
    };
    for (name, count) in WRITTEN.into_iter().zip([samples, 0, 0]) {
        answer.headers_mut().insert(name, HeaderValue::from(count));
    }
    answer
}

/// Stores the samples; returns how many, and the answer.
async fn take(
    app: &App,
    caller: &Caller,
    name: Option<&str>,
    headers: &HeaderMap,
    body: Body,
) -> Result<(u64, Response), Problem> {
    let is_version_2 = version(headers)?;
    if coding(headers) != "snappy" {
        let detail = "a request of remote write is compressed with snappy";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
    }
    let handle = wrapper(app, KIND, |handle| match name {
        Some(name) => (handle.file.name == name).then_some(1),
        None => Some(1),
    })?;
    let form = Form::RemoteWrite { is_version_2 };
    let receipt = deliver(app, caller, &handle, KIND, body, form).await?;
    let dropped = receipt.undecodable + receipt.refused;
    let reason = receipt
        .reason
        .unwrap_or_else(|| "samples do not fit their streams".to_owned());
    let answer = match dropped {
        0 => StatusCode::NO_CONTENT.into_response(),
        _ if receipt.is_too_large => {
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, reason).into_response()
        }
        _ => {
            let detail = format!("{reason}; {dropped} are not stored");
            let hint = format!("chappe wrapper dead-letters {}", handle.file.name);
            Problem::bad_request(detail).hint(hint).into_response()
        }
    };
    Ok((receipt.elements, answer))
}

/// Whether a request is of version 2.0, by its content type.
fn version(headers: &HeaderMap) -> Result<bool, Problem> {
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let mut parts = kind.split(';').map(str::trim);
    let is_known = parts
        .next()
        .is_some_and(|it| it.eq_ignore_ascii_case("application/x-protobuf"));
    let message = parts.find_map(|part| part.strip_prefix("proto="));
    match (is_known, message.map(|message| message.trim_matches('"'))) {
        (true, None | Some("prometheus.WriteRequest")) => Ok(false),
        (true, Some("io.prometheus.write.v2.Request")) => Ok(true),
        _ => {
            let shown: String = kind.chars().take(100).collect();
            let detail = format!("{shown:?} is not a request of remote write 1.0 or 2.0");
            let problem = Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail);
            Err(problem.hint("send application/x-protobuf;proto=prometheus.WriteRequest"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_type_names_the_version() {
        let version = |text: &'static str| {
            let headers = [(header::CONTENT_TYPE, HeaderValue::from_static(text))];
            version(&headers.into_iter().collect()).map_err(|problem| problem.status)
        };
        assert_eq!(version("application/x-protobuf"), Ok(false));
        assert_eq!(
            version("application/x-protobuf; proto=prometheus.WriteRequest"),
            Ok(false)
        );
        assert_eq!(
            version("application/x-protobuf;proto=io.prometheus.write.v2.Request"),
            Ok(true)
        );
        assert_eq!(version("application/x-protobuf;proto=other"), Err(415));
        assert_eq!(version("application/json"), Err(415));
    }
}
