//! Bodies that report a request's progress to the connection table.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use chappe_transport::http::Place;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};

/// The body of a request; when complete, it marks the connection as being answered.
pub(super) struct RequestBody {
    body: Incoming,
    place: Arc<Place>,
}

impl RequestBody {
    pub(super) fn new(body: Incoming, place: Arc<Place>) -> Self {
        if body.is_end_stream() {
            place.is_answered();
        }
        Self { body, place }
    }
}

impl hyper::body::Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if matches!(frame, Poll::Ready(None)) || self.body.is_end_stream() {
            self.place.is_answered();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of a response; when sent, it marks the connection as waiting for a request.
pub(super) struct ResponseBody {
    body: Body,
    place: Arc<Place>,
}

impl ResponseBody {
    pub(super) fn new(body: Body, place: Arc<Place>) -> Self {
        Self { body, place }
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        self.place.waits();
    }
}

impl hyper::body::Body for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
