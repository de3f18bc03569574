//! Shared by both carriers over ZeroMQ: a runtime, keys, and timed waits.

use std::collections::BTreeSet;
use std::task::{Context, Poll};
use std::time::Duration;

use chappe_machine::Instant;
use chappe_transport::zeromq::{Allowed, CurvePublic, CurveSecret, Endpoint, Security};
use chappe_transport::{Clock, FineAlarm};
use tokio::runtime::Runtime;

use crate::Error;

/// The settings of a listening endpoint.
pub(super) struct Offered {
    pub(super) security: Security,
    /// The key that others need.
    pub(super) key: Option<CurvePublic>,
}

/// The listener's security: none on loopback, CURVE with a new key beyond.
pub(super) fn offered(listen: &str, allow: &[CurvePublic]) -> Result<Offered, Error> {
    if listen.parse::<Endpoint>()?.is_loopback() && allow.is_empty() {
        let security = Security::Null;
        return Ok(Offered {
            security,
            key: None,
        });
    }
    let secret = secret()?;
    let key = Some(secret.public());
    let allowed = match allow {
        [] => Allowed::Any,
        keys => Allowed::Keys(keys.iter().copied().collect::<BTreeSet<_>>()),
    };
    let security = Security::CurveServer { secret, allowed };
    Ok(Offered { security, key })
}

/// The settings to connect to a listener with this key.
pub(super) fn connecting(server_key: Option<CurvePublic>) -> Result<Security, Error> {
    Ok(match server_key {
        None => Security::Null,
        Some(server_key) => Security::CurveClient {
            secret: secret()?,
            server_key,
        },
    })
}

fn secret() -> Result<CurveSecret, Error> {
    let bytes = chappe_transport::seed().map_err(Error::io("making a key"))?;
    Ok(CurveSecret::new(bytes))
}

/// A runtime on this thread, and an alarm on it.
pub(super) fn runtime(spin: Duration) -> Result<(Runtime, FineAlarm), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Error::io("starting the runtime"))?;
    let alarm = {
        let _entered = runtime.enter();
        FineAlarm::new(spin).map_err(Error::io("making a timer"))?
    };
    Ok((runtime, alarm))
}

/// Polls until something has changed, at the latest until the given time. Pending work comes first;
/// then the system is polled, and only then does it wait.
pub(super) async fn until<T>(
    alarm: &mut FineAlarm,
    at: Instant,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> Option<T> {
    let mut now = |context: &mut Context<'_>| {
        Poll::Ready(match poll(context) {
            Poll::Ready(changed) => Some(changed),
            Poll::Pending => None,
        })
    };
    if let Some(changed) = std::future::poll_fn(&mut now).await {
        return Some(changed);
    }
    tokio::task::yield_now().await;
    alarm.set(Some(Clock::process().at(at)));
    std::future::poll_fn(|context| match poll(context) {
        Poll::Ready(changed) => Poll::Ready(Some(changed)),
        Poll::Pending => alarm.poll(context).map(|()| None),
    })
    .await
}
