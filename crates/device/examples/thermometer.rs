//! A thermometer as a small device: it can be found, described, called and subscribed to. Every second it
//! reports a temperature, and its one operation sets the averaging period.
//!
//! Build it small, without descriptions from files:
//! `cargo build --profile small --no-default-features -p chappe-device --example thermometer`,
//! run: `thermometer [ADDRESS]`, on the loopback with an address of its own such as 127.0.1.9.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chappe_device::host::{Builder, endpoint_of};
use chappe_device::{DeviceHost, HostOptions, Selection};
use chappe_dpws::hosting::{HostedService, Invocation};
use chappe_dpws::metadata::{ThisDevice, ThisModel};
use chappe_identity::Key;
use chappe_soap::Fault;
use chappe_soap::schema::{FlatField, FlatType, XsdType, to_schema};
use chappe_soap::wsdl::{Service, ServiceOperation};
use chappe_transport::Drops;
use chappe_xml::{Element, Name};

const NAMESPACE: &str = "https://chappe.example/thermometer";
const REPORT: &str = "https://chappe.example/thermometer/Thermometer/Temperature";
const SET_PERIOD: &str = "https://chappe.example/thermometer/Thermometer/SetPeriodRequest";

fn name(local: &'static str) -> Name {
    Name::new(NAMESPACE, local)
}

fn service() -> Service {
    let celsius = FlatField::new(name("celsius"), XsdType::Double).with_unit("Cel");
    let seconds = FlatField::new(name("seconds"), XsdType::Double).with_unit("s");
    let element = |local, field: &FlatField| FlatType {
        name: name(local),
        fields: vec![field.clone()],
        doc: None,
    };
    let elements = [
        element("Temperature", &celsius),
        element("SetPeriod", &seconds),
        element("SetPeriodResponse", &seconds),
    ];
    Service {
        target_namespace: NAMESPACE.into(),
        name: "Thermometer".into(),
        operations: vec![
            ServiceOperation::event("Temperature", name("Temperature")),
            ServiceOperation::request("SetPeriod", name("SetPeriod"), name("SetPeriodResponse")),
        ],
        schemas: vec![to_schema(NAMESPACE, &elements)],
        address: None,
    }
}

/// Sets the period within its limits, and returns the new value.
fn set_period(period_ms: &AtomicU64, invocation: &Invocation) -> Result<Option<Element>, Fault> {
    let body = invocation.body.as_ref();
    let given = body.and_then(|body| body.child(&name("seconds")));
    let seconds = given.and_then(|given| given.text().trim().parse::<f64>().ok());
    let Some(seconds) = seconds.filter(|seconds| (0.1..=60.0).contains(seconds)) else {
        let reason = "seconds must be between 0.1 and 60";
        return Err(Fault::sender(name("OutOfRange"), reason));
    };
    period_ms.store((seconds * 1_000.0) as u64, Ordering::Relaxed);
    let answer = Element::new(name("seconds")).with_text(seconds.to_string());
    let answer = Element::new(name("SetPeriodResponse")).with_child(answer);
    Ok(Some(answer))
}

fn thermometer(options: HostOptions, period_ms: &Arc<AtomicU64>) -> Builder {
    let period_ms = Arc::clone(period_ms);
    // A real device stores its key; this one is constant.
    DeviceHost::builder(endpoint_of(&Key::from_seed([9; 32])))
        .model(ThisModel {
            manufacturer: vec!["Chappe".into()],
            model_name: vec!["small thermometer".into()],
            ..ThisModel::default()
        })
        .device(ThisDevice {
            friendly_name: vec!["Small thermometer".into()],
            ..ThisDevice::default()
        })
        .types([name("Thermometer")])
        .service(HostedService::new(
            "https://chappe.example/thermometer/1",
            "/thermometer",
            service().to_wsdl(),
        ))
        .operation(SET_PERIOD, move |invocation| {
            let answer = set_period(&period_ms, &invocation);
            async move { answer }
        })
        .options(options)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let selection = match std::env::args().nth(1) {
        Some(address) => Selection::Addresses(vec![address.parse()?]),
        None => Selection::Network,
    };
    let options = HostOptions {
        selection,
        app_max_delay: Duration::from_millis(50),
        ..HostOptions::default()
    };
    let period_ms = Arc::new(AtomicU64::new(1_000));
    let host = thermometer(options, &period_ms).start(Drops::default())?;
    println!("{} is ready at {:?}", host.endpoint(), host.addresses());
    let mut tenths = 0_u32;
    loop {
        let period = Duration::from_millis(period_ms.load(Ordering::Relaxed));
        tokio::time::sleep(period).await;
        tenths = (tenths + 1) % 30;
        let celsius = 20.0 + f64::from(tenths) / 10.0;
        let celsius = Element::new(name("celsius")).with_text(celsius.to_string());
        let report = Element::new(name("Temperature")).with_child(celsius);
        host.notify(REPORT, report).await?;
    }
}
