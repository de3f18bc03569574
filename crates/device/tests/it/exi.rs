//! Goal: calls are EXI between our ends, also those refused with a fault, and text where either end turns it off. They
//! are by the schema of the service where both ends have it, and a fraction of the bytes of text.
//!
//! Method: over the loopback, through a relay that keeps the bytes of both directions.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use crate::common::*;
use chappe_device::client::{CallError, HostedService, Received};
use chappe_device::{
    ClientOptions, Device, DeviceClient, Fault, Key, Message, RunningDevice, Service,
};
use chappe_dpws::exi::ServiceSchema;
use chappe_transport::Hop;
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
type Kept = Arc<Mutex<Vec<u8>>>;

async fn copy(mut from: tcp::OwnedReadHalf, mut to: tcp::OwnedWriteHalf, kept: Kept) {
    let mut buffer = [0; 4_096];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        kept.lock().unwrap().extend_from_slice(&buffer[..length]);
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
            let text = String::from_utf8_lossy(&kept.lock().unwrap()).to_lowercase();
            text.matches("content-encoding: exi").count()
        };
        // The first request is text; its answer need not be.
        let (requests, answers) = if theirs && ours { (2, 3) } else { (0, 0) };
        assert_eq!((coded(&asked), coded(&answered)), (requests, answers));
    }
}

#[derive(Message, Debug, Clone, PartialEq)]
struct Numbers {
    value: Vec<i32>,
}

/// A device that echoes numbers and has them as an event, with its client and service.
struct Echo {
    running: RunningDevice,
    client: DeviceClient,
    service: HostedService,
    changed: chappe_device::Event<Numbers>,
}

async fn echo(address: &str, exi: bool) -> Echo {
    let mut service = Service::new(NAMESPACE, "Echo");
    let changed = service.event::<Numbers>("Changed");
    service.operation("Ask", async |asked: Numbers| Ok::<_, Fault>(asked));
    let key = chappe_identity::Key::from_seed(chappe_transport::seed().unwrap());
    let running = Device::new(Key::from(key))
        .model("Example", "E1")
        .name("echo")
        .service(service)
        .options(host_options(address))
        .start()
        .await
        .unwrap();
    let mut options: ClientOptions = client_options();
    options.http.exi = exi;
    let client = client(options);
    let description = described(&client, running.host().endpoint()).await;
    let service = description.services[0].clone();
    Echo {
        running,
        client,
        service,
        changed,
    }
}

/// Messages that the device refused since it did not know their schema.
fn unknown_schemas(echo: &Echo) -> u64 {
    let drops = echo.running.host().drops();
    drops.total(Hop::Http, "EXI of an unknown schema")
}

impl Echo {
    async fn ask(&self, count: usize) {
        let value = (0..count as i32).map(|number| number * 7_919 % 100_003);
        let numbers = Numbers {
            value: value.collect(),
        };
        let answer = self
            .client
            .invoke::<_, Numbers, Fault>(&self.service, "Ask", &numbers)
            .await;
        assert_eq!(answer.unwrap(), numbers);
    }
}

#[tokio::test]
async fn calls_by_the_schema_of_the_service_are_a_fraction_of_text() {
    let mut bytes = [[0; 2]; 2];
    for (address, exi) in [("127.0.2.93", false), ("127.0.2.94", true)] {
        let mut echo = echo(address, exi).await;
        let (through, asked, answered) = relay(echo.service.contact.address).await;
        echo.service.contact.address = through;
        for (of_count, count) in bytes.iter_mut().zip([1, 100]) {
            // The first is text, and the schema is then compiled.
            echo.ask(count).await;
            let length = || asked.lock().unwrap().len() + answered.lock().unwrap().len();
            let before = length();
            echo.ask(count).await;
            of_count[usize::from(exi)] = length() - before;
        }
        assert_eq!(echo.service.exi_schema.is_compiled(), exi);
        assert_eq!(unknown_schemas(&echo), 0);
    }
    for ([text, exi], most) in bytes.into_iter().zip([0.55, 0.3]) {
        let share = exi as f64 / text as f64;
        println!("{text} bytes as text, {exi} as EXI: {share:.3}");
        assert!(share <= most, "{exi} of {text} bytes: {share:.3}");
    }
}

#[tokio::test]
async fn a_schema_that_one_end_does_not_have_leads_back_to_the_common_one() {
    let mut echo = echo("127.0.2.95", true).await;
    // As if the device had another description now.
    let document = echo.service.documents[0].text.replace("Changed", "Altered");
    echo.service.exi_schema = ServiceSchema::new([&*document]);
    let (through, asked, _) = relay(echo.service.contact.address).await;
    echo.service.contact.address = through;
    for _ in 0..3 {
        echo.ask(1).await;
    }
    // The second call is refused once and sent again; the third is by the common schema at once.
    let text = String::from_utf8_lossy(&asked.lock().unwrap()).to_lowercase();
    assert_eq!(text.matches("content-encoding: exi").count(), 3);
    assert_eq!(unknown_schemas(&echo), 1);
}

#[tokio::test]
async fn events_by_the_schema_of_the_service_arrive() {
    let echo = echo("127.0.2.96", true).await;
    let mut events = echo
        .client
        .events::<Numbers>(&echo.service, "Changed")
        .await
        .unwrap();
    assert!(matches!(
        events.next().await,
        Some(Received::Subscribed { .. })
    ));
    for number in 0..4 {
        let numbers = Numbers {
            value: vec![number; 20],
        };
        echo.changed.send(numbers.clone()).await.unwrap();
        match events.next().await {
            Some(Received::Event(received, _)) => assert_eq!(received, numbers),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(unknown_schemas(&echo), 0);
    // The second event was EXI by it.
    assert!(echo.service.exi_schema.is_compiled());
}
