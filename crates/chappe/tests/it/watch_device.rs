//! Goal: `chappe watch DEVICE` follows the description that a device announces by a Hello while it runs; `chappe describe
//! URL` prints the endpoint that the device states.
//! Method: a device of this process on the loopback gets another service while the built program watches it; the values of
//! its event are printed, too.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use chappe_device::{Device, HostOptions, Message, Selection, Service};
use serde_json::Value;
use tokio::sync::mpsc;

/// Reason: a debug build searches for three seconds, on a busy machine.
const WAIT: Duration = Duration::from_secs(60);
/// Time between two events.
const PERIOD: Duration = Duration::from_millis(50);

#[derive(Message, Debug, Clone)]
struct Reading {
    celsius: f64,
}

fn device(service: Service, address: &str) -> Device {
    let seed = chappe_transport::seed().unwrap();
    let options = HostOptions {
        selection: Selection::Addresses(vec![address.parse().unwrap()]),
        app_max_delay: Duration::ZERO,
        ..HostOptions::default()
    };
    Device::new(chappe_identity::Key::from_seed(seed).into())
        .model("Example", "T1")
        .name("window side")
        .service(service)
        .options(options)
}

/// The streams of the values that the program prints.
fn streams(endpoint: &str) -> (std::process::Child, mpsc::UnboundedReceiver<String>) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_chappe"))
        .args(["watch", endpoint, "--interface", "lo", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (sender, receiver) = mpsc::unbounded_channel();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let value: Value = serde_json::from_str(&line).unwrap_or_default();
            if let Some(stream) = value["stream"].as_str() {
                // The test may have ended.
                let _ = sender.send(stream.to_owned());
            }
        }
    });
    (child, receiver)
}

#[test]
fn a_device_is_described_at_its_address_by_the_endpoint_that_it_states() {
    let runtime = chappe_node::runtime().unwrap();
    runtime.block_on(async {
        let service = Service::new("https://example.org/thermometer", "Thermometer");
        let running = device(service, "127.0.9.72").start().await.unwrap();
        let host = running.host();
        let at = format!("http://{}/device", host.addresses()[0]);
        let mut command = Command::new(env!("CARGO_BIN_EXE_chappe"));
        command.args(["describe", &at, "--interface", "lo", "--json"]);
        let described = tokio::task::spawn_blocking(move || command.output());
        let described = described.await.unwrap().unwrap();
        let described: Value = serde_json::from_slice(&described.stdout).unwrap();
        assert_eq!(described["endpoint"], host.endpoint(), "{described}");
        running.stop().await;
    });
}

#[test]
fn an_announced_service_is_watched() {
    let runtime = chappe_node::runtime().unwrap();
    runtime.block_on(async {
        let mut service = Service::new("https://example.org/thermometer", "Thermometer");
        let reading = service.event::<Reading>("Reading");
        let running = device(service, "127.0.9.71").start().await.unwrap();
        let (mut child, mut printed) = streams(running.host().endpoint());
        let mut second = Service::new("https://example.org/outside", "Outside");
        let outside = second.event::<Reading>("Outside");
        let mut second = Some(second);
        let mut found = BTreeSet::new();
        let watch = async {
            while found.len() < 2 {
                let value = Reading { celsius: 20.0 };
                reading.send(value.clone()).await.unwrap();
                if second.is_none() {
                    outside.send(value).await.unwrap();
                }
                let next = tokio::time::timeout(PERIOD, printed.recv()).await;
                if let Ok(Some(stream)) = next {
                    found.insert(stream);
                    if let Some(second) = second.take() {
                        running.add_service(second).await.unwrap();
                    }
                }
            }
        };
        let ended = tokio::time::timeout(WAIT, watch).await;
        child.kill().unwrap();
        child.wait().unwrap();
        running.stop().await;
        assert!(ended.is_ok(), "only {found:?}");
    });
}
