//! Accepts connections within the limits and performs their handshakes.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use chappe_machine::Instant;
use chappe_zmtp::{Config, SocketType};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

use super::driver::{self, Driver};
use super::hold::{Budget, Hold};
use super::{Endpoint, Error, Limits, Peer, Security};
use crate::http::{Place, Places, Taking, neighbourhood};
use crate::{Clock, Drops, Hop};

/// Connections that the kernel queues before they are accepted.
const BACKLOG: u32 = 256;
/// The pause after the system fails to provide a connection (no file descriptors, no memory).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Addresses with a separate count of new connections in this second; further ones share a count.
const ADDRESSES_MAX: usize = 4_096;

/// Serves a connection after its handshake, until it ends.
pub(super) trait Serve: Clone + Send + Sync + 'static {
    /// Serves it; returns the cause of its end.
    fn serve(&self, driver: Driver, peer: Peer) -> impl Future<Output = Error> + Send;
}

/// A listening socket. Dropping it closes it and all its connections.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) local: SocketAddr,
    accept: AbortHandle,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.accept.abort();
    }
}

impl Listener {
    pub(super) fn bind(
        endpoint: &str,
        socket_type: SocketType,
        security: &Security,
        limits: &Limits,
        drops: Drops,
        serve: impl Serve,
    ) -> Result<Self, Error> {
        let address = endpoint.parse::<Endpoint>()?.to_bind()?;
        let listener = listen(address).map_err(|source| Error::Bind {
            endpoint: endpoint.to_owned(),
            source: Arc::new(source),
        })?;
        let (listener, local) = listener;
        let accepting = Accepting {
            config: driver::config(socket_type, security, limits),
            places: Places::new(limits.connections, limits.connections_per_address),
            pace: Pace::new(limits),
            displaces_idle: limits.displaces_idle,
            message_time: limits.message_time,
            budget: limits.unfinished_bytes.map(Budget::new),
            drops,
            serve,
        };
        let accept = tokio::spawn(accepting.run(listener)).abort_handle();
        Ok(Self { local, accept })
    }
}

fn listen(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let listener = socket.listen(BACKLOG)?;
    let local = listener.local_addr()?;
    Ok((listener, local))
}

struct Accepting<S> {
    config: Config,
    places: Arc<Places>,
    pace: Pace,
    displaces_idle: bool,
    message_time: Option<Duration>,
    budget: Option<Arc<Budget>>,
    drops: Drops,
    serve: S,
}

