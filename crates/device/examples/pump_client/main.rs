//! Calls a service of another stack by the types that `chappe describe pump.wsdl --rust` writes:
//! `pump_client ADDRESS pump.wsdl`. `check/dpws/gsoap_server.py` runs it with a server by gSOAP.

use std::{env, error::Error, fs};

use chappe_device::client::{CallError, Document, HostedService};
use chappe_device::{ClientOptions, DeviceClient, Drops, Selection};

#[rustfmt::skip]
#[expect(unreachable_pub, reason = "the source is for libraries, too")]
mod types;

use types::pump::{
    FILL, Fill, FillFault, FillResponse, Overflow, STOP, Speed, Step, Stop, Target, Volume,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut words = env::args().skip(1);
    let (Some(address), Some(path)) = (words.next(), words.next()) else {
        return Err("usage: pump_client ADDRESS WSDL".into());
    };
    let text = fs::read_to_string(&path)?;
    let document = Document {
        location: path,
        text,
    };
    let service = HostedService::from_documents(&address, vec![document])?;
    // It is not searched for, so the network is of no concern.
    let options = ClientOptions {
        selection: Selection::Addresses(vec!["127.0.0.1".parse()?]),
        probe_period: None,
        ..ClientOptions::default()
    };
    let client = DeviceClient::start(options, Drops::default())?;

    let step = |number, speed| Step {
        number,
        seconds: 1.5,
        speed,
    };
    let fill = |target| Fill {
        tank: "north <1>".to_owned(),
        target,
        step: vec![step(1, Speed::Slow), step(2, Speed::Fast)],
        note: None,
    };
    for (target, litres) in [(Target::Litres(12.5), 12.5), (Target::Level(3), 300.0)] {
        let answered = client
            .invoke::<Fill, FillResponse, FillFault>(&service, FILL, &fill(target))
            .await?;
        let volume = Volume {
            unit: "L".to_owned(),
            text: litres,
        };
        let steps = vec![step(2, Speed::Fast), step(1, Speed::Slow)];
        let expected = FillResponse {
            volume,
            step: steps,
            note: None,
        };
        println!(
            "{}: {litres} litres",
            if answered == expected { "ok  " } else { "DIFF" }
        );
        if answered != expected {
            return Err(format!("{answered:?}, not {expected:?}").into());
        }
    }
    let refused = client
        .invoke::<Fill, FillResponse, FillFault>(&service, FILL, &fill(Target::Litres(2e3)))
        .await;
    let overflow = FillFault::Overflow(Overflow { limit: 1e3 });
    match refused {
        Err(CallError::Refused(fault)) if fault == overflow => {
            println!("ok  : a fault with its limit")
        }
        other => return Err(format!("no overflow, but {other:?}").into()),
    }
    let tank = "north".to_owned();
    client.send(&service, STOP, &Stop { tank }).await?;
    println!("ok  : a one-way message");
    client.close().await;
    Ok(())
}
