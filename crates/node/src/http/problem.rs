//! Errors of the REST API: `application/problem+json` (RFC 9457) with a hint.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use chappe_transport::codes;
use serde::{Serialize, Serializer};
use utoipa::ToSchema;

/// An error as the client sees it.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Problem {
    /// The address of the code's description in the documentation.
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    pub(crate) problem_type: Type,
    /// The kind of error for programs; `chappe explain` lists all codes.
    pub(crate) code: &'static str,
    /// The kind of error for people.
    pub(crate) title: &'static str,
    /// The HTTP status.
    pub(crate) status: u16,
    /// The error of this request.
    pub(crate) detail: String,
    /// How to avoid it, when known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(crate) hint: Option<Box<str>>,
    /// The value of `Retry-After`.
    #[serde(skip)]
    pub(crate) retry_after_s: Option<u32>,
}

/// The problem of a Thing Description that is not valid.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct InvalidThing {
    #[serde(flatten)]
    pub(crate) problem: Problem,
    /// The members that are not valid.
    #[serde(rename = "validationErrors", default)]
    pub(crate) validation_errors: Vec<ValidationError>,
}

impl IntoResponse for InvalidThing {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = self.problem.into_response();
        response.headers_mut().remove(header::CONTENT_LENGTH);
        *response.body_mut() = body.into();
        response
    }
}

/// A member of a Thing Description that is not valid.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct ValidationError {
    /// The member, as `properties.status.forms.0.href`; `(root)` for the document.
    pub(crate) field: String,
    /// What is wrong with it.
    pub(crate) description: String,
}

/// The type of a problem: the address of its code's description, on the same node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Type(&'static str);

impl Serialize for Type {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&codes::address(self.0))
    }
}

/// The codes of problems. They are part of the interface: none changes its meaning.
pub(crate) mod code {
    use axum::http::StatusCode;

    /// The request needs a credential and has none.
    pub(crate) const NO_CREDENTIAL: &str = "no_credential";
    /// The credential is malformed, unknown or revoked.
    pub(crate) const BAD_CREDENTIAL: &str = "bad_credential";
    /// The account has expired.
    pub(crate) const EXPIRED_CREDENTIAL: &str = "expired_credential";
    /// Too many bad credentials came from this address.
    pub(crate) const TOO_MANY_FAILURES: &str = "too_many_failures";
    /// The account does not have the role.
    pub(crate) const ROLE_MISSING: &str = "role_missing";
    /// The account has the role, but not for this stream or for the whole node.
    pub(crate) const OUTSIDE_ROLE: &str = "outside_role";
    /// A page of another site caused the request.
    pub(crate) const FOREIGN_ORIGIN: &str = "foreign_origin";
    /// There is an account of this name, or with this certificate.
    pub(crate) const ACCOUNT_EXISTS: &str = "account_exists";
    /// The account cannot be changed.
    pub(crate) const ACCOUNT_FIXED: &str = "account_fixed";

    /// The account has its share of the concurrent requests of this kind.
    pub(crate) const SHARE_OF_REQUESTS: &str = "share_of_requests";
    /// The account has its share of the streams.
    pub(crate) const SHARE_OF_STREAMS: &str = "share_of_streams";
    /// The definitions of the account's streams have their share of the room for definitions.
    pub(crate) const SHARE_OF_DEFINITIONS: &str = "share_of_definitions";
    /// The account's entities have their share of the registry.
    pub(crate) const SHARE_OF_REGISTRY: &str = "share_of_registry";
    /// The account's changes have their share of the audit stream.
    pub(crate) const SHARE_OF_AUDIT: &str = "share_of_audit";
    /// The body arrives too slowly.
    pub(crate) const SLOW_BODY: &str = "slow_body";
    /// The disk of the node is full.
    pub(crate) const DISK_FULL: &str = "disk_full";
    /// The node may not write a file of its configuration.
    pub(crate) const FILE_UNWRITABLE: &str = "file_unwritable";

    /// All codes that say more than the status.
    #[cfg(test)]
    pub(crate) const SPECIAL: [&str; 17] = [
        NO_CREDENTIAL,
        BAD_CREDENTIAL,
        EXPIRED_CREDENTIAL,
        TOO_MANY_FAILURES,
        ROLE_MISSING,
        OUTSIDE_ROLE,
        FOREIGN_ORIGIN,
        ACCOUNT_EXISTS,
        ACCOUNT_FIXED,
        SHARE_OF_REQUESTS,
        SHARE_OF_STREAMS,
        SHARE_OF_DEFINITIONS,
        SHARE_OF_REGISTRY,
        SHARE_OF_AUDIT,
        SLOW_BODY,
        DISK_FULL,
        FILE_UNWRITABLE,
    ];

    /// The codes of statuses.
    pub(crate) const BY_STATUS: [(StatusCode, &str); 17] = [
        (StatusCode::BAD_REQUEST, "bad_request"),
        (StatusCode::UNAUTHORIZED, "unauthorized"),
        (StatusCode::FORBIDDEN, "forbidden"),
        (StatusCode::NOT_FOUND, "not_found"),
        (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"),
        (StatusCode::REQUEST_TIMEOUT, "request_timeout"),
        (StatusCode::CONFLICT, "conflict"),
        (StatusCode::GONE, "gone"),
        (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
        (StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type"),
        (StatusCode::MISDIRECTED_REQUEST, "misdirected"),
        (StatusCode::UNPROCESSABLE_ENTITY, "invalid"),
        (StatusCode::TOO_MANY_REQUESTS, "too_many_requests"),
        (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        (StatusCode::BAD_GATEWAY, "bad_gateway"),
        (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
        (StatusCode::INSUFFICIENT_STORAGE, "no_room"),
    ];

    /// The code of a status.
    pub(super) fn of(status: StatusCode) -> &'static str {
        let known = BY_STATUS.iter().find(|(known, _)| *known == status);
        known.map_or("error", |(_, code)| code)
    }
}

impl Problem {
    /// An error with this status.
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        let code = code::of(status);
        Self {
            problem_type: Type(code),
            code,
            title: status.canonical_reason().unwrap_or("Error"),
            status: status.as_u16(),
            detail: detail.into(),
            hint: None,
            retry_after_s: None,
        }
    }

    /// Sets a code that is more exact than the status.
    pub(crate) fn code(mut self, code: &'static str) -> Self {
        self.problem_type = Type(code);
        self.code = code;
        self
    }

    /// Sets the time after which a request may succeed.
    pub(crate) fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after_s = Some(seconds);
        self
    }

    /// A fault of the client.
    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// A missing resource.
    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    /// A temporary refusal.
    pub(crate) fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    }

    /// A fault of the node; its detail is logged.
    pub(crate) fn internal(detail: impl Into<String>) -> Self {
        let problem = Self::new(StatusCode::INTERNAL_SERVER_ERROR, detail);
        tracing::error!(detail = problem.detail, "a request failed");
        problem
    }

    /// Adds a hint.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into().into_boxed_str());
        self
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::BAD_REQUEST);
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = (status, body).into_response();
        let kind = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        if let Some(seconds) = self.retry_after_s {
            let fields = response.headers_mut();
            fields.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer realm=\"chappe\"");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_explained() {
        let by_status = code::BY_STATUS.iter().map(|(_, code)| *code);
        for code in by_status.chain(code::SPECIAL).chain(["error"]) {
            assert!(
                codes::find(code).is_some_and(|it| it.code == code),
                "{code}"
            );
        }
    }
}
