//! A valve: it moves to the position that a client asks for, which takes time, and reports each step. The
//! answer comes at once; a position that it cannot reach is a fault with the limits.
//!
//! Run: `actuator [ADDRESS]`, on the loopback with an address such as 127.0.1.10.

use std::net::IpAddr;
use std::time::Duration;

use chappe_device::{Device, Fault, Key, Message, Service};
use tokio::sync::watch;

/// The time of one step.
const STEP: Duration = Duration::from_millis(200);

/// What the valve does.
#[derive(Message, Debug, Clone, Copy, PartialEq)]
enum Motion {
    /// It has reached its position.
    Resting,
    Opening,
    Closing,
}

/// A position of the valve.
#[derive(Message, Debug, Clone)]
struct Position {
    /// 0 is closed.
    #[unit("%")]
    percent: i32,
}

#[derive(Message, Debug)]
struct State {
    #[unit("%")]
    percent: i32,
    motion: Motion,
}

#[derive(Message, Debug)]
struct Limits {
    #[unit("%")]
    from: i32,
    #[unit("%")]
    to: i32,
}

#[derive(Fault, Debug)]
enum Refused {
    /// the valve cannot move there
    OutOfRange(Limits),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let addresses: Vec<IpAddr> = std::env::args()
        .skip(1)
        .map(|it| it.parse())
        .collect::<Result<_, _>>()?;
    let (target, mut targets) = watch::channel(0);

    let mut service = Service::new("https://chappe.example/valve", "Valve");
    let moved = service.event::<State>("Moved");
    let asked_to = target.clone();
    service.operation("MoveTo", async move |asked: Position| match asked.percent {
        0..=100 => {
            asked_to.send_replace(asked.percent);
            Ok(asked)
        }
        _ => Err(Refused::OutOfRange(Limits { from: 0, to: 100 })),
    });
    service.one_way("Close", async move |(): ()| {
        target.send_replace(0);
    });

    let key = Key::load(std::env::temp_dir().join("valve.key"))?;
    let device = Device::new(key)
        .model("Chappe", "valve")
        .name("main valve")
        .service(service)
        .addresses(addresses)
        .start()
        .await?;
    println!(
        "{} is ready at {:?}",
        device.host().endpoint(),
        device.host().addresses()
    );
    let mut percent = 0;
    loop {
        let motion = match targets.borrow_and_update().cmp(&percent) {
            std::cmp::Ordering::Less => Motion::Closing,
            std::cmp::Ordering::Equal => Motion::Resting,
            std::cmp::Ordering::Greater => Motion::Opening,
        };
        moved.send(State { percent, motion }).await?;
        match motion {
            Motion::Resting => targets.changed().await?,
            Motion::Opening => percent += 1,
            Motion::Closing => percent -= 1,
        }
        tokio::time::sleep(STEP).await;
    }
}
