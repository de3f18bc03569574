//! Goal: a device, a client and the types that `chappe describe --rust` writes need no other dependency than this crate.
//! Method: the names of the other crates lead to `core` in this program, so code that is derived or written with
//! one of them does not compile.

extern crate core as chappe_dpws;
extern crate core as chappe_identity;
extern crate core as chappe_message_derive;
extern crate core as chappe_soap;
extern crate core as chappe_transport;
extern crate core as chappe_xml;

use chappe_device::{Device, DeviceClient, Drops, Fault, Key, Message, Service};

#[path = "it/generated/types.rs"]
#[rustfmt::skip]
#[expect(dead_code, unreachable_pub, reason = "the source is for libraries, and only compiled here")]
mod types;

#[derive(Message, Debug, PartialEq)]
struct Level {
    #[attribute]
    valve: String,
    #[unit("%")]
    percent: f64,
    #[choice]
    mode: Mode,
}

#[derive(Message, Debug, PartialEq)]
enum Mode {
    Slow(()),
    Within(Limits),
}

#[derive(Message, Debug, PartialEq)]
struct Limits {
    low: Option<f64>,
    high: Vec<f64>,
}

#[derive(Fault, Debug, PartialEq)]
enum Refused {
    OutOfRange(Limits),
    Busy { seconds: u32 },
}

fn moved(asked: Level) -> Result<Level, Refused> {
    let limits = || Limits {
        low: None,
        high: vec![100.0],
    };
    match asked.percent {
        percent if percent > 100.0 => Err(Refused::OutOfRange(limits())),
        percent if percent < 0.0 => Err(Refused::Busy { seconds: 5 }),
        _ => Ok(asked),
    }
}

#[tokio::test]
async fn a_device_needs_no_other_dependency() {
    let mut service = Service::new("https://example.org/valve", "Valve");
    service.operation("MoveTo", async |asked: Level| moved(asked));
    let device = Device::new(Key::from_seed([7; 32])).model("Example", "V1");
    let mut bench = device.name("valve").service(service).bench().unwrap();
    let level = |percent| Level {
        valve: "north".into(),
        percent,
        mode: Mode::Within(Limits {
            low: Some(1.0),
            high: Vec::new(),
        }),
    };
    let answer: Result<Level, Fault> = bench.call("Valve", "MoveTo", &level(40.0)).await;
    assert_eq!(answer.unwrap(), level(40.0));
    for (percent, name) in [(140.0, "OutOfRange"), (-1.0, "Busy")] {
        let answer: Result<Level, Fault> = bench.call("Valve", "MoveTo", &level(percent)).await;
        assert_eq!(answer.unwrap_err().subcode.unwrap().local, name);
    }
    // A client needs the log of drops besides.
    let _: fn(_, Drops) -> Result<DeviceClient, chappe_device::Error> = DeviceClient::start;
}
