//! Measures messages a second over DEALER and ROUTER with a window of unacknowledged ones, both ends in one process and
//! one thread over loopback.
//!
//!     zeromq_rate [BYTES [COUNT]]    default 100 200000

use std::error::Error;
use std::time::Instant;

use bytes::Bytes;
use chappe_transport::Drops;
use chappe_transport::zeromq::{Allowed, CurveSecret, Dealer, Limits, Router, Security};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let bytes = arguments.next().map_or(Ok(100), |word| word.parse())?;
    let count = arguments.next().map_or(Ok(200_000), |word| word.parse())?;
    let (server, client) = (CurveSecret::new([1; 32]), CurveSecret::new([2; 32]));
    let curve_server = Security::CurveServer {
        secret: server.clone(),
        allowed: Allowed::Any,
    };
    let curve_client = Security::CurveClient {
        secret: client,
        server_key: server.public(),
    };
    for (name, at_router, at_dealer) in [
        ("NULL", Security::Null, Security::Null),
        ("CURVE", curve_server, curve_client),
    ] {
        for (window, every) in [(1, 1), (64, 16), (1_024, 128)] {
            let rate = rate(&at_router, &at_dealer, bytes, count, window, every).await?;
            println!(
                "{name} {bytes} bytes, window {window}, acknowledged every {every}: {rate:.0}/s"
            );
        }
    }
    Ok(())
}

async fn rate(
    at_router: &Security,
    at_dealer: &Security,
    bytes: usize,
    count: usize,
    window: usize,
    every: usize,
) -> Result<f64, Box<dyn Error>> {
    // With one round trip for each message a small count is sufficient.
    let count = if window == 1 { count / 10 } else { count };
    let limits = Limits::default();
    let bound = Router::bind(
        "tcp://127.0.0.1:0",
        at_router.clone(),
        limits.clone(),
        Drops::default(),
    );
    let mut router = bound.await?;
    let endpoint = router.local_endpoint().to_string();
    let dealer = Dealer::connect(&endpoint, at_dealer.clone(), limits);
    let (dealer, accepted) = tokio::join!(dealer, router.accept());
    let (mut sender, mut receiver) = dealer?.split();
    let mut accepted = accepted?;
    tokio::spawn(async move {
        let mut received = 0_usize;
        while accepted.recv().await.is_ok() {
            received += 1;
            if received.is_multiple_of(every)
                && accepted
                    .send(received.to_be_bytes().to_vec())
                    .await
                    .is_err()
            {
                return;
            }
        }
    });
    let payload = Bytes::from(vec![7; bytes]);
    let (mut sent, mut acknowledged) = (0, 0);
    let started = Instant::now();
    while acknowledged < count / every * every {
        while sent < count && sent - acknowledged < window {
            sender.feed(payload.clone()).await?;
            sent += 1;
        }
        sender.flush();
        let message = receiver.recv().await?;
        acknowledged = usize::from_be_bytes(message.first()[..].try_into()?);
    }
    Ok(acknowledged as f64 / started.elapsed().as_secs_f64())
}
