//! The node itself: its identity, health, readiness and metrics.

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use chappe_transport::{Dropped, codes};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::paging::Paging;
use super::params::Params;
use super::problem::Problem;
use crate::accounts::Caller;
use crate::catalogue::AUDIT;
use crate::clock;
use crate::notices::{Notice, NoticeKind};
use crate::shared::App;

/// The node.
#[derive(Serialize, ToSchema)]
pub(crate) struct Node {
    /// Its name.
    name: String,
    /// Its public key, hexadecimal.
    key: String,
    /// The program's version.
    version: &'static str,
    /// Time of its start (RFC 3339).
    started_at: String,
    /// The address it listens on.
    address: String,
    /// The address of its REST interface and its console, with the scheme.
    url: String,
    /// Its public CURVE key (Z85), which readers over ZeroMQ need.
    curve_key: String,
    /// The fingerprint of its certificate (SHA-256, hexadecimal), if TLS is on.
    fingerprint: Option<String>,
    /// Free bytes on the disk of its data directory.
    data_directory_free_bytes: u64,
    /// Its resident memory.
    resident_bytes: u64,
}

/// Name, keys and addresses of the node.
#[utoipa::path(get, path = "/api/v1/node", tag = "node", responses((status = 200, body = Node)))]
pub(super) async fn node(State(app): State<App>) -> Json<Node> {
    Json(Node {
        name: app.identity.name.clone(),
        key: app.identity.public_key.clone(),
        version: env!("CARGO_PKG_VERSION"),
        started_at: app.identity.started_at.to_string(),
        address: app.identity.address.to_string(),
        url: app.identity.url(),
        curve_key: app.identity.key.curve().public().to_z85(),
        fingerprint: app.identity.fingerprint(),
        data_directory_free_bytes: app.storage.free_bytes(),
        resident_bytes: crate::measure::resident_bytes(),
    })
}

/// Drops at one hop for one reason from one peer.
#[derive(Serialize, ToSchema)]
pub(crate) struct Drop {
    /// The hop: discovery, address, http, metadata, call, event, element, network.
    at_hop: &'static str,
    /// The reason, from a fixed set.
    reason: &'static str,
    /// The reason as a code, which `chappe explain` explains.
    code: String,
    /// The sender: an address or a device's key; empty when unknown.
    peer: String,
    /// Number of drops.
    count: u64,
    /// Time of the last drop (RFC 3339).
    last_at: String,
    /// Detail of the last drop.
    detail: String,
    /// How to avoid it, when known.
    hint: Option<String>,
}

impl Drop {
    fn of(dropped: Dropped) -> Self {
        Self {
            at_hop: dropped.hop.as_str(),
            reason: dropped.reason,
            code: codes::of(dropped.reason),
            peer: dropped.peer,
            count: dropped.count,
            last_at: clock::timestamp(dropped.last_at).to_string(),
            detail: dropped.detail,
            hint: dropped.hint,
        }
    }
}

/// Dropped messages and elements.
#[derive(Serialize, ToSchema)]
pub(crate) struct Drops {
    /// One row for each hop, reason and peer, the latest first.
    drops: Vec<Drop>,
    /// The cursor of the next part; null at the end.
    next: Option<String>,
}

/// The requested drops.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DropParams {
    /// Only those at this hop.
    at_hop: Option<String>,
    /// Only those for this reason.
    reason: Option<String>,
    /// Only those of this sender.
    peer: Option<String>,
    /// Maximum number of entries; without it, all.
    #[param(minimum = 1)]
    limit: Option<usize>,
    /// The value of `next` in the previous response.
    cursor: Option<String>,
}

/// Dropped messages and elements, with the reasons.
#[utoipa::path(get, path = "/api/v1/drops", tag = "node", params(DropParams),
    responses((status = 200, body = Drops), (status = 400, body = Problem)))]
