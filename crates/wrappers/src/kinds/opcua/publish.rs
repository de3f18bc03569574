//! Requests for notifications.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use opcua_core::ResponseMessage;
use opcua_types::{
    NotificationMessage, PublishRequest, PublishResponse, RepublishRequest,
    SubscriptionAcknowledgement,
};

use super::connection::{ANSWER_TIME, Connection, Fault};

type Answer<'a> = Pin<Box<dyn Future<Output = Result<PublishResponse, Fault>> + Send + 'a>>;

/// Requests for notifications, in order: a server answers them in the order in which they came.
#[derive(Default)]
pub(super) struct Publishes<'a>(VecDeque<(Answer<'a>, Option<Result<PublishResponse, Fault>>)>);

impl<'a> Publishes<'a> {
    /// The number of requests that wait.
    pub(super) fn waiting(&self) -> usize {
        self.0.len()
    }

    /// Adds a request, which is sent when the next answer is waited for.
    pub(super) fn add(
        &mut self,
        connection: &'a Connection,
        acknowledgements: Vec<SubscriptionAcknowledgement>,
        time: Duration,
    ) {
        let request = publish(connection, acknowledgements, time);
        self.0.push_back((Box::pin(request), None));
    }

    /// The answer to the first request. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Result<PublishResponse, Fault> {
        std::future::poll_fn(|context| {
            for (future, answer) in &mut self.0 {
                if answer.is_none()
                    && let Poll::Ready(ready) = future.as_mut().poll(context)
                {
                    *answer = Some(ready);
                }
            }
            match self.0.front().is_some_and(|(_, answer)| answer.is_some()) {
                true => match self.0.pop_front() {
                    Some((_, Some(answer))) => Poll::Ready(answer),
                    _ => Poll::Pending,
                },
                false => Poll::Pending,
            }
        })
        .await
    }
}

async fn publish(
    connection: &Connection,
    acknowledgements: Vec<SubscriptionAcknowledgement>,
    time: Duration,
) -> Result<PublishResponse, Fault> {
    let build = |request_header| PublishRequest {
        request_header,
        subscription_acknowledgements: (!acknowledgements.is_empty()).then_some(acknowledgements),
    };
    connection
        .request(time, build, |answer| match answer {
            ResponseMessage::Publish(it) => Ok((it.response_header.clone(), *it)),
            other => Err(other),
        })
        .await
}

/// A notification that is asked for again; none if the server has it no longer.
pub(super) async fn republish(
    connection: &Connection,
    subscription_id: u32,
    number: u32,
) -> Result<Option<NotificationMessage>, Fault> {
    let build = |request_header| RepublishRequest {
        request_header,
        subscription_id,
        retransmit_sequence_number: number,
    };
    let message = connection
        .request(ANSWER_TIME, build, |answer| match answer {
            ResponseMessage::Republish(it) => Ok((it.response_header, it.notification_message)),
            other => Err(other),
        })
        .await;
    match message {
        // Some servers answer with an empty message instead of a fault.
        Ok(message) => Ok(Some(message).filter(|it| it.sequence_number == number)),
        Err(fault) if fault.is_disconnect() => Err(fault),
        Err(_) => Ok(None),
    }
}
