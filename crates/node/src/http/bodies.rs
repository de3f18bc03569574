//! Bodies that tell the place of their connection how far a request is.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use chappe_transport::http::Place;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};

/// The body of a request: when it is whole, the connection is being answered.
pub(super) struct Arriving {
    body: Incoming,
    place: Arc<Place>,
}

impl Arriving {
    pub(super) fn new(body: Incoming, place: Arc<Place>) -> Self {
        if body.is_end_stream() {
            place.is_answered();
        }
        Self { body, place }
    }
}

impl hyper::body::Body for Arriving {
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

/// The body of an answer: when it is sent, the connection waits for the next request.
pub(super) struct Leaving {
    body: Body,
    place: Arc<Place>,
}

impl Leaving {
    pub(super) fn new(body: Body, place: Arc<Place>) -> Self {
        Self { body, place }
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.place.waits();
    }
}

impl hyper::body::Body for Leaving {
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