pub(super) async fn drops(
    State(app): State<App>,
    caller: Caller,
    Params(params): Params<DropParams>,
) -> Result<Json<Drops>, Problem> {
    let is = |wanted: &Option<String>, text: &str| wanted.as_ref().is_none_or(|it| it == text);
    let mut entries = app.observability.drops.entries();
    entries.retain(|drop| {
        let is_visible = drop.peer != AUDIT || caller.administers();
        is_visible
            && is(&params.at_hop, drop.hop.as_str())
            && is(&params.reason, drop.reason)
            && is(&params.peer, &drop.peer)
    });
    let paging = Paging::new(params.limit, params.cursor);
    let latest_first = |drop: &Dropped| {
        let age = i64::MAX - clock::timestamp(drop.last_at).0.max(0);
        format!("{age:020} {} {} {}", drop.hop, drop.reason, drop.peer)
    };
    let (entries, next) = paging.cut_by("drops", entries, latest_first)?;
    let drops = entries.into_iter().map(Drop::of).collect();
    Ok(Json(Drops { drops, next }))
}

/// Recent notices.
#[derive(Serialize, ToSchema)]
pub(crate) struct Notices {
    /// Oldest first.
    notices: Vec<Notice>,
    /// The cursor of the next part; null at the end.
    next: Option<String>,
}

/// The requested notices.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct NoticeParams {
    /// Only notices of this kind.
    kind: Option<NoticeKind>,
    /// Only notices about this device, stream or sensor.
    subject: Option<String>,
    /// Maximum number of entries; without it, all.
    #[param(minimum = 1)]
    limit: Option<usize>,
    /// The value of `next` in the previous response.
    cursor: Option<String>,
}

/// Recent notices: devices, bindings, the node's own state.
#[utoipa::path(get, path = "/api/v1/notices", tag = "node", params(NoticeParams),
    responses((status = 200, body = Notices), (status = 400, body = Problem)))]
pub(super) async fn notices(
    State(app): State<App>,
    Params(params): Params<NoticeParams>,
) -> Result<Json<Notices>, Problem> {
    let mut numbered = app.observability.notices.numbered();
    numbered.retain(|(_, notice)| {
        let is_about = |subject: &String| *subject == notice.subject;
        params.kind.is_none_or(|kind| kind == notice.kind)
            && params.subject.as_ref().is_none_or(is_about)
    });
    let paging = Paging::new(params.limit, params.cursor);
    let key = |(number, _): &(u64, Notice)| format!("{number:020}");
    let (numbered, next) = paging.cut_by("notices", numbered, key)?;
    let notices = numbered.into_iter().map(|(_, notice)| notice).collect();
    Ok(Json(Notices { notices, next }))
}

/// The node's health or readiness.
#[derive(Serialize, ToSchema)]
pub(crate) struct Health {
    /// `ok`, `damaged`, `ready` or `not ready`.
    status: &'static str,
    /// Why it is not ready, or which stored data is damaged.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reasons: Vec<String>,
}

/// Liveness, and whether stored data is damaged.
#[utoipa::path(get, path = "/health", tag = "node", responses((status = 200, body = Health)))]
pub(super) async fn health(State(app): State<App>) -> Json<Health> {
    let reasons = app.storage.damage();
    let status = if reasons.is_empty() { "ok" } else { "damaged" };
    Json(Health { status, reasons })
}

/// Readiness: whether the node accepts data. It does unless the log failed, the disk is full or the
/// node is shutting down.
#[utoipa::path(get, path = "/ready", tag = "node",
    responses((status = 200, body = Health), (status = 503, body = Health)))]
pub(super) async fn ready(State(app): State<App>) -> (StatusCode, Json<Health>) {
    let reasons = app.reasons_not_ready();
    let (code, status) = if reasons.is_empty() {
        (StatusCode::OK, "ready")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready")
    };
    (code, Json(Health { status, reasons }))
}

/// Metrics for Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "node",
    responses((status = 200, content_type = "application/openmetrics-text", body = String)))]
pub(super) async fn metrics(State(app): State<App>, caller: Caller) -> Result<Response, Problem> {
    crate::measure::measure(&app);
    let mut text = app
        .observability
        .metrics
        .text()
        .map_err(|_| Problem::internal("writing the metrics failed"))?;
    if !caller.administers() {
        // Only administrators see how much is audited.
        let label = format!("stream=\"{AUDIT}\"");
        let lines = text.split_inclusive('\n');
        text = lines.filter(|line| !line.contains(&label)).collect();
    }
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}