impl<S: Serve> Accepting<S> {
    async fn run(mut self, listener: TcpListener) {
        // Dropped with the listener, and with it all connections.
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => {
                        if let Some(wait) = self.begin(stream, peer, &mut connections) {
                            tokio::time::sleep(wait).await;
                        }
                    }
                    Err(error) => {
                        self.drops.record(Hop::Exchange, "no connection from the system", "",
                            error.to_string(), Some("raise the limit of open files: ulimit -n".into()));
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }

    /// Starts or refuses a connection. Returns how long to wait before the next one.
    fn begin(
        &mut self,
        stream: TcpStream,
        peer: SocketAddr,
        connections: &mut JoinSet<()>,
    ) -> Option<Duration> {
        let wait = match self.pace.admit(neighbourhood(peer), Clock::process().now()) {
            Admission::Now => None,
            Admission::LastOfThis(second) => Some(second),
            Admission::Refused => {
                let hint = "the peer may reconnect without a pause".to_owned();
                let reason = "too many new connections";
                self.drops
                    .record(Hop::Exchange, reason, peer.ip(), "", Some(hint));
                return None;
            }
        };
        let place = match self.places.take(peer) {
            Taking::Free(place) => place,
            // The displaced connection records its own end.
            Taking::Displaced(place, _) => place,
            Taking::Full(_) => {
                let error = Error::Displaced { peer };
                note(&self.drops, peer, &error);
                return wait;
            }
        };
        let place = Arc::new(place);
        let is_idle = self.displaces_idle;
        let shown = match is_idle {
            true => Arc::downgrade(&place),
            false => Weak::new(),
        };
        let hold = Hold::new(self.message_time, self.budget.clone(), shown);
        let (config, serve, drops) = (self.config.clone(), self.serve.clone(), self.drops.clone());
        connections.spawn(async move {
            let error = attend(stream, peer, config, &place, hold, is_idle, serve).await;
            note(&drops, peer, &error);
        });
        wait
    }
}

async fn attend(
    stream: TcpStream,
    address: SocketAddr,
    config: Config,
    place: &Place,
    hold: Hold,
    displaces_idle: bool,
    serve: impl Serve,
) -> Error {
    let handshake = async {
        tokio::select! {
            done = Driver::handshake(stream, address, config) => done,
            () = place.displaced() => Err(Error::Displaced { peer: address }),
        }
    };
    match handshake.await {
        Ok((mut driver, peer)) => {
            driver.bound(hold);
            if displaces_idle {
                place.waits();
            } else {
                // From here on it is never displaced.
                place.is_answered();
            }
            tokio::select! {
                error = serve.serve(driver, peer) => error,
                () = place.displaced() => Error::Displaced { peer: address },
            }
        }
        Err(error) => error,
    }
}

/// Records the end of a connection, unless it is normal.
pub(super) fn note(drops: &Drops, peer: SocketAddr, error: &Error) {
    match error {
        Error::Closed
        | Error::Ended {
            handshake: false, ..
        } => {}
        error => drops.record(
            Hop::Exchange,
            error.reason(),
            peer.ip(),
            error.to_string(),
            error.hint(),
        ),
    }
}

/// The number of new connections in this second.
struct Pace {
    per_address: u32,
    in_all: u32,
    second: Instant,
    all: u32,
    addresses: HashMap<Option<IpAddr>, u32>,
}

#[derive(Debug, PartialEq, Eq)]
enum Admission {
    Now,
    /// Admitted; the next one has to wait this long.
    LastOfThis(Duration),
    Refused,
}

impl Pace {
    fn new(limits: &Limits) -> Self {
        Self {
            per_address: limits.handshakes_per_address_per_s,
            in_all: limits.handshakes_per_s,
            second: Instant::ZERO,
            all: 0,
            addresses: HashMap::new(),
        }
    }

    fn admit(&mut self, address: IpAddr, now: Instant) -> Admission {
        const SECOND: Duration = Duration::from_secs(1);
        if now >= self.second + SECOND {
            (self.second, self.all) = (now, 0);
            self.addresses.clear();
        }
        let key = Some(address);
        let room = self.addresses.len() < ADDRESSES_MAX || self.addresses.contains_key(&key);
        let count = self
            .addresses
            .entry(if room { key } else { None })
            .or_default();
        if *count >= self.per_address {
            return Admission::Refused;
        }
        *count += 1;
        self.all += 1;
        match self.all >= self.in_all {
            true => Admission::LastOfThis(self.second + SECOND - now),
            false => Admission::Now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_is_kept_by_address_and_in_all() {
        let limits = Limits {
            handshakes_per_address_per_s: 2,
            handshakes_per_s: 5,
            ..Limits::default()
        };
        let mut pace = Pace::new(&limits);
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let address = |last| IpAddr::from([127, 0, 0, last]);
        assert_eq!(pace.admit(address(1), at(2_000)), Admission::Now);
        assert_eq!(pace.admit(address(1), at(2_100)), Admission::Now);
        assert_eq!(pace.admit(address(1), at(2_200)), Admission::Refused);
        assert_eq!(pace.admit(address(2), at(2_200)), Admission::Now);
        assert_eq!(pace.admit(address(3), at(2_200)), Admission::Now);
        let wait = Duration::from_millis(500);
        assert_eq!(
            pace.admit(address(4), at(2_500)),
            Admission::LastOfThis(wait)
        );
        assert_eq!(pace.admit(address(1), at(3_000)), Admission::Now);
    }
}
