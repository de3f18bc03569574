//! Goal: calls are EXI between our ends, also those refused with a fault, and text where either end turns it off.
//!
//! Method: over the loopback, through a relay that keeps the bytes of both directions.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use crate::common::*;
use chappe_device::client::CallError;
use chappe_device::{Device, Key, Message, Service};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, tcp};

#[derive(Message, Debug, Clone, PartialEq)]
struct Level {
    #[unit("%")]
    percent: i32,
    note: String,
}

#[derive(chappe_device::Fault, Debug, PartialEq)]
enum Refused {
    /// it cannot move there
    OutOfRange(Level),
}

/// What crossed the relay.
type Kept = Arc<Mutex<String>>;

async fn copy(mut from: tcp::OwnedReadHalf, mut to: tcp::OwnedWriteHalf, kept: Kept) {
    let mut buffer = [0; 4_096];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let text = String::from_utf8_lossy(&buffer[..length]).to_lowercase();
        kept.lock().unwrap().push_str(&text);
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}

/// A relay in front of `device`: its address, the requests and the answers.
async fn relay(device: SocketAddr) -> (SocketAddr, Kept, Kept) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (asked, answered) = (Kept::default(), Kept::default());
    let kept = (Arc::clone(&asked), Arc::clone(&answered));
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (from_client, to_client) = client.into_split();
            let device = TcpStream::connect(device).await.unwrap();
            let (from_device, to_device) = device.into_split();
            tokio::spawn(copy(from_client, to_device, Arc::clone(&kept.0)));
            tokio::spawn(copy(from_device, to_client, Arc::clone(&kept.1)));
        }
    });
    (address, asked, answered)
}

#[tokio::test]
async fn calls_are_exi_unless_an_end_turns_it_off() {
    for (address, theirs, ours) in [
        ("127.0.2.90", true, true),
        ("127.0.2.91", false, true),
        ("127.0.2.92", true, false),
    ] {
        let mut service = Service::new(NAMESPACE, "Valve");
        service.operation("Move", async |asked: Level| match asked.percent {
            0..=100 => Ok(asked),
            _ => Err(Refused::OutOfRange(asked)),
        });
        let mut options = host_options(address);
        options.server.exi = theirs;
        let key = chappe_identity::Key::from_seed(chappe_transport::seed().unwrap());
        let running = Device::new(Key::from(key))
            .model("Example", "V1")
            .name("valve")
            .service(service)
            .options(options)
            .start()
            .await
            .unwrap();
        let mut options = client_options();
        options.http.exi = ours;
        let client = client(options);
        let description = described(&client, running.host().endpoint()).await;
        let mut service = description.services[0].clone();
        let (through, asked, answered) = relay(service.contact.address).await;
        service.contact.address = through;

        for percent in [1, 2, 101] {
            let level = Level {
                percent,
                note: " <spaces & ends> ".to_owned(),
            };
            let answer = client
                .invoke::<_, Level, Refused>(&service, "Move", &level)
                .await;
            match answer {
                Ok(answer) => assert_eq!(answer, level),
                Err(CallError::Refused(Refused::OutOfRange(refused))) => {
                    assert_eq!((refused, percent), (level, 101));
                }
                Err(error) => panic!("{error}"),
            }
        }
        let coded = |kept: &Kept| {
            kept.lock()
                .unwrap()
                .matches("content-encoding: exi")
                .count()
        };
        // The first request is text; its answer need not be.
        let (requests, answers) = if theirs && ours { (2, 3) } else { (0, 0) };
        assert_eq!((coded(&asked), coded(&answered)), (requests, answers));
    }
}
